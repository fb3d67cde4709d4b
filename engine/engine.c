/* The front door: checks, the choice of engine, devices, what all engines share. */
#include "engine/engine.h"

#include "base/mem.h"
#include "base/node.h"
#include "engine/device/device_ops.h"
#include "engine/engine_ops.h"
#include "engine/engine_trace.h"

#include <stdio.h>
#include <stdlib.h>

#define FORK_TEXT "engine not usable after fork: create a new one in the child"

bool ps_context_equal(struct ps_context a, struct ps_context b)
{
    return a.kind == b.kind && a.id == b.id;
}

const char *ps_context_text(struct ps_context context, char out[PS_CONTEXT_TEXT_BYTES])
{
    const char *kind = context.kind == PS_CONTEXT_CPU ? "cpu" : "gpu";
    (void)snprintf(out, PS_CONTEXT_TEXT_BYTES, "%s(%d)", kind, context.id);
    return out;
}

/* ---- lifecycle ---- */

static void fini(struct ps_engine *engine)
{
    ps_mutex_lock(&engine->state);
    ps_failure_free_all(engine);
    ps_mutex_unlock(&engine->state);
    for (int kind = 0; kind < PS_CONTEXT_KIND_COUNT; kind++) {
        for (int id = 0; id <= PS_CONTEXT_MAX_ID; id++) {
            ps_device_close(engine->devices[kind][id]);
        }
    }
    for (size_t i = 0; i < PS_DEP_CLASSES; i++) {
        ps_slab_fini(&engine->dep_slabs[i]);
    }
    ps_slab_fini(&engine->vars);
    ps_slab_fini(&engine->blocks);
    if (engine->inside_key_made) {
        (void)pthread_key_delete(engine->inside_key);
    }
    ps_fork_guard_close(&engine->fork_guard);
    ps_mutex_fini(&engine->device_lock);
    ps_mutex_fini(&engine->state);
    ps_mutex_fini(&engine->push);
    ps_mem_free(engine);
}

static enum ps_status init(struct ps_engine *engine, struct ps_node *node)
{
    static const size_t dep_counts[PS_DEP_CLASSES] = PS_DEP_CLASS_COUNTS;
    engine->node = node;
    engine->trace = node->trace;
    engine->trace_ids = ps_trace_ids(node->trace);
    ps_mutex_init(&engine->push);
    ps_mutex_init(&engine->state);
    ps_mutex_init(&engine->device_lock);
    ps_list_init(&engine->failures);
    ps_list_init(&engine->cleared);
    ps_slab_init(&engine->blocks, sizeof(struct ps_push_block));
    ps_slab_init(&engine->vars, sizeof(struct ps_var));
    for (size_t i = 0; i < PS_DEP_CLASSES; i++) {
        ps_slab_init(&engine->dep_slabs[i], dep_counts[i] * sizeof(struct ps_dep));
    }
    engine->inside_key_made = pthread_key_create(&engine->inside_key, NULL) == 0;
    PS_TRY(ps_fork_guard_open(&engine->fork_guard));
    return engine->inside_key_made ? PS_OK : PS_EAGAIN;
}

static enum ps_status choose(struct ps_node *node, int type,
                             const struct ps_engine_ops **ops_out, struct ps_error *err)
{
    static const struct ps_engine_ops *const engines[] = {
        [PS_ENGINE_NAIVE] = &ps_engine_naive_ops,
        [PS_ENGINE_POOLED] = &ps_engine_pooled_ops,
        [PS_ENGINE_POOLED_ALIAS] = &ps_engine_pooled_ops,
        [PS_ENGINE_PER_DEVICE] = &ps_engine_per_device_ops,
    };
    if (type == PS_ENGINE_FROM_SETTING) {
        type = node->sim != NULL ? PS_ENGINE_NAIVE
                                 : ps_settings_choice(node->settings, PS_SET_ENGINE_TYPE);
    }
    if (type < 0 || (size_t)type >= PS_COUNT(engines)) {
        return ps_error_set(err, PS_EINVAL, "engine: no type %d", type);
    }
    if (node->sim != NULL && type != PS_ENGINE_NAIVE) {
        return ps_error_set(err, PS_EUNSUPPORTED,
                            "engine: a simulated node runs the NaiveEngine, not %s",
                            engines[type]->name);
    }
    *ops_out = engines[type];
    return PS_OK;
}

enum ps_status ps_engine_create(struct ps_node *node, int type,
                                struct ps_engine **engine_out, struct ps_error *err)
{
    const struct ps_engine_ops *ops = NULL;
    PS_TRY(choose(node, type, &ops, err));
    struct ps_engine *engine = ps_mem_calloc(sizeof(*engine));
    if (engine == NULL) {
        return ps_error_set(err, PS_ENOMEM, "engine: out of memory");
    }
    engine->ops = ops;
    enum ps_status status = init(engine, node);
    if (status != PS_OK) {
        (void)ps_error_set(err, status, "engine: %s", ps_status_text(status));
        goto fail;
    }
    PS_TRY_GOTO(status, ops->start(engine, err), fail);
    if (ps_settings_is_set(node->settings, PS_SET_ENGINE_TYPE)) {
        PS_LOG(node->log, INFO, ENGINE, "using engine %s", ops->name);
    }
    *engine_out = engine;
    return PS_OK;
fail:
    (void)ops->stop(engine); /* nothing was pushed */
    fini(engine);
    return status;
}

void ps_engine_destroy(struct ps_engine *engine)
{
    if (engine == NULL || ps_fork_guard_is_child(&engine->fork_guard)) {
        return; /* the child has neither the threads nor, perhaps, free locks */
    }
    if (ps_engine_is_inside(engine)) {
        PS_LOG(engine->node->log, ERROR, ENGINE,
               "destroyed from inside an operation, ignored");
        return;
    }
    if (engine->ops->stop(engine)) {
        fini(engine);
    }
}

const char *ps_engine_name(const struct ps_engine *engine)
{
    return engine->ops->name;
}

enum ps_engine_type ps_engine_type(const struct ps_engine *engine)
{
    return engine->ops->type;
}

struct ps_node *ps_engine_node(const struct ps_engine *engine)
{
    return engine->node;
}

enum ps_status ps_engine_device(struct ps_engine *engine, struct ps_context context,
                                struct ps_device **device_out, struct ps_error *err)
{
    if ((unsigned)context.kind >= PS_CONTEXT_KIND_COUNT || context.id < 0 ||
        context.id > PS_CONTEXT_MAX_ID) {
        return ps_error_set(err, PS_EINVAL, "no device kind %d id %d: ids are 0 to %d",
                            (int)context.kind, context.id, PS_CONTEXT_MAX_ID);
    }
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return ps_error_set(err, PS_EFORK, FORK_TEXT);
    }
    enum ps_status status = PS_OK;
    ps_mutex_lock(&engine->device_lock);
    struct ps_device **place = &engine->devices[context.kind][context.id];
    if (*place == NULL) {
        status = ps_device_open(engine->node, context, place, err);
        if (status == PS_OK) {
            ps_engine_meet_peers(engine, *place);
        }
    }
    struct ps_device *device = *place;
    ps_mutex_unlock(&engine->device_lock);
    if (status == PS_OK) {
        *device_out = device;
    }
    return status;
}

void ps_engine_set_inside(struct ps_engine *engine, bool inside)
{
    (void)pthread_setspecific(engine->inside_key, inside ? engine : NULL);
}

bool ps_engine_is_inside(struct ps_engine *engine)
{
    return pthread_getspecific(engine->inside_key) != NULL;
}

void ps_engine_log_no_lane(struct ps_engine *engine, struct ps_context context,
                           enum ps_status status, const struct ps_error *error)
{
    uint64_t swallowed = 0;
    char text[PS_CONTEXT_TEXT_BYTES];
    if (ps_log_limit_pass(engine->node->log, &engine->no_lane, &swallowed)) {
        PS_LOG(engine->node->log, ERROR, ENGINE, "%s ops refused %llu: %s",
               ps_context_text(context, text), (unsigned long long)swallowed + 1,
               error->status != PS_OK ? error->text : ps_status_text(status));
    }
}

enum ps_status ps_engine_end_run(const struct ps_run *run, enum ps_status status,
                                 struct ps_error *err)
{
    if (run->stream == NULL) {
        return status;
    }
    /* also after a failure: the variables are handed on */
    enum ps_status sync = ps_stream_sync(run->stream);
    if (status != PS_OK || sync == PS_OK) {
        return status;
    }
    char text[PS_CONTEXT_TEXT_BYTES];
    return ps_error_set(err, sync, "device %s: %s", ps_context_text(run->context, text),
                        ps_status_text(sync));
}

/* ---- variables ---- */

enum ps_status ps_var_create(struct ps_engine *engine, struct ps_var **var_out)
{
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return PS_EFORK;
    }
    ps_mutex_lock(&engine->push);
    struct ps_var *var = ps_slab_get(&engine->vars, &engine->state);
    ps_mutex_unlock(&engine->push);
    if (var == NULL) {
        return PS_ENOMEM;
    }
    var->head = NULL;
    var->tail = NULL;
    var->readers = 0;
    var->writes = 0;
    var->writing = false;
    var->deleted = false;
    var->failure = NULL;
    atomic_store_explicit(&var->version, 0, memory_order_relaxed);
    var->delete_fn = NULL;
    var->delete_arg = NULL;
    *var_out = var;
    return PS_OK;
}

void ps_var_delete_then(struct ps_engine *engine, struct ps_var *var,
                        void (*fn)(void *arg), void *arg)
{
    if (var == NULL || ps_fork_guard_is_child(&engine->fork_guard)) {
        return; /* in a child the memory goes with the process */
    }
    var->delete_fn = fn;
    var->delete_arg = arg;
    engine->ops->var_delete(engine, var);
}

void ps_var_delete(struct ps_engine *engine, struct ps_var *var)
{
    ps_var_delete_then(engine, var, NULL, NULL);
}

uint64_t ps_var_version(const struct ps_var *var)
{
    return atomic_load_explicit(&var->version, memory_order_relaxed);
}

/* ---- operations ---- */

static enum ps_status check_op(struct ps_engine *engine, const struct ps_engine_op *op)
{
    bool one_function = (op->run != NULL) != (op->start != NULL);
    bool known_kind = (unsigned)op->kind < PS_ENGINE_OP_KIND_COUNT;
    bool known_context = (unsigned)op->context.kind < PS_CONTEXT_KIND_COUNT &&
                         (unsigned)op->context.id <= PS_CONTEXT_MAX_ID;
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return PS_EFORK;
    }
    return one_function && known_kind && known_context ? PS_OK : PS_EINVAL;
}

enum ps_status ps_engine_push(struct ps_engine *engine, const struct ps_engine_op *op)
{
    PS_TRY(check_op(engine, op));
    return engine->ops->push(engine, op, NULL);
}

enum ps_status ps_engine_call_create(struct ps_engine *engine,
                                     const struct ps_engine_op *op,
                                     struct ps_engine_call **call_out)
{
    PS_TRY(check_op(engine, op));
    size_t room = op->read_count + op->write_count;
    enum ps_status status = PS_ENOMEM;
    struct ps_dep *deps = calloc(room + 1, sizeof(*deps));
    struct ps_var **vars = calloc(room + 1, sizeof(struct ps_var *));
    struct ps_engine_call *call = ps_mem_calloc(sizeof(*call));
    if (deps == NULL || vars == NULL || call == NULL) {
        goto fail;
    }
    struct ps_block block = {.deps = deps};
    ps_mutex_lock(&engine->push);
    uint32_t count = ps_block_merge(engine, op, &block);
    ps_mutex_unlock(&engine->push);
    call->engine = engine;
    call->op = *op;
    call->op.write_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        vars[i] = ps_dep_var(&deps[i]);
        call->op.write_count += ps_dep_writes(&deps[i]);
    }
    call->op.read_count = count - call->op.write_count;
    call->op.writes = vars;
    call->op.reads = vars + call->op.write_count;
    call->vars = vars;
    free(deps);
    *call_out = call;
    return PS_OK;
fail:
    ps_mem_free(call);
    free(vars);
    free(deps);
    return status;
}

enum ps_status ps_engine_call_push(struct ps_engine_call *call)
{
    struct ps_engine *engine = call->engine;
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return PS_EFORK;
    }
    return engine->ops->push(engine, &call->op, call);
}

void ps_engine_call_destroy(struct ps_engine_call *call)
{
    if (call == NULL || ps_fork_guard_is_child(&call->engine->fork_guard)) {
        return;
    }
    struct ps_engine *engine = call->engine;
    ps_mutex_lock(&engine->push);
    ps_mutex_lock(&engine->state);
    call->closed = true;
    call->closed_at = call->pushed;
    ps_core_call_check(engine, call);
    ps_core_unlock(engine);
}

void ps_engine_complete(struct ps_completion *done, enum ps_status status,
                        const char *text)
{
    struct ps_block *block = (struct ps_block *)done;
    if (ps_fork_guard_is_child(&block->engine->fork_guard)) {
        return;
    }
    block->engine->ops->complete(block, status, text);
}

/* ---- waits ---- */

static enum ps_status check_wait(struct ps_engine *engine, struct ps_error *err)
{
    if (ps_fork_guard_is_child(&engine->fork_guard)) {
        return ps_error_set(err, PS_EFORK, FORK_TEXT);
    }
    if (ps_engine_is_inside(engine)) {
        return ps_error_set(
            err, PS_EPERM,
            "an operation must not wait for its engine: name the variable "
            "it needs when it is pushed");
    }
    return PS_OK;
}

enum ps_status ps_engine_wait_var(struct ps_engine *engine, struct ps_var *var,
                                  struct ps_error *err)
{
    PS_TRY(check_wait(engine, err));
    uint64_t begin_ns = ps_wait_trace_begin(engine);
    enum ps_status status = engine->ops->wait_var(engine, var, err);
    ps_wait_trace_end(engine, "WaitForVar", begin_ns, status);
    return status;
}

enum ps_status ps_engine_wait_all(struct ps_engine *engine, struct ps_error *err)
{
    PS_TRY(check_wait(engine, err));
    uint64_t begin_ns = ps_wait_trace_begin(engine);
    enum ps_status status = engine->ops->wait_all(engine, err);
    ps_wait_trace_end(engine, "WaitForAll", begin_ns, status);
    return status;
}

size_t ps_engine_pending(struct ps_engine *engine)
{
    /* 'completed' first: what is pushed meanwhile may count, never the reverse */
    uint64_t completed = atomic_load_explicit(&engine->completed, memory_order_acquire);
    return (size_t)(atomic_load_explicit(&engine->ticket, memory_order_acquire) -
                    completed);
}
