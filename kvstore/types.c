/* Store type names: the list of behaviour.md 4.1, matched exactly (ignoring case), never
 * by substring, so that a typo cannot become another type. */
#include "kvstore/types.h"

#include "kvstore/kvstore.h"

#include "base/str.h"

#include <strings.h>

static const struct ps_kvstore_type types[] = {
    {"local", false, false, false},
    {"local_update_cpu", false, false, false},
    {"local_allreduce_cpu", false, false, false},
    {"device", false, false, true},
    {"local_allreduce_device", false, false, true},
    {"dist", true, false, false},
    {"dist_sync", true, false, false},
    {"dist_async", true, true, false},
    {"dist_device_sync", true, false, true},
    {"dist_sync_device", true, false, true},
    {"dist_device", true, false, true},
    {"dist_device_async", true, true, true},
    {"dist_async_device", true, true, true},
};

/* Types of other systems, with what serves their users here. */
static const struct {
    const char *name, *instead;
} refused[] = {
    {"nccl", "use device"},
    {"horovod", "use dist_sync"},
    {"byteps", "use dist_sync"},
    {"p3", "use dist_sync: its priorities and slices are the default here"},
    {"dist_sync_p3", "use dist_sync: its priorities and slices are the default here"},
};

const struct ps_kvstore_type *ps_kvstore_type_find(const char *name)
{
    for (size_t i = 0; i < PS_COUNT(types); i++) {
        if (strcasecmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

enum ps_status ps_kvstore_type_check(const char *name, struct ps_error *err)
{
    if (name == NULL) {
        return ps_error_set(err, PS_EINVAL, "kvstore type is missing");
    }
    if (ps_kvstore_type_find(name) != NULL) {
        return PS_OK;
    }
    for (size_t i = 0; i < PS_COUNT(refused); i++) {
        if (strcasecmp(refused[i].name, name) == 0) {
            return ps_error_set(err, PS_EINVAL, "kvstore type \"%s\" is not offered: %s",
                                name, refused[i].instead);
        }
    }
    const char *names[PS_COUNT(types) + 1] = {0};
    for (size_t i = 0; i < PS_COUNT(types); i++) {
        names[i] = types[i].name;
    }
    const char *nearest = ps_nearest(name, names);
    if (nearest != NULL) {
        return ps_error_set(err, PS_EINVAL,
                            "kvstore type \"%s\" is unknown; did you mean \"%s\"?", name,
                            nearest);
    }
    return ps_error_set(
        err, PS_EINVAL,
        "kvstore type \"%s\" is unknown; one of local, device, dist_sync, "
        "dist_async, dist_device_sync is accepted",
        name);
}
