/* What placement.c and placement_add.c share.  Private to the room. */
#ifndef PENSTOCK_KVSTORE_SHARD_PLACEMENT_PRIVATE_H
#define PENSTOCK_KVSTORE_SHARD_PLACEMENT_PRIVATE_H

#include "base/map.h"
#include "kvstore/shard/placement.h"

struct ps_server_load {
    uint32_t member;
    uint64_t bytes;
    uint32_t shard_first, shard_count;
    uint32_t next; /* which of its shards gets the next extent */
};

struct ps_placement {
    uint32_t shard_count;
    uint64_t bigarray_bound;
    struct ps_server_load *servers;
    size_t server_count;
    struct ps_key_row *rows;
    size_t row_count, row_capacity;
    struct ps_strmap names; /* "store/n:name" -> 1 + index, as a pointer */
    uint64_t next_index;    /* of handles; one sequence for all stores */
};

#define PS_NAME_KEY_BYTES (PS_KEY_NAME_BYTES + 16)

/* "7/n:17" for the number 17 of store 7; "7/s:17" for the text. */
const char *ps_placement_name_key(uint32_t store, const struct ps_key_row *row,
                                  char out[PS_NAME_KEY_BYTES]);
/* The row with that name key; NULL when there is none. */
const struct ps_key_row *ps_placement_find_named(const struct ps_placement *placement,
                                                 const char *key);

#endif
