/* The tree of merge.c over arrays that are all there, block by block in the cache.
 *
 * Leaves are pushed on a stack of (level, value); two equal levels become one of the
 * next, as a binary counter carries, and at the end the stack is folded from the top:
 * exactly the nodes of the level-wise pairing, absent leaves included.  Threads: any;
 * pure. */
#include "base/util.h"
#include "kernels/reduce.h"
#include "kvstore/shard/merge.h"

#include <string.h>

#define BLOCK 2048 /* elements: the stack of a few blocks stays in the first cache */
#define STACK_MAX 33

struct item {
    uint32_t level;
    bool present, leaf;
    const void *data; /* leaf: where it came from; else the item's slot of the scratch */
};

struct fold {
    enum ps_dtype dtype;
    size_t n, slot_bytes;
    unsigned char *scratch;
    struct item stack[STACK_MAX];
    uint32_t depth;
};

static uint32_t stack_depth(uint32_t n)
{
    uint32_t depth = 1;
    while ((n >>= 1) != 0) {
        depth++;
    }
    return depth + 1;
}

size_t ps_tree_sum_scratch_bytes(uint32_t n, enum ps_dtype dtype)
{
    return stack_depth(n) * (size_t)BLOCK *
           ps_dtype_size((int)ps_dtype_accumulator(dtype));
}

/* The two topmost items become one, in the lower one's place. */
static void fold_top(struct fold *f)
{
    struct item *a = &f->stack[f->depth - 2], b = f->stack[f->depth - 1];
    void *slot = f->scratch + (f->depth - 2) * f->slot_bytes;
    f->depth--;
    a->level++;
    if (!b.present) {
        return;
    }
    if (!a->present && b.leaf) {
        a->data = b.data;
    } else if (!a->present) {
        memcpy(slot, b.data, f->slot_bytes);
        a->data = slot;
    } else if (a->leaf && b.leaf) {
        ps_reduce_sum2(slot, a->data, b.data, (int)f->dtype, f->n);
        a->data = slot;
    } else if (a->leaf) {
        ps_reduce_load(slot, a->data, (int)f->dtype, f->n);
        ps_reduce_merge(slot, b.data, (int)f->dtype, f->n);
        a->data = slot;
    } else if (b.leaf) {
        ps_reduce_add(slot, b.data, (int)f->dtype, f->n);
    } else {
        ps_reduce_merge(slot, b.data, (int)f->dtype, f->n);
    }
    a->leaf = !a->present ? b.leaf : false;
    a->present = true;
}

static void sum_block(struct fold *f, void *out, const void *const *in, uint32_t n,
                      size_t offset)
{
    f->depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *data = in[i];
        f->stack[f->depth++] = (struct item){.present = data != NULL,
                                             .leaf = true,
                                             .data = data == NULL ? NULL : data + offset};
        while (f->depth > 1 &&
               f->stack[f->depth - 1].level == f->stack[f->depth - 2].level) {
            fold_top(f);
        }
    }
    while (f->depth > 1) {
        fold_top(f);
    }
    const struct item *sum = &f->stack[0];
    void *dst = (unsigned char *)out + offset;
    if (sum->present && sum->leaf) {
        memmove(dst, sum->data, f->n * ps_dtype_size((int)f->dtype));
    } else if (sum->present) {
        ps_reduce_store(dst, sum->data, (int)f->dtype, f->n);
    }
}

void ps_tree_sum(void *out, const void *const *in, uint32_t n, enum ps_dtype dtype,
                 uint64_t count, void *scratch)
{
    size_t size = ps_dtype_size((int)dtype);
    enum ps_dtype acc = ps_dtype_accumulator(dtype);
    if (n == 2 && acc == dtype && in[0] != NULL && in[1] != NULL) {
        ps_reduce_sum2(out, in[0], in[1], (int)dtype, (size_t)count);
        return;
    }
    struct fold f = {.dtype = dtype,
                     .slot_bytes = BLOCK * ps_dtype_size((int)acc),
                     .scratch = scratch};
    for (size_t at = 0; at < count; at += BLOCK) {
        f.n = PS_MIN((size_t)BLOCK, (size_t)count - at);
        sum_block(&f, out, in, n, at * size);
    }
}
