/* Names and parts of a symbol: arguments, auxiliary states, outputs, internals. */
#include "engine/graph/symbol_node.h"

#include "engine/graph/arena.h"

#include <stdlib.h>
#include <string.h>

void ps_names_fini(struct ps_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->names[i]);
    }
    free(names->names);
    *names = (struct ps_names){0};
}

int64_t ps_names_index(const struct ps_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], name) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* Takes 'text' (malloc'ed, or NULL when there was no memory). */
static enum ps_status names_add(struct ps_names *names, size_t *capacity, char *text)
{
    if (text == NULL || ps_array_reserve((void **)&names->names, capacity,
                                         names->count + 2, sizeof(char *)) != PS_OK) {
        free(text);
        return PS_ENOMEM;
    }
    names->names[names->count++] = text;
    names->names[names->count] = NULL;
    return PS_OK;
}

static char *entry_name(const struct ps_sym_entry *entry)
{
    struct ps_str text = {0};
    ps_sym_entry_name(entry, &text);
    if (text.failed) {
        ps_str_fini(&text);
        return NULL;
    }
    return text.data;
}

static enum ps_status list_variables(const struct ps_symbol *symbol, bool auxiliary,
                                     struct ps_names *out)
{
    struct ps_sym_order order;
    PS_TRY(ps_sym_order_make(symbol->entries, symbol->count, &order));
    struct ps_names names = {0};
    size_t capacity = 0;
    enum ps_status status =
        ps_array_reserve((void **)&names.names, &capacity, 1, sizeof(char *));
    for (size_t n = 0; n < order.count && status == PS_OK; n++) {
        if (order.nodes[n]->op == NULL && order.auxiliary[n] == auxiliary) {
            status = names_add(&names, &capacity, ps_strdup(order.nodes[n]->name));
        }
    }
    ps_sym_order_fini(&order);
    if (status != PS_OK) {
        ps_names_fini(&names);
        return status;
    }
    *out = names;
    return PS_OK;
}

enum ps_status ps_symbol_list_arguments(const struct ps_symbol *symbol,
                                        struct ps_names *out)
{
    return list_variables(symbol, false, out);
}

enum ps_status ps_symbol_list_auxiliaries(const struct ps_symbol *symbol,
                                          struct ps_names *out)
{
    return list_variables(symbol, true, out);
}

enum ps_status ps_symbol_list_outputs(const struct ps_symbol *symbol,
                                      struct ps_names *out)
{
    struct ps_names names = {0};
    size_t capacity = 0;
    enum ps_status status =
        ps_array_reserve((void **)&names.names, &capacity, 1, sizeof(char *));
    for (size_t i = 0; i < symbol->count && status == PS_OK; i++) {
        status = names_add(&names, &capacity, entry_name(&symbol->entries[i]));
    }
    if (status != PS_OK) {
        ps_names_fini(&names);
        return status;
    }
    *out = names;
    return PS_OK;
}

enum ps_status ps_symbol_group(struct ps_symbol *const *symbols, size_t count,
                               struct ps_symbol **symbol_out, struct ps_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += symbols[i]->count;
    }
    if (total == 0) {
        return ps_error_set(err, PS_EINVAL, "a group of no symbols");
    }
    struct ps_sym_entry *entries = calloc(total, sizeof(*entries));
    if (entries == NULL) {
        return PS_ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < symbols[i]->count; j++) {
            entries[n++] = symbols[i]->entries[j];
        }
    }
    enum ps_status status = ps_symbol_over(entries, total, symbol_out);
    free(entries);
    return status;
}

enum ps_status ps_symbol_output(struct ps_symbol *symbol, size_t i,
                                struct ps_symbol **symbol_out, struct ps_error *err)
{
    if (i >= symbol->count) {
        return ps_error_set(err, PS_ERANGE, "output %zu of a symbol with %zu", i,
                            symbol->count);
    }
    return ps_symbol_over(&symbol->entries[i], 1, symbol_out);
}

enum ps_status ps_symbol_internals(struct ps_symbol *symbol,
                                   struct ps_symbol **symbol_out, struct ps_error *err)
{
    PS_UNUSED(err);
    struct ps_sym_order order;
    PS_TRY(ps_sym_order_make(symbol->entries, symbol->count, &order));
    struct ps_sym_entry *entries = NULL;
    size_t count = 0, capacity = 0;
    enum ps_status status = PS_OK;
    for (size_t n = 0; n < order.count; n++) {
        size_t outputs = ps_sym_visible_output_count(order.nodes[n]);
        PS_TRY_GOTO(status,
                    ps_array_reserve((void **)&entries, &capacity, count + outputs,
                                     sizeof(entries[0])),
                    out);
        for (size_t i = 0; i < outputs; i++) {
            entries[count++] =
                (struct ps_sym_entry){.node = order.nodes[n], .index = (uint32_t)i};
        }
    }
    status = ps_symbol_over(entries, count, symbol_out);
out:
    free(entries);
    ps_sym_order_fini(&order);
    return status;
}

enum ps_status ps_symbol_find(struct ps_symbol *symbol, const char *name,
                              struct ps_symbol **symbol_out, struct ps_error *err)
{
    struct ps_symbol *all = NULL;
    struct ps_names names = {0};
    enum ps_status status;
    PS_TRY_GOTO(status, ps_symbol_internals(symbol, &all, err), out);
    PS_TRY_GOTO(status, ps_symbol_list_outputs(all, &names), out);
    int64_t at = ps_names_index(&names, name);
    if (at >= 0) {
        status = ps_symbol_output(all, (size_t)at, symbol_out, err);
    } else {
        const char *near = ps_nearest(name, (const char *const *)names.names);
        status =
            ps_error_set(err, PS_ENOENT, "no output is called %s%s%s", name,
                         near != NULL ? "; nearest is " : "", near != NULL ? near : "");
    }
out:
    ps_names_fini(&names);
    ps_symbol_release(all);
    return status;
}
