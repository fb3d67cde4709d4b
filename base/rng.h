/* Random numbers, seeded and repeatable.
 * ps_rng: xoshiro256++ (Blackman, Vigna 2019), seeded through splitmix64; one owner at a
 * time. ps_rng_at: counter based, Philox4x32-10 (Salmon et al. 2011): the number at
 * (seed, stream, index) does not depend on who asks or in which order; dropout masks and
 * initialisers use it. Threads: a ps_rng belongs to one thread; the counter functions are
 * pure. */
#ifndef PENSTOCK_BASE_RNG_H
#define PENSTOCK_BASE_RNG_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ps_rng {
    uint64_t s[4];
};

void ps_rng_init(struct ps_rng *rng, uint64_t seed);
uint64_t ps_rng_u64(struct ps_rng *rng);
/* Uniform in [0, n), without bias; n > 0. */
uint64_t ps_rng_below(struct ps_rng *rng, uint64_t n);
double ps_rng_unit(struct ps_rng *rng); /* uniform in [0, 1) */

/* Four 32-bit words at (seed, stream, index). */
void ps_rng_at(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
float ps_rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index); /* uniform [0, 1) */
float ps_rng_normal_at(uint64_t seed, uint64_t stream, uint64_t index); /* N(0, 1) */

/* Mixes a u64 (splitmix64's finaliser); for hash tables and placement. */
uint64_t ps_hash_u64(uint64_t x);
/* FNV-1a folded through ps_hash_u64; for string keys. */
uint64_t ps_hash_bytes(const void *data, size_t size);

/* Fresh bytes from the kernel, for job uuids and nonces; the real node's seed. */
PS_MUST_CHECK enum ps_status ps_random_bytes(void *out, size_t size);

#endif
