/* Tells a process that it is a fork's child, without a system call: a page that the
 * kernel wipes in the child.  Where the kernel cannot, the process id is compared.
 * Threads: any. */
#ifndef PENSTOCK_ENGINE_FORK_GUARD_H
#define PENSTOCK_ENGINE_FORK_GUARD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_fork_guard {
    const volatile uint32_t *word; /* non-zero in the process that opened it */
    void *page;                    /* NULL: compare process ids */
    int64_t pid;
};

PS_MUST_CHECK enum ps_status ps_fork_guard_open(struct ps_fork_guard *guard);
void ps_fork_guard_close(struct ps_fork_guard *guard);
bool ps_fork_guard_compare(const struct ps_fork_guard *guard); /* the slow form */

static inline bool ps_fork_guard_is_child(const struct ps_fork_guard *guard)
{
    return guard->word != NULL ? *guard->word == 0 : ps_fork_guard_compare(guard);
}

#endif
