/* Who holds a pool's memory, and the words of an allocation that failed.  Walks the list
 * of named blocks, so it is for failures and not for every step. */
#include "engine/device/pool.h"

#include <stdio.h>
#include <string.h>

enum { HOLDERS = 3, BYTES_TEXT = 24 };

static const char *bytes_text(uint64_t bytes, char out[BYTES_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    if (bytes < 1024) {
        (void)snprintf(out, BYTES_TEXT, "%u B", (unsigned)bytes);
        return out;
    }
    while (value >= 1024 && unit + 1 < PS_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, BYTES_TEXT, "%.1f %s", value, units[unit]);
    return out;
}

struct holder {
    char label[PS_LABEL_BYTES];
    uint64_t bytes; /* of all blocks with this label */
};

static bool is_listed(const struct holder *holders, size_t count, const char *label)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(holders[i].label, label) == 0) {
            return true;
        }
    }
    return false;
}

static struct ps_device_block *block_of(struct ps_list *link)
{
    return PS_CONTAINER_OF(link, struct ps_device_block, link);
}

/* The labels of the largest blocks, with what all their blocks hold; returns how many. */
static size_t top_holders(struct ps_device_pool *pool, struct holder holders[HOLDERS])
    PS_REQUIRES(pool->lock)
{
    size_t count = 0;
    while (count < HOLDERS) {
        const struct ps_device_block *top = NULL;
        for (struct ps_list *at = pool->named.next; at != &pool->named; at = at->next) {
            const struct ps_device_block *block = block_of(at);
            if ((top == NULL || block->block_bytes > top->block_bytes) &&
                !is_listed(holders, count, block->label)) {
                top = block;
            }
        }
        if (top == NULL) {
            break;
        }
        struct holder *holder = &holders[count++];
        memcpy(holder->label, top->label, sizeof(holder->label));
        holder->bytes = 0;
        for (struct ps_list *at = pool->named.next; at != &pool->named; at = at->next) {
            const struct ps_device_block *block = block_of(at);
            holder->bytes +=
                strcmp(block->label, holder->label) == 0 ? block->block_bytes : 0;
        }
    }
    return count;
}

void ps_device_pool_label(struct ps_device_pool *pool, struct ps_device_block *block,
                          const char *label)
{
    size_t size = strlen(label);
    size = PS_MIN(size, sizeof(block->label) - 1);
    ps_mutex_lock(&pool->lock);
    memcpy(block->label, label, size);
    block->label[size] = '\0';
    ps_mutex_unlock(&pool->lock);
}

enum ps_status ps_device_pool_explain(struct ps_device_pool *pool, const char *device,
                                      size_t size, const struct ps_pool_memory *memory,
                                      struct ps_error *err)
{
    struct holder holders[HOLDERS];
    char asked[BYTES_TEXT], requested[BYTES_TEXT], reserved[BYTES_TEXT];
    char text[PS_ERROR_TEXT_BYTES] = "", number[BYTES_TEXT], more[BYTES_TEXT];
    size_t used = 0;
    ps_mutex_lock(&pool->lock);
    struct ps_device_usage usage = pool->usage;
    size_t count = top_holders(pool, holders);
    ps_mutex_unlock(&pool->lock);
    if (memory != NULL) {
        used += (size_t)snprintf(text, sizeof(text), ", largest free %s of %s",
                                 bytes_text(memory->largest_bytes, number),
                                 bytes_text(memory->free_bytes, more));
    }
    if (memory != NULL && pool->source.memory != NULL) {
        size_t kept = ps_device_pool_reserve(pool, memory->total_bytes);
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 " with %s kept as reserve", bytes_text(kept, number));
    }
    for (size_t i = 0; i < count && used < sizeof(text); i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
                             i == 0 ? "; top holders: " : ", ",
                             holders[i].label[0] != '\0' ? holders[i].label : "unnamed",
                             bytes_text(holders[i].bytes, number));
    }
    return ps_error_set(
        err, PS_ENOMEM, "%s: no memory for %s: %s requested, %s reserved%s", device,
        bytes_text(size, asked), bytes_text(usage.requested_bytes, requested),
        bytes_text(usage.reserved_bytes, reserved), text);
}
