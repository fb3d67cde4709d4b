/* Small things every file needs: container_of, counts, checked arithmetic, annotations.
 * Threads: any. */
#ifndef PENSTOCK_BASE_UTIL_H
#define PENSTOCK_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PS_CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define PS_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PS_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PS_UNUSED(x) ((void)(x))
#define PS_CACHE_LINE 64

/* Checked arithmetic on sizes; false on overflow, 'out' untouched then. */
static inline bool ps_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool ps_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline size_t ps_align_up(size_t n, size_t align) /* align: power of two */
{
    return (n + align - 1) & ~(align - 1);
}

#if defined(__clang__)
#define PS_ANNOTATE(x) __attribute__((x))
#else
#define PS_ANNOTATE(x)
#endif
#define PS_CAPABILITY(name) PS_ANNOTATE(capability(name))
/* Says which lock guards a field.  Clang resolves sibling members in C only from version
 * 20 on, so the field form is for readers; the function forms below are checked. */
#define PS_GUARDED_BY(m)
#define PS_REQUIRES(...) PS_ANNOTATE(requires_capability(__VA_ARGS__))
#define PS_EXCLUDES(...) PS_ANNOTATE(locks_excluded(__VA_ARGS__))
#define PS_ACQUIRE(...) PS_ANNOTATE(acquire_capability(__VA_ARGS__))
#define PS_TRY_ACQUIRE(...) PS_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define PS_RELEASE(...) PS_ANNOTATE(release_capability(__VA_ARGS__))
#define PS_NO_THREAD_SAFETY PS_ANNOTATE(no_thread_safety_analysis)

#endif
