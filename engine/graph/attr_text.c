/* Attributes as one text, "kernel=(5, 5) num_filter=20", and shape hints. */
#include "engine/graph/symbol_node.h"

#include "engine/graph/arena.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_gap(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == ',';
}

/* The end of a value that starts at 'p': a gap outside of brackets and quotes; NULL when
 * these do not match. */
static char *value_end(char *p)
{
    int depth = 0;
    char quote = 0;
    for (; *p != 0; p++) {
        if (quote != 0) {
            quote = *p == quote ? 0 : quote;
        } else if (*p == '"' || *p == '\'') {
            quote = *p;
        } else if (*p == '(' || *p == '[' || *p == '{') {
            depth++;
        } else if (*p == ')' || *p == ']' || *p == '}') {
            depth--;
        } else if (depth == 0 && is_gap(*p)) {
            break;
        }
        if (depth < 0) {
            return NULL;
        }
    }
    return depth == 0 && quote == 0 ? p : NULL;
}

static enum ps_status parse_one(char **at, struct ps_attr_list *list,
                                struct ps_error *err)
{
    char *key = *at;
    char *p = key;
    while (isalnum((unsigned char)*p) || *p == '_') {
        p++;
    }
    if (p == key || *p != '=') {
        return ps_error_set(err, PS_EINVAL, "attributes \"%s\": expected key=value", key);
    }
    *p++ = 0;
    char *end = value_end(p);
    if (end == NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "attribute %s: brackets or quotes of %s "
                            "do not match",
                            key, p);
    }
    *at = *end == 0 ? end : end + 1;
    *end = 0;
    PS_TRY(ps_array_reserve((void **)&list->attrs, &list->capacity, list->count + 1,
                            sizeof(list->attrs[0])));
    list->attrs[list->count++] = (struct ps_attr){.key = key, .value = p};
    return PS_OK;
}

enum ps_status ps_attr_list_parse(const char *text, struct ps_attr_list *out,
                                  struct ps_error *err)
{
    struct ps_attr_list list = {.text = ps_strdup(text == NULL ? "" : text)};
    enum ps_status status = list.text == NULL ? PS_ENOMEM : PS_OK;
    for (char *p = list.text; status == PS_OK;) {
        while (is_gap(*p)) {
            p++;
        }
        if (*p == 0) {
            break;
        }
        status = parse_one(&p, &list, err);
    }
    if (status != PS_OK) {
        ps_attr_list_fini(&list);
        return status;
    }
    *out = list;
    return PS_OK;
}

void ps_attr_list_fini(struct ps_attr_list *list)
{
    free(list->attrs);
    free(list->text);
    *list = (struct ps_attr_list){0};
}

static const char *skip_gaps(const char *p)
{
    while (is_gap(*p)) {
        p++;
    }
    return p;
}

/* One dimension: a number or None; 0 and below are unknown. */
static const char *parse_dim(const char *p, int64_t *dim_out)
{
    if (strncmp(p, "None", 4) == 0) {
        *dim_out = -1;
        return p + 4;
    }
    bool negative = *p == '-';
    p += negative ? 1 : 0;
    if (!isdigit((unsigned char)*p)) {
        return NULL;
    }
    int64_t value = 0;
    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value)) {
            return NULL;
        }
    }
    if (*p == 'L') { /* a long of Python 2, in old files */
        p++;
    }
    *dim_out = negative || value == 0 ? -1 : value;
    return p;
}

enum ps_status ps_shape_parse_hint(const char *text, struct ps_shape *shape_out)
{
    const char *p = skip_gaps(text);
    char close = *p == '(' ? ')' : *p == '[' ? ']' : 0;
    if (strcmp(p, "None") == 0) {
        *shape_out = PS_SHAPE_UNKNOWN;
        return PS_OK;
    }
    p += close != 0 ? 1 : 0;
    struct ps_shape shape = {.ndim = 0};
    for (p = skip_gaps(p); *p != 0 && *p != close; p = skip_gaps(p)) {
        if (shape.ndim == PS_MAX_DIM) {
            return PS_EINVAL;
        }
        p = parse_dim(p, &shape.dim[shape.ndim]);
        if (p == NULL) {
            return PS_EINVAL;
        }
        shape.ndim++;
    }
    if (close != 0) {
        if (*p != close || *skip_gaps(p + 1) != 0) {
            return PS_EINVAL;
        }
    } else if (shape.ndim == 0) {
        return PS_EINVAL;
    }
    /* "()" is MXNet's "nothing known" */
    *shape_out = shape.ndim == 0 ? PS_SHAPE_UNKNOWN : shape;
    return PS_OK;
}
