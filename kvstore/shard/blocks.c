/* Size classes are powers of two from 64 bytes; a free block's first word links to the
 * next.  Threads: one at a time. */
#include "kvstore/shard/blocks.h"

#include "base/mem.h"

#include <stdlib.h>

#define CLASS_MIN_SHIFT 6
#define CLASS_COUNT 40

struct free_block {
    struct free_block *next;
};

struct ps_blocks {
    struct free_block *free[CLASS_COUNT];
    size_t in_use, bytes;
};

static size_t class_of(size_t size)
{
    size_t class = 0;
    while (class < CLASS_COUNT && ((size_t)1 << (class + CLASS_MIN_SHIFT)) < size) {
        class ++;
    }
    return class;
}

enum ps_status ps_blocks_create(struct ps_blocks **blocks_out)
{
    struct ps_blocks *blocks = calloc(1, sizeof(*blocks));
    if (blocks == NULL) {
        return PS_ENOMEM;
    }
    *blocks_out = blocks;
    return PS_OK;
}

void ps_blocks_destroy(struct ps_blocks *blocks)
{
    if (blocks == NULL) {
        return;
    }
    for (size_t c = 0; c < CLASS_COUNT; c++) {
        while (blocks->free[c] != NULL) {
            struct free_block *block = blocks->free[c];
            blocks->free[c] = block->next;
            ps_mem_free(block);
        }
    }
    free(blocks);
}

void *ps_blocks_get(struct ps_blocks *blocks, size_t size)
{
    size_t class = class_of(size);
    if (class >= CLASS_COUNT) {
        return NULL;
    }
    struct free_block *block = blocks->free[class];
    if (block != NULL) {
        blocks->free[class] = block->next;
    } else {
        size_t bytes = (size_t)1 << (class + CLASS_MIN_SHIFT);
        block = ps_mem_alloc(bytes);
        if (block == NULL) {
            return NULL;
        }
        blocks->bytes += bytes;
    }
    blocks->in_use++;
    return block;
}

void ps_blocks_put(struct ps_blocks *blocks, void *ptr, size_t size)
{
    if (ptr == NULL) {
        return;
    }
    struct free_block *block = ptr;
    size_t class = class_of(size);
    block->next = blocks->free[class];
    blocks->free[class] = block;
    blocks->in_use--;
}

size_t ps_blocks_in_use(const struct ps_blocks *blocks)
{
    return blocks->in_use;
}

size_t ps_blocks_bytes(const struct ps_blocks *blocks)
{
    return blocks->bytes;
}
