/* Hash maps: u64 -> pointer (open addressing, linear probing, backward-shift deletion)
 * for hot tables, and string -> pointer (keys are copied) for cold ones. Threads: one at
 * a time. */
#ifndef PENSTOCK_BASE_MAP_H
#define PENSTOCK_BASE_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_map { /* zero-initialised = empty */
    struct ps_map_slot *slots;
    size_t capacity, count;
};
struct ps_map_slot {
    uint64_t key;
    void *value; /* NULL = free slot; NULL values cannot be stored */
};

void ps_map_fini(struct ps_map *map); /* values are the caller's */
void *ps_map_get(const struct ps_map *map, uint64_t key);
/* Replaces; the old value (or NULL) goes to 'old_out' when not NULL.  Errors: PS_ENOMEM.
 */
PS_MUST_CHECK enum ps_status ps_map_put(struct ps_map *map, uint64_t key, void *value,
                                        void **old_out);
void *ps_map_remove(struct ps_map *map, uint64_t key);
/* for (size_t it = 0; ps_map_next(&map, &it, &key, &value);) in no particular order; the
 * map must not change meanwhile. */
bool ps_map_next(const struct ps_map *map, size_t *it, uint64_t *key_out,
                 void **value_out);

struct ps_strmap {
    struct ps_strmap_slot *slots;
    size_t capacity, count;
};
struct ps_strmap_slot {
    char *key;
    uint64_t hash;
    void *value;
};
void ps_strmap_fini(struct ps_strmap *map);
void *ps_strmap_get(const struct ps_strmap *map, const char *key);
PS_MUST_CHECK enum ps_status ps_strmap_put(struct ps_strmap *map, const char *key,
                                           void *value, void **old_out);
void *ps_strmap_remove(struct ps_strmap *map, const char *key);
bool ps_strmap_next(const struct ps_strmap *map, size_t *it, const char **key_out,
                    void **value_out);

#endif
