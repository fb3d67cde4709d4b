/* A program of one's own on Penstock: every worker pushes a gradient of a small quadratic and reads
 * the weights back, until they are where they should be.  docs/tour.md walks through it. */
#include <penstock.h>

#include <math.h>
#include <stdio.h>

#define N 5
#define STEPS 100

/* Prints what the library has to say about a failed call. */
static int complain(penstock_node *node, const char *what, int status)
{
    fprintf(stderr, "%s: %s (%s)\n", what, penstock_last_error(node),
            penstock_status_name(status));
    return 1;
}

static int train(penstock_node *node, penstock_store *store)
{
    const float target[N] = {1, -2, 3, -4, 5};
    float weights[N] = {0}, gradient[N];
    int64_t shape[1] = {N};
    penstock_tensor w = penstock_tensor_of(weights, PENSTOCK_FLOAT32, 1, shape);
    penstock_tensor g = penstock_tensor_of(gradient, PENSTOCK_FLOAT32, 1, shape);
    penstock_key key = penstock_key_named("weights");

    int status = penstock_set_optimizer(store, "sgd", "learning_rate=0.1");
    if (status == 0) {
        status = penstock_init(store, key, &w); /* rank 0's zeros become everyone's */
    }
    for (int step = 0; step < STEPS && status == 0; step++) {
        for (int i = 0; i < N; i++) { /* of |w - target|^2 / 2, each worker's share */
            gradient[i] = (weights[i] - target[i]) / (float)penstock_num_workers(store);
        }
        status = penstock_pushpull(store, key, &g, &w, 0, NULL, NULL);
    }
    if (status != 0) {
        return complain(node, "training", status);
    }
    float error = 0;
    for (int i = 0; i < N; i++) {
        error += fabsf(weights[i] - target[i]);
    }
    printf("worker %d of %d: error %.5f\n", penstock_rank(store), penstock_num_workers(store),
           error);
    return error < 1e-3F ? 0 : 1;
}

int main(void)
{
    penstock_node *node = NULL;
    penstock_store *store = NULL;
    int code = 0;
    if (penstock_run_role(&code)) {
        return code; /* this process was started as a server or scheduler */
    }
    char words[256];
    if (penstock_open_explained(NULL, &node, words) != 0) {
        fprintf(stderr, "penstock: %s\n", words);
        return 78;
    }
    int status = penstock_store_create(node, "dist_sync", NULL, &store);
    code = status == 0 ? train(node, store) : complain(node, "joining the job", status);
    if (code != 0) {
        penstock_store_abandon(store, "training failed"); /* the others must not wait */
    }
    penstock_store_destroy(store);
    penstock_close(node);
    return code;
}
