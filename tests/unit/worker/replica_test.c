/* One device's copy of a network: what it counts and which data it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/node.h"
#include "worker/models/models.h"
#include "worker/replica.h"

#define SIDE 4
#define BATCH 4
#define COUNT 6
#define CLASSES 10

struct fixture {
    struct ps_node *node;
    struct ps_kernels *kernels;
    struct ps_engine *engine;
    struct ps_replica *replica;
    struct ps_dataset data;
    uint8_t images[COUNT * SIDE * SIDE], labels[COUNT];
};

static int setup(void **state)
{
    static const char *const no_env[] = {NULL};
    struct fixture *f = calloc(1, sizeof(*f));
    struct ps_error err = {.status = PS_OK};
    struct ps_symbol *symbol = NULL;
    if (f == NULL) {
        return -1;
    }
    *state = f;
    f->data = (struct ps_dataset){.images = f->images,
                                  .labels = f->labels,
                                  .count = COUNT,
                                  .rows = SIDE,
                                  .columns = SIDE,
                                  .classes = CLASSES};
    struct ps_node_options options = {.name = "worker", .env = no_env};
    assert_int_equal(ps_node_open(&options, &f->node, &err), PS_OK);
    assert_int_equal(
        ps_kernels_create(f->node->settings, f->node->log, &f->kernels, &err), PS_OK);
    assert_int_equal(ps_engine_create(f->node, PS_ENGINE_PER_DEVICE, &f->engine, &err),
                     PS_OK);
    assert_int_equal(ps_model_build("MLP", CLASSES, &symbol, &err), PS_OK);
    struct ps_replica_options replica = {.engine = f->engine,
                                         .kernels = f->kernels,
                                         .symbol = symbol,
                                         .devices = 1,
                                         .batch = BATCH,
                                         .rows = SIDE,
                                         .columns = SIDE};
    assert_int_equal(ps_replica_create(&replica, &f->replica, &err), PS_OK);
    ps_symbol_release(symbol);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ps_replica_destroy(f->replica);
    ps_engine_destroy(f->engine);
    ps_kernels_destroy(f->kernels);
    ps_node_close(f->node);
    free(f);
    return 0;
}

/* Weights are zero, and the last bias makes class 'k' the likelier one. */
static void prefer(struct fixture *f, size_t k)
{
    struct ps_error err = {.status = PS_OK};
    for (size_t i = 0; i < ps_replica_param_count(f->replica); i++) {
        struct ps_tensor *param = ps_replica_param(f->replica, i);
        size_t bytes = ps_tensor_bytes(param);
        float *values = calloc(1, bytes);
        assert_non_null(values);
        if (strcmp(ps_replica_param_name(f->replica, i), "fc3_bias") == 0) {
            values[k] = 1;
        }
        assert_int_equal(ps_tensor_write(param, values, bytes, &err), PS_OK);
        free(values);
    }
}

static void a_score_counts_the_samples_that_were_fed(void **state)
{
    static const uint32_t first[] = {0, 1, 2, 3}, rest[] = {4, 5};
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    struct ps_score score = {0};
    prefer(f, 7);
    f->labels[0] = f->labels[4] = 7;
    assert_int_equal(ps_replica_step(f->replica, &f->data, first, 4, false, &err), PS_OK);
    assert_int_equal(ps_replica_step(f->replica, &f->data, rest, 2, false, &err), PS_OK);
    assert_int_equal(ps_replica_score(f->replica, &score, &err), PS_OK);
    assert_true(score.samples == 6 && score.correct == 2);
    double right = 1 - log(exp(1.0) + 9), wrong = -log(exp(1.0) + 9); /* ln p */
    assert_true(fabs(score.loss + 2 * right + 4 * wrong) < 1e-5);
    /* read, it begins anew */
    score = (struct ps_score){0};
    assert_int_equal(ps_replica_score(f->replica, &score, &err), PS_OK);
    assert_true(score.samples == 0 && score.correct == 0 && score.loss == 0);
}

static void data_with_more_classes_than_the_network_is_refused(void **state)
{
    static const uint32_t first[] = {0};
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    f->labels[0] = 250;
    f->data.classes = 251;
    assert_int_equal(ps_replica_step(f->replica, &f->data, first, 1, false, &err),
                     PS_ESHAPE);
    assert_non_null(strstr(err.text, "251"));
}

static void images_of_another_size_are_refused(void **state)
{
    static const uint32_t first[] = {0};
    struct fixture *f = *state;
    struct ps_error err = {.status = PS_OK};
    f->data.columns = SIDE + 1;
    assert_int_equal(ps_replica_step(f->replica, &f->data, first, 1, true, &err),
                     PS_ESHAPE);
    f->data.columns = SIDE;
    assert_int_equal(ps_replica_step(f->replica, &f->data, first, BATCH + 1, true, &err),
                     PS_ESHAPE);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_score_counts_the_samples_that_were_fed),
        CASE(data_with_more_classes_than_the_network_is_refused),
        CASE(images_of_another_size_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
