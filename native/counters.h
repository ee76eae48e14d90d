// Votes added up 64 or 512 at a time: bit k of every sum lies in the k-th word of a list, adders are made of ANDs and
// XORs. lioncub/kernels/bitsliced.py has the same in torch operations. Included once for each instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "numbers.h"

namespace lioncub::ISA_SPACE {

// As many words as a register holds.
typedef uint64_t Wide __attribute__((vector_size(REGISTER_BYTES)));

constexpr int MAX_SUM_BITS = 48;
constexpr int64_t AHEAD = 128;  // words
constexpr int64_t STREAMED_BYTES = 1 << 20;
constexpr int STRIP = 2048 / sizeof(Wide);  // vectors of a row that are read before the next row's turn

template <class W> constexpr int64_t words_in = sizeof(W) / 8;

template <class W> inline W load(const uint64_t *from) {
    W value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// All P planes of words_in<W> consecutive blocks, from [blocks, planes] to one vector a plane.
template <int P, class W> inline void load_planes(const uint64_t *row, int64_t word, W *planes) {
    constexpr int N = words_in<W>;
    if constexpr (N == 1) {
        for (int k = 0; k < P; ++k) planes[k] = row[word * P + k];
    } else {
        for (int k = 0; k < P; ++k) planes[k] = W{};
        for (int v = 0; v < P; ++v) {
            const W source = load<W>(row + word * P + v * N);
            for (int k = 0; k < P; ++k) {
                // Lane j of plane k lies at j·P + k: take it from here, or keep what is there.
#ifdef __clang__
                for (int j = 0; j < N; ++j) {
                    if ((j * P + k) / N == v) planes[k][j] = source[(j * P + k) % N];
                }
#else
                W pick;
                for (int j = 0; j < N; ++j) pick[j] = (j * P + k) / N == v ? N + (j * P + k) % N : j;
                planes[k] = __builtin_shuffle(planes[k], source, pick);
#endif
            }
        }
    }
}

template <class W> inline void store_plane(uint64_t *out, int64_t word, int planes, int plane, W value) {
    if constexpr (words_in<W> == 1) {
        out[word * planes + plane] = value;
    } else {
        for (int k = 0; k < words_in<W>; ++k) out[(word + k) * planes + plane] = value[k];
    }
}

// Past the caches: an outcome larger than they are would only push out what is still needed.
inline void stream(uint64_t *to, Wide value) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to), reinterpret_cast<__m512i>(value));
#elif defined(__AVX2__)
    _mm256_stream_si256(reinterpret_cast<__m256i *>(to), reinterpret_cast<__m256i>(value));
#elif defined(__SSE2__)
    _mm_stream_si128(reinterpret_cast<__m128i *>(to), reinterpret_cast<__m128i>(value));
#else
    std::memcpy(to, &value, sizeof value);
#endif
}

inline void stream(uint64_t *to, uint64_t value) { *to = value; }

// Streamed words are written before anything that comes after.
inline void end_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

inline bool aligned(const void *to) { return reinterpret_cast<uintptr_t>(to) % sizeof(Wide) == 0; }

template <class W> struct Sum {
    W sum, carry;
};

template <class W> inline Sum<W> full_add(W a, W b, W c) {
    const W either = a ^ b;
    return {either ^ c, (a & b) | (either & c)};
}

template <class W> struct Half {
    W more, different;
};

// Where 2·count > V, and where 2·count ≠ V.
template <class W> [[gnu::always_inline]] inline Half<W> more_than_half(const W *count, int planes, uint64_t num_voters) {
    W equal = ~W{}, more{};
    for (int k = planes - 1; k >= 0; --k) {
        if (num_voters / 2 >> k & 1) {
            equal &= count[k];
        } else {
            more |= equal & count[k];
            equal &= ~count[k];
        }
    }
    return {more, num_voters % 2 ? ~W{} : ~equal};
}

// ---- counting ones -------------------------------------------------------------------------------------------------

// count += the ones of N ≤ 7 rows, whose three-bit sum four full adders make.
template <class W, int N> inline void count_rows(const uint64_t *const *rows, int64_t word, W *count, int planes) {
    auto row = [&](int k) { return k < N ? load<W>(rows[k] + word) : W{}; };
    const Sum<W> a = full_add(row(0), row(1), row(2)), b = full_add(row(3), row(4), row(5));
    const Sum<W> ones = full_add(a.sum, b.sum, row(6)), more = full_add(a.carry, b.carry, ones.carry);
    const W digits[3] = {ones.sum, more.sum, more.carry};
    W carry{};
    for (int k = 0; k < planes; ++k) {
        const Sum<W> digit = full_add(count[k], k < 3 ? digits[k] : W{}, carry);
        count[k] = digit.sum;
        carry = digit.carry;
    }
}

template <class W> void count_group(const uint64_t *const *rows, int n, int64_t word, W *count, int planes) {
    switch (n) {
        case 1: return count_rows<W, 1>(rows, word, count, planes);
        case 2: return count_rows<W, 2>(rows, word, count, planes);
        case 3: return count_rows<W, 3>(rows, word, count, planes);
        case 4: return count_rows<W, 4>(rows, word, count, planes);
        case 5: return count_rows<W, 5>(rows, word, count, planes);
        case 6: return count_rows<W, 6>(rows, word, count, planes);
        default: return count_rows<W, 7>(rows, word, count, planes);
    }
}

// ``emit<N>(word, count)`` for every word or eight of them, with the number of ones in bit planes; N rows, or 0 where that
// is not known to the compiler. Rows are read in strips, seven at a time: few streams of memory, and counters that stay in
// the first-level cache.
template <class W, int PLANES, class Emit>
void count_strips(const std::vector<const uint64_t *> &rows, int64_t first, int64_t last, Emit emit) {
    alignas(64) W count[STRIP][PLANES];
    const int n = int(rows.size());
    for (int64_t strip = first; strip < last; strip += STRIP * words_in<W>) {
        const int size = int(std::min<int64_t>(STRIP, (last - strip) / words_in<W>));
        std::memset(count, 0, sizeof(W) * PLANES * size);
        for (int group = 0; group < n; group += 7) {
            for (int v = 0; v < size; ++v) {
                count_group(rows.data() + group, std::min(7, n - group), strip + v * words_in<W>, count[v], PLANES);
            }
        }
        for (int v = 0; v < size; ++v) emit.template operator()<0>(strip + v * words_in<W>, count[v]);
    }
}

// Few rows need no counters in memory at all.
template <class W, int N, int PLANES, class Emit>
void count_few(const std::vector<const uint64_t *> &rows, int64_t first, int64_t last, Emit emit) {
    for (int64_t word = first; word < last; word += words_in<W>) {
        W count[PLANES] = {};
        if constexpr (words_in<W> > 1) {
            if (pace == Pace::lanes) {
                for (int k = 0; k < N; ++k) __builtin_prefetch(rows[k] + word + AHEAD);
            }
        }
        count_rows<W, std::min(N, 7)>(rows.data(), word, count, PLANES);
        if constexpr (N > 7) count_rows<W, N - 7>(rows.data() + 7, word, count, PLANES);
        emit.template operator()<N>(word, count);
    }
}

template <class W, class Emit>
void count_planes(const std::vector<const uint64_t *> &rows, int planes, int64_t first, int64_t last, Emit emit) {
    const size_t n = rows.size();
    if (n == 2 && planes <= 2) return count_few<W, 2, 2>(rows, first, last, emit);
    if (n == 3 && planes <= 2) return count_few<W, 3, 2>(rows, first, last, emit);
    if (n == 4 && planes <= 3) return count_few<W, 4, 3>(rows, first, last, emit);
    if (n == 5 && planes <= 3) return count_few<W, 5, 3>(rows, first, last, emit);
    if (n == 7 && planes <= 3) return count_few<W, 7, 3>(rows, first, last, emit);
    if (n == 9 && planes <= 4) return count_few<W, 9, 4>(rows, first, last, emit);
    if (planes <= 4) return count_strips<W, 4>(rows, first, last, emit);
    if (planes <= 5) return count_strips<W, 5>(rows, first, last, emit);
    if (planes <= 6) return count_strips<W, 6>(rows, first, last, emit);
    if (planes <= 9) return count_strips<W, 9>(rows, first, last, emit);
    return count_strips<W, 24>(rows, first, last, emit);
}

constexpr int bit_length(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }

// ``body<W>(from, to)``: whole vectors of words first, single words for the rest.
template <class Body> void by_width(int64_t first, int64_t last, Body body) {
    const int64_t wide = first + (last - first) / words_in<Wide> * words_in<Wide>;
    body.template operator()<Wide>(first, wide);
    body.template operator()<uint64_t>(wide, last);
}

inline void count_ones(const Votes &votes, int planes, uint64_t *out, int64_t first, int64_t last) {
    by_width(first, last, [&]<class W>(int64_t from, int64_t to) {
        count_planes<W>(votes.rows, planes, from, to, [&]<int>(int64_t word, const W *count) {
            for (int k = 0; k < planes; ++k) store_plane(out, word, planes, k, count[k]);
        });
    });
}

// Of four votes the casting one, which counts twice, needs one more; the others together outvote it.
inline void majority_of_four(const std::vector<const uint64_t *> &rows, int64_t casting, uint64_t *out, int64_t first,
                             int64_t last, bool streams) {
    const uint64_t *x = rows[casting], *a = rows[casting == 0], *b = rows[casting <= 1 ? 2 : 1],
                   *c = rows[casting <= 2 ? 3 : 2];
    by_width(first, last, [&]<class W>(int64_t from, int64_t to) {
        for (int64_t word = from; word < to; word += words_in<W>) {
            if constexpr (words_in<W> > 1) {
                if (pace == Pace::lanes) {
                    for (const uint64_t *row : {x, a, b, c}) __builtin_prefetch(row + word + AHEAD);
                }
            }
            const W va = load<W>(a + word), vb = load<W>(b + word), vc = load<W>(c + word);
            const W more = (load<W>(x + word) & (va | vb | vc)) | (va & vb & vc);
            if (streams) {
                stream(out + word, more);
            } else {
                std::memcpy(out + word, &more, sizeof(W));
            }
        }
    });
    if (streams) end_stream();
}

// ±1: who has more than half.
inline void majority_of_ones(const Votes &votes, const Tally &tally, uint64_t *out, int64_t first, int64_t last) {
    const std::vector<const uint64_t *> &rows = votes.rows;
    if (rows.size() == 3 && !tally.ternary && (rows[2] == rows[0] || rows[2] == rows[1])) {
        // Of two votes the casting one decides: it is the other, or outvotes it.
        std::memcpy(out + first, rows[2] + first, (last - first) * 8);
        return;
    }
    const bool streams = (last - first) * 8 >= STREAMED_BYTES && aligned(out + first);
    if (rows.size() == 5 && !tally.ternary) {
        const auto twice = std::find(rows.begin(), rows.end() - 1, rows.back());
        if (twice != rows.end() - 1) return majority_of_four(rows, twice - rows.begin(), out, first, last, streams);
    }
    const int planes = bit_length(rows.size());
    by_width(first, last, [&]<class W>(int64_t from, int64_t to) {
        count_planes<W>(rows, planes, from, to, [&]<int N>(int64_t word, const W *count) {
            const Half<W> half = N ? more_than_half(count, bit_length(N), N) : more_than_half(count, planes, rows.size());
            if (!tally.ternary && streams) {
                stream(out + word, half.more);
            } else if (!tally.ternary) {
                std::memcpy(out + word, &half.more, sizeof(W));
            } else {
                store_plane(out, word, 2, 0, half.more);
                store_plane(out, word, 2, 1, half.different);
            }
        });
    });
    if (streams) end_stream();
}

// ---- adding up weighted votes --------------------------------------------------------------------------------------

// The bits of each element's magnitude, lowest first, from the planes of its index; returns how many.
template <int INDEX_BITS, class W> inline int magnitude_planes(const W *index, const Tally &tally, W *bits) {
    int n = 0;
    if (tally.weights != Weights::table) {
        if (tally.weights == Weights::odd) bits[n++] = ~W{};
        for (int k = 0; k < INDEX_BITS; ++k) bits[n++] = index[k];
        return n;
    }
    if constexpr (INDEX_BITS <= MAX_TABLE_BITS) {
        W one_hot[1 << INDEX_BITS] = {~W{}};  // element e of it: where the index is e
        for (int k = 0; k < INDEX_BITS; ++k) {
            for (int e = 0; e < 1 << k; ++e) {
                one_hot[e + (1 << k)] = one_hot[e] & index[k];
                one_hot[e] &= ~index[k];
            }
        }
        n = bit_length(uint64_t(tally.magnitudes.back()));
        for (int k = 0; k < n; ++k) bits[k] = W{};
        for (int e = 0; e < 1 << INDEX_BITS; ++e) {
            for (uint64_t rest = uint64_t(tally.magnitudes[e]); rest; rest &= rest - 1) {
                bits[__builtin_ctzll(rest)] |= one_hot[e];
            }
        }
    }
    return n;
}

// Sums of WIDTH bits of payloads of P planes.
template <class W, int P, int WIDTH>
void weigh(const Votes &votes, const Tally &tally, uint64_t *out, int64_t first, int64_t last) {
    const int down = tally.ternary ? 2 : 1;
    W planes[P], bits[MAX_SUM_BITS];
    for (int64_t word = first; word < last; word += words_in<W>) {
        W total[WIDTH] = {};
        for (const uint64_t *row : votes.rows) {
            // -x = ~x + 1 in two's complement; the 1 is the carry that comes in.
            load_planes<P>(row, word, planes);
            const int n = magnitude_planes<P - 1>(planes + 1, tally, bits);
            const W minus = ~planes[0];
            W carry = minus;
            for (int k = 0; k < WIDTH; ++k) {
                const Sum<W> digit = full_add(total[k], k < n ? bits[k] ^ minus : minus, carry);
                total[k] = digit.sum;
                carry = digit.carry;
            }
        }
        W moves{};
        for (int k = 0; k < WIDTH; ++k) moves |= total[k];
        W positive = moves & ~total[WIDTH - 1];
        if (votes.casting) {
            load_planes<P>(votes.casting, word, planes);
            const int n = magnitude_planes<P - 1>(planes + 1, tally, bits);
            W voted{};
            for (int k = 0; k < n; ++k) voted |= bits[k];
            positive |= ~moves & voted & planes[0];
            moves |= voted;
        }
        store_plane(out, word, down, 0, positive);
        if (down == 2) store_plane(out, word, down, 1, moves);
    }
}

template <class W, int P>
void weigh_wide_enough(const Votes &votes, const Tally &tally, uint64_t *out, int64_t first, int64_t last) {
    if (tally.sum_bits <= 6) return weigh<W, P, 6>(votes, tally, out, first, last);
    if (tally.sum_bits <= 12) return weigh<W, P, 12>(votes, tally, out, first, last);
    if (tally.sum_bits <= 20) return weigh<W, P, 20>(votes, tally, out, first, last);
    return weigh<W, P, MAX_SUM_BITS>(votes, tally, out, first, last);
}

inline void majority(const Votes &votes, const Tally &tally, uint64_t *out, int64_t first, int64_t last) {
    if (tally.weights == Weights::unit) return majority_of_ones(votes, tally, out, first, last);
    by_width(first, last, [&]<class W>(int64_t from, int64_t to) {
        switch (1 + tally.index_bits) {
            case 1: return weigh_wide_enough<W, 1>(votes, tally, out, from, to);
            case 2: return weigh_wide_enough<W, 2>(votes, tally, out, from, to);
            case 3: return weigh_wide_enough<W, 3>(votes, tally, out, from, to);
            case 4: return weigh_wide_enough<W, 4>(votes, tally, out, from, to);
            case 5: return weigh_wide_enough<W, 5>(votes, tally, out, from, to);
            case 6: return weigh_wide_enough<W, 6>(votes, tally, out, from, to);
            case 7: return weigh_wide_enough<W, 7>(votes, tally, out, from, to);
            default: return weigh_wide_enough<W, 8>(votes, tally, out, from, to);
        }
    });
}

}  // namespace lioncub::ISA_SPACE
