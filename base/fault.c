/* Fault points: counted and fired only while a rule is armed on the node. */
#include "base/fault.h"

#include "base/log.h"
#include "base/loop.h"
#include "base/node.h"
#include "base/sim.h"
#include "base/str.h"
#include "base/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const points[] = {
#define PS_FAULT_POINT(name) name,
#include "base/fault_points.def"
#undef PS_FAULT_POINT
    NULL};

#define POINT_COUNT (PS_COUNT(points) - 1)
#define RULES_MAX 16

struct rule {
    size_t point;
    enum ps_fault_action action;
    uint64_t nth;
    uint64_t delay_ns;
};

struct ps_faults {
    _Atomic bool armed; /* false: points cost one load */
    struct ps_mutex mutex;
    struct rule rules[RULES_MAX] PS_GUARDED_BY(mutex);
    size_t rule_count PS_GUARDED_BY(mutex);
    _Atomic uint64_t hits[POINT_COUNT];
};

const char *const *ps_fault_points(void)
{
    return points;
}

enum ps_status ps_faults_create(struct ps_faults **faults_out)
{
    struct ps_faults *faults = calloc(1, sizeof(*faults));
    if (faults == NULL) {
        return PS_ENOMEM;
    }
    ps_mutex_init(&faults->mutex);
    *faults_out = faults;
    return PS_OK;
}

void ps_faults_destroy(struct ps_faults *faults)
{
    if (faults != NULL) {
        ps_mutex_fini(&faults->mutex);
        free(faults);
    }
}

static size_t find_point(const char *name)
{
    size_t i = 0;
    while (i < POINT_COUNT && strcmp(points[i], name) != 0) {
        i++;
    }
    return i;
}

enum ps_status ps_faults_arm(struct ps_faults *faults, const struct ps_fault_rule *rule)
{
    enum ps_status status = PS_OK;
    size_t point = find_point(rule->point);
    if (point == POINT_COUNT) {
        return PS_ENOENT;
    }
    ps_mutex_lock(&faults->mutex);
    if (faults->rule_count == RULES_MAX) {
        status = PS_ENOMEM;
    } else {
        faults->rules[faults->rule_count++] =
            (struct rule){point, rule->action, rule->nth, rule->delay_ns};
        /* release: who sees it armed sees the rule (and takes the mutex anyway) */
        atomic_store_explicit(&faults->armed, true, memory_order_release);
    }
    ps_mutex_unlock(&faults->mutex);
    return status;
}

/* "point:action[@N]" of 'size' bytes. */
static enum ps_status parse_rule(struct ps_faults *faults, const char *spec, size_t size,
                                 struct ps_error *err)
{
    char text[128];
    if (size >= sizeof(text)) {
        return ps_error_set(err, PS_EINVAL, "fault '%.40s...': too long", spec);
    }
    memcpy(text, spec, size);
    text[size] = '\0';
    struct ps_fault_rule rule = {.point = text, .action = PS_FAULT_FAIL, .nth = 1};
    char *action = strchr(text, ':');
    char *nth = strchr(text, '@');
    if (nth != NULL) {
        *nth++ = '\0';
    }
    if (action == NULL || (nth != NULL && nth < action)) {
        return ps_error_set(err, PS_EINVAL,
                            "fault '%.*s': want point:fail|kill|delay=MS[@N]", (int)size,
                            spec);
    }
    *action++ = '\0';
    uint64_t ms = 0;
    if (strcasecmp(action, "kill") == 0) {
        rule.action = PS_FAULT_KILL;
    } else if (strncasecmp(action, "delay=", 6) == 0 &&
               ps_parse_u64(action + 6, &ms) == PS_OK && ms <= 86400000) {
        rule.action = PS_FAULT_DELAY;
        rule.delay_ns = ms * PS_NS_PER_MS;
    } else if (strcasecmp(action, "fail") != 0) {
        return ps_error_set(
            err, PS_EINVAL,
            "fault action '%s': want fail, kill or delay=MS (0 to 86400000)", action);
    }
    if (nth != NULL && (ps_parse_u64(nth, &rule.nth) != PS_OK || rule.nth == 0)) {
        return ps_error_set(err, PS_EINVAL, "fault count '%s': want a number from 1 on",
                            nth);
    }
    enum ps_status status = ps_faults_arm(faults, &rule);
    if (status == PS_ENOENT) {
        const char *near = ps_nearest(text, points);
        return ps_error_set(err, PS_EINVAL, "fault point '%s' is not known%s%s%s", text,
                            near == NULL ? "" : "; did you mean '",
                            near == NULL ? "" : near, near == NULL ? "" : "'?");
    }
    return status == PS_OK ? PS_OK
                           : ps_error_set(err, status, "fault '%s': more than %d rules",
                                          text, RULES_MAX);
}

enum ps_status ps_faults_parse(struct ps_faults *faults, const char *spec,
                               struct ps_error *err)
{
    while (*spec != '\0') {
        size_t size = strcspn(spec, ",");
        PS_TRY(parse_rule(faults, spec, size, err));
        spec += size + (spec[size] == ',' ? 1 : 0);
    }
    return PS_OK;
}

uint64_t ps_faults_hits(const struct ps_faults *faults, const char *point)
{
    size_t i = find_point(point);
    return i == POINT_COUNT
               ? 0
               : atomic_load_explicit(&faults->hits[i], memory_order_relaxed);
}

static enum ps_status fire(struct ps_node *node, const char *point,
                           const struct rule *rule)
{
    switch (rule->action) {
    case PS_FAULT_FAIL:
        PS_LOG(node->log, WARN, BASE, "fault %s fails on purpose", point);
        return PS_EFAULT;
    case PS_FAULT_DELAY:
        ps_driver_sleep(node->driver, rule->delay_ns);
        return PS_OK;
    case PS_FAULT_KILL:
        break;
    }
    if (node->sim == NULL) {
        (void)kill(getpid(), SIGKILL);
    } else {
        ps_sim_kill_node(node->sim, node->sim_name);
    }
    return PS_EFAULT; /* only where the world could not switch away; see ps_sim_kill_node
                       */
}

enum ps_status ps_fault_pass(struct ps_node *node, const char *point)
{
    struct ps_faults *faults = node->faults;
    if (faults == NULL ||
        __builtin_expect(!atomic_load_explicit(&faults->armed, memory_order_acquire),
                         1)) {
        return PS_OK;
    }
    size_t i = find_point(point);
    if (i == POINT_COUNT) {
        PS_LOG(node->log, ERROR, BASE, "fault point %s is missing in fault_points.def",
               point);
        return PS_EINTERNAL;
    }
    uint64_t nth =
        atomic_fetch_add_explicit(&faults->hits[i], 1, memory_order_relaxed) + 1;
    struct rule hit = {.nth = 0};
    ps_mutex_lock(&faults->mutex);
    for (size_t r = 0; r < faults->rule_count && hit.nth == 0; r++) {
        if (faults->rules[r].point == i && faults->rules[r].nth == nth) {
            hit = faults->rules[r];
        }
    }
    ps_mutex_unlock(&faults->mutex);
    return hit.nth == 0 ? PS_OK : fire(node, point, &hit);
}
