// Every kernel, for one instruction set: CMake compiles this file once for each, with ISA_SPACE as the namespace and ISA as the table.
// Floating point is never contracted: every product and every sum is rounded once.

#include "kernels.h"

#include <algorithm>
#include <array>

#include "counters.h"
#include "numbers.h"

namespace lioncub::ISA_SPACE {
namespace {

constexpr int64_t TILE = 64;       // elements that are worked on at a time, in the first-level cache
constexpr int64_t DISTANCE = 256;  // elements that are asked for ahead; what the lanes of two threads asked for must fit too
constexpr int LANES = 4;           // places of a range that are worked on in turn
constexpr int64_t PAGE = 1024;     // float32 of a page of memory
constexpr int64_t LONGEST = 1 << 24;  // elements of a tile that is stretched: 32 bits count what is in it

// Walks over a range at the pace of this processor: straight on, or in LANES places, a tile of each in turn.
// ``walk(from, to)`` makes what walks over a part of it, tile by tile by ``next()``.
template <class Walk, class Body> void at_pace(int64_t first, int64_t last, Walk walk, Body body) {
    if (pace == Pace::straight) {
        auto tile = walk(first, last);
        while (tile.next()) body(tile);
        return;
    }
    auto lane = [&](int64_t k) {
        const int64_t units = (last - first) / TILE;
        return walk(first + units * k / LANES * TILE, k + 1 == LANES ? last : first + units * (k + 1) / LANES * TILE);
    };
    decltype(walk(first, last)) lanes[LANES] = {lane(0), lane(1), lane(2), lane(3)};
    for (bool more = true; more;) {
        more = false;
        for (auto &tile : lanes) {
            if (!tile.next()) continue;
            body(tile);
            more = true;
        }
    }
}

// ---- the update vector, a tile at a time ---------------------------------------------------------------------------

// Asks for the memory of a block some tiles ahead. Addresses behind the end are ignored.
template <class Raw> inline void ahead(const Raw *block) {
    constexpr int64_t LINE = 64 / sizeof(Raw);
    for (int64_t j = 0; j < BLOCK; j += LINE) __builtin_prefetch(block + DISTANCE + j);
}

// ``body(j)`` for j = 0..n, whole blocks first: loops whose length the compiler knows, with prefetching between them.
template <class Body, class... Raws> inline void blockwise(int64_t n, Body body, const Raws *...streams) {
    int64_t from = 0;
    for (; from + BLOCK <= n; from += BLOCK) {
        if (pace == Pace::lanes) (ahead(streams + from), ...);
        for (int64_t j = from; j < from + BLOCK; ++j) body(j);
    }
    for (int64_t j = from; j < n; ++j) body(j);
}

template <class M, class G>
void fill_blend(const Part &part, int64_t offset, int64_t n, float *__restrict u) {
    auto m = static_cast<const typename M::Raw *>(part.m) + offset;
    auto g = static_cast<const typename G::Raw *>(part.g) + offset;
    const float beta = part.beta, gain = part.gain;
    blockwise(n, [=](int64_t j) { u[j] = M::get(m[j]) * beta + G::get(g[j]) * gain; }, m, g);
}

template <class M> void fill_copy(const Part &part, int64_t offset, int64_t n, float *__restrict u) {
    auto m = static_cast<const typename M::Raw *>(part.m) + offset;
    for (int64_t j = 0; j < n; ++j) u[j] = M::get(m[j]);
}

// The same, and the momentum after this step. That goes past the caches where it can: memory that is only written need
// not be read first.
template <class M, class G>
void fill_blend_and_next(const Part &part, int64_t offset, int64_t n, float *__restrict u) {
    auto m = static_cast<const typename M::Raw *>(part.m) + offset;
    auto g = static_cast<const typename G::Raw *>(part.g) + offset;
    auto to = static_cast<typename M::Raw *>(part.next) + offset;
    const float beta = part.beta, gain = part.gain, next_beta = part.next_beta, next_gain = part.next_gain;
    alignas(64) typename M::Raw next[TILE];
    auto one = [&](int64_t j) {
        const float momentum = M::get(m[j]), gradient = G::get(g[j]);
        u[j] = momentum * beta + gradient * gain;
        next[j] = M::put(momentum * next_beta + gradient * next_gain, 0);
    };
    if (n == TILE && aligned(to)) {
        blockwise(TILE, one, m, g);
        constexpr size_t WIDES = TILE * sizeof(typename M::Raw) / sizeof(Wide);
        for (size_t k = 0; k < WIDES; ++k) {
            stream(reinterpret_cast<uint64_t *>(to) + k * words_in<Wide>, reinterpret_cast<const Wide *>(next)[k]);
        }
    } else {
        for (int64_t j = 0; j < n; ++j) one(j);
        std::memcpy(to, next, n * sizeof next[0]);
    }
}

using Fill = void (*)(const Part &, int64_t, int64_t, float *__restrict);

Fill fill_of(const Part &part) {
    static constexpr Fill copies[3] = {fill_copy<F32>, fill_copy<BF16>, fill_copy<F16>};
    static constexpr Fill blends[3][3] = {
        {fill_blend<F32, F32>, fill_blend<F32, BF16>, fill_blend<F32, F16>},
        {fill_blend<BF16, F32>, fill_blend<BF16, BF16>, fill_blend<BF16, F16>},
        {fill_blend<F16, F32>, fill_blend<F16, BF16>, fill_blend<F16, F16>},
    };
    return part.g ? blends[int(part.m_type)][int(part.g_type)] : copies[int(part.m_type)];
}

Fill fill_of(const Part &part, bool and_next) {
    static constexpr Fill bodies[2][3] = {
        {fill_blend_and_next<F32, F32>, fill_blend_and_next<F32, BF16>, fill_blend_and_next<F32, F16>},
        {fill_blend_and_next<BF16, F32>, fill_blend_and_next<BF16, BF16>, fill_blend_and_next<BF16, F16>},
    };
    return and_next && part.next ? bodies[int(part.m_type)][int(part.g_type)] : fill_of(part);
}

// Whether all numbers that passed by were finite. A place of its own for each of a block's elements: nothing is added up
// before the end.
class Finite {
  public:
    void look_at(const float *u, int64_t n) {
        for (int64_t from = 0; from < n; from += BLOCK) {
            for (int64_t j = 0; j < BLOCK; ++j) {
                largest_[j] = std::max(largest_[j], bits_as<int32_t>(u[from + j]) & 0x7FFFFFFF);
            }
        }
    }

    // The largest magnitudes of many, as integers.
    void look_at(IntLane magnitudes) {
        for (int j = 0; j < LANE; ++j) largest_[j] = std::max(largest_[j], magnitudes[j]);
    }

    bool all() const { return *std::max_element(largest_, largest_ + BLOCK) < 0x7F800000; }

  private:
    alignas(64) int32_t largest_[BLOCK] = {};
};

// Whole tiles of one part.
struct Run {
    const Part &part;
    int64_t offset;      // of the first element inside the part
    int64_t num_blocks;
};

struct Piece {
    int64_t number;       // of the part
    int64_t first, last;  // inside the tile
    int64_t offset;       // of the first element inside the part
};

// Walks over elements of an update vector, whole blocks, tile by tile, and knows which part lies where.
class Tiles {
  public:
    ~Tiles() { end_stream(); }

    Tiles(const Update &update, int64_t from, int64_t to) : update_(update), next_(from), end_(to) {
        auto after = std::upper_bound(update.parts.begin(), update.parts.end(), next_,
                                      [](int64_t element, const Part &part) { return element < part.start; });
        number_ = std::max<int64_t>(after - update.parts.begin() - 1, 0);
    }

    int64_t first = 0, size = 0;  // of the tile
    int64_t num_pieces = 0;
    std::array<Piece, TILE> pieces;
    alignas(64) float u[TILE];

    bool next() {
        if (next_ >= end_) return false;
        first = next_;
        size = std::min(TILE, end_ - next_);
        next_ += size;
        if (size == TILE && first + TILE <= inside_until_) {  // still in the part of the tile before
            pieces[0].offset += TILE;
            fill_(*inside_, pieces[0].offset, TILE, u);
            return true;
        }
        find_pieces();
        int64_t filled = 0;
        for (int64_t k = 0; k < num_pieces; ++k) {
            const Piece &piece = pieces[k];
            const Part &part = update_.parts[piece.number];
            if (part.m) {
                fill_of(part, true)(part, piece.offset, piece.last - piece.first, u + piece.first);
            } else {
                std::fill(u + piece.first, u + piece.last, 0.0f);
            }
            filled = piece.last;
        }
        std::fill(u + filled, u + size, 0.0f);
        note_part();
        return true;
    }

    // Whether whole tiles of the same part follow that can be worked on in one go: float32, and room for the next momentum
    // that can be written past the caches. Not where memory is walked in lanes.
    bool has_run() const {
        if (pace != Pace::straight || std::min(inside_until_, end_) < next_ + TILE) return false;
        const bool streams = !inside_->next || aligned(static_cast<float *>(inside_->next) + pieces[0].offset);
        return inside_->g && inside_->m_type == Type::f32 && inside_->g_type == Type::f32 && streams;
    }

    Run rest_of_part() {
        const int64_t tiles = (std::min(inside_until_, end_) - next_) / TILE, offset = pieces[0].offset + TILE;
        next_ += tiles * TILE;
        pieces[0].offset += tiles * TILE;
        return {*inside_, offset, tiles * (TILE / BLOCK)};
    }

    // Where u = 0 in block b of the tile: 1 where coordinate + step is odd. The padding goes on like the last part.
    uint64_t alternating(int64_t b) const {
        uint64_t word = 0;
        for (int64_t k = 0; k <= num_pieces; ++k) {
            const bool padding = k == num_pieces;
            int64_t from = padding ? covered() : pieces[k].first, to = padding ? size : pieces[k].last;
            int64_t lead = padding ? first + covered() - update_.parts.back().start : pieces[k].offset;
            from -= b * BLOCK, to -= b * BLOCK;
            if (to <= 0 || from >= BLOCK || from >= to) continue;
            const bool odd = (lead - from + update_.step) & 1;  // at the first bit of the block
            const int64_t low = std::max<int64_t>(from, 0), high = std::min(to, BLOCK);
            const uint64_t mask = (high - low == BLOCK ? ~0ull : (1ull << (high - low)) - 1) << low;
            word |= (odd ? 0x5555555555555555ull : 0xAAAAAAAAAAAAAAAAull) & mask;
        }
        return word;
    }

  private:
    int64_t covered() const { return num_pieces ? pieces[num_pieces - 1].last : 0; }

    void find_pieces() {
        const auto &parts = update_.parts;
        const int64_t last = first + size, count = int64_t(parts.size());
        num_pieces = 0;
        for (; number_ < count && parts[number_].start < last; ++number_) {
            const Part &part = parts[number_];
            const int64_t from = std::max(part.start, first), to = std::min(part.start + part.numel, last);
            if (from < to) pieces[num_pieces++] = {number_, from - first, to - first, from - part.start};
            if (part.start + part.numel > last) break;  // the next tile begins in it
        }
    }

    // After a tile that one part fills: as long as that goes on, nothing has to be looked up.
    void note_part() {
        inside_until_ = 0;
        if (num_pieces != 1 || pieces[0].last - pieces[0].first < TILE) return;
        const Part &part = update_.parts[pieces[0].number];
        if (!part.m) return;
        inside_ = &part, fill_ = fill_of(part, true), inside_until_ = part.start + part.numel;
    }

    const Update &update_;
    int64_t next_, end_, number_;
    const Part *inside_ = nullptr;
    Fill fill_ = nullptr;
    int64_t inside_until_ = 0;
};

template <class Body> void each_tile(const Update &update, int64_t first_block, int64_t last_block, Body body) {
    auto walk = [&](int64_t from, int64_t to) { return Tiles(update, from, to); };
    at_pace(first_block * BLOCK, last_block * BLOCK, walk, body);
}

// Blocks of a float32 part from its numbers to their signs without leaving the registers; returns the largest |u| of each
// place, as integers. ``write`` takes the next momentum.
template <class Write>
IntLane signs_of_run(const Run &run, int64_t step, int planes, uint64_t *out, Write write) {
    const Part &part = run.part;
    auto m = static_cast<const float *>(part.m) + run.offset, g = static_cast<const float *>(part.g) + run.offset;
    const Lane beta = splat(part.beta), gain = splat(part.gain);
    const uint64_t alternating = (run.offset + step) & 1 ? 0x5555555555555555ull : 0xAAAAAAAAAAAAAAAAull;
    IntLane largest{};
    for (int64_t from = 0; from < run.num_blocks * BLOCK; from += BLOCK, out += planes) {
        SignWords words{0, 0};
        if (from % PAGE == 0) {  // the next page's address is looked up while this one is worked on
            __builtin_prefetch(m + from + PAGE), __builtin_prefetch(g + from + PAGE);
            if (part.next) __builtin_prefetch(static_cast<const float *>(part.next) + run.offset + from + PAGE);
        }
        for (int j = 0; j < BLOCK; j += LANE) {
            const Lane momentum = load_lane(m + from + j), gradient = load_lane(g + from + j);
            const Lane u = momentum * beta + gradient * gain;
            const IntLane magnitude = bits_as<IntLane>(u) & 0x7FFFFFFF;
            largest = magnitude > largest ? magnitude : largest;
            const auto [positive, zero] = sign_bits(u);
            words.positive |= positive << j, words.zero |= zero << j;
            write(from + j, momentum, gradient);
        }
        out[0] = words.positive | (words.zero & alternating);
        if (planes > 1) out[1] = ~words.zero;
    }
    return largest;
}

bool encode_signs(const Update &update, bool abstain, uint64_t *out, int64_t first, int64_t last) {
    Finite finite;
    const int planes = abstain ? 2 : 1;
    each_tile(update, first, last, [&](Tiles &tile) {
        finite.look_at(tile.u, tile.size);
        uint64_t *to = out + tile.first / BLOCK * planes;
        for (int64_t b = 0; b < tile.size / BLOCK; ++b) {
            auto [positive, zero] = sign_words(tile.u + b * BLOCK);
            if (zero) positive |= zero & tile.alternating(b);
            *to++ = positive;
            if (abstain) *to++ = ~zero;
        }
        if (!tile.has_run()) return;
        const Run run = tile.rest_of_part();
        const Part &part = run.part;
        if (!part.next) {
            finite.look_at(signs_of_run(run, update.step, planes, to, [](int64_t, Lane, Lane) {}));
            return;
        }
        const Lane beta = splat(part.next_beta), gain = splat(part.next_gain);
        auto next = static_cast<float *>(part.next) + run.offset;
        finite.look_at(signs_of_run(run, update.step, planes, to, [=](int64_t j, Lane momentum, Lane gradient) {
            stream(reinterpret_cast<uint64_t *>(next + j), bits_as<Wide>(momentum * beta + gradient * gain));
        }));
    });
    return finite.all();
}

template <class T> void put_all(const float *u, int64_t n, void *out) {
    auto to = static_cast<typename T::Raw *>(out);
    for (int64_t j = 0; j < n; ++j) to[j] = T::put(u[j], 0);
}

bool encode_values(const Update &update, Type type, void *out, int64_t first, int64_t last) {
    Finite finite;
    each_tile(update, first, last, [&](const Tiles &tile) {
        finite.look_at(tile.u, tile.size);
        if (type == Type::f32) {
            put_all<F32>(tile.u, tile.size, static_cast<float *>(out) + tile.first);
        } else {
            put_all<BF16>(tile.u, tile.size, static_cast<uint16_t *>(out) + tile.first);
        }
    });
    return finite.all();
}

// ---- levels --------------------------------------------------------------------------------------------------------

// Σ|u| of one chunk: rows of 64 are added in pairs, the sums in pairs, and so on; then the lanes by halves. Rows that
// are not there are zeros, and adding them changes nothing.
double abs_sum(const Part &part, int64_t first, int64_t last) {
    constexpr int DEPTH = 10;  // 512 rows
    alignas(64) double sums[DEPTH][BLOCK], lanes[BLOCK];
    alignas(64) float u[TILE];
    const Fill fill = fill_of(part);
    int64_t row = 0;
    for (int64_t from = first; from < last; from += TILE) {
        const int64_t n = std::min(TILE, last - from);
        fill(part, from, n, u);
        std::fill(u + n, u + (n + BLOCK - 1) / BLOCK * BLOCK, 0.0f);
        for (int64_t start = 0; start < n; start += BLOCK, ++row) {
            for (int j = 0; j < BLOCK; ++j) lanes[j] = double(std::fabs(u[start + j]));
            int level = 0;
            for (; row >> level & 1; ++level) {
                for (int j = 0; j < BLOCK; ++j) lanes[j] = sums[level][j] + lanes[j];
            }
            std::copy(lanes, lanes + BLOCK, sums[level]);
        }
    }
    std::fill(lanes, lanes + BLOCK, 0.0);
    for (int level = 0; level < DEPTH; ++level) {
        if (!(row >> level & 1)) continue;
        for (int j = 0; j < BLOCK; ++j) lanes[j] = sums[level][j] + lanes[j];
    }
    for (int half = BLOCK / 2; half; half /= 2) {
        for (int j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
    }
    return lanes[0];
}

float abs_max(const Part &part, int64_t first, int64_t last) {
    alignas(64) float u[TILE];
    int32_t largest = 0;
    const Fill fill = fill_of(part);
    for (int64_t from = first; from < last; from += TILE) {
        const int64_t n = std::min(TILE, last - from);
        fill(part, from, n, u);
        for (int64_t j = 0; j < n; ++j) largest = std::max(largest, bits_as<int32_t>(u[j]) & 0x7FFFFFFF);
    }
    return bits_as<float>(largest);  // NaN and Inf are the largest of all
}

template <Grid grid>
void indices(const float *__restrict u, int64_t n, float unit, const Quantiser &q, uint8_t *__restrict index) {
    const float top = float((1 << (q.bits - 1)) - 1), factor = q.factor;
    const int reciprocal = (65536 + q.log2_base - 1) / q.log2_base, shift = q.shift - 132 / q.log2_base;
    const int most = int(top);
    for (int64_t j = 0; j < n; ++j) {
        const float r = u[j] == 0 ? 0.0f : std::fabs(u[j]) / unit;
        if constexpr (grid == Grid::log) {
            // ⌊⌊log2 r⌋ / c⌋ for c = 1, 2, 3; 132 = 0 mod c makes the dividend positive.
            const int exponent = (bits_as<int32_t>(r) >> 23) - 127;
            const int e = ((exponent + 132) * reciprocal >> 16) + shift;
            index[j] = uint8_t(std::clamp(e, 0, most));
        } else {
            float level = r * factor;
            level = level < top ? level : top;
            if constexpr (grid == Grid::midtread) level = (level + 12582912.0f) - 12582912.0f;  // to nearest even
            index[j] = uint8_t(int(level));
        }
    }
}

void encode_levels(const Update &update, const float *units, const Quantiser &q, uint64_t *out, int64_t first,
                   int64_t last) {
    static constexpr decltype(&indices<Grid::log>) grids[] = {indices<Grid::midrise>, indices<Grid::log>,
                                                              indices<Grid::midtread>};
    alignas(64) uint8_t index[TILE];
    const uint8_t silent = [&] {
        uint8_t zero;
        const float none = 0;
        grids[int(q.grid)](&none, 1, 1.0f, q, &zero);
        return zero;
    }();
    each_tile(update, first, last, [&](const Tiles &tile) {
        int64_t filled = 0;
        for (int64_t k = 0; k < tile.num_pieces; ++k) {
            const Piece &piece = tile.pieces[k];
            grids[int(q.grid)](tile.u + piece.first, piece.last - piece.first, units[piece.number], q,
                               index + piece.first);
            filled = piece.last;
        }
        std::fill(index + filled, index + tile.size, silent);
        uint64_t *to = out + tile.first / BLOCK * q.bits;
        for (int64_t b = 0; b < tile.size / BLOCK; ++b) {
            auto [positive, zero] = sign_words(tile.u + b * BLOCK);
            if (zero) positive |= zero & tile.alternating(b);
            *to++ = positive;
            for (int k = 0; k < q.bits - 1; ++k) *to++ = plane_word(index + b * BLOCK, k);
        }
    });
}

// ---- moving --------------------------------------------------------------------------------------------------------

// 64 bits of a plane, from any bit on. Nothing behind the last word is read.
inline uint64_t word_at(const uint64_t *words, int planes, int plane, int64_t bit, int64_t n) {
    const int64_t word = bit / BLOCK, shift = bit % BLOCK;
    uint64_t value = words[word * planes + plane] >> shift;
    if (shift && shift + n > BLOCK) value |= words[(word + 1) * planes + plane] << (BLOCK - shift);
    return value;
}

void toward_signs(const Direction &d, int64_t start, int64_t n, float lr, float *out) {
    auto words = static_cast<const uint64_t *>(d.payload);
    for (int64_t j = 0; j < n; j += BLOCK) {
        const int64_t left = std::min(BLOCK, n - j);
        signed_values(word_at(words, d.planes, 0, start + j, left), lr, out + j);
        if (d.planes == 1) continue;
        const uint64_t moves = word_at(words, d.planes, 1, start + j, left);
        for (int half = 0; half < 2; ++half) {
            const uint32_t bits = uint32_t(moves >> 32 * half);
            float *part = out + j + 32 * half;
            for (uint32_t i = 0; i < 32; ++i) {
                part[i] = bits_as<float>(bits_as<uint32_t>(part[i]) & (0u - (bits >> i & 1)));
            }
        }
    }
}

void toward_counts(const Direction &d, int64_t start, int64_t n, float lr, int64_t num_voters, float *out) {
    const float voters = float(num_voters), divisor = float(std::max<int64_t>(num_voters, 1));
    auto words = static_cast<const uint64_t *>(d.payload);
    for (int64_t j = 0; j < n; j += BLOCK) {
        alignas(64) uint32_t count[BLOCK] = {};
        for (int k = 0; k < d.planes; ++k) {
            const uint64_t word = word_at(words, d.planes, k, start + j, std::min(BLOCK, n - j));
            for (int half = 0; half < 2; ++half) {
                const uint32_t bits = uint32_t(word >> 32 * half);
                for (uint32_t i = 0; i < 32; ++i) count[32 * half + i] += (bits >> i & 1) << k;
            }
        }
        for (int i = 0; i < BLOCK; ++i) out[j + i] = (float(int32_t(count[i])) * 2 - voters) / divisor * lr;
    }
}

template <class T> void toward_signs_of(const Direction &d, int64_t start, int64_t n, float lr, float *out) {
    auto values = static_cast<const typename T::Raw *>(d.payload) + start;
    for (int64_t j = 0; j < n; ++j) {
        const float value = T::get(values[j]);
        out[j] = float(int(value > 0) - int(value < 0)) * lr;
    }
}

// lr times elements start..start+n of the direction; whole blocks of ``out`` are written.
void toward(const Direction &d, const Move &move, int64_t offset, int64_t n, float *out) {
    const int64_t start = move.start + offset;
    switch (d.kind) {
        case Kind::signs: return toward_signs(d, start, n, move.lr, out);
        case Kind::counts: return toward_counts(d, start, n, move.lr, move.num_voters, out);
        case Kind::sign_of: {
            static constexpr decltype(&toward_signs_of<F32>) bodies[3] = {toward_signs_of<F32>, toward_signs_of<BF16>,
                                                                          toward_signs_of<F16>};
            return bodies[int(d.type)](d, start, n, move.lr, out);
        }
        case Kind::values: {
            auto values = static_cast<const float *>(d.payload) + start;
            for (int64_t j = 0; j < n; ++j) out[j] = values[j] * move.lr;
        }
    }
}

struct Random {
    uint32_t first, low, high;
    Random(const Noise &noise, int64_t offset)
        : first(uint32_t(offset)), low(noise.low ^ uint32_t(offset >> 32) * 0x9E3779B9u), high(noise.high) {}
    uint32_t at(int64_t j) const { return hashed(first + uint32_t(j), low, high); }
};

template <class X> void move_only(const Move &move, int64_t offset, int64_t n, const float *__restrict toward) {
    auto *__restrict x = static_cast<typename X::Raw *>(move.x) + offset;
    const Random random(move.noise, offset);
    const float decay = move.decay;
    auto one = [=](int64_t j) { x[j] = X::put(X::get(x[j]) * decay - toward[j], X::noisy ? random.at(j) : 0); };
    blockwise(n, one, x);
}

// move_only for float32 and one plane of signs, from the bits to the numbers without leaving the registers.
void move_by_signs(const Move &move, const Direction &d, int64_t offset, int64_t n) {
    auto words = static_cast<const uint64_t *>(d.payload);
    auto x = static_cast<float *>(move.x) + offset;
    const int64_t start = move.start + offset;
    const float lr = move.lr, decay = move.decay;
    int64_t from = 0;
    for (; from + BLOCK <= n; from += BLOCK) {
        if (pace == Pace::lanes) ahead(x + from);
        if (from % PAGE == 0) __builtin_prefetch(x + from + PAGE, 1);
        const uint64_t word = word_at(words, 1, 0, start + from, BLOCK);
        for (int j = 0; j < BLOCK; j += LANE) {
            store_lane(x + from + j, load_lane(x + from + j) * decay - signed_lane(word >> j, lr));
        }
    }
    if (from == n) return;
    const uint64_t word = word_at(words, 1, 0, start + from, n - from);
    for (int64_t j = 0; j < n - from; ++j) x[from + j] = x[from + j] * decay - (word >> j & 1 ? lr : -lr);
}

template <class X, class M, class G>
void move_and_advance(const Move &move, int64_t offset, int64_t n, const float *__restrict toward) {
    auto *__restrict x = static_cast<typename X::Raw *>(move.x) + offset;
    auto *__restrict m = static_cast<typename M::Raw *>(move.m) + offset;
    auto *__restrict g = static_cast<const typename G::Raw *>(move.g) + offset;
    const Random random(move.noise, offset);
    const float decay = move.decay, beta = move.beta, gain = move.gain;
    auto one = [=](int64_t j) {
        m[j] = M::put(M::get(m[j]) * beta + G::get(g[j]) * gain, 0);
        x[j] = X::put(X::get(x[j]) * decay - toward[j], X::noisy ? random.at(j) : 0);
    };
    blockwise(n, one, x, m, g);
}

template <class X, class M, class G> int64_t lion_one(const Stride &s, int64_t offset, int64_t n) {
    auto *__restrict x = static_cast<typename X::Raw *>(s.x) + offset;
    auto *__restrict m = static_cast<typename M::Raw *>(s.m) + offset;
    auto *__restrict g = static_cast<const typename G::Raw *>(s.g) + offset;
    const Random random(s.noise, offset);
    const float lr = s.lr, decay = s.decay, beta1 = s.beta1, gain1 = s.gain1, beta2 = s.beta2, gain2 = s.gain2;
    int32_t skipped = 0;
    auto one = [=, &skipped](int64_t j) {
        const float momentum = M::get(m[j]), gradient = G::get(g[j]);
        const float u = momentum * beta1 + gradient * gain1;
        const bool stays = (bits_as<uint32_t>(u) & 0x7FFFFFFF) >= 0x7F800000;
        const float toward = float(int(u > 0) - int(u < 0)) * lr;
        const auto new_x = X::put(X::get(x[j]) * decay - toward, X::noisy ? random.at(j) : 0);
        const auto new_m = M::put(momentum * beta2 + gradient * gain2, 0);
        m[j] = stays ? m[j] : new_m;
        x[j] = stays ? x[j] : new_x;
        skipped += stays;
    };
    blockwise(n, one, x, m, g);
    return skipped;
}

// One function of a family by the storage formats of its operands; ``noisy`` chooses stochastic rounding of x.
#define BY_FORMATS(family)                                                                             \
    {                                                                                                  \
        {{family<F32, F32, F32>, family<F32, F32, BF16>, family<F32, F32, F16>},                       \
         {family<F32, BF16, F32>, family<F32, BF16, BF16>, family<F32, BF16, F16>}},                   \
            {{family<BF16, F32, F32>, family<BF16, F32, BF16>, family<BF16, F32, F16>},                \
             {family<BF16, BF16, F32>, family<BF16, BF16, BF16>, family<BF16, BF16, F16>}},            \
            {{family<F16, F32, F32>, family<F16, F32, BF16>, family<F16, F32, F16>},                   \
             {family<F16, BF16, F32>, family<F16, BF16, BF16>, family<F16, BF16, F16>}},               \
            {{family<NoisyBF16, F32, F32>, family<NoisyBF16, F32, BF16>, family<NoisyBF16, F32, F16>}, \
             {family<NoisyBF16, BF16, F32>, family<NoisyBF16, BF16, BF16>, family<NoisyBF16, BF16, F16>}}, \
    }

template <class T> int x_format(const T &t) { return t.noise.on && t.x_type == Type::bf16 ? 3 : int(t.x_type); }

// Walks over elements first..last of all tensors back to back, a tile at a time.
template <class T> class Walk {
  public:
    Walk(const std::vector<T> &tensors, int64_t first, int64_t last)
        : next_(tensors.data()), end_(next_ + tensors.size()), left_(last - first), at_(first) {
        while (next_ != end_ && at_ >= next_->numel) at_ -= next_++->numel;
    }

    const T *tensor = nullptr;
    int64_t offset = 0, n = 0;  // of the tile, in the tensor

    bool next() {
        while (next_ != end_ && at_ == next_->numel) ++next_, at_ = 0;
        if (next_ == end_ || left_ <= 0) return false;
        tensor = next_;
        offset = at_;
        // A tile ends at multiples of TILE, so that 2^32 coordinates, where the noise's key changes, end one too.
        n = std::min({TILE - offset % TILE, tensor->numel - offset, left_});
        at_ += n;
        left_ -= n;
        return true;
    }

    // Makes the tile as long as its tensor and the range let it; not where memory is walked in lanes.
    void stretch() {
        if (pace != Pace::straight) return;
        const int64_t more = std::min({tensor->numel - at_, left_, LONGEST});
        n += more, at_ += more, left_ -= more;
    }

  private:
    const T *next_, *end_;
    int64_t left_, at_;
};

template <class T, class Body> void each_tile(const std::vector<T> &tensors, int64_t first, int64_t last, Body body) {
    auto walk = [&](int64_t from, int64_t to) { return Walk<T>(tensors, from, to); };
    at_pace(first, last, walk, body);
}

void apply(const std::vector<Move> &moves, const Direction &direction, int64_t first, int64_t last) {
    static constexpr decltype(&move_only<F32>) alone[] = {move_only<F32>, move_only<BF16>, move_only<F16>,
                                                          move_only<NoisyBF16>};
    static constexpr decltype(&move_and_advance<F32, F32, F32>) both[4][2][3] = BY_FORMATS(move_and_advance);
    alignas(64) float out[TILE + BLOCK];
    each_tile(moves, first, last, [&](Walk<Move> &tile) {
        const Move &move = *tile.tensor;
        if (direction.kind == Kind::signs && direction.planes == 1 && !move.m && move.x_type == Type::f32) {
            tile.stretch();
            return move_by_signs(move, direction, tile.offset, tile.n);
        }
        toward(direction, move, tile.offset, tile.n, out);
        if (move.m) {
            both[x_format(move)][int(move.m_type)][int(move.g_type)](move, tile.offset, tile.n, out);
        } else {
            alone[x_format(move)](move, tile.offset, tile.n, out);
        }
    });
}

int64_t lion(const std::vector<Stride> &strides, int64_t first, int64_t last) {
    static constexpr decltype(&lion_one<F32, F32, F32>) bodies[4][2][3] = BY_FORMATS(lion_one);
    int64_t skipped = 0;
    each_tile(strides, first, last, [&](Walk<Stride> &tile) {
        const Stride &stride = *tile.tensor;
        if (!stride.noise.on) tile.stretch();
        skipped += bodies[x_format(stride)][int(stride.m_type)][int(stride.g_type)](stride, tile.offset, tile.n);
    });
    return skipped;
}

// ---- looking back --------------------------------------------------------------------------------------------------

int64_t count_matches(const uint64_t *payload, int up_planes, bool own_zeros, const uint64_t *outcome, int down_planes,
                      bool counts, const Cut &cut, int64_t first, int64_t last) {
    int64_t total = 0;
    if (up_planes == 1 && !own_zeros && down_planes == 1 && !counts && cut.start <= first * BLOCK && cut.stop >= last * BLOCK) {
        for (int64_t word = first; word < last; ++word) total += __builtin_popcountll(~(payload[word] ^ outcome[word]));
        return total;
    }
    for (int64_t word = first; word < last; ++word) {
        const uint64_t *mine = payload + word * up_planes, *theirs = outcome + word * down_planes;
        uint64_t i_move = ~0ull, positive = theirs[0], moves = down_planes > 1 ? theirs[1] : ~0ull;
        if (own_zeros) {
            i_move = 0;
            for (int k = 1; k < up_planes; ++k) i_move |= mine[k];
        }
        if (counts) {
            auto half = more_than_half(theirs, down_planes, uint64_t(cut.num_voters));
            positive = half.more, moves = half.different;
        }
        uint64_t same = (~(mine[0] ^ positive) & i_move & moves) | ~(i_move | moves);
        if (cut.start > word * BLOCK) same &= ~0ull << (cut.start - word * BLOCK);
        if (cut.stop < (word + 1) * BLOCK) same &= (1ull << (cut.stop - word * BLOCK)) - 1;
        total += __builtin_popcountll(same);
    }
    return total;
}

uint64_t read(const uint64_t *words, int64_t first, int64_t last) {
    uint64_t all[64] = {};
    int64_t w = first;
    for (; w + 64 <= last; w += 64) {
        for (int k = 0; k < 64; ++k) all[k] += words[w + k];
    }
    uint64_t total = 0;
    for (uint64_t part : all) total += part;
    for (; w < last; ++w) total += words[w];
    return total;
}

}  // namespace
}  // namespace lioncub::ISA_SPACE

const lioncub::Kernels lioncub::ISA = {
    .name = ISA_NAME,
    .encode_signs = ISA_SPACE::encode_signs,
    .encode_values = ISA_SPACE::encode_values,
    .encode_levels = ISA_SPACE::encode_levels,
    .abs_sum = ISA_SPACE::abs_sum,
    .abs_max = ISA_SPACE::abs_max,
    .majority = ISA_SPACE::majority,
    .count_ones = ISA_SPACE::count_ones,
    .apply = ISA_SPACE::apply,
    .lion = ISA_SPACE::lion,
    .count_matches = ISA_SPACE::count_matches,
    .read = ISA_SPACE::read,
};
