/* Chunks of at least 16 KiB, linked; a piece larger than that gets a chunk of its own. */
#include "engine/graph/arena.h"

#include "base/util.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)16 << 10)

struct ps_arena_chunk {
    struct ps_arena_chunk *next;
    size_t size;
    _Alignas(16) unsigned char bytes[];
};

void ps_arena_fini(struct ps_arena *arena)
{
    struct ps_arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct ps_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (struct ps_arena){0};
}

void *ps_arena_calloc(struct ps_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!ps_mul_size(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = ps_align_up(PS_MAX(bytes, (size_t)1), 16);
    if (arena->chunks == NULL || arena->capacity - arena->used < bytes) {
        size_t capacity = PS_MAX(bytes, CHUNK_BYTES);
        struct ps_arena_chunk *chunk = calloc(1, sizeof(*chunk) + capacity);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = arena->chunks;
        chunk->size = capacity;
        arena->chunks = chunk;
        arena->used = 0;
        arena->capacity = capacity;
    }
    void *piece = arena->chunks->bytes + arena->used;
    arena->used += bytes;
    return piece;
}

char *ps_arena_printf(struct ps_arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = size < 0 ? NULL : ps_arena_calloc(arena, (size_t)size + 1, 1);
    if (text != NULL) {
        (void)vsnprintf(text, (size_t)size + 1, fmt, again);
    }
    va_end(again);
    return text;
}

enum ps_status ps_array_reserve(void **array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) {
        return PS_OK;
    }
    size_t grown = PS_MAX(PS_MAX(*capacity * 2, need), (size_t)16);
    size_t bytes;
    if (!ps_mul_size(grown, size, &bytes)) {
        return PS_ENOMEM;
    }
    unsigned char *moved = realloc(*array, bytes);
    if (moved == NULL) {
        return PS_ENOMEM;
    }
    memset(moved + *capacity * size, 0, (grown - *capacity) * size);
    *array = moved;
    *capacity = grown;
    return PS_OK;
}
