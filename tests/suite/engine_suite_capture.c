/* See engine_suite_capture.h. */
#include "tests/suite/engine_suite_capture.h"

/* Threads enough for an operation before a gate and the others beside it. */
int capture_setup(void **state)
{
    static const char *const overrides[] = {"LOG=error", "CPU_WORKER_NTHREADS=4", NULL};
    static struct suite suite;
    suite_open(&suite, overrides, suite_type);
    *state = &suite;
    return 0;
}

struct ps_engine_op capture_op(const char *name, run_fn run, void *arg,
                               struct ps_var *const *read, struct ps_var *const *write)
{
    return (struct ps_engine_op){
        .name = name,
        .run = run,
        .arg = arg,
        .reads = read,
        .read_count = *read != NULL,
        .writes = write,
        .write_count = *write != NULL,
    };
}

void capture_add_op(struct capture *capture, const struct ps_engine_op *op)
{
    assert_true(capture->count < CAPTURE_MAX);
    assert_int_equal(ps_engine_call_create(capture->suite->engine, op,
                                           &capture->calls[capture->count]),
                     PS_OK);
    capture->count++;
}

void capture_add(struct capture *capture, const char *name, run_fn run, void *arg,
                 struct ps_var *read, struct ps_var *write)
{
    struct ps_engine_op op = capture_op(name, run, arg, &read, &write);
    capture_add_op(capture, &op);
}

void capture_seal(struct capture *capture)
{
    assert_int_equal(ps_segment_create(capture->suite->engine, capture->calls,
                                       capture->count, &capture->segment),
                     PS_OK);
}

void capture_replay(struct capture *capture)
{
    assert_int_equal(ps_segment_push(capture->segment), PS_OK);
}

void capture_release(struct capture *capture)
{
    ps_segment_destroy(capture->segment);
    for (size_t i = 0; i < capture->count; i++) {
        ps_engine_call_destroy(capture->calls[i]);
    }
}

void delete_vars(struct suite *suite, struct ps_var *const *vars, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ps_var_delete(suite->engine, vars[i]);
    }
}

enum ps_status capture_count(void *arg, const struct ps_run *run, struct ps_error *err)
{
    PS_UNUSED(run);
    PS_UNUSED(err);
    atomic_fetch_add((_Atomic int *)arg, 1);
    return PS_OK;
}
