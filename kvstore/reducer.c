/* The reducer: a parallel loop over blocks of an array; threads sleep between runs. */
#include "kvstore/reducer.h"

#include "base/mem.h"
#include "base/thread.h"
#include "kernels/reduce.h"

#include <stdatomic.h>
#include <stdlib.h>

#define STACK_LEVELS 11 /* log2(PS_REDUCE_SRC_MAX) + 1 partial sums */
#define SCRATCH_BYTES ((size_t)STACK_LEVELS * PS_REDUCE_BLOCK * sizeof(double))

struct run {
    const void *const *src;
    uint32_t n;
    int dtype;
    uint64_t count;
    ps_reduce_block_fn fn;
    void *ctx;
    _Atomic uint64_t next; /* first element nobody has taken yet */
    _Atomic int status;
    _Atomic int helpers; /* threads other than the caller that took at least one block */
};

struct helper {
    struct ps_reducer *reducer;
    struct ps_thread thread;
    void *scratch;
};

struct ps_reducer {
    int threads;
    uint64_t bound;
    struct ps_mutex run_mutex; /* one run at a time */
    struct ps_mutex mutex;     /* guards what follows */
    struct ps_cond wake, idle;
    struct run *run PS_GUARDED_BY(mutex);
    uint64_t serial PS_GUARDED_BY(mutex); /* of the run */
    int busy PS_GUARDED_BY(mutex);        /* helpers inside the run */
    bool stop PS_GUARDED_BY(mutex);
    bool started;
    struct helper *helpers;
    void *scratch; /* of the caller */
    _Atomic int last_threads;
};

/* Sums one block by the pairwise tree, with a stack of partial sums whose levels fall
 * strictly, as in a binary counter; the leftovers are merged from the right, which is the
 * tree for any n. */
static const void *sum_block(const struct run *run, uint64_t first, size_t count,
                             void *scratch)
{
    size_t elem = ps_dtype_size(run->dtype);
    size_t acc_bytes =
        ps_dtype_size((int)ps_dtype_accumulator((enum ps_dtype)run->dtype));
    unsigned level[STACK_LEVELS + 1];
    char *partial = scratch;
    size_t stride = PS_REDUCE_BLOCK * acc_bytes;
    size_t depth = 0;
    for (uint32_t i = 0; i < run->n; i += 2) {
        const char *a = (const char *)run->src[i] + first * elem;
        if (i + 1 < run->n) {
            const char *b = (const char *)run->src[i + 1] + first * elem;
            ps_reduce_sum2(partial + depth * stride, a, b, run->dtype, count);
            level[depth++] = 1;
        } else {
            ps_reduce_load(partial + depth * stride, a, run->dtype, count);
            level[depth++] = 0;
        }
        while (depth >= 2 && level[depth - 2] == level[depth - 1]) {
            ps_reduce_merge(partial + (depth - 2) * stride,
                            partial + (depth - 1) * stride, run->dtype, count);
            depth--;
            level[depth - 1]++;
        }
    }
    while (depth >= 2) {
        ps_reduce_merge(partial + (depth - 2) * stride, partial + (depth - 1) * stride,
                        run->dtype, count);
        depth--;
    }
    return partial;
}

/* Takes blocks until none is left.  Returns whether it took any. */
static bool work(struct run *run, void *scratch)
{
    bool any = false;
    for (;;) {
        /* relaxed: the blocks are disjoint; the run's fields were published under the
         * mutex */
        uint64_t first =
            atomic_fetch_add_explicit(&run->next, PS_REDUCE_BLOCK, memory_order_relaxed);
        if (first >= run->count) {
            return any;
        }
        any = true;
        size_t count = (size_t)PS_MIN(run->count - first, (uint64_t)PS_REDUCE_BLOCK);
        const void *sum = sum_block(run, first, count, scratch);
        enum ps_status status = run->fn(run->ctx, first, count, sum);
        if (status != PS_OK) {
            int expected = PS_OK;
            atomic_compare_exchange_strong(&run->status, &expected, (int)status);
        }
    }
}

static void helper_main(void *arg)
{
    struct helper *helper = arg;
    struct ps_reducer *reducer = helper->reducer;
    uint64_t seen = 0;
    ps_mutex_lock(&reducer->mutex);
    for (;;) {
        while (!reducer->stop && (reducer->run == NULL || reducer->serial == seen)) {
            ps_cond_wait(&reducer->wake, &reducer->mutex);
        }
        if (reducer->stop) {
            break;
        }
        struct run *run = reducer->run;
        seen = reducer->serial;
        reducer->busy++;
        ps_mutex_unlock(&reducer->mutex);
        if (work(run, helper->scratch)) {
            atomic_fetch_add(&run->helpers, 1);
        }
        ps_mutex_lock(&reducer->mutex);
        if (--reducer->busy == 0) {
            ps_cond_signal(&reducer->idle);
        }
    }
    ps_mutex_unlock(&reducer->mutex);
}

enum ps_status ps_reducer_create(int threads, uint64_t bound,
                                 struct ps_reducer **reducer_out)
{
    struct ps_reducer *reducer = calloc(1, sizeof(*reducer));
    if (reducer == NULL) {
        return PS_ENOMEM;
    }
    reducer->threads = PS_MAX(threads, 1);
    reducer->bound = bound;
    reducer->scratch = ps_mem_alloc(SCRATCH_BYTES);
    reducer->helpers = calloc((size_t)reducer->threads, sizeof(*reducer->helpers));
    if (reducer->scratch == NULL || reducer->helpers == NULL) {
        free(reducer->helpers);
        ps_mem_free(reducer->scratch);
        free(reducer);
        return PS_ENOMEM;
    }
    ps_mutex_init(&reducer->run_mutex);
    ps_mutex_init(&reducer->mutex);
    ps_cond_init(&reducer->wake);
    ps_cond_init(&reducer->idle);
    *reducer_out = reducer;
    return PS_OK;
}

void ps_reducer_destroy(struct ps_reducer *reducer)
{
    if (reducer == NULL) {
        return;
    }
    ps_mutex_lock(&reducer->mutex);
    reducer->stop = true;
    ps_cond_broadcast(&reducer->wake);
    ps_mutex_unlock(&reducer->mutex);
    for (int i = 0; i < reducer->threads; i++) {
        ps_thread_join(&reducer->helpers[i].thread);
        ps_mem_free(reducer->helpers[i].scratch);
    }
    ps_cond_fini(&reducer->idle);
    ps_cond_fini(&reducer->wake);
    ps_mutex_fini(&reducer->mutex);
    ps_mutex_fini(&reducer->run_mutex);
    free(reducer->helpers);
    ps_mem_free(reducer->scratch);
    free(reducer);
}

static enum ps_status start_helpers(struct ps_reducer *reducer)
{
    for (int i = 0; i < reducer->threads - 1; i++) {
        struct helper *helper = &reducer->helpers[i];
        if (helper->thread.started) {
            continue;
        }
        helper->reducer = reducer;
        if (helper->scratch == NULL) {
            helper->scratch = ps_mem_alloc(SCRATCH_BYTES);
        }
        if (helper->scratch == NULL) {
            return PS_ENOMEM;
        }
        PS_TRY(ps_thread_start(&helper->thread, "ps-reduce", helper_main, helper));
    }
    reducer->started = true;
    return PS_OK;
}

static void share_run(struct ps_reducer *reducer, struct run *run)
{
    ps_mutex_lock(&reducer->mutex);
    reducer->run = run;
    reducer->serial++;
    ps_cond_broadcast(&reducer->wake);
    ps_mutex_unlock(&reducer->mutex);
    (void)work(run, reducer->scratch);
    ps_mutex_lock(&reducer->mutex);
    reducer->run = NULL; /* who has not come yet finds nothing */
    while (reducer->busy > 0) {
        ps_cond_wait(&reducer->idle, &reducer->mutex);
    }
    ps_mutex_unlock(&reducer->mutex);
}

enum ps_status ps_reducer_run(struct ps_reducer *reducer, const void *const *src,
                              uint32_t n, int dtype, uint64_t count,
                              ps_reduce_block_fn fn, void *ctx)
{
    if (n == 0 || n > PS_REDUCE_SRC_MAX) {
        return PS_ERANGE;
    }
    struct run run = {
        .src = src, .n = n, .dtype = dtype, .count = count, .fn = fn, .ctx = ctx};
    ps_mutex_lock(&reducer->run_mutex);
    bool share = reducer->threads > 1 && n > 1 && count >= reducer->bound;
    if (share && !reducer->started && start_helpers(reducer) != PS_OK) {
        share = false; /* no thread to be had: the caller sums alone */
    }
    if (share) {
        share_run(reducer, &run);
    } else {
        (void)work(&run, reducer->scratch);
    }
    enum ps_status status = (enum ps_status)atomic_load(&run.status);
    atomic_store(&reducer->last_threads, share ? reducer->threads : 1);
    ps_mutex_unlock(&reducer->run_mutex);
    return status;
}

int ps_reducer_last_threads(const struct ps_reducer *reducer)
{
    return atomic_load(&reducer->last_threads);
}
