/* The simulated network: loss, duplicates, reordering, partitions, killed nodes, and the
 * repeatability of all that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/suite/net_rig.h"

#include <stdlib.h>
#include <string.h>

#define CALLS 1000

static void open_storm(struct net_rig *rig, uint64_t seed)
{
    static const char *const overrides[] = {"RESEND_TIMEOUT_MS=50", NULL};
    struct ps_net_weather weather = {.delay_min_ns = 100 * PS_NS_PER_US,
                                     .delay_max_ns = 20 * PS_NS_PER_MS,
                                     .drop = 0.1,
                                     .duplicate = 0.1};
    memset(rig, 0, sizeof(*rig));
    rig->scheme = "sim";
    assert_int_equal(ps_sim_create(seed, &rig->sim), PS_OK);
    assert_int_equal(ps_net_world_create(rig->sim, &rig->world), PS_OK);
    ps_net_world_set_weather(rig->world, &weather);
    net_rig_node(rig, &rig->server, "server/0", overrides);
    net_rig_node(rig, &rig->client, "worker/0", overrides);
    net_rig_end(&rig->server, PS_ROLE_SERVER, 2, 0);
    net_rig_end(&rig->client, PS_ROLE_WORKER, 3, 0);
    rig->server.echo = true;
    net_rig_connect(rig);
}

static uint64_t storm(uint64_t seed)
{
    struct net_rig rig;
    struct net_rig_call *calls = calloc(CALLS, sizeof(*calls));
    assert_non_null(calls);
    open_storm(&rig, seed);
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i].seed = i;
        net_rig_call_start(&rig.client, &calls[i], net_rig_payload(200, i));
    }
    for (unsigned i = 0; i < CALLS; i++) {
        net_rig_wait(&rig.client, &calls[i].dones, 1);
        assert_int_equal(calls[i].status, PS_OK);
        assert_true(calls[i].reply_ok);
        assert_int_equal(atomic_load(&calls[i].dones), 1);
    }
    uint64_t hash = ps_sim_trace_hash(rig.sim);
    net_rig_close(&rig);
    free(calls);
    return hash;
}

static void a_thousand_calls_are_answered_under_loss_duplication_and_reordering(void **s)
{
    (void)s;
    (void)storm(11);
}

static void the_same_seed_gives_the_same_trace_and_another_seed_another(void **state)
{
    (void)state;
    uint64_t first = storm(5);
    assert_true(storm(5) == first);
    assert_true(storm(6) != first);
}

static void a_partition_holds_calls_back_until_it_heals(void **state)
{
    struct net_rig rig;
    (void)state;
    open_storm(&rig, 3);
    ps_net_world_partition(rig.world, "worker/0", "server/0", true);
    struct net_rig_call call = {.seed = 1};
    net_rig_call_start(&rig.client, &call, net_rig_payload(10, 1));
    assert_false(net_rig_wait_for(&rig.client, &call.dones, 1, 5 * PS_NS_PER_S));
    ps_net_world_partition(rig.world, "server/0", "worker/0", false);
    net_rig_wait(&rig.client, &call.dones, 1);
    assert_int_equal(call.status, PS_OK);
    net_rig_close(&rig);
}

static void a_killed_peer_is_down_after_the_grace_and_its_calls_end(void **state)
{
    struct net_rig rig;
    (void)state;
    open_storm(&rig, 4);
    ps_sim_kill_node(rig.sim, "server/0");
    struct net_rig_call call = {.seed = 1};
    net_rig_call_start(&rig.client, &call, net_rig_payload(10, 1));
    net_rig_wait(&rig.client, &rig.client.downs, 1);
    assert_int_equal(call.status, PS_EPEER);
    assert_int_equal(rig.client.down_error.status, PS_EPEER);
    assert_non_null(strstr(rig.client.down_error.text, "lost server/0 (member 2"));
    net_rig_close(&rig);
}

static void a_dead_nodes_name_can_be_listened_at_again(void **state)
{
    struct net_rig rig;
    struct net_side second;
    (void)state;
    memset(&second, 0, sizeof(second));
    open_storm(&rig, 9);
    ps_sim_kill_node(rig.sim, "server/0");
    net_rig_node(&rig, &second, "server/0b", NULL);
    net_rig_end(&second, PS_ROLE_SERVER, 9, 0);
    net_rig_listen(&second);
    /* The dialer comes back to a stranger: its link ends and names both. */
    net_rig_wait(&rig.client, &rig.client.downs, 1);
    assert_non_null(strstr(rig.client.down_error.text, "answers in its place"));
    net_rig_close_end(&second);
    ps_event_fini(&second.changed);
    ps_node_close(second.node);
    net_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_thousand_calls_are_answered_under_loss_duplication_and_reordering),
        cmocka_unit_test(the_same_seed_gives_the_same_trace_and_another_seed_another),
        cmocka_unit_test(a_partition_holds_calls_back_until_it_heals),
        cmocka_unit_test(a_killed_peer_is_down_after_the_grace_and_its_calls_end),
        cmocka_unit_test(a_dead_nodes_name_can_be_listened_at_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
