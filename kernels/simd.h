/* How loops of this room are vectorised: plain C that gcc and clang vectorise, compiled
 * for several instruction sets where the compiler can choose at load time.
 *
 * Contraction is off, so every clone gives the same bits. Threads: not applicable. */
#ifndef PENSTOCK_KERNELS_SIMD_H
#define PENSTOCK_KERNELS_SIMD_H

/* Sanitizers instrument the resolvers that clones need before they are ready themselves.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__CUDACC__)
#define PS_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PS_SIMD
#endif

/* The iterations of the next loop are independent; arrays may alias exactly. */
#if defined(__clang__)
#define PS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define PS_INDEPENDENT _Pragma("GCC ivdep")
#else
#define PS_INDEPENDENT
#endif

#define PS_INLINE static inline __attribute__((always_inline))

#endif
