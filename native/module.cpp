// The Python module: reads operands, shares the work out among threads, without the GIL.
//
// Operands are read from the tuples of operands.py where every tensor is plain (see tensors.h), else from tables of
// numbers and addresses that native.py makes of copies (an ndarray argument would cost 10 µs each, and could silently
// copy). native.py owns the tensors, checks their sizes, and keeps them alive until the call is over.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels.h"
#include "tensors.h"
#include "threads.h"

using namespace lioncub;

using Moves = std::vector<Move>;
using Strides = std::vector<Stride>;
NB_MAKE_OPAQUE(Moves)
NB_MAKE_OPAQUE(Strides)

namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;

constexpr int64_t GRAIN_BYTES = 1 << 20;          // read or written: worth a thread
constexpr int64_t GRAIN = GRAIN_BYTES / 8;        // elements of an update vector

const Kernels *chosen = nullptr;

std::vector<const Kernels *> usable() {
    std::vector<const Kernels *> found;
#ifdef LIONCUB_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found.push_back(&avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) found.push_back(&avx2);
#endif
    found.push_back(&plain);
    return found;
}

// Measured on Xeons and EPYCs: the former are faster in lanes, the latter straight on, each by a third to a half.
Pace usual_pace() {
#ifdef LIONCUB_X86
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel")) return Pace::lanes;
#endif
    return Pace::straight;
}

template <class T> T *at(int64_t address) { return reinterpret_cast<T *>(address); }

void expect(bool condition, const char *what) {
    if (!condition) throw std::invalid_argument(what);
}

Type type_of(int64_t bits) {
    expect((bits & 3) <= 2, "a type is float32, bfloat16 or float16");
    return Type(bits & 3);
}

// Momenta are advanced in float32 and bfloat16: of float16 there are no bodies.
Type momentum_type(int64_t bits) {
    const Type type = type_of(bits);
    expect(type != Type::f16, "a momentum that is advanced is float32 or bfloat16");
    return type;
}

Noise noise_of(int64_t low, int64_t high) { return {low >= 0, uint32_t(low), uint32_t(high)}; }

// ---- operands from the tuples of operands.py; nothing where some tensor is not plain -------------------------------

Reader reader;

// One operand: a tuple whose fields are read in order.
class Fields {
  public:
    Fields(nb::handle tuple, Py_ssize_t count) : tuple_(tuple) {
        const bool fits = PyTuple_Check(tuple.ptr()) && PyTuple_GET_SIZE(tuple.ptr()) == count;
        expect(fits, "an operand is a tuple of operands.py");
    }

    PyObject *object() { return PyTuple_GET_ITEM(tuple_.ptr(), next_++); }
    float number() { return float(cast<double>()); }
    int64_t integer() { return cast<int64_t>(); }

    Noise noise() {
        const nb::handle key = object();
        if (key.is_none()) return noise_of(-1, 0);
        Fields words(key, 2);
        const int64_t low = words.integer();
        return noise_of(low, words.integer());
    }

    // A tensor that is not plain, or not ``numel`` long, spoils the operand.
    View tensor(int64_t numel = -1) {
        const std::optional<View> view = reader.read(object());
        plain &= view && (numel < 0 || view->numel == numel);
        return view.value_or(NONE);
    }

    View tensor_or_none(int64_t numel) {
        if (PyTuple_GET_ITEM(tuple_.ptr(), next_) != Py_None) return tensor(numel);
        ++next_;
        return NONE;
    }

    bool plain = true;

  private:
    template <class T> T cast() {
        T value;
        expect(nb::try_cast(nb::handle(object()), value), "a number of an operand is not one, or is too large");
        return value;
    }

    static constexpr View NONE = {nullptr, 0, Type::f32};
    nb::handle tuple_;
    Py_ssize_t next_ = 0;
};

std::optional<Update> read_update(nb::sequence parts, nb::sequence starts, nb::sequence lengths) {
    Update update{{}, 0};
    const size_t count = nb::len(parts);
    expect(nb::len(starts) == count && nb::len(lengths) == count, "as many starts and lengths as parts");
    update.parts.reserve(count);
    for (size_t k = 0; k < count; ++k) {
        const nb::object tuple = parts[k];
        Fields fields(tuple, 7);
        Part part{};
        part.start = nb::cast<int64_t>(starts[k]), part.numel = nb::cast<int64_t>(lengths[k]);
        const View m = fields.tensor_or_none(part.numel), g = fields.tensor_or_none(part.numel);
        part.beta = fields.number(), part.gain = fields.number();
        const View next = fields.tensor_or_none(part.numel);
        part.next_beta = fields.number(), part.next_gain = fields.number();
        if (!fields.plain || (next.data && (next.type != m.type || m.type == Type::f16))) return {};
        part.m = m.data, part.m_type = m.type;
        if (m.data) part.g = g.data, part.g_type = g.type;
        if (part.g) part.next = next.data;
        update.parts.push_back(part);
    }
    return update;
}

std::optional<Moves> read_moves(nb::sequence tuples, int64_t end) {
    Moves moves;
    const size_t count = nb::len(tuples);
    moves.reserve(count);
    for (size_t k = 0; k < count; ++k) {
        const nb::object tuple = tuples[k];
        Fields fields(tuple, 10);
        Move move{};
        const View x = fields.tensor();
        move.start = fields.integer(), move.lr = fields.number(), move.decay = fields.number();
        move.num_voters = fields.integer();
        const View m = fields.tensor_or_none(x.numel), g = fields.tensor_or_none(x.numel);
        move.beta = fields.number(), move.gain = fields.number(), move.noise = fields.noise();
        if (!fields.plain || m.type == Type::f16 || move.start < 0 || move.start > end - x.numel) return {};
        move.numel = x.numel, move.x = x.data, move.x_type = x.type;
        if (m.data && g.data) move.m = m.data, move.m_type = m.type, move.g = g.data, move.g_type = g.type;
        moves.push_back(move);
    }
    return moves;
}

std::optional<Strides> read_strides(nb::sequence tuples) {
    Strides strides;
    const size_t count = nb::len(tuples);
    strides.reserve(count);
    for (size_t k = 0; k < count; ++k) {
        const nb::object tuple = tuples[k];
        Fields fields(tuple, 10);
        const View x = fields.tensor(), m = fields.tensor(x.numel), g = fields.tensor(x.numel);
        if (!fields.plain || m.type == Type::f16) return {};
        Stride stride{x.numel, x.data, m.data, g.data, x.type, m.type, g.type, 0, 0, 0, 0, 0, 0, {}};
        for (float *number : {&stride.lr, &stride.decay, &stride.beta1, &stride.gain1, &stride.beta2, &stride.gain2}) {
            *number = fields.number();
        }
        stride.noise = fields.noise();
        strides.push_back(stride);
    }
    return strides;
}

// ---- the same from tables: one row of integers and one of numbers for each tensor ----------------------------------

Update table_update(const Ints &ints, const Floats &floats) {
    expect(ints.size() % 6 == 0 && floats.size() == ints.size() / 6 * 4, "parts: 6 integers and 4 numbers each");
    Update update{{}, 0};
    update.parts.reserve(ints.size() / 6);
    for (size_t k = 0; k < ints.size() / 6; ++k) {
        const int64_t *i = &ints[6 * k];
        const double *f = &floats[4 * k];
        const Type m_type = i[5] ? momentum_type(i[4]) : type_of(i[4]);
        update.parts.push_back({i[0], i[1], at<void>(i[2]), at<void>(i[3]), at<void>(i[5]), m_type, type_of(i[4] >> 2),
                                float(f[0]), float(f[1]), float(f[2]), float(f[3])});
    }
    return update;
}

Moves table_moves(const Ints &ints, const Floats &floats) {
    expect(ints.size() % 9 == 0 && floats.size() == ints.size() / 9 * 4, "moves: 9 integers and 4 numbers each");
    Moves moves;
    moves.reserve(ints.size() / 9);
    for (size_t k = 0; k < ints.size() / 9; ++k) {
        const int64_t *i = &ints[9 * k];
        const double *f = &floats[4 * k];
        moves.push_back({i[0], i[1], at<void>(i[2]), at<void>(i[3]), at<void>(i[4]), type_of(i[5]),
                         momentum_type(i[5] >> 2), type_of(i[5] >> 4), float(f[0]), float(f[1]), float(f[2]),
                         float(f[3]), i[6], noise_of(i[7], i[8])});
    }
    return moves;
}

Strides table_strides(const Ints &ints, const Floats &floats) {
    expect(ints.size() % 7 == 0 && floats.size() == ints.size() / 7 * 6, "strides: 7 integers and 6 numbers each");
    Strides strides;
    strides.reserve(ints.size() / 7);
    for (size_t k = 0; k < ints.size() / 7; ++k) {
        const int64_t *i = &ints[7 * k];
        const double *f = &floats[6 * k];
        strides.push_back({i[0], at<void>(i[1]), at<void>(i[2]), at<void>(i[3]), type_of(i[4]),
                           momentum_type(i[4] >> 2), type_of(i[4] >> 4), float(f[0]), float(f[1]), float(f[2]),
                           float(f[3]), float(f[4]), float(f[5]), noise_of(i[5], i[6])});
    }
    return strides;
}

template <class T> int64_t total_of(const std::vector<T> &tensors) {
    int64_t total = 0;
    for (const T &tensor : tensors) total += tensor.numel;
    return total;
}

// ---- encoding ------------------------------------------------------------------------------------------------------

bool encode_signs(Update &update, int64_t step, bool abstain, int64_t blocks, int64_t out, int threads) {
    update.step = step;
    nb::gil_scoped_release unlocked;
    std::atomic<bool> finite = true;
    parallel(threads, blocks, GRAIN / BLOCK, 1, [&](int64_t first, int64_t last) {
        if (!chosen->encode_signs(update, abstain, at<uint64_t>(out), first, last)) finite = false;
    });
    return finite;
}

bool encode_values(const Update &update, int type, int64_t blocks, int64_t out, int threads) {
    nb::gil_scoped_release unlocked;
    std::atomic<bool> finite = true;
    parallel(threads, blocks, GRAIN / BLOCK, 1, [&](int64_t first, int64_t last) {
        if (!chosen->encode_values(update, Type(type), at<void>(out), first, last)) finite = false;
    });
    return finite;
}

// mean|u| or max|u| of one part: chunks by any thread, added up in their order.
float unit_of(const Part &part, bool l1, int threads) {
    if (!part.m || !part.numel) return 0;
    const int64_t chunks = (part.numel + SUM_CHUNK - 1) / SUM_CHUNK;
    std::vector<double> found(chunks);
    parallel(threads, chunks, GRAIN / SUM_CHUNK, 1, [&](int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) {
            const int64_t from = k * SUM_CHUNK, to = std::min(part.numel, from + SUM_CHUNK);
            found[k] = l1 ? chosen->abs_sum(part, from, to) : double(chosen->abs_max(part, from, to));
        }
    });
    double unit = 0;
    for (double value : found) {
        if (!std::isfinite(value)) return float(value);  // a maximum could lose it
        unit = l1 ? unit + value : std::max(unit, value);
    }
    return float(l1 ? unit / double(part.numel) : unit);
}

bool encode_levels(Update &update, int64_t step, int grid, int bits, bool l1, double factor, int log2_base, int shift,
                   int64_t blocks, int64_t out, int threads) {
    expect(bits >= 2 && bits <= 8 && log2_base >= 1 && log2_base <= 3, "levels: 2 to 8 bits, a base of 2, 4 or 8");
    update.step = step;
    const Quantiser quantiser{Grid(grid), bits, float(factor), log2_base, shift};
    nb::gil_scoped_release unlocked;
    std::vector<float> units;
    units.reserve(update.parts.size());
    for (const Part &part : update.parts) {
        units.push_back(unit_of(part, l1, threads));
        if (!std::isfinite(units.back())) return false;
    }
    parallel(threads, blocks, GRAIN / BLOCK, 1, [&](int64_t first, int64_t last) {
        chosen->encode_levels(update, units.data(), quantiser, at<uint64_t>(out), first, last);
    });
    return true;
}

// ---- combining -----------------------------------------------------------------------------------------------------

// ``combine(first, last)`` over the words of elements start..stop. Words at the edges, of which other elements
// belong to other voters, go through a mask. ``up`` and ``down`` words are read and written for each.
template <class Combine>
void over_span(int64_t start, int64_t stop, int up, int down, uint64_t *out, int threads, Combine combine) {
    auto edge = [&](int64_t word) {
        const int64_t from = std::max<int64_t>(start - word * BLOCK, 0), to = std::min(stop - word * BLOCK, BLOCK);
        const uint64_t mask = (to - from == BLOCK ? ~0ull : (1ull << (to - from)) - 1) << from;
        uint64_t *there = out + word * down;
        const std::vector<uint64_t> before(there, there + down);
        combine(word, word + 1);
        for (int k = 0; k < down; ++k) there[k] = (before[k] & ~mask) | (there[k] & mask);
    };
    if (start >= stop) return;
    int64_t first = start / BLOCK, last = (stop + BLOCK - 1) / BLOCK;
    if (start % BLOCK) edge(first++);
    if (stop % BLOCK && first < last) edge(--last);
    if (first >= last) return;
    parallel(threads, last - first, std::max<int64_t>(GRAIN_BYTES / 8 / (up + down), 8), 8,
             [&](int64_t from, int64_t to) { combine(first + from, first + to); });
}

// Rows ``stride`` bytes apart from ``base`` on.
std::vector<const uint64_t *> rows_of(int64_t base, int64_t stride, const Ints &voters) {
    std::vector<const uint64_t *> rows;
    for (int64_t voter : voters) rows.push_back(at<const uint64_t>(base + voter * stride));
    return rows;
}

void majority(int64_t base, int64_t stride, const Ints &voters, int64_t casting, int weights, int sum_bits,
              bool ternary, const Ints &magnitudes, int64_t start, int64_t stop, int64_t out, int threads) {
    const int index_bits = magnitudes.size() > 1 ? 64 - __builtin_clzll(magnitudes.size() - 1) : 0;
    expect(sum_bits <= 40 && index_bits <= 7, "a sum has 40 bits at most, an index 7");
    expect(Weights(weights) != Weights::table || index_bits <= MAX_TABLE_BITS, "a table has 16 magnitudes at most");
    const Tally tally{Weights(weights), index_bits, sum_bits, casting >= 0, ternary, magnitudes};
    Votes votes{rows_of(base, stride, voters), nullptr};
    if (casting >= 0) {
        const uint64_t *row = at<const uint64_t>(base + casting * stride);
        if (tally.weights != Weights::unit) {
            votes.casting = row;
        } else if (voters.size() % 2 == 0) {
            votes.rows.push_back(row);
        }
    }
    nb::gil_scoped_release unlocked;
    auto to = at<uint64_t>(out);
    const int up = int(votes.rows.size()) * (1 + index_bits);
    over_span(start, stop, up, ternary ? 2 : 1, to, threads,
              [&](int64_t first, int64_t last) { chosen->majority(votes, tally, to, first, last); });
}

void count_ones(int64_t base, int64_t stride, const Ints &voters, int planes, int64_t start, int64_t stop, int64_t out,
                int threads) {
    expect(planes >= 1 && planes <= 24 && voters.size() < 1ull << planes, "the count does not fit its planes");
    const Votes votes{rows_of(base, stride, voters), nullptr};
    nb::gil_scoped_release unlocked;
    auto to = at<uint64_t>(out);
    over_span(start, stop, int(voters.size()), planes, to, threads,
              [&](int64_t first, int64_t last) { chosen->count_ones(votes, planes, to, first, last); });
}

// ---- moving --------------------------------------------------------------------------------------------------------

void apply(const Moves &moves, int kind, int planes, int type, int64_t payload, int threads) {
    const Direction direction{Kind(kind), planes, type_of(type), at<void>(payload)};
    nb::gil_scoped_release unlocked;
    parallel(threads, total_of(moves), GRAIN, BLOCK,
             [&](int64_t first, int64_t last) { chosen->apply(moves, direction, first, last); });
}

int64_t lion(const Strides &strides, int threads) {
    nb::gil_scoped_release unlocked;
    std::atomic<int64_t> skipped = 0;
    parallel(threads, total_of(strides), GRAIN, BLOCK,
             [&](int64_t first, int64_t last) { skipped += chosen->lion(strides, first, last); });
    return skipped;
}

// ---- looking back --------------------------------------------------------------------------------------------------

// A payload of ``shards`` pieces, each ``shard_words`` words of all planes, ``stride`` bytes apart; the outcome is whole.
int64_t count_matches(int64_t payload, int64_t shards, int64_t stride, int64_t shard_words, int up_planes,
                      bool own_zeros, int64_t outcome, int down_planes, bool counts, const Ints &cuts, int threads) {
    expect(cuts.size() % 3 == 0, "cuts: 3 integers each");
    nb::gil_scoped_release unlocked;
    std::atomic<int64_t> total = 0;
    for (int64_t shard = 0; shard < shards; ++shard) {
        auto mine = at<uint64_t>(payload + shard * stride);
        auto theirs = at<uint64_t>(outcome) + shard * shard_words * down_planes;
        const int64_t first_element = shard * shard_words * BLOCK, last_element = first_element + shard_words * BLOCK;
        for (size_t k = 0; k < cuts.size(); k += 3) {
            const Cut cut{std::max(cuts[k], first_element) - first_element,
                          std::min(cuts[k + 1], last_element) - first_element, cuts[k + 2]};
            if (cut.start >= cut.stop) continue;
            const int64_t word = cut.start / BLOCK, words = (cut.stop + BLOCK - 1) / BLOCK - word;
            parallel(threads, words, GRAIN_BYTES / 8 / (up_planes + down_planes), 1, [&](int64_t first, int64_t last) {
                total += chosen->count_matches(mine, up_planes, own_zeros, theirs, down_planes, counts, cut,
                                               word + first, word + last);
            });
        }
    }
    return total;
}

uint64_t read_words(int64_t address, int64_t words, int threads) {
    nb::gil_scoped_release unlocked;
    std::atomic<uint64_t> total = 0;
    parallel(threads, words, GRAIN_BYTES / 8, 64,
             [&](int64_t first, int64_t last) { total += chosen->read(at<uint64_t>(address), first, last); });
    return total;
}

bool has_crc32() {
#ifdef LIONCUB_X86
    return has_pclmul();
#else
    return false;
#endif
}

uint32_t crc32_of(const uint8_t *data, size_t size, uint32_t crc) {
#ifdef LIONCUB_X86
    static const bool has_wide = has_vpclmul();
    return crc32_pclmul(data, size, crc, has_wide && chosen == &avx512);
#else
    (void)data, (void)size, (void)crc;
    throw std::logic_error("no carry-less multiplication here: has_crc32() says so");
#endif
}

uint32_t crc32(int64_t address, int64_t size, uint32_t crc) {
    nb::gil_scoped_release unlocked;
    return crc32_of(at<uint8_t>(address), size_t(size), crc);
}

std::vector<uint32_t> crc32_rows(int64_t address, int64_t rows, int64_t stride, int64_t size) {
    nb::gil_scoped_release unlocked;
    std::vector<uint32_t> crcs;
    for (int64_t row = 0; row < rows; ++row) crcs.push_back(crc32_of(at<uint8_t>(address + row * stride), size_t(size), 0));
    return crcs;
}

// Elements first..last of a plain tensor.
std::optional<uint32_t> crc32_slice(nb::handle tensor, int64_t first, int64_t last, uint32_t crc) {
    const std::optional<Bytes> found = reader.read_bytes(tensor.ptr());
    if (!found || first < 0 || last > found->numel || first > last) return {};
    nb::gil_scoped_release unlocked;
    return crc32_of(found->data + first * found->item_size, size_t((last - first) * found->item_size), crc);
}

// ``rows`` pieces of ``columns`` elements of a plain tensor, spread over it; all of it where it is not larger.
std::optional<uint32_t> crc32_sample(nb::handle tensor, int64_t rows, int64_t columns) {
    const std::optional<Bytes> found = reader.read_bytes(tensor.ptr());
    if (!found) return {};
    if (found->numel <= rows * columns) return crc32_of(found->data, size_t(found->numel * found->item_size), 0);
    const int64_t apart = (found->numel - columns) / (rows - 1);
    uint32_t crc = 0;
    for (int64_t row = 0; row < rows; ++row) {
        crc = crc32_of(found->data + row * apart * found->item_size, size_t(columns * found->item_size), crc);
    }
    return crc;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels *kernels : usable()) names.emplace_back(kernels->name);
    return names;
}

void use(const std::string &name) {
    for (const Kernels *kernels : usable()) {
        if (name == kernels->name) {
            chosen = kernels;
            return;
        }
    }
    throw std::invalid_argument("this processor has no " + name);
}

}  // namespace

Pace lioncub::pace = Pace::straight;

NB_MODULE(_native, m) {
    chosen = usable().front();
    pace = usual_pace();
    nb::class_<Update>(m, "Update");
    nb::class_<Moves>(m, "Moves");
    nb::class_<Strides>(m, "Strides");
    m.def("learn", [](nb::handle capsule, nb::handle tensor, nb::handle parameter, nb::handle is_neg) {
        reader.learn(capsule, tensor, parameter, is_neg);
    });
    m.def("read_update", read_update);
    m.def("read_moves", read_moves);
    m.def("read_strides", read_strides);
    m.def("table_update", table_update);
    m.def("table_moves", table_moves);
    m.def("table_strides", table_strides);
    m.def("encode_signs", encode_signs);
    m.def("encode_values", encode_values);
    m.def("encode_levels", encode_levels);
    m.def("majority", majority);
    m.def("count_ones", count_ones);
    m.def("apply", apply);
    m.def("lion", lion);
    m.def("count_matches", count_matches);
    m.def("read_words", read_words);
    m.def("has_crc32", has_crc32);
    m.def("crc32", crc32);
    m.def("crc32_rows", crc32_rows);
    m.def("crc32_slice", crc32_slice);
    m.def("crc32_sample", crc32_sample);
    m.def("instruction_sets", instruction_sets);
    m.def("use", use);
    m.def("in_use", [] { return std::string(chosen->name); });
    m.def("set_pace", [](bool lanes) { pace = lanes ? Pace::lanes : Pace::straight; });
    m.def("in_lanes", [] { return pace == Pace::lanes; });
    m.attr("compiler") = LIONCUB_COMPILER;
}
