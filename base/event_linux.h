/* Events of the thread driver: futexes.  Setting one that nobody waits for is one atomic
 * exchange.  Private to loop_thread_linux.c.  Threads: as ps_event_*. */
#ifndef PENSTOCK_BASE_EVENT_LINUX_H
#define PENSTOCK_BASE_EVENT_LINUX_H

#include "base/loop.h"

enum ps_status ps_thread_event_init(struct ps_event *event);
void ps_thread_event_fini(struct ps_event *event);
void ps_thread_event_set(struct ps_event *event);
void ps_thread_event_reset(struct ps_event *event);
enum ps_status ps_thread_event_wait(struct ps_event *event, uint64_t deadline_ns);

#endif
