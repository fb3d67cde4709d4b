/* Open addressing with linear probing; deletion shifts the following run back, so there
 * are no tombstones and a look-up ends at the first free slot.  Capacities are powers of
 * two, at most 3/4 full. */
#include "base/map.h"

#include "base/rng.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

static bool must_grow(size_t count, size_t capacity)
{
    return count + 1 > capacity / 4 * 3;
}

/* Whether the entry at 'slot', whose home is 'home', may move back to the hole: only when
 * its home does not lie in (hole, slot], cyclically. */
static bool may_fill(size_t hole, size_t home, size_t slot, size_t mask)
{
    return ((slot - home) & mask) >= ((slot - hole) & mask);
}

/* ---- u64 keys ---- */

void ps_map_fini(struct ps_map *map)
{
    free(map->slots);
    *map = (struct ps_map){0};
}

/* The slot of 'key', or the free one where it belongs. */
static size_t map_slot(const struct ps_map *map, uint64_t key)
{
    size_t mask = map->capacity - 1;
    size_t i = (size_t)ps_hash_u64(key) & mask;
    while (map->slots[i].value != NULL && map->slots[i].key != key) {
        i = (i + 1) & mask;
    }
    return i;
}

void *ps_map_get(const struct ps_map *map, uint64_t key)
{
    return map->count == 0 ? NULL : map->slots[map_slot(map, key)].value;
}

static enum ps_status map_grow(struct ps_map *map)
{
    size_t capacity = map->capacity == 0 ? FIRST_CAPACITY : map->capacity * 2;
    struct ps_map grown = {calloc(capacity, sizeof(*grown.slots)), capacity, map->count};
    if (grown.slots == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].value != NULL) {
            grown.slots[map_slot(&grown, map->slots[i].key)] = map->slots[i];
        }
    }
    free(map->slots);
    *map = grown;
    return PS_OK;
}

enum ps_status ps_map_put(struct ps_map *map, uint64_t key, void *value, void **old_out)
{
    if (value == NULL) {
        return PS_EINVAL;
    }
    if (must_grow(map->count, map->capacity)) {
        PS_TRY(map_grow(map));
    }
    struct ps_map_slot *slot = &map->slots[map_slot(map, key)];
    if (old_out != NULL) {
        *old_out = slot->value;
    }
    map->count += slot->value == NULL ? 1 : 0;
    slot->key = key;
    slot->value = value;
    return PS_OK;
}

void *ps_map_remove(struct ps_map *map, uint64_t key)
{
    if (map->count == 0) {
        return NULL;
    }
    size_t mask = map->capacity - 1;
    size_t hole = map_slot(map, key);
    void *value = map->slots[hole].value;
    if (value == NULL) {
        return NULL;
    }
    for (size_t i = (hole + 1) & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
        if (may_fill(hole, (size_t)ps_hash_u64(map->slots[i].key) & mask, i, mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct ps_map_slot){0};
    map->count--;
    return value;
}

bool ps_map_next(const struct ps_map *map, size_t *it, uint64_t *key_out,
                 void **value_out)
{
    while (*it < map->capacity) {
        const struct ps_map_slot *slot = &map->slots[(*it)++];
        if (slot->value != NULL) {
            *key_out = slot->key;
            *value_out = slot->value;
            return true;
        }
    }
    return false;
}

/* ---- string keys ---- */

void ps_strmap_fini(struct ps_strmap *map)
{
    for (size_t i = 0; i < map->capacity; i++) {
        free(map->slots[i].key);
    }
    free(map->slots);
    *map = (struct ps_strmap){0};
}

static uint64_t hash_text(const char *key)
{
    return ps_hash_bytes(key, strlen(key));
}

static size_t strmap_slot(const struct ps_strmap *map, const char *key, uint64_t hash)
{
    size_t mask = map->capacity - 1;
    size_t i = (size_t)hash & mask;
    while (map->slots[i].key != NULL &&
           (map->slots[i].hash != hash || strcmp(map->slots[i].key, key) != 0)) {
        i = (i + 1) & mask;
    }
    return i;
}

void *ps_strmap_get(const struct ps_strmap *map, const char *key)
{
    return map->count == 0 ? NULL
                           : map->slots[strmap_slot(map, key, hash_text(key))].value;
}

static enum ps_status strmap_grow(struct ps_strmap *map)
{
    size_t capacity = map->capacity == 0 ? FIRST_CAPACITY : map->capacity * 2;
    struct ps_strmap grown = {calloc(capacity, sizeof(*grown.slots)), capacity,
                              map->count};
    if (grown.slots == NULL) {
        return PS_ENOMEM;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        const struct ps_strmap_slot *slot = &map->slots[i];
        if (slot->key != NULL) {
            grown.slots[strmap_slot(&grown, slot->key, slot->hash)] = *slot;
        }
    }
    free(map->slots);
    *map = grown;
    return PS_OK;
}

enum ps_status ps_strmap_put(struct ps_strmap *map, const char *key, void *value,
                             void **old_out)
{
    if (value == NULL) {
        return PS_EINVAL;
    }
    if (must_grow(map->count, map->capacity)) {
        PS_TRY(strmap_grow(map));
    }
    uint64_t hash = hash_text(key);
    struct ps_strmap_slot *slot = &map->slots[strmap_slot(map, key, hash)];
    if (slot->key == NULL) {
        char *copy = ps_strdup(key);
        if (copy == NULL) {
            return PS_ENOMEM;
        }
        slot->key = copy;
        slot->hash = hash;
        map->count++;
    }
    if (old_out != NULL) {
        *old_out = slot->value;
    }
    slot->value = value;
    return PS_OK;
}

void *ps_strmap_remove(struct ps_strmap *map, const char *key)
{
    if (map->count == 0) {
        return NULL;
    }
    size_t mask = map->capacity - 1;
    size_t hole = strmap_slot(map, key, hash_text(key));
    void *value = map->slots[hole].value;
    if (map->slots[hole].key == NULL) {
        return NULL;
    }
    free(map->slots[hole].key);
    for (size_t i = (hole + 1) & mask; map->slots[i].key != NULL; i = (i + 1) & mask) {
        if (may_fill(hole, (size_t)map->slots[i].hash & mask, i, mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct ps_strmap_slot){0};
    map->count--;
    return value;
}

bool ps_strmap_next(const struct ps_strmap *map, size_t *it, const char **key_out,
                    void **value_out)
{
    while (*it < map->capacity) {
        const struct ps_strmap_slot *slot = &map->slots[(*it)++];
        if (slot->key != NULL) {
            *key_out = slot->key;
            *value_out = slot->value;
            return true;
        }
    }
    return false;
}
