/* A small job for the end-to-end tests, of docs/tour.c's kind, that needs no data.
 *
 *   e2e_job STEPS [STOP-FILE]
 *
 * Every step pushes rank + 1 to a key that is cut over all servers and to one that is
 * not, and checks the sums.  With STOP-FILE the steps go on, a few milliseconds apart,
 * until that file is there: rank 0 looks and tells the others through a key.  Says
 * "ready" after the first five.  Exits 0, 1 (a call failed: its words are on stderr), 2
 * (a wrong sum), 78 (a bad setting). */
#include "api/penstock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE 1200000 /* above KVSTORE_BIGARRAY_BOUND's default */
#define SMALL 10
#define PAUSE_MS 5

static float large[LARGE], large_sum[LARGE], small[SMALL], small_sum[SMALL];

static int complain(penstock_node *node, int status)
{
    (void)fprintf(stderr, "%s (%s)\n", penstock_last_error(node),
                  penstock_status_name(status));
    return 1;
}

static int is_all(const float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] != value) {
            (void)fprintf(stderr, "sum %g at %zu, expected %g\n", (double)values[i], i,
                          (double)value);
            return 0;
        }
    }
    return 1;
}

static int run_step(penstock_store *store, const penstock_tensor values[3],
                    penstock_tensor sums[3])
{
    static const char *const names[3] = {"large", "small", "stop"};
    for (int k = 0; k < 3; k++) {
        int status = penstock_pushpull(store, penstock_key_named(names[k]), &values[k],
                                       &sums[k], -k, NULL, NULL);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int run(penstock_node *node, penstock_store *store, long steps, const char *file)
{
    const int64_t shapes[3][1] = {{LARGE}, {SMALL}, {1}};
    float rank = (float)penstock_rank(store), stop = 0, stopped = 0;
    float n = (float)penstock_num_workers(store);
    penstock_key keys[3] = {penstock_key_named("large"), penstock_key_named("small"),
                            penstock_key_named("stop")};
    penstock_tensor values[3] = {
        penstock_tensor_of(large, PENSTOCK_FLOAT32, 1, shapes[0]),
        penstock_tensor_of(small, PENSTOCK_FLOAT32, 1, shapes[1]),
        penstock_tensor_of(&stop, PENSTOCK_FLOAT32, 1, shapes[2])};
    penstock_tensor sums[3] = {
        penstock_tensor_of(large_sum, PENSTOCK_FLOAT32, 1, shapes[0]),
        penstock_tensor_of(small_sum, PENSTOCK_FLOAT32, 1, shapes[1]),
        penstock_tensor_of(&stopped, PENSTOCK_FLOAT32, 1, shapes[2])};
    int status = penstock_init_many(store, keys, values, 3);
    for (size_t i = 0; i < LARGE; i++) {
        large[i] = rank + 1;
    }
    for (size_t i = 0; i < SMALL; i++) {
        small[i] = rank + 1;
    }
    for (long step = 1; status == 0 && (file != NULL || step <= steps); step++) {
        stop = file != NULL && rank == 0 && access(file, F_OK) == 0 ? 1 : 0;
        status = run_step(store, values, sums);
        if (status != 0) {
            break;
        }
        if (!is_all(large_sum, LARGE, n * (n + 1) / 2) ||
            !is_all(small_sum, SMALL, n * (n + 1) / 2)) {
            return 2;
        }
        if (step == 5) {
            (void)printf("worker %d of %d ready pid %ld\n", penstock_rank(store),
                         penstock_num_workers(store), (long)getpid());
            (void)fflush(stdout);
        }
        if (stopped != 0) {
            break;
        }
        if (file != NULL) {
            (void)poll(NULL, 0, PAUSE_MS);
        }
    }
    return status == 0 ? 0 : complain(node, status);
}

int main(int argc, char **argv)
{
    penstock_node *node = NULL;
    penstock_store *store = NULL;
    int code = 0;
    char words[256];
    if (penstock_run_role(&code)) {
        return code;
    }
    if (argc < 2 || argc > 3) {
        (void)fprintf(stderr, "usage: e2e_job STEPS [STOP-FILE]\n");
        return 64;
    }
    if (penstock_open_explained(NULL, &node, words) != 0) {
        (void)fprintf(stderr, "%s\n", words);
        return 78;
    }
    int status = penstock_store_create(node, "dist_sync", NULL, &store);
    code = status == 0 ? run(node, store, strtol(argv[1], NULL, 10), argv[2])
                       : complain(node, status);
    penstock_store_destroy(store);
    penstock_close(node);
    if (code == 0) {
        (void)printf("done\n");
    }
    return code;
}
