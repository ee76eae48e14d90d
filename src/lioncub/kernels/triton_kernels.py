# mypy: ignore-errors
# ruff: noqa: RUF005, SIM300  (Triton compiles only a part of Python)
"""The kernels in Triton. Only :mod:`lioncub.kernels.triton_ops` imports this module, and only when it launches one.

Bit planes are read and written as words of 32 bits. No kernel relies on what compilers may choose: they are launched
without fused multiply-add, float32 is divided as IEEE says, bfloat16 is rounded by integer operations, and sums of
floats are trees written out.
"""

import triton
import triton.language as tl

WORD = tl.constexpr(32)
ONES = tl.constexpr(-1)
LANES = tl.constexpr(64)
NEIGHBOURS = tl.constexpr(32)
GROUPS = tl.constexpr(16)

# Integers from which the compiler cannot profit. It does from ``start`` and ``length``: where they are multiples of 16,
# loads are wide.
kernel = triton.jit(
    do_not_specialize=[
        "caster",
        "noise_high",
        "noise_low",
        "num_chunks",
        "num_voters",
        "number",
        "step",
        "stop",
        "worker_stride",
    ]
)


# ---- numbers -------------------------------------------------------------------------------------------------------


@triton.jit
def widened(x):
    """As float32, exactly."""
    if x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return x.to(tl.float32)


@triton.jit
def to_bfloat16(wide, addend):
    """The upper 16 bits after adding ``addend`` to all 32; NaN stays NaN."""
    bits = (wide.to(tl.uint32, bitcast=True) + addend) >> 16
    return tl.where(wide == wide, bits, 0x7FC0).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def nearest(wide, DTYPE: tl.constexpr):
    """Rounded to nearest, ties to even."""
    if DTYPE == tl.bfloat16:
        return to_bfloat16(wide, 0x7FFF + ((wide.to(tl.uint32, bitcast=True) >> 16) & 1))
    return wide.to(DTYPE)


@triton.jit
def hashed(coordinate, noise_low, noise_high):
    """16 bits for each coordinate: :func:`lioncub.kernels.rounding.hashed`."""
    x = coordinate.to(tl.uint32) ^ noise_low.to(tl.uint32) ^ ((coordinate >> 32).to(tl.uint32) * 0x9E3779B9)
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) + noise_high.to(tl.uint32)
    x = x * 0x735A2D97
    return (x ^ (x >> 15)) >> 16


@triton.jit
def store_parameter(x, coordinate, wide, mask, noise_low, noise_high, STOCHASTIC: tl.constexpr):
    if STOCHASTIC:
        rounded = to_bfloat16(wide, hashed(coordinate, noise_low, noise_high))
    else:
        rounded = nearest(wide, x.dtype.element_ty)
    tl.store(x + coordinate, rounded, mask=mask)


@triton.jit
def load_wide(x, coordinate, mask):
    return widened(tl.load(x + coordinate, mask=mask, other=0.0))


@triton.jit
def update_vector(m, g, coordinate, mask, beta, gain):
    """u = beta·m + gain·g; m itself without g; zero without m."""
    u = tl.zeros(coordinate.shape, tl.float32)
    if m is not None:
        u = load_wide(m, coordinate, mask)
        if g is not None:
            u = u * beta + load_wide(g, coordinate, mask) * gain
    return u


@triton.jit
def update_vector_and_next(m, g, next_m, coordinate, mask, beta, gain, next_beta, next_gain):
    """:func:`update_vector`; where it is given, next_m ← next_beta·m + next_gain·g from what was read."""
    if next_m is None:
        u = update_vector(m, g, coordinate, mask, beta, gain)
    else:
        momentum, gradient = load_wide(m, coordinate, mask), load_wide(g, coordinate, mask)
        advanced = momentum * next_beta + gradient * next_gain
        tl.store(next_m + coordinate, nearest(advanced, next_m.dtype.element_ty), mask=mask)
        u = momentum * beta + gradient * gain
    return u


@triton.jit
def is_finite(u):
    return tl.abs(u) < float("inf")


@triton.jit
def sign_of(u):
    return tl.where(u > 0, 1.0, tl.where(u < 0, -1.0, 0.0))


@triton.jit
def count(counter, chosen):
    """Add to a counter in memory how many are chosen."""
    number = tl.sum(chosen.to(tl.int32)).to(tl.int64)
    tl.atomic_add(counter, number, mask=number > 0)


# ---- words of bits -------------------------------------------------------------------------------------------------


@triton.jit
def my_elements(BLOCK: tl.constexpr):
    """The elements, or words, of this program."""
    return tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def word_at(words, word, k: tl.constexpr, PLANES: tl.constexpr):
    """Pointers to words of plane k: a block has two of them."""
    return words + ((word >> 1) * PLANES + k) * 2 + (word & 1)


@triton.jit
def bit_at(words, element, mask, k: tl.constexpr, PLANES: tl.constexpr):
    """One element's bit of plane k, as 0 or 1."""
    word = tl.load(word_at(words, element >> 5, k, PLANES), mask=mask, other=0)
    return (word >> (element & 31).to(tl.int32)) & 1


@triton.jit
def inside(word, start, stop):
    """Ones for the elements ``start`` to ``stop`` in each word."""
    first = tl.minimum(tl.maximum(start - word * WORD, 0), WORD)
    last = tl.minimum(tl.maximum(stop - word * WORD, 0), WORD)
    one = tl.full(word.shape, 1, tl.int64)
    return ((one << last) - (one << first)).to(tl.int32)


@triton.jit
def put(pointers, bits, word, start, stop):
    """Write the bits of elements ``start`` to ``stop`` into words that are zero there, keeping what neighbours wrote.

    No race: launches run one after the other, and in each of them a word belongs to one program.
    """
    mine = inside(word, start, stop)
    theirs = tl.load(pointers, mask=(mine != 0) & (mine != ONES), other=0)
    tl.store(pointers, theirs | (bits & mine), mask=mine != 0)


@triton.jit
def packed(bits):
    """32 bits of 0 or 1 in a row to a word, the first in the lowest bit."""
    return tl.sum(bits.to(tl.int32) << tl.arange(0, WORD)[None, :], axis=1)


@triton.jit
def bits_set(words):
    x = words.to(tl.uint32, bitcast=True)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


# ---- encoding ------------------------------------------------------------------------------------------------------


@kernel
def encode_planes(
    words,
    num_not_finite,
    m,
    g,
    next_m,
    beta,
    gain,
    next_beta,
    next_gain,
    units,
    number,
    step,
    start,
    stop,
    length,
    GRID: tl.constexpr,
    SCALE: tl.constexpr,
    LOG2_BASE: tl.constexpr,
    SHIFT: tl.constexpr,
    PLANES: tl.constexpr,
    WORDS: tl.constexpr,
):
    """A part's sign plane and the planes of its index; zeros alternate from ``start`` to ``stop``, padding included."""
    word = start // WORD + my_elements(WORDS)
    coordinate = word[:, None] * WORD + tl.arange(0, WORD)[None, :] - start
    mine = (coordinate >= 0) & (coordinate < length)
    u = update_vector_and_next(m, g, next_m, coordinate, mine, beta, gain, next_beta, next_gain)
    count(num_not_finite, ~is_finite(u))
    positive = (u > 0) | ((u == 0) & (((coordinate + step) & 1) == 1))
    put(word_at(words, word, 0, PLANES), packed(positive), word, start, stop)
    if GRID == "nonzero":
        index = (u != 0).to(tl.int32)
    elif GRID != "none":
        r = tl.where(u == 0, 0.0, ratio(tl.abs(u), tl.load(units + number)))
        index = quantised(r, GRID, SCALE, LOG2_BASE, SHIFT, PLANES)
    for k in tl.static_range(1, PLANES):
        put(word_at(words, word, k, PLANES), packed((index >> (k - 1)) & 1), word, start, stop)


@triton.jit
def ratio(magnitude, unit):
    """magnitude / unit, where Triton 3.4 and 3.5 would take subnormal numbers for zero.

    Where the unit is small, both are multiplied by 2^100. What is subnormal then has so small a ratio that its index
    is 0.
    """
    factor = tl.where(unit < 2.0**-64, 2.0**100, 1.0)
    return tl.div_rn(magnitude * factor, unit * factor)


@triton.jit
def quantised(
    r, GRID: tl.constexpr, SCALE: tl.constexpr, LOG2_BASE: tl.constexpr, SHIFT: tl.constexpr, BITS: tl.constexpr
):
    """The index of the magnitude: :func:`lioncub.kernels.torch_ops.quantised`."""
    HALF: tl.constexpr = 0.5 if SCALE == "l1" else 1.0
    TOP: tl.constexpr = (1 << (BITS - 1)) - 1
    if GRID == "midrise":
        index = tl.minimum(r * ((TOP + 1) * HALF), TOP).to(tl.int32)
    elif GRID == "midtread":
        # 2^23 leaves no room for a fraction: the sum is rounded to an integer, ties to even.
        index = (tl.minimum(r * (TOP * HALF), TOP) + 8388608.0 - 8388608.0).to(tl.int32)
    else:
        # ⌊log2 r⌋ + 128·LOG2_BASE is positive: there truncation is ⌊⌋.
        e = ((r.to(tl.int32, bitcast=True) >> 23) - 127 + 128 * LOG2_BASE) // LOG2_BASE - 128 + SHIFT
        index = tl.minimum(tl.maximum(e, 0), TOP)
    return index


@kernel
def largest_magnitude(units, number, m, g, beta, gain, length, BLOCK: tl.constexpr):
    """units[number] ← max|u|; it was 0."""
    coordinate = my_elements(BLOCK)
    u = update_vector(m, g, coordinate, coordinate < length, beta, gain)
    tl.atomic_max(units + number, tl.max(tl.abs(u)))


# Σ|u| in the order of :func:`lioncub.kernels.torch_ops.abs_sum`: 512 rows of 64 lanes in pairs, first 32 neighbours,
# then 16 of their sums; then the lanes by halves; then the chunks one after the other.


@kernel
def row_sums(sums, m, g, beta, gain, length, BLOCK: tl.constexpr):
    """Σ|u| of 32 neighbouring rows, for each lane."""
    where = my_elements(BLOCK)
    rows = ()
    for row in tl.static_range(NEIGHBOURS):
        coordinate = ((where >> 6) * NEIGHBOURS + row) * LANES + (where & 63)
        u = update_vector(m, g, coordinate, coordinate < length, beta, gain)
        rows = rows + (tl.abs(u).to(tl.float64),)
    tl.store(sums + where, added_in_pairs(rows, 5))


@kernel
def chunk_sums(sums, row_sums):
    """Σ|u| of a chunk."""
    chunk = tl.program_id(0).to(tl.int64)
    rows = ()
    for row in tl.static_range(GROUPS):
        rows = rows + (tl.load(row_sums + (chunk * GROUPS + row) * LANES + tl.arange(0, LANES)),)
    lanes = added_in_pairs(rows, 4)
    for level in tl.static_range(5):
        low, high = tl.split(tl.permute(tl.reshape(lanes, [2, 32 >> level]), [1, 0]))
        lanes = low + high
    low, high = tl.split(lanes)
    tl.store(sums + chunk, low + high)


@triton.jit
def added_in_pairs(numbers, LEVELS: tl.constexpr):
    """((a + b) + (c + d)) + … of 2^LEVELS numbers."""
    for level in tl.static_range(LEVELS):
        pairs = ()
        for i in tl.static_range(1 << (LEVELS - 1 - level)):
            pairs = pairs + (numbers[2 * i] + numbers[2 * i + 1],)
        numbers = pairs
    return numbers[0]


@kernel
def mean_magnitude(units, number, sums, num_chunks, length, UNROLLED: tl.constexpr):
    """units[number] ← Σ sums / length, added one after the other."""
    total = tl.full([], 0.0, tl.float64)
    for first in range(0, num_chunks, UNROLLED):
        for k in tl.static_range(UNROLLED):
            total += tl.load(sums + first + k, mask=first + k < num_chunks, other=0.0)
    tl.store(units + number, (total / length).to(tl.float32))


@kernel
def encode_numbers(
    out,
    num_not_finite,
    m,
    g,
    next_m,
    beta,
    gain,
    next_beta,
    next_gain,
    start,
    stop,
    length,
    BLOCK: tl.constexpr,
):
    """A part as numbers, and zeros after it up to ``stop``."""
    coordinate = my_elements(BLOCK)
    u = update_vector_and_next(m, g, next_m, coordinate, coordinate < length, beta, gain, next_beta, next_gain)
    count(num_not_finite, ~is_finite(u))
    tl.store(out + start + coordinate, nearest(u, out.dtype.element_ty), mask=coordinate < stop - start)


# ---- combining -----------------------------------------------------------------------------------------------------


@kernel
def add_up_signed(
    payloads,
    out,
    voters,
    num_voters,
    caster,
    worker_stride,
    start,
    stop,
    MAGNITUDES: tl.constexpr,
    SHAPE: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    MAGNITUDE_BITS: tl.constexpr,
    SUM_BITS: tl.constexpr,
    CASTING: tl.constexpr,
    DOWN: tl.constexpr,
    WORDS: tl.constexpr,
):
    """The sign of Σ q over the voters of a span, and where it is not zero: bit k of the sum is the k-th of a tuple."""
    word = start // WORD + my_elements(WORDS)
    mask = word * WORD < stop
    total = (tl.zeros([WORDS], tl.int32),) * SUM_BITS
    for nth in range(num_voters):
        row = payloads + tl.load(voters + nth).to(tl.int64) * worker_stride
        sign, magnitude = signed_number(row, word, mask, MAGNITUDES, SHAPE, INDEX_BITS, MAGNITUDE_BITS)
        total = plus(total, sign, magnitude, SUM_BITS, MAGNITUDE_BITS)
    moves = any_of(total, SUM_BITS)
    positive = ~total[SUM_BITS - 1] & moves
    if CASTING:
        row = payloads + caster.to(tl.int64) * worker_stride
        sign, magnitude = signed_number(row, word, mask, MAGNITUDES, SHAPE, INDEX_BITS, MAGNITUDE_BITS)
        voted = any_of(magnitude, MAGNITUDE_BITS)
        positive |= ~moves & voted & sign
        moves |= voted
    put(word_at(out, word, 0, DOWN), positive, word, start, stop)
    if DOWN == 2:
        put(word_at(out, word, 1, DOWN), moves, word, start, stop)


@triton.jit
def signed_number(
    row,
    word,
    mask,
    MAGNITUDES: tl.constexpr,
    SHAPE: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    MAGNITUDE_BITS: tl.constexpr,
):
    """One voter's signs, and the bits of the magnitudes, lowest first."""
    sign = tl.load(word_at(row, word, 0, 1 + INDEX_BITS), mask=mask, other=0)
    ones = tl.full(word.shape, ONES, tl.int32)
    index = ()
    for k in tl.static_range(INDEX_BITS):
        index = index + (tl.load(word_at(row, word, 1 + k, 1 + INDEX_BITS), mask=mask, other=0),)
    if SHAPE == "linear":
        magnitude = index
    elif SHAPE == "odd":
        magnitude = (ones,) + index
    else:
        magnitude = ()
        for bit in tl.static_range(MAGNITUDE_BITS):
            holders = tl.zeros(word.shape, tl.int32)
            for e in tl.static_range(1 << INDEX_BITS):
                if (MAGNITUDES[e] >> bit) & 1:
                    chosen = ones  # where the index is e
                    for k in tl.static_range(INDEX_BITS):
                        chosen &= index[k] if (e >> k) & 1 else ~index[k]
                    holders |= chosen
            magnitude = magnitude + (holders,)
    return sign, magnitude


@triton.jit
def plus(total, sign, magnitude, SUM_BITS: tl.constexpr, MAGNITUDE_BITS: tl.constexpr):
    """total ± magnitude in two's complement, sign 1 is plus: -x = ~x + 1, the 1 as the carry that comes in."""
    minus = ~sign
    carry = minus
    added = ()
    for k in tl.static_range(SUM_BITS):
        x = minus
        if k < MAGNITUDE_BITS:
            x = magnitude[k] ^ minus
        either = total[k] ^ x
        added = added + (either ^ carry,)
        carry = (total[k] & x) | (carry & either)
    return added


@triton.jit
def any_of(planes, NUM: tl.constexpr):
    result = planes[0]
    for k in tl.static_range(1, NUM):
        result |= planes[k]
    return result


@kernel
def add_up_ones(
    payloads, out, voters, num_voters, worker_stride, start, stop, PLANES: tl.constexpr, WORDS: tl.constexpr
):
    """The number of voters of a span that sent a 1, as bit planes."""
    word = start // WORD + my_elements(WORDS)
    total = (tl.zeros([WORDS], tl.int32),) * PLANES
    for nth in range(num_voters):
        row = payloads + tl.load(voters + nth).to(tl.int64) * worker_stride
        total = plus_one(total, tl.load(word_at(row, word, 0, 1), mask=word * WORD < stop, other=0), PLANES)
    for k in tl.static_range(PLANES):
        put(word_at(out, word, k, PLANES), total[k], word, start, stop)


@triton.jit
def plus_one(total, carry, PLANES: tl.constexpr):
    added = ()
    for k in tl.static_range(PLANES):
        added = added + (total[k] ^ carry,)
        carry = total[k] & carry
    return added


# ---- moving --------------------------------------------------------------------------------------------------------


@kernel
def move(
    x,
    m,
    g,
    direction,
    start,
    length,
    lr,
    decay,
    num_voters,
    beta,
    gain,
    noise_low,
    noise_high,
    KIND: tl.constexpr,
    PLANES: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x ← decay·x - lr·direction; with m, m ← beta·m + gain·g."""
    coordinate = my_elements(BLOCK)
    mask = coordinate < length
    toward = direction_at(direction, start + coordinate, mask, num_voters, KIND, PLANES)
    wide = load_wide(x, coordinate, mask) * decay - toward * lr
    store_parameter(x, coordinate, wide, mask, noise_low, noise_high, STOCHASTIC)
    if m is not None:
        advanced = load_wide(m, coordinate, mask) * beta + load_wide(g, coordinate, mask) * gain
        tl.store(m + coordinate, nearest(advanced, m.dtype.element_ty), mask=mask)


@triton.jit
def direction_at(direction, element, mask, num_voters, KIND: tl.constexpr, PLANES: tl.constexpr):
    """:func:`lioncub.kernels.torch_ops.direction_values`."""
    if KIND == "values":
        value = load_wide(direction, element, mask)
    elif KIND == "sign-of":
        value = sign_of(load_wide(direction, element, mask))
    elif KIND == "signs":
        value = tl.where(bit_at(direction, element, mask, 0, PLANES) == 1, 1.0, -1.0)
        if PLANES == 2:
            value = tl.where(bit_at(direction, element, mask, 1, PLANES) == 1, value, 0.0)
    else:
        ones = bit_at(direction, element, mask, 0, PLANES)
        for k in tl.static_range(1, PLANES):
            ones += bit_at(direction, element, mask, k, PLANES) << k
        value = tl.div_rn((2 * ones - num_voters).to(tl.float32), tl.maximum(num_voters, 1).to(tl.float32))
    return value


@kernel
def lion(
    x,
    m,
    g,
    num_skipped,
    length,
    lr,
    decay,
    beta1,
    gain1,
    beta2,
    gain2,
    noise_low,
    noise_high,
    STOCHASTIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """u = beta1·m + gain1·g; x ← decay·x - lr·sign(u); m ← beta2·m + gain2·g; nothing where u is not finite."""
    coordinate = my_elements(BLOCK)
    mask = coordinate < length
    momentum, gradient = load_wide(m, coordinate, mask), load_wide(g, coordinate, mask)
    u = momentum * beta1 + gradient * gain1
    finite = is_finite(u)
    count(num_skipped, ~finite)
    wide = load_wide(x, coordinate, mask) * decay - sign_of(u) * lr
    advanced = momentum * beta2 + gradient * gain2
    store_parameter(x, coordinate, wide, mask & finite, noise_low, noise_high, STOCHASTIC)
    tl.store(m + coordinate, nearest(advanced, m.dtype.element_ty), mask=mask & finite)


# ---- looking back --------------------------------------------------------------------------------------------------


@kernel
def matches(
    payload,
    outcome,
    num_same,
    num_voters,
    start,
    stop,
    COUNTS: tl.constexpr,
    OWN_ZEROS: tl.constexpr,
    UP: tl.constexpr,
    DOWN: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Add to ``num_same`` on how many elements of a cut the payload points where the outcome points."""
    word = start // WORD + my_elements(WORDS)
    mask = word * WORD < stop
    ones = tl.full([WORDS], ONES, tl.int32)
    if COUNTS:
        theirs, moves = more_than_half(outcome, word, mask, num_voters, DOWN)
    else:
        theirs, moves = tl.load(word_at(outcome, word, 0, DOWN), mask=mask, other=0), ones
        if DOWN > 1:
            moves = tl.load(word_at(outcome, word, 1, DOWN), mask=mask, other=0)
    i_move = ones
    if OWN_ZEROS:
        i_move = ones ^ ones
        for k in tl.static_range(1, UP):
            i_move |= tl.load(word_at(payload, word, k, UP), mask=mask, other=0)
    sign = tl.load(word_at(payload, word, 0, UP), mask=mask, other=0)
    same = (~(sign ^ theirs) & i_move & moves) | ~(i_move | moves)
    number = tl.sum(bits_set(same & inside(word, start, stop))).to(tl.int64)
    tl.atomic_add(num_same, number)


@triton.jit
def more_than_half(outcome, word, mask, num_voters, PLANES: tl.constexpr):
    """Where 2·count > V, and where 2·count ≠ V, from the count's bit planes."""
    equal = tl.full(word.shape, ONES, tl.int32)
    greater = tl.zeros(word.shape, tl.int32)
    for i in tl.static_range(PLANES):
        plane = tl.load(word_at(outcome, word, PLANES - 1 - i, PLANES), mask=mask, other=0)
        half = -((num_voters // 2 >> (PLANES - 1 - i)) & 1)  # this bit of ⌊V/2⌋, 32 times
        greater |= equal & plane & ~half
        equal &= ~(plane ^ half)
    return greater, ~equal | -(num_voters % 2)
