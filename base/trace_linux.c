/* What the profiler asks Linux for. */
#include "base/trace_private.h"

#include <stdio.h>

void ps_trace_thread_name(char out[16])
{
    if (pthread_getname_np(pthread_self(), out, 16) != 0) {
        (void)snprintf(out, 16, "thread");
    }
}
