/* The placement table: its life, shards and chunks, questions.  placement_add.c decides.
 * Threads: one at a time.  Source: DESIGN.md section 5; reference/behaviour.md 4.5. */
#include "kvstore/shard/placement.h"

#include "base/util.h"
#include "kvstore/shard/placement_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t ps_shard_home(uint32_t shard, uint32_t shard_count, uint32_t server_count)
{
    return (uint32_t)((uint64_t)shard * server_count / shard_count);
}

uint64_t ps_chunk_elements(int dtype, uint32_t chunk_bytes)
{
    size_t size = ps_dtype_size(dtype);
    uint64_t elements = size == 0 ? 0 : chunk_bytes / size;
    elements -= elements % PS_CHUNK_QUANTUM;
    return PS_MAX(elements, (uint64_t)PS_CHUNK_QUANTUM);
}

size_t ps_extent_find(const struct ps_extent *extents, size_t extent_count,
                      uint64_t first)
{
    size_t low = 0, high = extent_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (first < extents[mid].first) {
            high = mid;
        } else if (first - extents[mid].first >= extents[mid].count) {
            low = mid + 1;
        } else {
            return mid;
        }
    }
    return SIZE_MAX;
}

uint64_t ps_chunk_find(const struct ps_extent *extent, uint64_t chunk_elements,
                       uint64_t first, uint64_t count)
{
    if (first < extent->first || first - extent->first >= extent->count) {
        return UINT64_MAX;
    }
    uint64_t offset = first - extent->first;
    bool whole = offset % chunk_elements == 0 &&
                 count == PS_MIN(chunk_elements, extent->count - offset);
    return whole ? offset / chunk_elements : UINT64_MAX;
}

void ps_key_row_fini(struct ps_key_row *row)
{
    free(row->extents);
    row->extents = NULL;
    row->extent_count = 0;
}

enum ps_status ps_placement_create(const struct ps_placement_options *options,
                                   struct ps_placement **placement_out)
{
    uint32_t shards = options->shard_count;
    if (shards == 0 || (shards & (shards - 1)) != 0 || options->server_count == 0 ||
        options->server_count > shards || options->bigarray_bound == 0) {
        return PS_EINVAL;
    }
    struct ps_placement *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return PS_ENOMEM;
    }
    p->servers = calloc(options->server_count, sizeof(*p->servers));
    if (p->servers == NULL) {
        free(p);
        return PS_ENOMEM;
    }
    p->shard_count = shards;
    p->bigarray_bound = options->bigarray_bound;
    p->server_count = options->server_count;
    p->next_index = 1;
    for (size_t i = 0; i < p->server_count; i++) {
        p->servers[i].member = options->servers[i];
    }
    for (uint32_t s = shards; s-- > 0;) {
        struct ps_server_load *load =
            &p->servers[ps_shard_home(s, shards, (uint32_t)p->server_count)];
        load->shard_first = s;
        load->shard_count++;
    }
    *placement_out = p;
    return PS_OK;
}

void ps_placement_destroy(struct ps_placement *placement)
{
    if (placement == NULL) {
        return;
    }
    for (size_t i = 0; i < placement->row_count; i++) {
        ps_key_row_fini(&placement->rows[i]);
    }
    free(placement->rows);
    free(placement->servers);
    ps_strmap_fini(&placement->names);
    free(placement);
}

/* ---- names ---- */

const char *ps_placement_name_key(uint32_t store, const struct ps_key_row *row,
                                  char out[PS_NAME_KEY_BYTES])
{
    (void)snprintf(out, PS_NAME_KEY_BYTES, "%u/%c:%s", store, row->numeric ? 'n' : 's',
                   row->name);
    return out;
}

const struct ps_key_row *ps_placement_find_named(const struct ps_placement *placement,
                                                 const char *key)
{
    uintptr_t slot = (uintptr_t)ps_strmap_get(&placement->names, key);
    return slot == 0 ? NULL : &placement->rows[slot - 1];
}

const struct ps_key_row *ps_placement_find(const struct ps_placement *placement,
                                           uint32_t store, const char *name, bool numeric)
{
    struct ps_key_row probe = {.numeric = numeric};
    char key[PS_NAME_KEY_BYTES];
    size_t size = strlen(name);
    if (size >= sizeof(probe.name)) {
        return NULL;
    }
    memcpy(probe.name, name, size + 1);
    return ps_placement_find_named(placement, ps_placement_name_key(store, &probe, key));
}

/* ---- questions ---- */

size_t ps_placement_key_count(const struct ps_placement *placement)
{
    return placement->row_count;
}

const struct ps_key_row *ps_placement_key(const struct ps_placement *placement,
                                          size_t index)
{
    return index < placement->row_count ? &placement->rows[index] : NULL;
}

uint32_t ps_placement_server_of(const struct ps_placement *placement, uint32_t shard)
{
    return ps_shard_home(shard, placement->shard_count,
                         (uint32_t)placement->server_count);
}

uint64_t ps_placement_server_bytes(const struct ps_placement *placement,
                                   uint32_t server_rank)
{
    return server_rank < placement->server_count ? placement->servers[server_rank].bytes
                                                 : 0;
}
