/* The builder: what model code is written with.  Keeps every symbol and text it gave out
 * and the first error. */
#include "engine/graph/symbol_node.h"

#include "engine/graph/arena.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_builder {
    struct ps_error error;
    struct ps_symbol **symbols;
    size_t symbol_count, symbol_capacity;
    char **texts;
    size_t text_count, text_capacity;
    struct ps_strmap counters; /* "convolution" -> nodes so far, as a pointer */
};

enum ps_status ps_builder_create(struct ps_builder **builder_out)
{
    struct ps_builder *builder = calloc(1, sizeof(*builder));
    if (builder == NULL) {
        return PS_ENOMEM;
    }
    *builder_out = builder;
    return PS_OK;
}

void ps_builder_destroy(struct ps_builder *builder)
{
    if (builder == NULL) {
        return;
    }
    for (size_t i = 0; i < builder->symbol_count; i++) {
        ps_symbol_release(builder->symbols[i]);
    }
    for (size_t i = 0; i < builder->text_count; i++) {
        free(builder->texts[i]);
    }
    free(builder->symbols);
    free(builder->texts);
    ps_strmap_fini(&builder->counters);
    free(builder);
}

static void fail(struct ps_builder *builder, enum ps_status status)
{
    if (builder->error.status == PS_OK) {
        (void)ps_error_set(&builder->error, status, "%s", ps_status_text(status));
    }
}

/* Takes 'symbol'. */
static struct ps_symbol *keep(struct ps_builder *builder, enum ps_status status,
                              struct ps_symbol *symbol)
{
    if (status == PS_OK) {
        status = ps_array_reserve((void **)&builder->symbols, &builder->symbol_capacity,
                                  builder->symbol_count + 1, sizeof(struct ps_symbol *));
        if (status != PS_OK) {
            ps_symbol_release(symbol);
        }
    }
    if (status != PS_OK) {
        fail(builder, status);
        return NULL;
    }
    builder->symbols[builder->symbol_count++] = symbol;
    return symbol;
}

/* Takes 'text'. */
static const char *keep_text(struct ps_builder *builder, char *text)
{
    if (text == NULL ||
        ps_array_reserve((void **)&builder->texts, &builder->text_capacity,
                         builder->text_count + 1, sizeof(char *)) != PS_OK) {
        free(text);
        fail(builder, PS_ENOMEM);
        return NULL;
    }
    builder->texts[builder->text_count++] = text;
    return text;
}

const char *ps_builder_text(struct ps_builder *builder, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (text != NULL) {
        (void)vsnprintf(text, (size_t)size + 1, fmt, again);
    }
    va_end(again);
    return keep_text(builder, text);
}

/* "convolution0" for the first Convolution without a name. */
static const char *next_name(struct ps_builder *builder, const char *op)
{
    char hint[64];
    size_t size = 0;
    const char *from = op[0] == '_' ? op + 1 : op;
    for (; from[size] != 0 && size + 1 < sizeof(hint); size++) {
        hint[size] = (char)tolower((unsigned char)from[size]);
    }
    hint[size] = 0;
    uintptr_t count = (uintptr_t)ps_strmap_get(&builder->counters, hint);
    if (ps_strmap_put(&builder->counters, hint, (void *)(count + 1), NULL) != PS_OK) {
        fail(builder, PS_ENOMEM);
        return NULL;
    }
    return ps_builder_text(builder, "%s%zu", hint, (size_t)count);
}

struct ps_symbol *ps_builder_variable(struct ps_builder *builder, const char *name)
{
    if (builder->error.status != PS_OK) {
        return NULL;
    }
    struct ps_symbol *symbol = NULL;
    enum ps_status status = ps_symbol_variable(name, &symbol, &builder->error);
    return keep(builder, status, symbol);
}

struct ps_symbol *ps_builder_compose(struct ps_builder *builder, const char *op,
                                     const char *name, const char *attrs,
                                     struct ps_symbol *const *inputs, size_t input_count)
{
    if (builder->error.status == PS_OK && name == NULL) {
        name = next_name(builder, op);
    }
    if (builder->error.status != PS_OK) {
        return NULL;
    }
    struct ps_compose compose = {.op = op,
                                 .name = name,
                                 .attrs = attrs,
                                 .inputs = inputs,
                                 .input_count = input_count};
    struct ps_symbol *symbol = NULL;
    enum ps_status status = ps_symbol_compose(&compose, &symbol, &builder->error);
    return keep(builder, status, symbol);
}

struct ps_symbol *ps_builder_output(struct ps_builder *builder, struct ps_symbol *symbol,
                                    size_t i)
{
    if (builder->error.status != PS_OK) {
        return NULL;
    }
    struct ps_symbol *one = NULL;
    enum ps_status status = ps_symbol_output(symbol, i, &one, &builder->error);
    return keep(builder, status, one);
}

struct ps_symbol *ps_builder_group(struct ps_builder *builder,
                                   struct ps_symbol *const *symbols, size_t count)
{
    if (builder->error.status != PS_OK) {
        return NULL;
    }
    struct ps_symbol *group = NULL;
    enum ps_status status = ps_symbol_group(symbols, count, &group, &builder->error);
    return keep(builder, status, group);
}

struct ps_symbol *ps_builder_attr(struct ps_builder *builder, struct ps_symbol *symbol,
                                  const char *key, const char *value)
{
    if (builder->error.status != PS_OK) {
        return NULL;
    }
    enum ps_status status = ps_symbol_set_attr(symbol, key, value, &builder->error);
    if (status != PS_OK) {
        fail(builder, status);
        return NULL;
    }
    return symbol;
}

enum ps_status ps_builder_finish(struct ps_builder *builder, struct ps_symbol *symbol,
                                 struct ps_symbol **symbol_out, struct ps_error *err)
{
    if (builder->error.status != PS_OK) {
        return ps_error_set(err, builder->error.status, "%s", builder->error.text);
    }
    if (symbol == NULL) {
        return ps_error_set(err, PS_EINVAL, "the builder was given no symbol");
    }
    *symbol_out = ps_symbol_retain(symbol);
    return PS_OK;
}
