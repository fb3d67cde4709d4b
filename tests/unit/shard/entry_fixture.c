#include "entry_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool optimized(void *ctx, const struct ps_entry *entry)
{
    const struct entry_fixture *f = ctx;
    PS_UNUSED(entry);
    return f->optimized;
}

static enum ps_status update(void *ctx, struct ps_entry *entry,
                             const struct ps_entry_update *u, struct ps_error *err)
{
    struct entry_fixture *f = ctx;
    if (f->update_status != PS_OK) {
        return ps_error_set(err, f->update_status, "update refused");
    }
    f->updates++;
    f->last = *u;
    assert_int_equal(u->grad_dtype, PS_F32);
    const float *w = u->weight, *g = u->grad;
    float *out = u->weight_out;
    for (uint32_t i = 0; i < entry->count; i++) {
        out[i] = w[i] + (float)u->rescale * g[i];
    }
    return PS_OK;
}

static void answer(void *ctx, struct ps_entry_ask *ask, const struct ps_entry_answer *a)
{
    struct test_ask *t = PS_CONTAINER_OF(ask, struct test_ask, ask);
    PS_UNUSED(ctx);
    t->answers++;
    assert_int_equal(t->answers, 1); /* exactly once */
    t->status = a->status;
    t->version = a->version;
    t->contributors = a->contributors;
    t->value = a->value != NULL ? ps_buf_retain(a->value) : NULL;
    snprintf(t->text, sizeof(t->text), "%s", a->text);
}

static enum ps_status fault(void *ctx, const char *point)
{
    const struct entry_fixture *f = ctx;
    assert_string_equal(point, "merge.before_publish");
    return f->fault_status;
}

void fixture_open(struct entry_fixture *f, const struct fixture_options *o)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(ps_quorum_init(&f->quorum, o->ranks), PS_OK);
    assert_int_equal(ps_blocks_create(&f->blocks), PS_OK);
    f->env = (struct ps_entry_env){.ctx = f,
                                   .quorum = &f->quorum,
                                   .blocks = f->blocks,
                                   .optimized = optimized,
                                   .update = update,
                                   .answer = answer,
                                   .fault = fault};
    f->key = (struct ps_entry_key){.handle = ps_handle_make(0, 1, 1),
                                   .name = "17",
                                   .dtype = o->dtype,
                                   .mode = o->mode,
                                   .reduction = o->reduction};
    f->optimized = o->optimized;
    assert_int_equal(ps_entry_init(&f->entry, &f->env, &f->key, 0, o->count), PS_OK);
}

void fixture_close(struct entry_fixture *f)
{
    ps_entry_fini(&f->entry);
    for (size_t i = 0; i < f->ask_count; i++) {
        assert_int_equal(f->asks[i].answers, 1); /* nobody is forgotten */
        ps_buf_release(f->asks[i].value);
    }
    assert_int_equal(ps_blocks_in_use(f->blocks), 0);
    ps_blocks_destroy(f->blocks);
    ps_quorum_fini(&f->quorum);
}

static struct test_ask *put(struct entry_fixture *f, const struct ps_entry_ask *like)
{
    assert_true(f->ask_count < TEST_ASKS);
    struct test_ask *t = &f->asks[f->ask_count++];
    t->ask = *like;
    return t;
}

struct test_ask *fixture_ask(struct entry_fixture *f, unsigned op, uint32_t rank,
                             uint64_t step, const void *data, struct ps_buf *hold)
{
    struct ps_entry_ask like = {
        .op = (uint8_t)op, .rank = rank, .step = step, .id = ++f->next_id};
    struct test_ask *t = put(f, &like);
    ps_entry_ask(&f->entry, &t->ask, data, data != NULL ? f->entry.bytes : 0, hold);
    return t;
}

struct test_ask *fixture_again(struct entry_fixture *f, const struct test_ask *before,
                               const void *data)
{
    struct ps_entry_ask like = {.op = before->ask.op,
                                .rank = before->ask.rank,
                                .step = before->ask.step,
                                .id = before->ask.id};
    struct test_ask *t = put(f, &like);
    ps_entry_ask(&f->entry, &t->ask, data, data != NULL ? f->entry.bytes : 0, NULL);
    return t;
}

struct test_ask *fixture_f32(struct entry_fixture *f, unsigned op, uint32_t rank,
                             uint64_t step, float x)
{
    float *data = malloc(f->entry.bytes);
    assert_non_null(data);
    for (uint32_t i = 0; i < f->entry.count; i++) {
        data[i] = x;
    }
    struct test_ask *t = fixture_ask(f, op, rank, step, data, NULL);
    memset(data, 0x7f, f->entry.bytes); /* the entry must not look again */
    free(data);
    return t;
}

float fixture_value(const struct ps_buf *buf, size_t i)
{
    assert_non_null(buf);
    return ((const float *)buf->data)[i];
}
