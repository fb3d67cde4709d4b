/* xoshiro256++ (Blackman and Vigna 2019, prng.di.unimi.it), splitmix64 (Steele et al.
 * 2014), Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
 * 3"), Lemire's bounded numbers (2019). */
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <sys/random.h>

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t ps_hash_u64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t ps_hash_bytes(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < size; i++) {
        h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    }
    return ps_hash_u64(h);
}

void ps_rng_init(struct ps_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9E3779B97F4A7C15);
        rng->s[i] = ps_hash_u64(seed);
    }
}

uint64_t ps_rng_u64(struct ps_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* High and low half of a * b, without a 128-bit type. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t *low_out)
{
    uint64_t a_low = a & 0xFFFFFFFF, a_high = a >> 32;
    uint64_t b_low = b & 0xFFFFFFFF, b_high = b >> 32;
    uint64_t low = a_low * b_low;
    uint64_t middle = a_high * b_low + (low >> 32);
    uint64_t middle2 = a_low * b_high + (middle & 0xFFFFFFFF);
    *low_out = (middle2 << 32) | (low & 0xFFFFFFFF);
    return a_high * b_high + (middle >> 32) + (middle2 >> 32);
}

uint64_t ps_rng_below(struct ps_rng *rng, uint64_t n)
{
    uint64_t low;
    uint64_t high = multiply(ps_rng_u64(rng), n, &low);
    if (low < n) {
        uint64_t threshold = (0 - n) % n;
        while (low < threshold) {
            high = multiply(ps_rng_u64(rng), n, &low);
        }
    }
    return high;
}

double ps_rng_unit(struct ps_rng *rng)
{
    return (double)(ps_rng_u64(rng) >> 11) * 0x1p-53;
}

void ps_rng_at(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0];
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    for (int i = 0; i < 4; i++) {
        out[i] = c[i];
    }
}

float ps_rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    ps_rng_at(seed, stream, index, r);
    return (float)(r[0] >> 8) * 0x1p-24f;
}

float ps_rng_normal_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    /* Box and Muller 1958, the cosine half. */
    const double two_pi = 6.283185307179586;
    uint32_t r[4];
    ps_rng_at(seed, stream, index, r);
    double u = ((double)r[0] + 1.0) * 0x1p-32; /* (0, 1]: the logarithm is finite */
    double v = (double)r[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(two_pi * v));
}

enum ps_status ps_random_bytes(void *out, size_t size)
{
    unsigned char *p = out;
    while (size > 0) {
        ssize_t n = getrandom(p, size, 0);
        if (n < 0 && errno != EINTR) {
            return PS_EIO;
        }
        if (n > 0) {
            p += n;
            size -= (size_t)n;
        }
    }
    return PS_OK;
}
