/* Every operator of the room, by family; find by name or alias.
 * Linear search: names are looked up when a graph is built, never when it runs. */
#include "kernels/registry.h"

#include <string.h>

struct family {
    const struct ps_op_def *defs;
    const size_t *count;
};

static const struct family families[] = {
#define FAMILY(name) {ps_ops_##name, &ps_ops_##name##_count},
    PS_OP_FAMILY_MAP(FAMILY)
#undef FAMILY
};

size_t ps_registry_count(void)
{
    size_t n = 0;
    for (size_t f = 0; f < PS_COUNT(families); f++) {
        n += *families[f].count;
    }
    return n;
}

const struct ps_op_def *ps_registry_at(size_t i)
{
    for (size_t f = 0; f < PS_COUNT(families); f++) {
        if (i < *families[f].count) {
            return &families[f].defs[i];
        }
        i -= *families[f].count;
    }
    return NULL;
}

static bool named(const struct ps_op_def *def, const char *name)
{
    if (strcmp(def->name, name) == 0) {
        return true;
    }
    for (size_t i = 0; i < PS_COUNT(def->aliases) && def->aliases[i] != NULL; i++) {
        if (strcmp(def->aliases[i], name) == 0) {
            return true;
        }
    }
    return false;
}

const struct ps_op_def *ps_op_find(const char *name)
{
    for (size_t f = 0; f < PS_COUNT(families); f++) {
        for (size_t i = 0; i < *families[f].count; i++) {
            if (named(&families[f].defs[i], name)) {
                return &families[f].defs[i];
            }
        }
    }
    return NULL;
}

const char *ps_op_nearest(const char *name)
{
    const char *names[256] = {NULL};
    size_t n = 0;
    for (size_t f = 0; f < PS_COUNT(families); f++) {
        for (size_t i = 0; i < *families[f].count && n + 1 < PS_COUNT(names); i++) {
            names[n++] = families[f].defs[i].name;
        }
    }
    return ps_nearest(name, names);
}
