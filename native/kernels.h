// The kernels' signatures, and one table of them for each instruction set.
//
// A kernel works on a range of blocks, words or elements, so that threads can share the work: it writes to
// that range alone. lioncub/kernels/torch_ops.py says what each one does, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lioncub {

constexpr int64_t BLOCK = 64;             // elements of a block: one 64-bit word per plane
constexpr int64_t SUM_CHUNK = 1 << 15;    // elements that are added up in one tree
constexpr int MAX_TABLE_BITS = 4;         // of an index into magnitudes that follow no rule


// How memory is walked; the same results at another speed. lanes: in several places of a range in turn, asking for what
// comes next: some processors have more of memory's answers under way then, and stop their own prefetching at every page
// and while a tile is packed. straight: from front to back, for processors whose own prefetching is best left alone.
enum class Pace : int { straight = 0, lanes = 1 };
extern Pace pace;

enum class Type : int { f32 = 0, bf16 = 1, f16 = 2 };

// A tensor's part of an update vector: u = beta·m + gain·g; m itself without g; zero without m. Where next is not null,
// encoding also writes next_beta·m + next_gain·g there, in m's format.
struct Part {
    int64_t start, numel;
    const void *m, *g;
    void *next;
    Type m_type, g_type;
    float beta, gain, next_beta, next_gain;
};

struct Update {
    std::vector<Part> parts;  // in order, back to back
    int64_t step;
};

enum class Grid : int { midrise = 0, log = 1, midtread = 2 };

struct Quantiser {
    Grid grid;
    int bits;
    float factor;   // of the linear grids
    int log2_base;  // of the logarithmic one, and
    int shift;      // what is added to its exponent
};

// unit: no index, the magnitude is 1, and a casting vote is one more row. linear: the index; odd: 2·index + 1.
enum class Weights : int { unit = 0, linear = 1, odd = 2, table = 3 };

// How sign-magnitude payloads are added up; see Tally in operands.py.
struct Tally {
    Weights weights;
    int index_bits, sum_bits;
    bool casting, ternary;
    std::vector<int64_t> magnitudes;
};

struct Votes {
    std::vector<const uint64_t *> rows;  // of the voters, in rank order
    const uint64_t *casting;             // the row that decides a zero sum, or null
};

enum class Kind : int { signs = 0, counts = 1, sign_of = 2, values = 3 };

struct Direction {
    Kind kind;
    int planes;
    Type type;
    const void *payload;
};

struct Noise {
    bool on;
    uint32_t low, high;
};

struct Move {
    int64_t start, numel;
    void *x, *m;
    const void *g;
    Type x_type, m_type, g_type;
    float lr, decay, beta, gain;
    int64_t num_voters;
    Noise noise;
};

struct Stride {
    int64_t numel;
    void *x, *m;
    const void *g;
    Type x_type, m_type, g_type;
    float lr, decay, beta1, gain1, beta2, gain2;
    Noise noise;
};

struct Cut {
    int64_t start, stop, num_voters;
};

struct Kernels {
    const char *name;
    // Blocks first..last of the payload; false if some u there is not finite.
    bool (*encode_signs)(const Update &, bool abstain, uint64_t *out, int64_t first, int64_t last);
    bool (*encode_values)(const Update &, Type, void *out, int64_t first, int64_t last);
    void (*encode_levels)(const Update &, const float *units, const Quantiser &, uint64_t *out, int64_t first,
                          int64_t last);
    // Elements first..last of one part.
    double (*abs_sum)(const Part &, int64_t first, int64_t last);
    float (*abs_max)(const Part &, int64_t first, int64_t last);
    // Words first..last of the outcome.
    void (*majority)(const Votes &, const Tally &, uint64_t *out, int64_t first, int64_t last);
    void (*count_ones)(const Votes &, int planes, uint64_t *out, int64_t first, int64_t last);
    // Elements first..last of all tensors back to back.
    void (*apply)(const std::vector<Move> &, const Direction &, int64_t first, int64_t last);
    int64_t (*lion)(const std::vector<Stride> &, int64_t first, int64_t last);
    // Words first..last of a payload.
    int64_t (*count_matches)(const uint64_t *payload, int up_planes, bool own_zeros, const uint64_t *outcome,
                             int down_planes, bool counts, const Cut &, int64_t first, int64_t last);
    // The ceiling of every kernel that reads.
    uint64_t (*read)(const uint64_t *words, int64_t first, int64_t last);
};

extern const Kernels plain;
#ifdef LIONCUB_X86
extern const Kernels avx2, avx512;
bool has_pclmul();
bool has_vpclmul();
// ``wide``: with 512 bits at a time, where has_vpclmul().
uint32_t crc32_pclmul(const uint8_t *data, size_t size, uint32_t crc, bool wide);
#endif

}  // namespace lioncub
