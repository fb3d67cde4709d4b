/* Maps against a plain model, the heap's order, the blocking queue, pools and buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>

#define KEYS 200

static void a_map_agrees_with_a_model(void **state)
{
    static int values[8];
    int *model[KEYS] = {NULL};
    struct ps_map map = {0};
    struct ps_rng rng;
    (void)state;
    ps_rng_init(&rng, 11);
    for (int round = 0; round < 100000; round++) {
        /* Keys that collide in their low bits, too. */
        size_t k = (size_t)ps_rng_below(&rng, KEYS);
        uint64_t key = (uint64_t)k << (k % 3 * 20);
        void *old = NULL;
        switch (ps_rng_below(&rng, 3)) {
        case 0:
            old = ps_map_remove(&map, key);
            assert_ptr_equal(old, model[k]);
            model[k] = NULL;
            break;
        case 1: {
            int *value = &values[ps_rng_below(&rng, 8)];
            assert_int_equal(ps_map_put(&map, key, value, &old), PS_OK);
            assert_ptr_equal(old, model[k]);
            model[k] = value;
            break;
        }
        default:
            assert_ptr_equal(ps_map_get(&map, key), model[k]);
        }
    }
    size_t expected = 0, seen = 0;
    for (size_t k = 0; k < KEYS; k++) {
        expected += model[k] != NULL ? 1 : 0;
        assert_ptr_equal(ps_map_get(&map, (uint64_t)k << (k % 3 * 20)), model[k]);
    }
    uint64_t key;
    void *value;
    for (size_t it = 0; ps_map_next(&map, &it, &key, &value);) {
        seen++;
    }
    assert_int_equal(seen, expected);
    assert_int_equal(map.count, expected);
    assert_int_equal(ps_map_put(&map, 1, NULL, NULL), PS_EINVAL);
    ps_map_fini(&map);
    assert_null(ps_map_get(&map, 1));
}

static void a_string_map_agrees_with_a_model(void **state)
{
    static int values[8];
    int *model[KEYS] = {NULL};
    struct ps_strmap map = {0};
    struct ps_rng rng;
    (void)state;
    ps_rng_init(&rng, 12);
    for (int round = 0; round < 50000; round++) {
        char key[16];
        size_t k = (size_t)ps_rng_below(&rng, KEYS);
        (void)snprintf(key, sizeof(key), "key%zu", k);
        void *old = NULL;
        switch (ps_rng_below(&rng, 3)) {
        case 0:
            assert_ptr_equal(ps_strmap_remove(&map, key), model[k]);
            model[k] = NULL;
            break;
        case 1: {
            int *value = &values[ps_rng_below(&rng, 8)];
            assert_int_equal(ps_strmap_put(&map, key, value, &old), PS_OK);
            assert_ptr_equal(old, model[k]);
            model[k] = value;
            break;
        }
        default:
            assert_ptr_equal(ps_strmap_get(&map, key), model[k]);
        }
    }
    size_t seen = 0;
    const char *key;
    void *value;
    for (size_t it = 0; ps_strmap_next(&map, &it, &key, &value);) {
        assert_ptr_equal(ps_strmap_get(&map, key), value);
        seen++;
    }
    assert_int_equal(seen, map.count);
    ps_strmap_fini(&map);
}

static void a_heap_pops_by_priority_then_arrival(void **state)
{
    enum { N = 2000 };
    static struct ps_heap_item items[N];
    struct ps_heap heap = {0};
    struct ps_rng rng;
    (void)state;
    ps_rng_init(&rng, 13);
    memset(items, 0, sizeof(items));
    for (int i = 0; i < N; i++) {
        items[i].priority = (int64_t)ps_rng_below(&rng, 5) - 2;
        assert_int_equal(ps_heap_push(&heap, &items[i]), PS_OK);
    }
    for (int i = 0; i < N; i += 3) {
        ps_heap_remove(&heap, &items[i]);
        assert_int_equal(items[i].slot, 0);
        ps_heap_remove(&heap, &items[i]);
    }
    int64_t priority = INT64_MAX;
    uint64_t order = 0;
    size_t count = 0;
    struct ps_heap_item *item;
    while ((item = ps_heap_pop(&heap)) != NULL) {
        assert_int_not_equal((item - items) % 3, 0);
        assert_true(item->priority < priority ||
                    (item->priority == priority && item->order > order));
        priority = item->priority;
        order = item->order;
        count++;
    }
    assert_int_equal(count, N - (N + 2) / 3);
    ps_heap_fini(&heap);
}

struct consumer {
    struct ps_bqueue *queue;
    long sum;
    enum ps_status end;
};

static void consume(void *arg)
{
    struct consumer *consumer = arg;
    void *item;
    while ((consumer->end = ps_bqueue_pop(consumer->queue, &item)) == PS_OK) {
        consumer->sum += *(int *)item;
    }
}

static void a_blocking_queue_hands_over_everything(void **state)
{
    enum { N = 3000 };
    static int numbers[N];
    struct ps_thread thread = {.started = false};
    struct consumer consumer = {.sum = 0};
    long sum = 0;
    (void)state;
    assert_int_equal(ps_bqueue_create(4, 100, &consumer.queue), PS_OK);
    assert_int_equal(ps_thread_start(&thread, "consumer", consume, &consumer), PS_OK);
    for (int i = 0; i < N; i++) {
        numbers[i] = i;
        sum += i;
        /* some bigger than the whole queue: an empty one takes them */
        assert_int_equal(
            ps_bqueue_push(consumer.queue, &numbers[i], i % 50 == 0 ? 1000 : 30), PS_OK);
    }
    ps_bqueue_close(consumer.queue);
    ps_thread_join(&thread);
    assert_int_equal(consumer.sum, sum);
    assert_int_equal(consumer.end, PS_ECLOSED);
    assert_int_equal(ps_bqueue_push(consumer.queue, numbers, 1), PS_ECLOSED);
    ps_bqueue_destroy(consumer.queue);
}

static void memory_is_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 4096, 2097151, 2097152, 5000000};
    for (size_t i = 0; i < PS_COUNT(sizes); i++) {
        unsigned char *p = ps_mem_calloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 2097152 ? 2097152 : 64), 0);
        for (size_t k = 0; k < sizes[i]; k += 1000) {
            assert_int_equal(p[k], 0);
        }
        ps_mem_free(p);
    }
    assert_null(ps_mem_alloc(SIZE_MAX));
    ps_mem_free(NULL);
}

static void count_release(void *arg)
{
    ++*(int *)arg;
}

static void buffers_are_counted(void **state)
{
    int released = 0;
    char bytes[4] = "abc";
    (void)state;
    struct ps_buf *wrapped = ps_buf_wrap(bytes, sizeof(bytes), count_release, &released);
    assert_non_null(wrapped);
    assert_ptr_equal(ps_buf_retain(wrapped), wrapped);
    ps_buf_release(wrapped);
    assert_int_equal(released, 0);
    ps_buf_release(wrapped);
    assert_int_equal(released, 1);
    static const size_t sizes[] = {0, 10, 3000000};
    for (size_t i = 0; i < PS_COUNT(sizes); i++) {
        struct ps_buf *buf = ps_buf_create(sizes[i]);
        assert_non_null(buf);
        assert_int_equal((uintptr_t)buf->data % 64, 0);
        memset(buf->data, 1, sizes[i]);
        assert_int_equal(buf->size, sizes[i]);
        ps_buf_release(buf);
    }
    ps_buf_release(NULL);
}

static void a_pool_gives_zeroed_objects_up_to_its_limit(void **state)
{
    struct ps_pool *pool;
    void *objects[10];
    (void)state;
    for (int unlocked = 0; unlocked < 2; unlocked++) {
        assert_int_equal(ps_pool_create(40, 4, 10, unlocked == 1, &pool), PS_OK);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 10; i++) {
                objects[i] = ps_pool_get(pool);
                assert_non_null(objects[i]);
                assert_int_equal((uintptr_t)objects[i] % 16, 0);
                for (size_t k = 0; k < 40; k++) {
                    assert_int_equal(((char *)objects[i])[k], 0);
                }
                memset(objects[i], 0xAA, 40);
            }
            assert_null(ps_pool_get(pool));
            assert_int_equal(ps_pool_in_use(pool), 10);
            for (int i = 0; i < 10; i++) {
                ps_pool_put(pool, objects[i]);
            }
        }
        ps_pool_destroy(pool);
    }
    assert_int_equal(ps_pool_create(0, 4, 10, false, &pool), PS_EINVAL);
    assert_int_equal(ps_pool_create(SIZE_MAX / 8, 16, 0, false, &pool), PS_EINVAL);
}

static void churn(void *arg)
{
    struct ps_pool *pool = arg;
    for (int i = 0; i < 5000; i++) {
        int *a = ps_pool_get(pool);
        int *b = ps_pool_get(pool);
        *a = 1;
        *b = 2;
        ps_pool_put(pool, a);
        ps_pool_put(pool, b);
    }
}

static void a_pool_is_shared_by_threads(void **state)
{
    struct ps_pool *pool;
    struct ps_thread threads[3];
    (void)state;
    assert_int_equal(ps_pool_create(64, 8, 0, false, &pool), PS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ps_thread_start(&threads[i], "churn", churn, pool), PS_OK);
    }
    for (int i = 0; i < 3; i++) {
        ps_thread_join(&threads[i]);
    }
    assert_int_equal(ps_pool_in_use(pool), 0);
    ps_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_agrees_with_a_model),
        cmocka_unit_test(a_string_map_agrees_with_a_model),
        cmocka_unit_test(a_heap_pops_by_priority_then_arrival),
        cmocka_unit_test(a_blocking_queue_hands_over_everything),
        cmocka_unit_test(memory_is_aligned),
        cmocka_unit_test(buffers_are_counted),
        cmocka_unit_test(a_pool_gives_zeroed_objects_up_to_its_limit),
        cmocka_unit_test(a_pool_is_shared_by_threads),
    };
    return cmocka_run_group_tests_name("containers", tests, NULL, NULL);
}
