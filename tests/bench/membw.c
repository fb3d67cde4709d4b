/* What one core of this machine copies: the ground under every figure of the store.
 *
 *   membw [BYTES ...]     rows: R,mem,memcpy,BYTES,GB/s,VALUE
 *
 * One row a size, the median of several passes; GB/s counts the bytes copied, once. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSES 7
#define PASS_BYTES ((size_t)256 << 20)

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double pass(char *to, const char *from, size_t bytes)
{
    struct ps_clock *clock = ps_clock_real();
    size_t times = PS_MAX(PASS_BYTES / bytes, (size_t)1);
    uint64_t begin = ps_clock_now_ns(clock);
    for (size_t i = 0; i < times; i++) {
        memcpy(to, from, bytes);
        __asm__ volatile("" ::"r"(to) : "memory"); /* the copy is wanted */
    }
    return (double)(bytes * times) / (double)(ps_clock_now_ns(clock) - begin);
}

static bool measure(size_t bytes)
{
    char *from = ps_mem_alloc(bytes), *to = ps_mem_alloc(bytes);
    bool good = from != NULL && to != NULL;
    if (good) {
        double rates[PASSES];
        memset(from, 1, bytes);
        memset(to, 2, bytes);
        for (size_t i = 0; i < PASSES; i++) {
            rates[i] = pass(to, from, bytes);
        }
        qsort(rates, PASSES, sizeof(rates[0]), ascending);
        printf("R,mem,memcpy,%zu,GB/s,%.2f\n", bytes, rates[PASSES / 2]);
    }
    ps_mem_free(from);
    ps_mem_free(to);
    return good;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4u << 10, 64u << 10, 1u << 20,
                                   4u << 20, 16u << 20, 64u << 20};
    for (size_t i = 0; argc < 2 && i < PS_COUNT(sizes); i++) {
        if (!measure(sizes[i])) {
            return 1;
        }
    }
    for (int i = 1; i < argc; i++) {
        int64_t bytes;
        if (ps_parse_i64(argv[i], &bytes) != PS_OK || bytes < 1 ||
            bytes > INT64_C(1) << 30) {
            fprintf(stderr, "usage: membw [BYTES ...]\n");
            return 64;
        }
        if (!measure((size_t)bytes)) {
            return 1;
        }
    }
    return 0;
}
