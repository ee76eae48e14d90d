// CRC-32 (zlib's polynomial) by carry-less multiplication: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009; constants of the bit-reflected
// domain as there. Four lanes at a time where the processor has them.

#include "kernels.h"

#ifdef LIONCUB_X86
#include <array>
#include <immintrin.h>

namespace lioncub {
namespace {

constexpr std::array<uint32_t, 256> TABLE = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        table[byte] = crc;
    }
    return table;
}();

uint32_t bytewise(const uint8_t *data, size_t size, uint32_t crc) {
    for (size_t k = 0; k < size; ++k) crc = crc >> 8 ^ TABLE[(crc ^ data[k]) & 0xFF];
    return crc;
}

#define WITH_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define WITH_VPCLMUL __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

// x^n modulo the polynomial, reflected: what moves 64 bits forward.
constexpr int64_t weight(int n) {
    uint32_t remainder = 1, reflected = 0;
    for (int k = 0; k < n; ++k) remainder = remainder << 1 ^ (remainder >> 31 ? 0x04C11DB7u : 0);
    for (int k = 0; k < 32; ++k) reflected |= (remainder >> k & 1) << (31 - k);
    return int64_t(reflected) << 1;
}
static_assert(weight(512 + 32) == 0x154442bd4 && weight(512 - 32) == 0x1c6e41596, "as published");

WITH_PCLMUL inline __m128i load(const uint8_t *data) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(data));
}

// x · (its weight by distance) + next: 128 bits moved forward over the message.
WITH_PCLMUL inline __m128i fold(__m128i x, __m128i weights, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(x, weights, 0x00), high = _mm_clmulepi64_si128(x, weights, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

WITH_PCLMUL uint32_t reduce(__m128i x) {
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0), k4 = _mm_set_epi64x(0, 0x0ccaa009e),
                  k5 = _mm_set_epi64x(0, 0x163cd6124), poly = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, k4, 0x00));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low32), k5, 0x00));
    const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low32), poly, 0x10);
    const __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), poly, 0x00);
    return uint32_t(_mm_extract_epi32(_mm_xor_si128(x, product), 1));
}

WITH_VPCLMUL inline __m512i load_wide(const uint8_t *data) { return _mm512_loadu_si512(data); }

WITH_VPCLMUL inline __m512i fold_wide(__m512i x, __m512i weights, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(x, weights, 0x00), high = _mm512_clmulepi64_epi128(x, weights, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

template <int BITS> WITH_VPCLMUL inline __m512i weights_for() {
    constexpr int64_t low = weight(BITS + 32), high = weight(BITS - 32);
    return _mm512_broadcast_i32x4(_mm_set_epi64x(high, low));
}

// 256 bytes at a time, down to the four 128-bit sums that crc32_pclmul goes on with; returns how many bytes.
WITH_VPCLMUL size_t fold_four_wide(const uint8_t *data, size_t size, uint32_t crc, __m128i *x) {
    const __m512i by2048 = weights_for<2048>(), by512 = weights_for<512>();
    __m512i wide[4];
    for (int k = 0; k < 4; ++k) wide[k] = load_wide(data + 64 * k);
    wide[0] = _mm512_xor_si512(wide[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(int(crc))));
    size_t done = 256;
    for (; done + 256 <= size; done += 256) {
        for (int k = 0; k < 4; ++k) wide[k] = fold_wide(wide[k], by2048, load_wide(data + done + 64 * k));
    }
    __m512i folded = wide[0];
    for (int k = 1; k < 4; ++k) folded = fold_wide(folded, by512, wide[k]);
    _mm512_storeu_si512(x, folded);
    return done;
}

}  // namespace

bool has_vpclmul() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"); }

bool has_pclmul() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

WITH_PCLMUL uint32_t crc32_pclmul(const uint8_t *data, size_t size, uint32_t crc, bool wide) {
    crc = ~crc;
    if (size < 128) return ~bytewise(data, size, crc);
    const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i x[4];
    size_t done = 64;
    if (wide && size >= 512) {
        done = fold_four_wide(data, size, crc, x);
    } else {
        for (int k = 0; k < 4; ++k) x[k] = load(data + 16 * k);
        x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(int(crc)));
    }
    for (; done + 64 <= size; done += 64) {
        for (int k = 0; k < 4; ++k) x[k] = fold(x[k], by512, load(data + done + 16 * k));
    }
    __m128i folded = x[0];
    for (int k = 1; k < 4; ++k) folded = fold(folded, by128, x[k]);
    for (; done + 16 <= size; done += 16) folded = fold(folded, by128, load(data + done));
    return ~bytewise(data + done, size - done, reduce(folded));
}

}  // namespace lioncub
#endif
