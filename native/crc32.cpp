// CRC-32 (zlib's polynomial) by carry-less multiplication: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009; constants of the bit-reflected domain from there.

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

}  // namespace

bool has_pclmul() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

WITH_PCLMUL uint32_t crc32_pclmul(const uint8_t *data, size_t size, uint32_t crc) {
    crc = ~crc;
    if (size < 128) return ~bytewise(data, size, crc);
    const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i x[4];
    for (int k = 0; k < 4; ++k) x[k] = load(data + 16 * k);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(int(crc)));
    size_t done = 64;
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
