/* What a store type name stands for.  Threads: any; constant data. */
#ifndef PENSTOCK_KVSTORE_TYPES_H
#define PENSTOCK_KVSTORE_TYPES_H

#include <stdbool.h>

struct ps_kvstore_type {
    const char *name;
    bool dist, async;
    bool on_device; /* local sums are made on the devices */
};

/* Ignores case; NULL when it is not one. */
const struct ps_kvstore_type *ps_kvstore_type_find(const char *name);

#endif
