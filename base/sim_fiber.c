/* Switching stacks.  AddressSanitizer must know the bounds of the stack that is running,
 * and ThreadSanitizer must keep a shadow of each. */
#include "base/sim_fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define WITH_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WITH_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES ((size_t)1 << 20) /* committed as used */

#if defined(WITH_TSAN)
/* The sanitizer's own count of entered functions would be out of step. */
#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread"), noinline))
#else
#define NOT_INSTRUMENTED
#endif

/* First thing on the stack that was switched to. */
static void arrive(struct ps_fiber *fiber)
{
#if defined(WITH_ASAN)
    struct ps_fiber *from = fiber->from;
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &from->stack_bottom,
                                    &from->stack_bytes);
#else
    (void)fiber;
#endif
}

/* makecontext passes ints: the pointer comes in two halves. */
static void entry(unsigned high, unsigned low)
{
    struct ps_fiber *fiber =
        (struct ps_fiber *)(uintptr_t)(((uint64_t)high << 32) | (uint64_t)low);
    arrive(fiber);
    fiber->fn(fiber->arg);
}

void ps_fiber_adopt(struct ps_fiber *fiber)
{
    *fiber = (struct ps_fiber){.mapping = NULL};
#if defined(WITH_TSAN)
    fiber->tsan = __tsan_get_current_fiber();
#endif
}

enum ps_status ps_fiber_init(struct ps_fiber *fiber, void (*fn)(void *arg), void *arg)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = guard + STACK_BYTES;
    *fiber = (struct ps_fiber){.fn = fn, .arg = arg, .mapping_bytes = bytes};
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED) {
        return PS_ENOMEM;
    }
    if (mprotect(mapping, guard, PROT_NONE) != 0 || getcontext(&fiber->context) != 0) {
        (void)munmap(mapping, bytes);
        return PS_EIO;
    }
    fiber->mapping = mapping;
    fiber->stack_bottom = (char *)mapping + guard;
    fiber->stack_bytes = STACK_BYTES;
    fiber->context.uc_stack.ss_sp = (char *)mapping + guard;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    uint64_t self = (uint64_t)(uintptr_t)fiber;
    makecontext(&fiber->context, (void (*)(void))entry, 2, (unsigned)(self >> 32),
                (unsigned)self);
#if defined(WITH_TSAN)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return PS_OK;
}

void ps_fiber_fini(struct ps_fiber *fiber)
{
    if (fiber->mapping != NULL) {
#if defined(WITH_TSAN)
        __tsan_destroy_fiber(fiber->tsan);
#endif
        (void)munmap(fiber->mapping, fiber->mapping_bytes);
        fiber->mapping = NULL;
    }
}

NOT_INSTRUMENTED void ps_fiber_switch(struct ps_fiber *from, struct ps_fiber *to,
                                      bool ends)
{
    to->from = from;
#if defined(WITH_ASAN)
    __sanitizer_start_switch_fiber(ends ? NULL : &from->fake_stack, to->stack_bottom,
                                   to->stack_bytes);
#else
    (void)ends;
#endif
#if defined(WITH_TSAN)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)swapcontext(&from->context, &to->context);
    arrive(from);
}
