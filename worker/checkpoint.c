/* Saving and loading a replica's parameters and auxiliary states. */
#include "worker/checkpoint.h"

#include "base/str.h"
#include "engine/tensor/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

/* The tensors of a replica with their names: parameters, then auxiliary states. */
static enum ps_status list_tensors(const struct ps_replica *replica,
                                   struct ps_named_tensor **list_out, size_t *count_out,
                                   struct ps_error *err)
{
    struct ps_executor *executor = ps_replica_executor(replica);
    size_t params = ps_replica_param_count(replica);
    size_t aux = ps_executor_auxiliary_count(executor);
    struct ps_named_tensor *list = calloc(params + aux + 1, sizeof(*list));
    if (list == NULL) {
        return ps_error_set(err, PS_ENOMEM, "checkpoint: out of memory");
    }
    for (size_t i = 0; i < params; i++) {
        list[i].name = ps_replica_param_name(replica, i);
        list[i].tensor = ps_replica_param(replica, i);
    }
    for (size_t i = 0; i < aux; i++) {
        list[params + i].name = ps_executor_auxiliary_name(executor, i);
        list[params + i].tensor = ps_executor_auxiliary(executor, i);
    }
    *list_out = list;
    *count_out = params + aux;
    return PS_OK;
}

enum ps_status ps_checkpoint_begin(struct ps_node *node, const char *prefix,
                                   const struct ps_symbol *symbol, struct ps_error *err)
{
    struct ps_str path = {0};
    ps_str_printf(&path, "%s-symbol.json", prefix);
    enum ps_status status = ps_symbol_save(symbol, node->fs, ps_str_text(&path), err);
    ps_str_fini(&path);
    return status;
}

enum ps_status ps_checkpoint_save(struct ps_node *node, const char *prefix, int64_t epoch,
                                  const struct ps_symbol *symbol,
                                  const struct ps_replica *replica, struct ps_error *err)
{
    struct ps_str path = {0};
    struct ps_named_tensor *list = NULL;
    size_t count = 0;
    enum ps_status status;
    PS_TRY_GOTO(status, list_tensors(replica, &list, &count, err), done);
    PS_TRY_GOTO(status, ps_checkpoint_begin(node, prefix, symbol, err), done);
    ps_str_printf(&path, "%s-%04" PRId64 ".safetensors", prefix, epoch + 1);
    PS_TRY_GOTO(
        status,
        ps_safetensors_save(node->fs, ps_str_text(&path), list, count, NULL, 0, err),
        done);
    PS_LOG(node->log, INFO, WORKER, "saved checkpoint to %s", ps_str_text(&path));
done:
    free(list);
    ps_str_fini(&path);
    return status;
}

static enum ps_status copy_in(const struct ps_named_tensor *to,
                              const struct ps_safetensors *file, const char *path,
                              struct ps_error *err)
{
    struct ps_tensor *from = ps_safetensors_find(file, to->name);
    if (from == NULL) {
        return ps_error_set(err, PS_ENOENT, "%s has no tensor %s", path, to->name);
    }
    if (!ps_shape_equal(ps_tensor_shape(from), ps_tensor_shape(to->tensor)) ||
        ps_tensor_dtype(from) != ps_tensor_dtype(to->tensor)) {
        char has[PS_SHAPE_TEXT_BYTES], wants[PS_SHAPE_TEXT_BYTES];
        return ps_error_set(err, PS_ESHAPE,
                            "%s: tensor %s is %s %s, the network needs %s %s", path,
                            to->name, ps_dtype_name((int)ps_tensor_dtype(from)),
                            ps_shape_text(ps_tensor_shape(from), has),
                            ps_dtype_name((int)ps_tensor_dtype(to->tensor)),
                            ps_shape_text(ps_tensor_shape(to->tensor), wants));
    }
    enum ps_status status = ps_tensor_copy(from, to->tensor, 0);
    return status == PS_OK ? ps_tensor_wait(to->tensor, err) : status;
}

enum ps_status ps_checkpoint_load(struct ps_node *node, const char *prefix, int64_t epoch,
                                  struct ps_replica *replica, struct ps_error *err)
{
    struct ps_str path = {0};
    struct ps_named_tensor *list = NULL;
    struct ps_safetensors *file = NULL;
    size_t count = 0;
    enum ps_status status;
    PS_TRY_GOTO(status, list_tensors(replica, &list, &count, err), done);
    ps_str_printf(&path, "%s-%04" PRId64 ".safetensors", prefix, epoch + 1);
    struct ps_tensor *first = count > 0 ? list[0].tensor : NULL;
    if (first == NULL) {
        goto done;
    }
    PS_TRY_GOTO(status,
                ps_safetensors_load(node->fs, ps_str_text(&path), ps_tensor_engine(first),
                                    ps_tensor_context(first), &file, err),
                done);
    for (size_t i = 0; i < count; i++) {
        PS_TRY_GOTO(status, copy_in(&list[i], file, ps_str_text(&path), err), done);
    }
done:
    ps_safetensors_free(file);
    free(list);
    ps_str_fini(&path);
    return status;
}
