/* What the tests of devices share: a node, real or simulated, with a host device and two
 * others.  Threads: one. */
#ifndef PENSTOCK_TESTS_SUITE_DEVICE_SUITE_H
#define PENSTOCK_TESTS_SUITE_DEVICE_SUITE_H

#include "base/node.h"
#include "base/sim.h"
#include "base/util.h"
#include "engine/device/device_ops.h"

enum device_world { DEVICE_CPU, DEVICE_SIM, DEVICE_SIM_WORLD, DEVICE_WORLDS };

struct device_rig {
    struct ps_sim *sim; /* DEVICE_SIM_WORLD */
    struct ps_node *node;
    struct ps_device *host;  /* cpu(0) */
    struct ps_device *a, *b; /* cpu(1), cpu(2), or gpu(0), gpu(1) */
};

/* 'more' (may be NULL) are settings beside SIM_GPUS=2; fails the test on an error. */
void device_rig_open(struct device_rig *rig, enum device_world world,
                     const char *const *more);
void device_rig_close(struct device_rig *rig);
/* One more device of the node; close it. */
struct ps_device *device_rig_device(struct device_rig *rig, struct ps_context context);
/* The whole text of the error of opening 'context' with 'settings' (NULL-terminated). */
void device_rig_refused(const char *const *settings, struct ps_context context,
                        enum ps_status status, const char *text);

struct ps_stream *device_stream(struct ps_device *device, enum ps_stream_kind kind);
struct ps_device_event *device_event(struct ps_device *device);
void *device_memory(struct ps_device *device, size_t size);
/* Complete on return. */
void device_write(const struct device_rig *rig, struct ps_device *device, void *ptr,
                  const void *data, size_t size);
void device_read(const struct device_rig *rig, struct ps_device *device, const void *ptr,
                 void *data, size_t size);

/* ---- cases; *state is the rig ---- */
/* device_suite_random.c */
void random_programs_of_streams_do_what_their_order_says(void **state);
/* device_suite_memory.c */
void freed_memory_serves_the_next_request_of_its_size(void **state);
void memory_is_counted_and_given_back(void **state);
void named_memory_is_named_where_there_is_none(void **state);
void case_116_random_sizes_do_not_grow_a_device(void **state);
void case_117_what_is_reserved_is_at_most_twice_what_was_asked_for(void **state);

#endif
