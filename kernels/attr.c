/* Operator attributes: MXNet's strings into a params struct, by the op's table.
 * Bytes come from symbol files and users, so everything is checked and every refusal
 * names op, attribute, value and what is accepted.  Threads: pure. */
#include "kernels/op_def.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 64 };

enum ps_status ps_op_fail(const char *op, struct ps_error *err, enum ps_status status,
                          const char *fmt, ...)
{
    char text[PS_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) {
        text[0] = '\0';
    }
    va_end(args);
    return ps_error_set(err, status, "%s: %s", op, text);
}

static enum ps_status bad_value(const struct ps_op_def *def,
                                const struct ps_attr_row *row, const char *value,
                                const char *accepted, struct ps_error *err)
{
    return ps_op_fail(def->name, err, PS_EINVAL, "attribute %s='%.60s': accepted is %s",
                      row->name, value, accepted);
}

/* MXNet writes integers also as "1L" (Python 2) and booleans as "True". */
static bool parse_int(const char *text, int64_t *out)
{
    char word[WORD_BYTES];
    size_t n = strlen(text);
    if (n == 0 || n >= sizeof word) {
        return false;
    }
    memcpy(word, text, n + 1);
    if (word[n - 1] == 'L') {
        word[n - 1] = '\0';
    }
    return ps_parse_i64(word, out) == PS_OK;
}

static bool parse_bool(const char *text, bool *out)
{
    return ps_parse_bool(text, out) == PS_OK;
}

/* "(3, 3)", "[3,3]", "3", "(3,)", "()"; Python's None is an empty tuple. */
static bool parse_tuple(const char *text, struct ps_shape *out)
{
    struct ps_shape shape = {.ndim = 0};
    const char *p = text;
    char close = '\0';
    if (strcmp(text, "None") == 0) {
        *out = shape;
        return true;
    }
    while (isspace((unsigned char)*p)) {
        p++;
    }
    if (*p == '(' || *p == '[') {
        close = *p == '(' ? ')' : ']';
        p++;
    }
    for (;;) {
        char word[WORD_BYTES];
        size_t n = 0;
        while (isspace((unsigned char)*p)) {
            p++;
        }
        if (close != '\0' && *p == close) {
            p++;
            break;
        }
        while (*p == '-' || *p == '+' || isalnum((unsigned char)*p)) {
            if (n + 1 >= sizeof word) {
                return false;
            }
            word[n++] = *p++;
        }
        word[n] = '\0';
        if (shape.ndim == PS_MAX_DIM || !parse_int(word, &shape.dim[shape.ndim])) {
            return false;
        }
        shape.ndim++;
        while (isspace((unsigned char)*p)) {
            p++;
        }
        if (*p == ',') {
            p++;
        } else if (close == '\0') {
            break;
        } else if (*p != close) {
            return false;
        }
    }
    while (isspace((unsigned char)*p)) {
        p++;
    }
    if (*p != '\0') {
        return false;
    }
    *out = shape;
    return true;
}

/* The index of 'word' in "a|b|c", -1 when absent. */
static int find_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    int index = 0;
    for (const char *p = choices; n > 0;) {
        size_t len = strcspn(p, "|");
        if (len == n && strncmp(p, word, n) == 0) {
            return index;
        }
        if (p[len] == '\0') {
            break;
        }
        p += len + 1;
        index++;
    }
    return -1;
}

static enum ps_status parse_number(const struct ps_op_def *def,
                                   const struct ps_attr_row *row, const char *value,
                                   void *field, struct ps_error *err)
{
    char accepted[96];
    if (row->type == PS_ATTR_INT) {
        int64_t v;
        snprintf(accepted, sizeof accepted, "an integer from %.0f to %.0f", row->min,
                 row->max);
        if (!parse_int(value, &v) || (double)v < row->min || (double)v > row->max) {
            return bad_value(def, row, value, accepted, err);
        }
        *(int64_t *)field = v;
        return PS_OK;
    }
    double v;
    snprintf(accepted, sizeof accepted, "a number from %g to %g", row->min, row->max);
    if (ps_parse_f64(value, &v) != PS_OK || v < row->min || v > row->max) {
        return bad_value(def, row, value, accepted, err);
    }
    *(double *)field = v;
    return PS_OK;
}

static enum ps_status parse_dims(const struct ps_op_def *def,
                                 const struct ps_attr_row *row, const char *value,
                                 struct ps_shape *field, struct ps_error *err)
{
    struct ps_shape shape;
    char accepted[96];
    snprintf(accepted, sizeof accepted,
             "a tuple of integers from %.0f to %.0f, at most %d", row->min, row->max,
             PS_MAX_DIM);
    if (!parse_tuple(value, &shape)) {
        return bad_value(def, row, value, accepted, err);
    }
    for (int i = 0; i < shape.ndim; i++) {
        if ((double)shape.dim[i] < row->min || (double)shape.dim[i] > row->max) {
            return bad_value(def, row, value, accepted, err);
        }
    }
    *field = shape;
    return PS_OK;
}

static enum ps_status parse_row(const struct ps_op_def *def,
                                const struct ps_attr_row *row, const char *value,
                                void *params, struct ps_error *err)
{
    void *field = (char *)params + row->offset;
    switch (row->type) {
    case PS_ATTR_INT:
    case PS_ATTR_REAL:
        return parse_number(def, row, value, field, err);
    case PS_ATTR_TUPLE:
        return parse_dims(def, row, value, field, err);
    case PS_ATTR_BOOL:
        if (!parse_bool(value, field)) {
            return bad_value(def, row, value, "True or False", err);
        }
        return PS_OK;
    case PS_ATTR_CHOICE: {
        int index = find_choice(row->choices, value);
        if (index < 0) {
            return bad_value(def, row, value, row->choices, err);
        }
        *(int *)field = index;
        return PS_OK;
    }
    case PS_ATTR_DTYPE: {
        int dtype = ps_dtype_from_name(value);
        if (dtype == PS_DTYPE_UNKNOWN) {
            return bad_value(
                def, row, value,
                "float32, float64, float16, bfloat16, uint8, int8, int32, int64", err);
        }
        *(int *)field = dtype;
        return PS_OK;
    }
    case PS_ATTR_IGNORED:
        return PS_OK;
    }
    return PS_EINTERNAL;
}

static bool graph_attribute(const char *key)
{
    size_t n = strlen(key);
    return n >= 4 && key[0] == '_' && key[1] == '_' && key[n - 1] == '_' &&
           key[n - 2] == '_';
}

static const struct ps_attr_row *find_row(const struct ps_op_def *def, const char *key)
{
    for (const struct ps_attr_row *row = def->attrs; row != NULL && row->name != NULL;
         row++) {
        if (strcmp(row->name, key) == 0) {
            return row;
        }
    }
    return NULL;
}

static enum ps_status unknown_attribute(const struct ps_op_def *def, const char *key,
                                        struct ps_error *err)
{
    const char *names[32] = {NULL};
    char list[160];
    size_t n = 0;
    for (const struct ps_attr_row *row = def->attrs;
         row != NULL && row->name != NULL && n + 1 < PS_COUNT(names); row++) {
        names[n++] = row->name;
    }
    return ps_op_fail(def->name, err, PS_EINVAL, "unknown attribute %.60s; accepted: %s",
                      key, n > 0 ? ps_join(names, list, sizeof list) : "none");
}

enum ps_status ps_attr_parse(const struct ps_op_def *def, const struct ps_attr *attrs,
                             size_t count, void *params, struct ps_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!graph_attribute(attrs[i].key) && find_row(def, attrs[i].key) == NULL) {
            return unknown_attribute(def, attrs[i].key, err);
        }
    }
    for (const struct ps_attr_row *row = def->attrs; row != NULL && row->name != NULL;
         row++) {
        const char *value = row->default_text;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(attrs[i].key, row->name) == 0) {
                value = attrs[i].value;
            }
        }
        if (value == NULL) {
            return ps_op_fail(def->name, err, PS_EINVAL, "attribute %s is required",
                              row->name);
        }
        PS_TRY(parse_row(def, row, value, params, err));
    }
    return PS_OK;
}
