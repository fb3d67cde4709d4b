/* An entry with a recording owner: answers are kept by ask, updates are "add".
 * Threads: the test's. */
#ifndef PENSTOCK_TESTS_ENTRY_FIXTURE_H
#define PENSTOCK_TESTS_ENTRY_FIXTURE_H

#include "kvstore/shard/entry.h"

#define TEST_ASKS 4096

struct test_ask {
    struct ps_entry_ask ask;
    unsigned answers;
    enum ps_status status;
    struct ps_buf *value; /* retained */
    uint64_t version;
    uint32_t contributors;
    char text[256];
};

struct entry_fixture {
    struct ps_quorum quorum;
    struct ps_blocks *blocks;
    struct ps_entry_env env;
    struct ps_entry_key key;
    struct ps_entry entry;
    bool optimized; /* w += g */
    enum ps_status update_status, fault_status;
    unsigned updates;
    struct ps_entry_update last;
    struct test_ask asks[TEST_ASKS];
    size_t ask_count;
    uint64_t next_id;
};

struct fixture_options {
    uint32_t ranks, count;
    enum ps_dtype dtype;
    uint8_t mode, reduction;
    bool optimized;
};
void fixture_open(struct entry_fixture *f, const struct fixture_options *options);
void fixture_close(struct entry_fixture *f);
/* One record; 'data' NULL = empty.  'hold' as ps_entry_ask. */
struct test_ask *fixture_ask(struct entry_fixture *f, unsigned op, uint32_t rank,
                             uint64_t step, const void *data, struct ps_buf *hold);
/* The same request again. */
struct test_ask *fixture_again(struct entry_fixture *f, const struct test_ask *before,
                               const void *data);
/* f32 entries: every element is x. */
struct test_ask *fixture_f32(struct entry_fixture *f, unsigned op, uint32_t rank,
                             uint64_t step, float x);
float fixture_value(const struct ps_buf *buf, size_t i);

#endif
