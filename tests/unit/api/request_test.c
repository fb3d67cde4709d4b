/* penstock.h: requests and completion queues, on a local store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/penstock.h"

#define KEYS 8

struct fixture {
    penstock_node *node;
    penstock_store *store;
    penstock_queue *queue;
    float values[KEYS], outs[KEYS];
    int64_t shape[1];
    penstock_tensor value[KEYS], out[KEYS];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (f == NULL || penstock_open(NULL, &f->node) != 0 ||
        penstock_store_create(f->node, "local", NULL, &f->store) != 0 ||
        penstock_queue_create(f->node, &f->queue) != 0) {
        return -1;
    }
    f->shape[0] = 1;
    for (int i = 0; i < KEYS; i++) {
        f->values[i] = (float)i;
        f->value[i] = penstock_tensor_of(&f->values[i], PENSTOCK_FLOAT32, 1, f->shape);
        f->out[i] = penstock_tensor_of(&f->outs[i], PENSTOCK_FLOAT32, 1, f->shape);
        assert_int_equal(
            penstock_init(f->store, penstock_key_of((uint64_t)i), &f->value[i]), 0);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    penstock_queue_destroy(f->queue);
    penstock_store_destroy(f->store);
    penstock_close(f->node);
    free(f);
    return 0;
}

static bool readable(const struct fixture *f, int timeout_ms)
{
    struct pollfd slot = {.fd = penstock_queue_fd(f->queue), .events = POLLIN};
    return poll(&slot, 1, timeout_ms) == 1;
}

static void a_request_ends_and_says_how(void **state)
{
    struct fixture *f = *state;
    penstock_request *request = NULL;
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(5), &f->out[0], 0, NULL, &request), 0);
    assert_non_null(request);
    assert_int_equal(penstock_request_wait(request, -1), 0);
    assert_int_equal(penstock_request_done(request), 1);
    assert_int_equal(penstock_request_status(request), 0);
    assert_string_equal(penstock_request_text(request), "");
    assert_int_equal(penstock_request_wait(request, 0), 0); /* again */
    assert_true(f->outs[0] == 5);
    assert_null(penstock_request_tag(request));
    penstock_request_set_tag(request, f);
    assert_ptr_equal(penstock_request_tag(request), f);
    penstock_request_free(request);
    penstock_request_free(NULL);
}

static void a_queue_gives_every_completion_once(void **state)
{
    struct fixture *f = *state;
    bool seen[KEYS] = {false};
    assert_false(readable(f, 0));
    assert_null(penstock_queue_next(f->queue));
    for (int i = 0; i < KEYS; i++) {
        penstock_request *request = NULL;
        assert_int_equal(penstock_pull(f->store, penstock_key_of((uint64_t)i), &f->out[i],
                                       -i, f->queue, &request),
                         0);
        penstock_request_set_tag(request, &f->outs[i]);
    }
    for (int left = KEYS; left > 0;) {
        assert_true(readable(f, 10000));
        penstock_request *request = penstock_queue_next(f->queue);
        if (request == NULL) {
            continue;
        }
        float *tag = penstock_request_tag(request);
        ptrdiff_t i = tag - f->outs;
        assert_in_range(i, 0, KEYS - 1);
        assert_false(seen[i]);
        seen[i] = true;
        assert_int_equal(penstock_request_done(request), 1);
        assert_int_equal(penstock_request_status(request), 0);
        assert_true(*tag == (float)i);
        penstock_request_free(request);
        left--;
    }
    assert_null(penstock_queue_next(f->queue));
    assert_false(readable(f, 0));
}

/* Freed before it was taken, a request is on the queue no more. */
static void a_request_may_be_freed_before_it_is_taken(void **state)
{
    struct fixture *f = *state;
    penstock_request *first = NULL, *second = NULL;
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(1), &f->out[1], 0, f->queue, &first), 0);
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(2), &f->out[2], 0, f->queue, &second), 0);
    penstock_request_free(first);
    assert_int_equal(penstock_request_wait(second, -1), 0);
    assert_true(readable(f, 10000));
    assert_ptr_equal(penstock_queue_next(f->queue), second);
    assert_null(penstock_queue_next(f->queue));
    penstock_request_free(second);
    /* the last one of all: the descriptor says nothing any more */
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(3), &f->out[3], 0, f->queue, &first), 0);
    penstock_request_free(first);
    assert_null(penstock_queue_next(f->queue));
    assert_false(readable(f, 0));
}

static void a_call_that_is_refused_gives_no_request(void **state)
{
    struct fixture *f = *state;
    penstock_request *request = (penstock_request *)f;
    assert_int_not_equal(
        penstock_pull(f->store, penstock_key_of(999), &f->out[0], 0, f->queue, &request),
        0);
    assert_null(request);
    assert_non_null(strstr(penstock_last_error(f->node), "999"));
    assert_false(readable(f, 0));
}

static void a_push_without_memory_gives_no_request(void **state)
{
    struct fixture *f = *state;
    penstock_request *request = (penstock_request *)f;
    penstock_tensor t = f->value[0];
    t.data = NULL;
    assert_int_not_equal(
        penstock_push(f->store, penstock_key_of(0), &t, 0, f->queue, &request), 0);
    assert_null(request);
}

/* A request is its owner's after the queue, and its words after the store. */
static void a_finished_request_outlives_its_queue_and_store(void **state)
{
    struct fixture *f = *state;
    penstock_request *taken = NULL, *left = NULL;
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(1), &f->out[1], 0, f->queue, &taken), 0);
    assert_ptr_equal(penstock_queue_next(f->queue), taken);
    assert_int_equal(
        penstock_pull(f->store, penstock_key_of(2), &f->out[2], 0, f->queue, &left), 0);
    assert_int_equal(penstock_request_wait(left, -1), 0);
    penstock_queue_destroy(f->queue);
    f->queue = NULL;
    penstock_store_destroy(f->store);
    f->store = NULL;
    assert_int_equal(penstock_request_wait(taken, 0), 0);
    assert_int_equal(penstock_request_wait(left, 0), 0);
    penstock_request_free(taken);
    penstock_request_free(left);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_request_ends_and_says_how),
        CASE(a_queue_gives_every_completion_once),
        CASE(a_request_may_be_freed_before_it_is_taken),
        CASE(a_call_that_is_refused_gives_no_request),
        CASE(a_push_without_memory_gives_no_request),
        CASE(a_finished_request_outlives_its_queue_and_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
