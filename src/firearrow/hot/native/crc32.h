/* CRC-32 (the one of zlib and java.util.zip), as fast as the processor can.
 *
 * With carry-less multiplication (PCLMULQDQ) 64 bytes are folded per step: a message of 1 KiB takes
 * a tenth of what a table needs. Everywhere else, and for short tails, a table of 8 x 256 entries
 * (slicing by eight) does it. Both are checked against zlib by tests/parity/test_hot.py.
 *
 * The constants are powers of x modulo the CRC polynomial, bit-reflected: x^(4*128+32), x^(4*128-32)
 * for the main loop, x^(128+32), x^(128-32) for the last blocks, x^64, then the polynomial and its
 * Barrett quotient for the final reduction.
 */
#ifndef FIREARROW_CRC32_H
#define FIREARROW_CRC32_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t fa_table[8][256];
static int fa_ready = 0;
static int fa_folding = 0;

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define FA_FOLDING 1
#include <immintrin.h>

__attribute__((target("pclmul,sse4.1")))
static uint32_t fa_fold(uint32_t crc, const uint8_t *p, size_t size)
{
    /* size is a multiple of 16 and at least 64 */
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x1 = _mm_loadu_si128((const __m128i *)(p + 0));
    __m128i x2 = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i x3 = _mm_loadu_si128((const __m128i *)(p + 32));
    __m128i x4 = _mm_loadu_si128((const __m128i *)(p + 48));
    __m128i t1, t2, t3, t4;

    x1 = _mm_xor_si128(x1, _mm_cvtsi32_si128((int)crc));
    p += 64;
    size -= 64;
    while (size >= 64) {
        t1 = _mm_clmulepi64_si128(x1, k1k2, 0x00);
        t2 = _mm_clmulepi64_si128(x2, k1k2, 0x00);
        t3 = _mm_clmulepi64_si128(x3, k1k2, 0x00);
        t4 = _mm_clmulepi64_si128(x4, k1k2, 0x00);
        x1 = _mm_clmulepi64_si128(x1, k1k2, 0x11);
        x2 = _mm_clmulepi64_si128(x2, k1k2, 0x11);
        x3 = _mm_clmulepi64_si128(x3, k1k2, 0x11);
        x4 = _mm_clmulepi64_si128(x4, k1k2, 0x11);
        x1 = _mm_xor_si128(_mm_xor_si128(x1, t1), _mm_loadu_si128((const __m128i *)(p + 0)));
        x2 = _mm_xor_si128(_mm_xor_si128(x2, t2), _mm_loadu_si128((const __m128i *)(p + 16)));
        x3 = _mm_xor_si128(_mm_xor_si128(x3, t3), _mm_loadu_si128((const __m128i *)(p + 32)));
        x4 = _mm_xor_si128(_mm_xor_si128(x4, t4), _mm_loadu_si128((const __m128i *)(p + 48)));
        p += 64;
        size -= 64;
    }
    /* four lanes into one */
    t1 = _mm_clmulepi64_si128(x1, k3k4, 0x00);
    x1 = _mm_clmulepi64_si128(x1, k3k4, 0x11);
    x1 = _mm_xor_si128(_mm_xor_si128(x1, t1), x2);
    t1 = _mm_clmulepi64_si128(x1, k3k4, 0x00);
    x1 = _mm_clmulepi64_si128(x1, k3k4, 0x11);
    x1 = _mm_xor_si128(_mm_xor_si128(x1, t1), x3);
    t1 = _mm_clmulepi64_si128(x1, k3k4, 0x00);
    x1 = _mm_clmulepi64_si128(x1, k3k4, 0x11);
    x1 = _mm_xor_si128(_mm_xor_si128(x1, t1), x4);
    while (size >= 16) {
        t1 = _mm_clmulepi64_si128(x1, k3k4, 0x00);
        x1 = _mm_clmulepi64_si128(x1, k3k4, 0x11);
        x1 = _mm_xor_si128(_mm_xor_si128(x1, t1), _mm_loadu_si128((const __m128i *)p));
        p += 16;
        size -= 16;
    }
    /* 128 bits to 64, then to 32 */
    t1 = _mm_clmulepi64_si128(x1, k3k4, 0x10);
    x1 = _mm_xor_si128(_mm_srli_si128(x1, 8), t1);
    t1 = _mm_srli_si128(x1, 4);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x1, low32), k5, 0x00);
    x1 = _mm_xor_si128(x1, t1);
    t1 = _mm_clmulepi64_si128(_mm_and_si128(x1, low32), poly, 0x10);
    t1 = _mm_clmulepi64_si128(_mm_and_si128(t1, low32), poly, 0x00);
    x1 = _mm_xor_si128(x1, t1);
    return (uint32_t)_mm_extract_epi32(x1, 1);
}
#endif

static void fa_prepare(void)
{
    uint32_t i, k, crc;
    for (i = 0; i < 256; i++) {
        crc = i;
        for (k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
        fa_table[0][i] = crc;
    }
    for (i = 0; i < 256; i++)
        for (k = 1; k < 8; k++)
            fa_table[k][i] = (fa_table[k - 1][i] >> 8) ^ fa_table[0][fa_table[k - 1][i] & 255];
#ifdef FA_FOLDING
    __builtin_cpu_init();
    fa_folding = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    fa_ready = 1;
}

static uint32_t fa_crc32(const uint8_t *p, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    if (!fa_ready)
        fa_prepare();
#ifdef FA_FOLDING
    if (fa_folding && size >= 64) {
        size_t whole = size & ~(size_t)15;
        crc = fa_fold(crc, p, whole);
        p += whole;
        size -= whole;
    }
#endif
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                              | (uint32_t)p[3] << 24);
        crc = fa_table[7][low & 255] ^ fa_table[6][(low >> 8) & 255]
            ^ fa_table[5][(low >> 16) & 255] ^ fa_table[4][low >> 24]
            ^ fa_table[3][p[4]] ^ fa_table[2][p[5]] ^ fa_table[1][p[6]] ^ fa_table[0][p[7]];
        p += 8;
        size -= 8;
    }
    while (size--)
        crc = (crc >> 8) ^ fa_table[0][(crc ^ *p++) & 255];
    return crc ^ 0xFFFFFFFFu;
}
#endif
