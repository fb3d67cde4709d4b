/* Rules and their application (update.h).  The state of an entry is one block: the f32
 * master where there is one, then the optimizer's arrays.
 * Threads: one at a time. */
#include "server/update.h"

#include "base/util.h"
#include "kernels/reduce.h"

#include <string.h>

/* ---- rules ---- */

enum ps_status ps_update_rule_set(struct ps_update_rule *rule, const char *name,
                                  const char *hyper, bool multi_precision,
                                  struct ps_error *err)
{
    struct ps_optimizer optimizer;
    PS_TRY(ps_optimizer_init(name, &optimizer, err));
    PS_TRY(ps_optimizer_change(&optimizer, hyper, err));
    PS_TRY(ps_optimizer_check(&optimizer, err));
    *rule = (struct ps_update_rule){
        .set = true, .multi_precision = multi_precision, .count = 1};
    rule->history[0].optimizer = optimizer;
    return PS_OK;
}

enum ps_status ps_update_rule_change(struct ps_update_rule *rule, const char *hyper,
                                     uint64_t from_step, struct ps_error *err)
{
    if (!rule->set) {
        return ps_error_set(err, PS_ENOENT, "no optimizer is set: call set_optimizer");
    }
    struct ps_optimizer optimizer = rule->history[rule->count - 1].optimizer;
    PS_TRY(ps_optimizer_change(&optimizer, hyper, err));
    PS_TRY(ps_optimizer_check(&optimizer, err));
    if (from_step == 0) {
        rule->count = 0; /* holds from the next update on, for whatever step */
    } else if (rule->count == PS_UPDATE_HISTORY) {
        /* The oldest change has been overtaken by fifteen others. */
        memmove(&rule->history[0], &rule->history[1],
                (PS_UPDATE_HISTORY - 1) * sizeof(rule->history[0]));
        rule->history[0].from_step = 0;
        rule->count--;
    }
    rule->history[rule->count].from_step = from_step;
    rule->history[rule->count].optimizer = optimizer;
    rule->count++;
    return PS_OK;
}

const struct ps_optimizer *ps_update_rule_at(const struct ps_update_rule *rule,
                                             uint64_t step)
{
    for (size_t i = rule->count; i-- > 0;) {
        if (rule->history[i].from_step <= step) {
            return &rule->history[i].optimizer;
        }
    }
    return &rule->history[0].optimizer;
}

/* ---- state ---- */

struct layout {
    bool master;
    int states;
    size_t master_bytes, state_bytes; /* of one array */
    size_t total;
};

static enum ps_status plan(const struct ps_update_rule *rule,
                           const struct ps_optimizer *optimizer,
                           const struct ps_entry *entry, struct layout *layout_out,
                           struct ps_error *err)
{
    enum ps_dtype dtype = entry->key->dtype;
    int state_dtype = ps_optimizer_state_dtype(optimizer, (int)dtype);
    struct layout layout = {.master = rule->multi_precision &&
                                      (dtype == PS_F16 || dtype == PS_BF16),
                            .states = ps_optimizer_state_count(optimizer)};
    if (state_dtype == PS_DTYPE_UNKNOWN) {
        return ps_error_set(err, PS_EDTYPE, "key %.100s: %s cannot update %s values",
                            entry->key->name, ps_optimizer_name(optimizer->kind),
                            ps_dtype_name((int)dtype));
    }
    /* each array starts on a cache line */
    layout.state_bytes =
        ps_align_up(entry->count * ps_dtype_size(state_dtype), PS_CACHE_LINE);
    layout.master_bytes =
        layout.master ? ps_align_up(entry->count * sizeof(float), PS_CACHE_LINE) : 0;
    layout.total = layout.master_bytes + (size_t)layout.states * layout.state_bytes;
    *layout_out = layout;
    return PS_OK;
}

/* Kind, number of arrays, master: a change of any makes another state. */
static uint64_t tag_of(const struct ps_optimizer *optimizer, const struct layout *layout)
{
    return (uint64_t)optimizer->kind << 16 | (uint64_t)layout->states << 8 |
           (layout->master ? 1 : 0);
}

/* A live change may add arrays (momentum from 0): they start at zero, but a master that
 * is there keeps its precision. */
static enum ps_status get_state(struct ps_entry *entry, uint64_t tag,
                                const struct layout *layout,
                                const struct ps_entry_update *update, void **state_out,
                                struct ps_error *err)
{
    struct ps_blocks *blocks = entry->env->blocks;
    bool had_master = (entry->state_tag & 1) != 0 && entry->state != NULL;
    bool changes = entry->state_tag != tag || entry->state_bytes != layout->total;
    void *saved = NULL, *state = NULL;
    bool fresh = false;
    enum ps_status status = PS_ENOMEM;
    if (changes && had_master && layout->master) {
        saved = ps_blocks_get(blocks, layout->master_bytes);
        if (saved == NULL) {
            goto fail;
        }
        memcpy(saved, entry->state, layout->master_bytes);
    }
    PS_TRY_GOTO(status, ps_entry_state(entry, tag, layout->total, &state, &fresh), fail);
    if (fresh && saved != NULL) {
        memcpy(state, saved, layout->master_bytes);
    } else if (fresh && layout->master) {
        PS_TRY_GOTO(status,
                    ps_convert(state, PS_F32, update->weight, (int)entry->key->dtype,
                               entry->count),
                    fail);
    }
    ps_blocks_put(blocks, saved, layout->master_bytes);
    *state_out = state;
    return PS_OK;
fail:
    ps_blocks_put(blocks, saved, layout->master_bytes);
    return ps_error_set(err, status, "key %.100s: %zu bytes of optimizer state: %s",
                        entry->key->name, layout->total, ps_status_text(status));
}

enum ps_status ps_update_apply(const struct ps_update_rule *rule, struct ps_entry *entry,
                               const struct ps_entry_update *update, struct ps_error *err)
{
    const struct ps_optimizer *optimizer = ps_update_rule_at(rule, update->step);
    struct layout layout = {0};
    void *state = NULL;
    PS_TRY(plan(rule, optimizer, entry, &layout, err));
    PS_TRY(get_state(entry, tag_of(optimizer, &layout), &layout, update, &state, err));
    struct ps_optimizer_key_state key = {
        .lr_mult = 1, .wd_mult = 1, .update = update->update, .rescale = update->rescale};
    struct ps_optimizer_range range = {.weight = update->weight,
                                       .weight_out = update->weight_out,
                                       .grad = update->grad,
                                       .master = layout.master ? state : NULL,
                                       .dtype = (int)entry->key->dtype,
                                       .grad_dtype = update->grad_dtype,
                                       .count = entry->count};
    for (int i = 0; i < layout.states; i++) {
        range.states[i] =
            (char *)state + layout.master_bytes + (size_t)i * layout.state_bytes;
    }
    enum ps_status status = ps_optimizer_update(optimizer, &key, &range);
    return status == PS_OK
               ? PS_OK
               : ps_error_set(err, status, "key %.100s: %s on %s: %s", entry->key->name,
                              ps_optimizer_name(optimizer->kind),
                              ps_dtype_name((int)entry->key->dtype),
                              ps_status_text(status));
}
