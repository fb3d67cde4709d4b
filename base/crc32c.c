/* CRC-32C (Castagnoli): the SSE4.2 instruction where the machine has it, else eight
 * tables of 256 entries each ("slicing by 8", Kounavis and Berry 2005). */
#include "base/str.h"

#include "base/crc32c_table.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint32_t crc_portable(uint32_t crc, const unsigned char *p, size_t size)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= crc;
        crc = ps_crc32c_table[7][low & 0xFF] ^ ps_crc32c_table[6][(low >> 8) & 0xFF] ^
              ps_crc32c_table[5][(low >> 16) & 0xFF] ^ ps_crc32c_table[4][low >> 24] ^
              ps_crc32c_table[3][high & 0xFF] ^ ps_crc32c_table[2][(high >> 8) & 0xFF] ^
              ps_crc32c_table[1][(high >> 16) & 0xFF] ^ ps_crc32c_table[0][high >> 24];
    }
#endif
    for (; size > 0; size--, p++) {
        crc = (crc >> 8) ^ ps_crc32c_table[0][(crc ^ *p) & 0xFF];
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_sse42(uint32_t crc, const unsigned char *p, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--, p++) {
        crc = _mm_crc32_u8(crc, *p);
    }
    return crc;
}
#endif

uint32_t ps_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    return ~crc_portable(~crc, data, size);
}

uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc_sse42(~crc, data, size);
    }
#endif
    return ~crc_portable(~crc, data, size);
}
