/* The pairwise tree as a state machine: nodes resolve bottom-up as ranks arrive.
 *
 * Node (level, position) lives at base[level] + position.  A resolved node waits for its
 * sibling; then both become their parent.  What a node holds is nothing (skipped, or an
 * empty vote), a leaf (the contribution as it came, retained) or a partial (a block of
 * accumulators).  Threads: one at a time per merge. */
#include "kvstore/shard/merge.h"

#include "base/util.h"
#include "kernels/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 33    /* 2^32 leaves */
#define STAGE_BYTES 4096 /* for contributions that are not aligned */

enum node_state {
    NODE_OPEN = 0,
    NODE_NONE,    /* resolved: nothing to add */
    NODE_LEAF,    /* resolved: 'data' of the leaf's dtype inside 'hold' */
    NODE_PARTIAL, /* resolved: 'data' are accumulators, in a block or the target */
    NODE_USED     /* its value went to the parent */
};

struct node {
    enum node_state state;
    void *data;
    struct ps_buf *hold;
};

struct ps_merge {
    struct ps_blocks *blocks;
    bool owns_blocks;
    enum ps_dtype dtype, acc;
    uint64_t count;
    size_t block_bytes;
    uint32_t ranks;
    uint32_t levels; /* the root is node (levels - 1, 0) */
    uint32_t width[LEVELS_MAX], base[LEVELS_MAX];
    uint32_t node_count;
    uint32_t arrived, contributors;
    void *target;
    void *spare; /* during a call: one block, all that an arrival can need */
    struct node nodes[];
};

/* ---- life ---- */

enum ps_status ps_merge_create_in(struct ps_blocks *blocks, uint32_t ranks,
                                  enum ps_dtype dtype, uint64_t count,
                                  struct ps_merge **merge_out)
{
    uint32_t width[LEVELS_MAX], base[LEVELS_MAX], levels = 0, nodes = 0;
    size_t bytes;
    if (ranks == 0 || ranks > UINT32_C(1) << 20 || count == 0 || count > SIZE_MAX ||
        ps_dtype_size((int)dtype) == 0) {
        return PS_EINVAL;
    }
    enum ps_dtype acc = ps_dtype_accumulator(dtype);
    if (!ps_mul_size((size_t)count, ps_dtype_size((int)acc), &bytes)) {
        return PS_ERANGE;
    }
    for (uint32_t w = ranks;; w = (w + 1) / 2) {
        width[levels] = w;
        base[levels++] = nodes;
        nodes += w;
        if (w == 1) {
            break;
        }
    }
    struct ps_merge *m = calloc(1, sizeof(*m) + nodes * sizeof(m->nodes[0]));
    if (m == NULL) {
        return PS_ENOMEM;
    }
    m->blocks = blocks;
    m->dtype = dtype;
    m->acc = acc;
    m->count = count;
    m->block_bytes = bytes;
    m->ranks = ranks;
    m->levels = levels;
    m->node_count = nodes;
    memcpy(m->width, width, sizeof(width[0]) * levels);
    memcpy(m->base, base, sizeof(base[0]) * levels);
    *merge_out = m;
    return PS_OK;
}

enum ps_status ps_merge_create(uint32_t ranks, enum ps_dtype dtype, uint64_t count,
                               struct ps_merge **merge_out)
{
    struct ps_blocks *blocks;
    PS_TRY(ps_blocks_create(&blocks));
    enum ps_status status = ps_merge_create_in(blocks, ranks, dtype, count, merge_out);
    if (status != PS_OK) {
        ps_blocks_destroy(blocks);
        return status;
    }
    (*merge_out)->owns_blocks = true;
    return PS_OK;
}

static void release_node(struct ps_merge *m, struct node *node)
{
    if (node->state == NODE_PARTIAL && node->data != m->target) {
        ps_blocks_put(m->blocks, node->data, m->block_bytes);
    }
    ps_buf_release(node->hold);
    *node = (struct node){.state = NODE_OPEN};
}

void ps_merge_reset(struct ps_merge *merge)
{
    for (uint32_t i = 0; i < merge->node_count; i++) {
        release_node(merge, &merge->nodes[i]);
    }
    merge->arrived = 0;
    merge->contributors = 0;
    merge->target = NULL;
}

void ps_merge_forget(struct ps_merge *merge)
{
    for (uint32_t i = 0; i < merge->node_count; i++) {
        struct node *node = &merge->nodes[i];
        if (node->state == NODE_LEAF || node->state == NODE_PARTIAL) {
            release_node(merge, node);
            node->state = NODE_NONE;
        }
    }
}

void ps_merge_destroy(struct ps_merge *merge)
{
    if (merge == NULL) {
        return;
    }
    ps_merge_reset(merge);
    if (merge->owns_blocks) {
        ps_blocks_destroy(merge->blocks);
    }
    free(merge);
}

/* ---- sums of contributions of any alignment ---- */

static bool aligned(const struct ps_merge *m, const void *data)
{
    return (uintptr_t)data % ps_dtype_size((int)m->dtype) == 0;
}

/* acc = data, or acc += data, through an aligned stage where the data is not. */
static void take_in(const struct ps_merge *m, void *acc, const void *data, bool add)
{
    _Alignas(64) unsigned char stage[STAGE_BYTES];
    size_t size = ps_dtype_size((int)m->dtype), acc_size = ps_dtype_size((int)m->acc);
    size_t step = aligned(m, data) ? (size_t)m->count : STAGE_BYTES / size;
    for (size_t at = 0; at < m->count; at += step) {
        size_t n = PS_MIN(step, (size_t)m->count - at);
        const void *src = (const unsigned char *)data + at * size;
        void *dst = (unsigned char *)acc + at * acc_size;
        if (!aligned(m, data)) {
            memcpy(stage, src, n * size);
            src = stage;
        }
        if (add) {
            ps_reduce_add(dst, src, (int)m->dtype, n);
        } else {
            ps_reduce_load(dst, src, (int)m->dtype, n);
        }
    }
}

/* An arrival makes at most one block: two leaves meet once on its way up (their sum is a
 * partial from there on), or a lone leaf is copied or widened.  Taking it first means
 * that nothing can fail half-way up the tree. */
static enum ps_status reserve(struct ps_merge *m)
{
    m->spare = ps_blocks_get(m->blocks, m->block_bytes);
    return m->spare == NULL ? PS_ENOMEM : PS_OK;
}

static void unreserve(struct ps_merge *m)
{
    ps_blocks_put(m->blocks, m->spare, m->block_bytes);
    m->spare = NULL;
}

static void *take_spare(struct ps_merge *m)
{
    void *block = m->spare;
    assert(block != NULL);
    m->spare = NULL;
    return block;
}

/* ---- the tree ---- */

/* Makes 'left' and 'right' (both with a value) one partial in 'left'.  'root': the sum is
 * the result. */
static void combine(struct ps_merge *m, struct node *left, struct node *right, bool root)
{
    void *target = root && m->dtype == m->acc ? m->target : NULL;
    struct node sum = {.state = NODE_PARTIAL};
    bool left_leaf = left->state == NODE_LEAF, right_leaf = right->state == NODE_LEAF;
    if (target != NULL || (left_leaf && right_leaf)) {
        sum.data = target != NULL ? target : take_spare(m);
        if (aligned(m, left->data) && aligned(m, right->data)) {
            ps_reduce_sum2(sum.data, left->data, right->data, (int)m->dtype,
                           (size_t)m->count);
        } else {
            take_in(m, sum.data, left->data, false);
            take_in(m, sum.data, right->data, true);
        }
    } else if (right_leaf) {
        take_in(m, left->data, right->data, true);
        sum.data = left->data;
        left->state = NODE_USED; /* its block lives on in the sum */
    } else if (left_leaf) {
        take_in(m, right->data, left->data, true);
        sum.data = right->data;
        right->state = NODE_USED;
    } else {
        ps_reduce_merge(left->data, right->data, (int)m->dtype, (size_t)m->count);
        sum.data = left->data;
        left->state = NODE_USED;
    }
    release_node(m, left);
    release_node(m, right);
    *left = sum;
}

/* Carries the resolved node (level, pos) up as far as its siblings allow. */
static void settle(struct ps_merge *m, uint32_t level, uint32_t pos)
{
    while (level + 1 < m->levels) {
        struct node *node = &m->nodes[m->base[level] + pos];
        struct node *parent = &m->nodes[m->base[level + 1] + pos / 2];
        struct node *left = &m->nodes[m->base[level] + (pos & ~UINT32_C(1))];
        if ((pos | 1) < m->width[level]) {
            struct node *right = left + 1;
            if (left->state == NODE_OPEN || right->state == NODE_OPEN) {
                return;
            }
            if (left->state != NODE_NONE && right->state != NODE_NONE) {
                combine(m, left, right, level + 2 == m->levels);
                node = left;
            } else {
                node = left->state != NODE_NONE ? left : right;
            }
            *parent = *node;
            *left = (struct node){.state = NODE_USED};
            *right = (struct node){.state = NODE_USED};
        } else {
            *parent = *node;
            *node = (struct node){.state = NODE_USED};
        }
        level++;
        pos /= 2;
    }
    /* A lone narrow leaf still has to be widened: the result is accumulators. */
    struct node *root = &m->nodes[m->base[level]];
    if (root->state == NODE_LEAF && (m->dtype != m->acc || !aligned(m, root->data))) {
        void *block = take_spare(m);
        take_in(m, block, root->data, false);
        release_node(m, root);
        *root = (struct node){.state = NODE_PARTIAL, .data = block};
    }
}

static enum ps_status check_rank(const struct ps_merge *m, uint32_t rank)
{
    if (rank >= m->ranks) {
        return PS_ERANGE;
    }
    return m->nodes[rank].state == NODE_OPEN ? PS_OK : PS_EEXIST;
}

/* Whether the sibling leaf's value is there, so that a borrowed leaf is added at once. */
static bool sibling_waits(const struct ps_merge *m, uint32_t rank)
{
    uint32_t sibling = rank ^ 1u;
    if (m->levels == 1 || sibling >= m->ranks) {
        return false;
    }
    return m->nodes[sibling].state == NODE_LEAF ||
           m->nodes[sibling].state == NODE_PARTIAL;
}

enum ps_status ps_merge_add_buf(struct ps_merge *merge, uint32_t rank, const void *data,
                                struct ps_buf *hold)
{
    PS_TRY(check_rank(merge, rank));
    PS_TRY(reserve(merge));
    struct node *leaf = &merge->nodes[rank];
    if (data == NULL) {
        leaf->state = NODE_NONE;
    } else if (hold != NULL) {
        *leaf = (struct node){.state = NODE_LEAF,
                              .data = (void *)(uintptr_t)data,
                              .hold = ps_buf_retain(hold)};
    } else if (sibling_waits(merge, rank)) {
        *leaf = (struct node){.state = NODE_LEAF, .data = (void *)(uintptr_t)data};
    } else {
        void *block = take_spare(merge);
        take_in(merge, block, data, false);
        *leaf = (struct node){.state = NODE_PARTIAL, .data = block};
    }
    settle(merge, 0, rank);
    unreserve(merge);
    merge->arrived++;
    merge->contributors += data != NULL;
    return PS_OK;
}

enum ps_status ps_merge_add(struct ps_merge *merge, uint32_t rank, const void *data)
{
    return ps_merge_add_buf(merge, rank, data, NULL);
}

enum ps_status ps_merge_skip(struct ps_merge *merge, uint32_t rank)
{
    PS_TRY(check_rank(merge, rank));
    PS_TRY(reserve(merge));
    merge->nodes[rank].state = NODE_NONE;
    settle(merge, 0, rank);
    unreserve(merge);
    return PS_OK;
}

void ps_merge_set_target(struct ps_merge *merge, void *target)
{
    merge->target = target;
}

/* ---- questions ---- */

static const struct node *root_of(const struct ps_merge *m)
{
    return &m->nodes[m->base[m->levels - 1]];
}

bool ps_merge_has(const struct ps_merge *merge, uint32_t rank)
{
    return rank < merge->ranks && merge->nodes[rank].state != NODE_OPEN;
}

bool ps_merge_complete(const struct ps_merge *merge)
{
    return root_of(merge)->state != NODE_OPEN;
}

uint32_t ps_merge_arrived(const struct ps_merge *merge)
{
    return merge->arrived;
}

uint32_t ps_merge_contributors(const struct ps_merge *merge)
{
    return merge->contributors;
}

const void *ps_merge_result(const struct ps_merge *merge)
{
    const struct node *root = root_of(merge);
    return root->state == NODE_LEAF || root->state == NODE_PARTIAL ? root->data : NULL;
}

struct ps_buf *ps_merge_result_buf(const struct ps_merge *merge)
{
    const struct node *root = root_of(merge);
    return root->state == NODE_LEAF ? root->hold : NULL;
}
