/* See lanes_rig.h. */
#include "tests/unit/engine/lanes_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void lanes_open(struct suite *suite, int type, ...)
{
    const char *settings[16] = {"SIM_GPUS=4", "LOG=error"};
    size_t count = 2;
    va_list list;
    va_start(list, type);
    for (const char *text; (text = va_arg(list, const char *)) != NULL;) {
        assert_true(count + 1 < PS_COUNT(settings));
        settings[count++] = text;
    }
    va_end(list);
    suite_open(suite, settings, type);
}

char *lanes_setting(char text[64], const char *name, int value)
{
    (void)snprintf(text, 64, "%s=%d", name, value);
    return text;
}

/* ---- the process's threads ---- */

/* Reads /proc/self/task/<task>/<file> as text; false when the thread is gone. */
static bool read_task(const char *task, const char *file, char *text, size_t size)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/%s", task, file);
    FILE *stream = fopen(path, "r");
    if (stream == NULL) {
        return false;
    }
    size_t length = fread(text, 1, size - 1, stream);
    text[length] = '\0';
    (void)fclose(stream);
    return length > 0;
}

/* Calls fn for each other thread with that prefix and sums what it returns. */
static uint64_t sum_tasks(const char *prefix, uint64_t (*fn)(const char *task))
{
    uint64_t sum = 0;
    char self[32];
    (void)snprintf(self, sizeof(self), "%ld", (long)gettid());
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char name[32];
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, self) != 0 &&
            read_task(entry->d_name, "comm", name, sizeof(name)) &&
            strncmp(name, prefix, strlen(prefix)) == 0) {
            sum += fn(entry->d_name);
        }
    }
    (void)closedir(dir);
    return sum;
}

static uint64_t one(const char *task)
{
    PS_UNUSED(task);
    return 1;
}

static uint64_t cpu_ns(const char *task)
{
    char text[128]; /* "run_ns wait_ns slices" */
    return read_task(task, "schedstat", text, sizeof(text)) ? strtoull(text, NULL, 10)
                                                            : 0;
}

static uint64_t sleeps(const char *task)
{
    static const char field[] = "\nvoluntary_ctxt_switches:";
    char text[4096];
    if (!read_task(task, "status", text, sizeof(text))) {
        return 0;
    }
    const char *at = strstr(text, field);
    assert_non_null(at);
    return strtoull(at + sizeof(field) - 1, NULL, 10);
}

int lanes_thread_count(const char *prefix)
{
    return (int)sum_tasks(prefix, one);
}

uint64_t lanes_cpu_ns(const char *prefix)
{
    return sum_tasks(prefix, cpu_ns);
}

uint64_t lanes_sleeps(const char *prefix)
{
    return sum_tasks(prefix, sleeps);
}

/* ---- crowds ---- */

void crowd_init(struct crowd *crowd, bool open)
{
    memset(crowd, 0, sizeof(*crowd));
    gate_init(&crowd->gate, open);
    ps_mutex_init(&crowd->lock);
}

void crowd_fini(struct crowd *crowd)
{
    ps_mutex_fini(&crowd->lock);
    gate_fini(&crowd->gate);
}

enum ps_status run_crowd(void *arg, const struct ps_run *run, struct ps_error *err)
{
    struct crowd *crowd = arg;
    uint32_t id = ps_thread_id();
    int place = 0;
    PS_UNUSED(err);
    ps_mutex_lock(&crowd->lock);
    while (place < crowd->id_count && crowd->ids[place] != id) {
        place++;
    }
    if (place == crowd->id_count && place < LANES_MAX_THREADS) {
        crowd->ids[crowd->id_count++] = id;
        crowd->streams[place] = run->stream;
    }
    crowd->inside++;
    if (crowd->inside > crowd->most_inside) {
        crowd->most_inside = crowd->inside;
    }
    (void)prctl(PR_GET_NAME, crowd->name);
    ps_mutex_unlock(&crowd->lock);
    gate_pass(&crowd->gate);
    ps_mutex_lock(&crowd->lock);
    crowd->inside--;
    ps_mutex_unlock(&crowd->lock);
    return PS_OK;
}

void crowd_push(struct suite *suite, struct crowd *crowd, struct ps_context context,
                enum ps_engine_op_kind kind, int priority)
{
    struct ps_engine_op op = {.name = "crowd",
                              .run = run_crowd,
                              .arg = crowd,
                              .context = context,
                              .kind = kind,
                              .priority = priority};
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
}

void lanes_check_concurrency(struct suite *suite, struct ps_context context,
                             enum ps_engine_op_kind kind, int count, int together,
                             const char *prefix)
{
    struct crowd crowd;
    crowd_init(&crowd, false);
    for (int i = 0; i < count; i++) {
        crowd_push(suite, &crowd, context, kind, 0);
    }
    gate_wait_arrived(&crowd.gate, together);
    assert_int_equal(lanes_thread_count(prefix), together);
    gate_open(&crowd.gate);
    wait_all_ok(suite);
    assert_int_equal(crowd.gate.arrived, count);
    assert_int_equal(crowd.most_inside, together);
    assert_int_equal(crowd.id_count, together);
    crowd_fini(&crowd);
}

/* ---- order ---- */

void lanes_run_behind_gate(struct suite *suite, struct ps_context context,
                           enum ps_engine_op_kind kind, const int *priorities, int count,
                           int *order_out)
{
    struct gate gate;
    struct trail trail;
    struct step *steps = calloc((size_t)count, sizeof(*steps));
    struct ps_engine_op op = {
        .name = "hold", .run = run_gate, .arg = &gate, .context = context, .kind = kind};
    assert_non_null(steps);
    gate_init(&gate, false);
    trail_init(&trail);
    assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    gate_wait_arrived(&gate, 1);
    for (int i = 0; i < count; i++) {
        steps[i] = (struct step){.trail = &trail, .number = i};
        op.name = "step";
        op.run = run_step;
        op.arg = &steps[i];
        op.priority = priorities[i];
        assert_int_equal(ps_engine_push(suite->engine, &op), PS_OK);
    }
    gate_open(&gate);
    wait_all_ok(suite);
    assert_int_equal(trail.count, count);
    memcpy(order_out, trail.items, (size_t)count * sizeof(*order_out));
    trail_fini(&trail);
    gate_fini(&gate);
    free(steps);
}

void lanes_check_fifo(struct suite *suite, struct ps_context context,
                      enum ps_engine_op_kind kind)
{
    static const int priorities[] = {0, 7, -5, 100, 3, 3, -9, 1000};
    int order[PS_COUNT(priorities)];
    lanes_run_behind_gate(suite, context, kind, priorities, PS_COUNT(priorities), order);
    for (int i = 0; i < (int)PS_COUNT(priorities); i++) {
        assert_int_equal(order[i], i);
    }
}

/* ---- independence ---- */

void lanes_check_independent(struct suite *suite, struct ps_context held_context,
                             enum ps_engine_op_kind held, int threads,
                             struct ps_context context, enum ps_engine_op_kind kind)
{
    struct crowd shut, open;
    crowd_init(&shut, false);
    crowd_init(&open, true);
    for (int i = 0; i < threads + 3; i++) { /* some wait behind the gate, too */
        crowd_push(suite, &shut, held_context, held, 100);
    }
    gate_wait_arrived(&shut.gate, threads);
    crowd_push(suite, &open, context, kind, -100);
    gate_wait_arrived(&open.gate, 1); /* returns while the other lane is full */
    assert_int_equal(shut.inside, threads);
    gate_open(&shut.gate);
    wait_all_ok(suite);
    crowd_fini(&open);
    crowd_fini(&shut);
}
