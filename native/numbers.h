// Numbers as they are stored, and bits out of numbers. Included once for each instruction set.
//
// Everything here is branch-free on purpose: the compiler turns loops over these functions into vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lioncub::ISA_SPACE {

template <class To, class From> inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &value, sizeof to);
    return to;
}

// ---- storage formats: get widens exactly, put rounds to nearest even -----------------------------------------------

struct F32 {
    using Raw = float;
    static constexpr bool noisy = false;
    static float get(Raw raw) { return raw; }
    static Raw put(float value, uint32_t) { return value; }
};

struct BF16 {
    using Raw = uint16_t;
    static constexpr bool noisy = false;
    static float get(Raw raw) { return bits_as<float>(uint32_t(raw) << 16); }
    static Raw put(float value, uint32_t) {
        uint32_t bits = bits_as<uint32_t>(value);
        uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
        return Raw((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
    }
};

// bfloat16, rounded up or down by the 16 random bits that come along.
struct NoisyBF16 : BF16 {
    static constexpr bool noisy = true;
    static Raw put(float value, uint32_t random) {
        uint32_t bits = bits_as<uint32_t>(value);
        return Raw((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : (bits + random) >> 16);
    }
};

struct F16 {
    using Raw = uint16_t;
    static constexpr bool noisy = false;
    static float get(Raw raw) {
        uint32_t sign = uint32_t(raw & 0x8000) << 16, rest = uint32_t(raw & 0x7FFF) << 13;
        // The exponent's bias grows by 112. Subnormals are integers times 2^-24, made without a subnormal float on the
        // way: where the processor flushes those to zero, it would lose them.
        uint32_t normal = rest + 0x38000000, subnormal = bits_as<uint32_t>(float(int32_t(raw & 0x03FF)) * 0x1p-24f);
        uint32_t wide = rest < 0x00800000 ? subnormal : normal;
        return bits_as<float>(sign | (rest >= 0x0F800000 ? rest | 0x7F800000 : wide));
    }
    static Raw put(float value, uint32_t) {
        uint32_t bits = bits_as<uint32_t>(value), twice = bits << 1, sign = bits >> 16 & 0x8000;
        // Adding a power of two whose last place is half's rounds there, to nearest even; overflow saturates to Inf.
        float magnitude = bits_as<float>(bits & 0x7FFFFFFF);
        float scaled = magnitude * bits_as<float>(uint32_t(0x77800000)) * bits_as<float>(uint32_t(0x08800000));
        uint32_t bias = twice & 0xFF000000;
        bias = bias < 0x71000000 ? 0x71000000 : bias;
        uint32_t rounded = bits_as<uint32_t>(bits_as<float>((bias >> 1) + 0x07800000) + scaled);
        uint32_t half = (rounded >> 13 & 0x7C00) + (rounded & 0x0FFF);
        return Raw(twice > 0xFF000000 ? 0x7E00 : sign | half);
    }
};

// ---- 16 random bits for a coordinate; rounding.py has the same ---------------------------------------------------

inline uint32_t hashed(uint32_t coordinate, uint32_t low, uint32_t high) {
    uint32_t x = coordinate ^ low;
    x = (x ^ x >> 16) * 0x21F0AAADu;
    x = (x ^ x >> 15) + high;
    x *= 0x735A2D97u;
    return (x ^ x >> 15) >> 16;
}

// ---- a register of numbers -----------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int REGISTER_BYTES = 64;
#elif defined(__AVX2__)
constexpr int REGISTER_BYTES = 32;
#else
constexpr int REGISTER_BYTES = 16;
#endif

typedef float Lane __attribute__((vector_size(REGISTER_BYTES)));
typedef int32_t IntLane __attribute__((vector_size(REGISTER_BYTES)));
constexpr int LANE = REGISTER_BYTES / 4;  // numbers in it

inline Lane load_lane(const float *from) {
    Lane lane;
    std::memcpy(&lane, from, sizeof lane);
    return lane;
}

inline void store_lane(float *to, Lane lane) { std::memcpy(to, &lane, sizeof lane); }

inline Lane splat(float value) {
    Lane lane;
    for (int j = 0; j < LANE; ++j) lane[j] = value;
    return lane;
}

// Bit j is set where number j is positive, or zero.
struct SignWords {
    uint64_t positive, zero;
};

inline SignWords sign_bits(Lane lane) {
#if defined(__AVX512F__)
    const __m512 none = _mm512_setzero_ps();
    return {_mm512_cmp_ps_mask(lane, none, _CMP_GT_OQ), _mm512_cmp_ps_mask(lane, none, _CMP_EQ_OQ)};
#elif defined(__AVX2__)
    const __m256 none = _mm256_setzero_ps();
    return {uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(lane, none, _CMP_GT_OQ))),
            uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(lane, none, _CMP_EQ_OQ)))};
#elif defined(__SSE2__)
    const __m128 none = _mm_setzero_ps();
    return {uint32_t(_mm_movemask_ps(_mm_cmpgt_ps(lane, none))), uint32_t(_mm_movemask_ps(_mm_cmpeq_ps(lane, none)))};
#else
    SignWords bits{0, 0};
    for (int j = 0; j < LANE; ++j) {
        bits.positive |= uint64_t(lane[j] > 0) << j;
        bits.zero |= uint64_t(lane[j] == 0) << j;
    }
    return bits;
#endif
}

// The lowest bits as ±value: a set bit is plus.
inline Lane signed_lane(uint64_t bits, float value) {
    const Lane plus = splat(value);
#if defined(__AVX512F__)
    return _mm512_mask_blend_ps(__mmask16(bits), -plus, plus);
#else
    IntLane place;
    for (int j = 0; j < LANE; ++j) place[j] = j;
    const IntLane inverted = int32_t(~bits & ((1u << LANE) - 1)) - IntLane{};
    return bits_as<Lane>(bits_as<IntLane>(plus) ^ (inverted >> place) << 31);
#endif
}

// ---- 64 numbers and a word -----------------------------------------------------------------------------------------

inline SignWords sign_words(const float *u) {
    SignWords words{0, 0};
    for (int j = 0; j < BLOCK; j += LANE) {
        const auto [positive, zero] = sign_bits(load_lane(u + j));
        words.positive |= positive << j, words.zero |= zero << j;
    }
    return words;
}

inline void signed_values(uint64_t word, float value, float *out) {
    for (int j = 0; j < BLOCK; j += LANE) store_lane(out + j, signed_lane(word >> j, value));
}

// Bit k of 64 bytes.
inline uint64_t plane_word(const uint8_t *bytes, int k) {
#if defined(__AVX512BW__)
    __m512i v = _mm512_loadu_si512(bytes);
    return _mm512_movepi8_mask(_mm512_sll_epi16(v, _mm_cvtsi32_si128(7 - k)));
#elif defined(__AVX2__)
    const __m128i up = _mm_cvtsi32_si128(7 - k);
    auto half = [&](int offset) {
        __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(bytes + offset));
        return uint64_t(uint32_t(_mm256_movemask_epi8(_mm256_sll_epi16(v, up))));
    };
    return half(0) | half(32) << 32;
#elif defined(__SSE2__)
    const __m128i up = _mm_cvtsi32_si128(7 - k);
    uint64_t word = 0;
    for (int part = 0; part < 4; ++part) {
        __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes + 16 * part));
        word |= uint64_t(uint32_t(_mm_movemask_epi8(_mm_sll_epi16(v, up)))) << 16 * part;
    }
    return word;
#else
    uint64_t word = 0;
    for (int j = 0; j < 64; ++j) word |= uint64_t(bytes[j] >> k & 1) << j;
    return word;
#endif
}

}  // namespace lioncub::ISA_SPACE
