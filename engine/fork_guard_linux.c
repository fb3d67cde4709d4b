/* The fork guard: MADV_WIPEONFORK (Linux 4.14), see madvise(2). */
#include "engine/fork_guard.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD_BYTES = 4096, GUARD_WORD = 1 };

enum ps_status ps_fork_guard_open(struct ps_fork_guard *guard)
{
    void *page = mmap(NULL, GUARD_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *guard = (struct ps_fork_guard){.word = NULL, .page = NULL, .pid = getpid()};
    if (page == MAP_FAILED) {
        return PS_ENOMEM;
    }
    if (madvise(page, GUARD_BYTES, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, GUARD_BYTES);
        return PS_OK; /* process ids are compared instead */
    }
    *(uint32_t *)page = GUARD_WORD;
    guard->page = page;
    guard->word = page;
    return PS_OK;
}

void ps_fork_guard_close(struct ps_fork_guard *guard)
{
    if (guard->page != NULL) {
        (void)munmap(guard->page, GUARD_BYTES);
    }
    guard->page = NULL;
    guard->word = NULL;
}

bool ps_fork_guard_compare(const struct ps_fork_guard *guard)
{
    return guard->pid != getpid();
}
