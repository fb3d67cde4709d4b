/* The simulated world: repeatable, different by seed, and able to kill. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/sim.h"

#include <string.h>

#define LIMIT_NS (100 * PS_NS_PER_S)

/* Two loops play ping-pong over a table of players, programs wait for them. */
struct player {
    struct ps_task task;
    struct ps_loop *loop;
    struct player *other;
    int left;
    struct ps_event *done;
    struct ps_timer timer;
};

static void serve(struct ps_timer *timer)
{
    struct player *player = PS_CONTAINER_OF(timer, struct player, timer);
    (void)ps_loop_post(player->other->loop, &player->other->task);
}

static void play(struct ps_task *task)
{
    struct player *player = PS_CONTAINER_OF(task, struct player, task);
    if (player->left-- == 0) {
        ps_event_set(player->done);
        return;
    }
    assert_int_equal(ps_timer_start(player->loop, &player->timer, PS_NS_PER_MS), PS_OK);
}

struct game {
    struct ps_driver *driver;
    struct ps_event done;
    int order;
    int *ended;
};

static void watch_game(void *arg)
{
    struct game *game = arg;
    assert_int_equal(ps_event_wait(&game->done, PS_NEVER), PS_OK);
    ps_driver_sleep(game->driver, 10);
    game->order = (*game->ended)++;
}

static uint64_t play_games(uint64_t seed, int orders[4])
{
    struct ps_sim *sim;
    struct player players[4][2];
    struct game games[4];
    int ended = 0;
    memset(players, 0, sizeof(players));
    assert_int_equal(ps_sim_create(seed, &sim), PS_OK);
    struct ps_driver *driver = ps_sim_driver(sim);
    for (int g = 0; g < 4; g++) {
        games[g] = (struct game){.driver = driver, .ended = &ended};
        assert_int_equal(ps_event_init(&games[g].done, driver), PS_OK);
        for (int p = 0; p < 2; p++) {
            struct player *player = &players[g][p];
            player->task = (struct ps_task){.run = play, .label = "play"};
            player->timer = (struct ps_timer){.run = serve, .label = "serve"};
            player->other = &players[g][1 - p];
            player->left = 20;
            player->done = &games[g].done;
            assert_int_equal(ps_loop_create(driver, "player", &player->loop), PS_OK);
            assert_int_equal(ps_loop_start(player->loop), PS_OK);
        }
        assert_true(ps_loop_post(players[g][0].loop, &players[g][0].task));
        assert_int_equal(ps_sim_spawn(sim, "watcher", watch_game, &games[g]), PS_OK);
    }
    assert_int_equal(ps_sim_run_programs(sim, LIMIT_NS), PS_OK);
    uint64_t hash = ps_sim_trace_hash(sim);
    for (int g = 0; g < 4; g++) {
        orders[g] = games[g].order;
        for (int p = 0; p < 2; p++) {
            ps_loop_stop(players[g][p].loop);
            ps_loop_destroy(players[g][p].loop);
        }
        ps_event_fini(&games[g].done);
    }
    ps_sim_destroy(sim);
    return hash;
}

static void the_same_seed_gives_the_same_trace(void **state)
{
    int a[4], b[4];
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        assert_true(play_games(seed, a) == play_games(seed, b));
        assert_memory_equal(a, b, sizeof(a));
    }
}

static void different_seeds_give_different_orders(void **state)
{
    int first[4], other[4];
    int different = 0;
    (void)state;
    uint64_t hash = play_games(1, first);
    for (uint64_t seed = 2; seed <= 9; seed++) {
        assert_true(play_games(seed, other) != hash);
        different += memcmp(first, other, sizeof(first)) != 0 ? 1 : 0;
    }
    assert_true(different > 0);
}

static void virtual_time_jumps(void **state)
{
    struct ps_sim *sim;
    (void)state;
    assert_int_equal(ps_sim_create(1, &sim), PS_OK);
    uint64_t before = ps_sim_now_ns(sim);
    ps_sim_run_for(sim, 3600 * PS_NS_PER_S);
    assert_true(ps_sim_now_ns(sim) - before == 3600 * PS_NS_PER_S);
    ps_sim_destroy(sim);
}

static void wait_for_ever(void *arg)
{
    struct ps_event *event = arg;
    enum ps_status status = ps_event_wait(event, PS_NEVER);
    assert_int_equal(status, PS_OK);
}

static void a_world_where_nothing_can_happen_says_so(void **state)
{
    struct ps_sim *sim;
    struct ps_event event;
    (void)state;
    assert_int_equal(ps_sim_create(1, &sim), PS_OK);
    assert_int_equal(ps_event_init(&event, ps_sim_driver(sim)), PS_OK);
    assert_int_equal(ps_event_wait(&event, PS_NEVER), PS_ETIMEDOUT);
    assert_int_equal(ps_sim_spawn(sim, "stuck", wait_for_ever, &event), PS_OK);
    assert_int_equal(ps_sim_run_programs(sim, PS_NEVER), PS_ETIMEDOUT);
    ps_event_set(&event);
    assert_int_equal(ps_sim_run_programs(sim, PS_NEVER), PS_OK);
    ps_event_fini(&event);
    ps_sim_destroy(sim);
}

struct again {
    struct ps_task task;
    struct ps_loop *loop;
};

static void post_again(struct ps_task *task)
{
    (void)ps_loop_post(PS_CONTAINER_OF(task, struct again, task)->loop, task);
}

static void tasks_that_post_themselves_for_ever_meet_the_deadline(void **state)
{
    struct ps_sim *sim;
    struct ps_event event;
    (void)state;
    assert_int_equal(ps_sim_create(1, &sim), PS_OK);
    struct again again = {.task = {.run = post_again, .label = "again"}};
    assert_int_equal(ps_loop_create(ps_sim_driver(sim), "again", &again.loop), PS_OK);
    assert_int_equal(ps_loop_start(again.loop), PS_OK);
    assert_true(ps_loop_post(again.loop, &again.task));
    assert_int_equal(ps_event_init(&event, ps_sim_driver(sim)), PS_OK);
    uint64_t deadline = ps_sim_now_ns(sim) + PS_NS_PER_MS;
    assert_int_equal(ps_event_wait(&event, deadline), PS_ETIMEDOUT);
    ps_loop_stop(again.loop);
    ps_loop_destroy(again.loop);
    ps_event_fini(&event);
    ps_sim_destroy(sim);
}

/* ---- killing ---- */

struct victim {
    struct ps_sim *sim;
    const char *kills; /* the node it kills in the middle */
    int before, after;
    struct ps_task task;
    struct ps_loop *loop;
};

static void die(struct victim *victim)
{
    victim->before++;
    ps_sim_kill_node(victim->sim, victim->kills);
    victim->after++;
}

static void victim_program(void *arg)
{
    struct victim *victim = arg;
    for (int i = 0; i < 3; i++) {
        ps_driver_sleep(ps_sim_driver(victim->sim), PS_NS_PER_MS);
        die(victim);
    }
}

static void victim_task(struct ps_task *task)
{
    die(PS_CONTAINER_OF(task, struct victim, task));
}

static void a_program_that_kills_its_own_node_stops_there(void **state)
{
    struct ps_sim *sim;
    (void)state;
    assert_int_equal(ps_sim_create(3, &sim), PS_OK);
    struct victim dies = {.sim = sim, .kills = "a"};
    struct victim kills_other = {.sim = sim, .kills = "nobody"};
    ps_sim_enter_node(sim, "a");
    assert_int_equal(ps_sim_spawn(sim, "dies", victim_program, &dies), PS_OK);
    ps_sim_enter_node(sim, "b");
    assert_int_equal(ps_sim_spawn(sim, "lives", victim_program, &kills_other), PS_OK);
    assert_int_equal(ps_sim_run_programs(sim, LIMIT_NS), PS_OK);
    assert_int_equal(dies.before, 1);
    assert_int_equal(dies.after, 0);
    assert_int_equal(kills_other.after, 3);
    assert_true(ps_sim_node_is_killed(sim, "a"));
    assert_false(ps_sim_node_is_killed(sim, "b"));
    ps_sim_destroy(sim);
}

static void a_handler_that_kills_its_own_node_stops_there(void **state)
{
    struct ps_sim *sim;
    (void)state;
    assert_int_equal(ps_sim_create(3, &sim), PS_OK);
    struct victim dies = {
        .sim = sim, .kills = "a", .task = {.run = victim_task, .label = "die"}};
    struct victim kills_other = {
        .sim = sim, .kills = "nobody", .task = {.run = victim_task, .label = "live"}};
    ps_sim_enter_node(sim, "a");
    assert_int_equal(ps_loop_create(ps_sim_driver(sim), "a", &dies.loop), PS_OK);
    ps_sim_enter_node(sim, "b");
    assert_int_equal(ps_loop_create(ps_sim_driver(sim), "b", &kills_other.loop), PS_OK);
    assert_int_equal(ps_loop_start(dies.loop), PS_OK);
    assert_int_equal(ps_loop_start(kills_other.loop), PS_OK);
    for (int i = 0; i < 3; i++) {
        (void)ps_loop_post(dies.loop, &dies.task);
        (void)ps_loop_post(kills_other.loop, &kills_other.task);
        ps_sim_run_for(sim, PS_NS_PER_MS);
    }
    assert_int_equal(dies.before, 1);
    assert_int_equal(dies.after, 0);
    assert_int_equal(kills_other.after, 3);
    ps_loop_stop(dies.loop);
    ps_loop_destroy(dies.loop);
    ps_loop_stop(kills_other.loop);
    ps_loop_destroy(kills_other.loop);
    ps_sim_destroy(sim);
}

static void a_killed_node_may_begin_a_new_life(void **state)
{
    struct ps_sim *sim;
    (void)state;
    assert_int_equal(ps_sim_create(3, &sim), PS_OK);
    struct victim first = {.sim = sim, .kills = "a"};
    struct victim second = {.sim = sim, .kills = "nobody"};
    ps_sim_enter_node(sim, "a");
    assert_int_equal(ps_sim_spawn(sim, "first", victim_program, &first), PS_OK);
    assert_int_equal(ps_sim_run_programs(sim, LIMIT_NS), PS_OK);
    assert_true(ps_sim_node_is_killed(sim, "a"));
    ps_sim_enter_node(sim, "a");
    assert_false(ps_sim_node_is_killed(sim, "a"));
    assert_int_equal(ps_sim_spawn(sim, "second", victim_program, &second), PS_OK);
    assert_int_equal(ps_sim_run_programs(sim, LIMIT_NS), PS_OK);
    assert_int_equal(first.after, 0);
    assert_int_equal(second.after, 3);
    ps_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_trace),
        cmocka_unit_test(different_seeds_give_different_orders),
        cmocka_unit_test(virtual_time_jumps),
        cmocka_unit_test(a_world_where_nothing_can_happen_says_so),
        cmocka_unit_test(tasks_that_post_themselves_for_ever_meet_the_deadline),
        cmocka_unit_test(a_program_that_kills_its_own_node_stops_there),
        cmocka_unit_test(a_handler_that_kills_its_own_node_stops_there),
        cmocka_unit_test(a_killed_node_may_begin_a_new_life),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
