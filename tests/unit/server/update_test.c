/* Rules and their application to entries: live changes, update counts, masters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "server/update.h"

#include <string.h>

static struct ps_update_rule rule;
static struct ps_quorum quorum;
static struct ps_blocks *blocks;
static struct ps_entry entry;
static struct ps_entry_key key;
static struct ps_entry_env env;
static uint64_t next_step;
static enum ps_status last_status;

static bool optimized(void *ctx, const struct ps_entry *e)
{
    PS_UNUSED(ctx);
    PS_UNUSED(e);
    return rule.set;
}

static enum ps_status update(void *ctx, struct ps_entry *e,
                             const struct ps_entry_update *u, struct ps_error *err)
{
    PS_UNUSED(ctx);
    return ps_update_apply(&rule, e, u, err);
}

static void answer(void *ctx, struct ps_entry_ask *ask, const struct ps_entry_answer *a)
{
    PS_UNUSED(ctx);
    PS_UNUSED(ask);
    last_status = a->status;
}

static void ask(unsigned op, uint32_t rank, uint64_t step, const void *data)
{
    static struct ps_entry_ask asks[64];
    static size_t n;
    struct ps_entry_ask *a = &asks[n++ % PS_COUNT(asks)];
    *a = (struct ps_entry_ask){.op = (uint8_t)op, .rank = rank, .step = step, .id = n};
    ps_entry_ask(&entry, a, data, entry.bytes, NULL);
}

static void open_entry(uint32_t ranks, enum ps_dtype dtype, const char *name,
                       const char *hyper, bool master)
{
    struct ps_error err = {0};
    memset(&rule, 0, sizeof(rule));
    assert_int_equal(ps_update_rule_set(&rule, name, hyper, master, &err), PS_OK);
    assert_int_equal(ps_quorum_init(&quorum, ranks), PS_OK);
    assert_int_equal(ps_blocks_create(&blocks), PS_OK);
    env = (struct ps_entry_env){.quorum = &quorum,
                                .blocks = blocks,
                                .optimized = optimized,
                                .update = update,
                                .answer = answer};
    key = (struct ps_entry_key){.name = "w", .dtype = dtype};
    assert_int_equal(ps_entry_init(&entry, &env, &key, 0, 1), PS_OK);
    next_step = 1;
    uint64_t zero = 0;
    ask(PS_REC_INIT, 0, 0, &zero);
}

static void close_entry(void)
{
    ps_entry_fini(&entry);
    ps_blocks_destroy(blocks);
    ps_quorum_fini(&quorum);
}

static float push(float g)
{
    ask(PS_REC_PUSH, 0, next_step++, &g);
    return *(const float *)entry.value->data;
}

static void case_039_a_learning_rate_changes_live(void **state)
{
    PS_UNUSED(state);
    struct ps_error err = {0};
    open_entry(1, PS_F32, "sgd", "learning_rate=0.1", false);
    assert_float_equal(push(1), -0.1f, 1e-7f);
    assert_int_equal(ps_update_rule_change(&rule, "learning_rate=0.01", 0, &err), PS_OK);
    assert_float_equal(push(1), -0.11f, 1e-7f);
    close_entry();
}

static void a_change_takes_effect_at_its_step(void **state)
{
    PS_UNUSED(state);
    struct ps_error err = {0};
    open_entry(1, PS_F32, "sgd", "lr=1", false);
    assert_int_equal(ps_update_rule_change(&rule, "lr=10", 3, &err), PS_OK);
    assert_int_equal(ps_update_rule_change(&rule, "lr=100", 4, &err), PS_OK);
    assert_float_equal(push(1), -1, 0);
    assert_float_equal(push(1), -2, 0);
    assert_float_equal(push(1), -12, 0);
    assert_float_equal(push(1), -112, 0);
    for (uint64_t s = 100; s < 140; s++) { /* the history is short, the last one counts */
        assert_int_equal(ps_update_rule_change(&rule, "lr=7", s, &err), PS_OK);
    }
    assert_float_equal(ps_update_rule_at(&rule, 1000)->lr, 7, 0);
    close_entry();
}

static void case_040_the_update_count_is_the_keys(void **state)
{
    PS_UNUSED(state);
    static const float expect[] = {-0.1f, -0.2f, -0.29999993f};
    open_entry(2, PS_F32, "adam", "learning_rate=0.1", false);
    for (uint64_t step = 1; step <= 3; step++) {
        float half = 0.5f;
        ask(PS_REC_PUSH, 0, step, &half);
        ask(PS_REC_PUSH, 1, step, &half);
        assert_int_equal(entry.updates, step);
        assert_float_equal(*(const float *)entry.value->data, expect[step - 1], 2e-7f);
    }
    close_entry();
}

static void case_032_momentum_of_three_steps(void **state)
{
    PS_UNUSED(state);
    open_entry(1, PS_F32, "sgd", "learning_rate=0.1,momentum=0.9", false);
    assert_float_equal(push(1), -0.1f, 1e-6f);
    assert_float_equal(push(1), -0.29f, 1e-6f);
    assert_float_equal(push(1), -0.561f, 1e-6f);
    close_entry();
}

static void a_master_keeps_what_halves_cannot_hold(void **state)
{
    PS_UNUSED(state);
    uint16_t g = ps_f32_to_f16(1);
    struct ps_error err = {0};
    open_entry(1, PS_F16, "sgd", "lr=0.0001", true);
    ((uint16_t *)entry.value->data)[0] = ps_f32_to_f16(1); /* 1 - 1e-4 rounds to 1 */
    for (int i = 0; i < 5; i++) {
        ask(PS_REC_PUSH, 0, next_step++, &g);
    }
    /* momentum comes live: the state is made anew, the master stays */
    assert_int_equal(ps_update_rule_change(&rule, "momentum=0.5", 0, &err), PS_OK);
    for (int i = 0; i < 5; i++) {
        ask(PS_REC_PUSH, 0, next_step++, &g);
    }
    assert_int_equal(last_status, PS_OK);
    float master = *(const float *)entry.state;
    assert_true(master < 0.9989f && master > 0.998f);
    assert_true(ps_f16_to_f32(*(const uint16_t *)entry.value->data) < 1);
    close_entry();
}

static void integers_and_bad_words_are_refused(void **state)
{
    PS_UNUSED(state);
    struct ps_error err = {0};
    int32_t g = 1;
    open_entry(1, PS_I32, "sgd", "", false);
    ask(PS_REC_PUSH, 0, 1, &g);
    assert_int_equal(last_status, PS_EDTYPE);
    assert_int_equal(ps_update_rule_set(&rule, "sgdd", "", false, &err), PS_EINVAL);
    assert_int_equal(ps_update_rule_change(&rule, "lr", 0, &err), PS_EINVAL);
    assert_int_not_equal(ps_update_rule_change(&rule, "lr=abc", 0, &err), PS_OK);
    assert_int_not_equal(ps_update_rule_change(&rule, "lrr=1", 0, &err), PS_OK);
    memset(&rule, 0, sizeof(rule));
    assert_int_equal(ps_update_rule_change(&rule, "lr=1", 0, &err), PS_ENOENT);
    close_entry();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_039_a_learning_rate_changes_live),
        cmocka_unit_test(a_change_takes_effect_at_its_step),
        cmocka_unit_test(case_040_the_update_count_is_the_keys),
        cmocka_unit_test(case_032_momentum_of_three_steps),
        cmocka_unit_test(a_master_keeps_what_halves_cannot_hold),
        cmocka_unit_test(integers_and_bad_words_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
