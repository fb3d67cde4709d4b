/* penstock.h in a job: scheduler and servers in this process, workers on threads of their
 * own that know of the job by the settings of their nodes only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/penstock.h"
#include "tests/support/cluster.h"

#define WORKERS 2
#define SERVERS 2
#define KEYS 10
#define STEPS 5
#define ELEMENTS 3000 /* above the bound of these tests: over both servers */

struct worker {
    struct cluster *cluster;
    void (*program)(struct worker *worker);
    int index;
    penstock_node *node;
    penstock_store *store;
    pthread_t thread;
};

static void open_node(struct worker *w)
{
    char root[PS_URL_BYTES + 16], rank[16], words[256];
    (void)snprintf(root, sizeof(root), "ROOT_URI=%s", cluster_root(w->cluster));
    (void)snprintf(rank, sizeof(rank), "RANK=%d", w->index);
    const char *const settings[] = {
        root, rank, "ROLE=worker", "NUM_WORKER=2", "NUM_SERVER=2", "LOG=error", NULL};
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.settings = settings;
    if (penstock_open_explained(&options, &w->node, words) != 0) {
        fail_msg("%s", words);
    }
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    open_node(w);
    if (penstock_store_create(w->node, "dist_sync", NULL, &w->store) != 0) {
        fail_msg("%s", penstock_last_error(w->node));
    }
    assert_int_equal(penstock_rank(w->store), w->index);
    assert_int_equal(penstock_num_workers(w->store), WORKERS);
    w->program(w);
    penstock_store_destroy(w->store);
    penstock_close(w->node);
    return NULL;
}

struct opener {
    struct worker *worker;
    penstock_store *store;
    const char *name;
};

static void *open_store(void *arg)
{
    struct opener *opener = arg;
    if (penstock_store_create(opener->worker->node, "dist_sync", opener->name,
                              &opener->store) != 0) {
        fail_msg("%s", penstock_last_error(opener->worker->node));
    }
    return NULL;
}

/* A worker whose threads open a store each: the first joins the job, the other must not
 * join it once more. */
static void *run_openers(void *arg)
{
    struct worker *w = arg;
    struct opener openers[2] = {{w, NULL, "a"}, {w, NULL, "b"}};
    pthread_t threads[2];
    open_node(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, open_store, &openers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(penstock_rank(openers[i].store), w->index);
    }
    penstock_store_destroy(openers[0].store);
    penstock_store_destroy(openers[1].store);
    penstock_close(w->node);
    return NULL;
}

static void run_threads(void *(*thread)(void *arg),
                        void (*program)(struct worker *worker))
{
    static const char *const settings[] = {"KVSTORE_BIGARRAY_BOUND=1000", NULL};
    struct worker workers[WORKERS];
    struct cluster_options options = {.transport = "tcp",
                                      .workers = WORKERS,
                                      .servers = SERVERS,
                                      .seed = 1,
                                      .settings = settings};
    struct cluster *cluster = cluster_create(&options);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.cluster = cluster, .program = program, .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, thread, &workers[i]),
                         0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    cluster_end(cluster);
    assert_int_equal(cluster_scheduler_result(cluster).status, PS_OK);
    cluster_destroy(cluster);
}

static void run_job(void (*program)(struct worker *worker))
{
    run_threads(run_worker, program);
}

static void stores_opened_at_once_are_one_member(void **state)
{
    (void)state;
    run_threads(run_openers, NULL);
}

/* Steps of all keys as requests, taken from one queue behind poll(2). */
static void program_queue(struct worker *w)
{
    static float weights[WORKERS][KEYS][ELEMENTS], gradients[WORKERS][KEYS][ELEMENTS];
    int64_t shape[1] = {ELEMENTS};
    penstock_queue *queue = NULL;
    penstock_tensor tw[KEYS], tg[KEYS];
    assert_int_equal(penstock_queue_create(w->node, &queue), 0);
    assert_int_equal(penstock_set_optimizer(w->store, "sgd", "learning_rate=1"), 0);
    for (int k = 0; k < KEYS; k++) {
        for (int i = 0; i < ELEMENTS; i++) {
            weights[w->index][k][i] = 0;
            gradients[w->index][k][i] = -(float)(w->index + 1) * (float)(k + 1);
        }
        tw[k] = penstock_tensor_of(weights[w->index][k], PENSTOCK_FLOAT32, 1, shape);
        tg[k] = penstock_tensor_of(gradients[w->index][k], PENSTOCK_FLOAT32, 1, shape);
        assert_int_equal(penstock_init(w->store, penstock_key_of((uint64_t)k), &tw[k]),
                         0);
    }
    for (int step = 1; step <= STEPS; step++) {
        for (int k = 0; k < KEYS; k++) {
            penstock_request *request = NULL;
            assert_int_equal(penstock_pushpull(w->store, penstock_key_of((uint64_t)k),
                                               &tg[k], &tw[k], -k, queue, &request),
                             0);
        }
        for (int left = KEYS; left > 0;) {
            struct pollfd slot = {.fd = penstock_queue_fd(queue), .events = POLLIN};
            assert_int_equal(poll(&slot, 1, 30000), 1);
            penstock_request *request = penstock_queue_next(queue);
            if (request == NULL) {
                continue;
            }
            assert_int_equal(penstock_request_status(request), 0);
            assert_int_equal(penstock_request_contributors(request), WORKERS);
            assert_int_equal(penstock_request_version(request), step);
            penstock_request_free(request);
            left--;
        }
        for (int k = 0; k < KEYS; k++) {
            float want = (float)(3 * (k + 1) * step); /* ranks give 1 and 2 */
            assert_true(weights[w->index][k][0] == want);
            assert_true(weights[w->index][k][ELEMENTS - 1] == want);
        }
    }
    penstock_queue_destroy(queue);
}

static void steps_of_two_workers_come_out_of_a_queue(void **state)
{
    (void)state;
    run_job(program_queue);
}

/* Worker 1 waits until worker 0's request was seen pending. */
static void program_pending(struct worker *w)
{
    float value = (float)w->index, out = 0;
    int64_t shape[1] = {1};
    penstock_request *request = NULL;
    penstock_tensor t = penstock_tensor_of(&value, PENSTOCK_FLOAT32, 1, shape);
    penstock_tensor to = penstock_tensor_of(&out, PENSTOCK_FLOAT32, 1, shape);
    penstock_key key = penstock_key_named("w");
    assert_int_equal(penstock_init(w->store, key, &t), 0);
    if (w->index == 1) {
        assert_int_equal(penstock_barrier(w->store), 0);
    }
    assert_int_equal(penstock_pushpull(w->store, key, &t, &to, 0, NULL, &request), 0);
    if (w->index == 0) {
        int status = penstock_request_wait(request, 20);
        assert_string_equal(penstock_status_name(status), "PS_ETIMEDOUT");
        assert_int_equal(penstock_request_done(request), 0);
        assert_string_equal(penstock_status_name(penstock_request_status(request)),
                            "PS_ENOTREADY");
        assert_int_equal(penstock_barrier(w->store), 0);
    }
    assert_int_equal(penstock_request_wait(request, -1), 0);
    assert_true(out == 1);
    penstock_request_free(request);
}

static void a_request_stays_pending_until_the_round_is_full(void **state)
{
    (void)state;
    run_job(program_pending);
}

/* What members disagree on is told to the one that differs. */
static void program_errors(struct worker *w)
{
    float value[2] = {0};
    int64_t shape[1] = {1 + w->index};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    static _Atomic int refused;
    if (penstock_init(w->store, penstock_key_named("w"), &t) != 0) {
        assert_non_null(strstr(penstock_last_error(w->node), "w"));
        refused++;
    }
    assert_int_equal(penstock_barrier(w->store), 0);
    assert_int_equal(refused, 1);
    assert_int_equal(penstock_done(w->store), 0);
}

static void workers_that_disagree_are_told(void **state)
{
    (void)state;
    run_job(program_errors);
}

static void program_fork(struct worker *w)
{
    float value[1] = {1};
    int64_t shape[1] = {1};
    penstock_tensor t = penstock_tensor_of(value, PENSTOCK_FLOAT32, 1, shape);
    assert_int_equal(penstock_init(w->store, penstock_key_of(1), &t), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(10); /* a child that hangs is ended */
        bool refused =
            penstock_pull(w->store, penstock_key_of(1), &t, 0, NULL, NULL) == PS_EFORK &&
            strstr(penstock_last_error(w->node), "child") != NULL &&
            penstock_barrier(w->store) == PS_EFORK && penstock_done(w->store) == PS_EFORK;
        penstock_store_destroy(w->store);
        _exit(refused ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    assert_int_equal(penstock_pull(w->store, penstock_key_of(1), &t, 0, NULL, NULL), 0);
}

static void a_forks_child_is_refused_and_does_not_hang(void **state)
{
    (void)state;
    run_job(program_fork);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_two_workers_come_out_of_a_queue),
        cmocka_unit_test(a_request_stays_pending_until_the_round_is_full),
        cmocka_unit_test(workers_that_disagree_are_told),
        cmocka_unit_test(stores_opened_at_once_are_one_member),
        cmocka_unit_test(a_forks_child_is_refused_and_does_not_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
