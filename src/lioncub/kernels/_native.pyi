# The C++ module of native/module.cpp: tables of numbers and addresses. Use lioncub.kernels.native.

compiler: str

def encode_signs(
    ints: list[int], floats: list[float], step: int, abstain: bool, blocks: int, out: int, threads: int
) -> bool: ...
def encode_values(ints: list[int], floats: list[float], type: int, blocks: int, out: int, threads: int) -> bool: ...
def encode_levels(
    ints: list[int],
    floats: list[float],
    step: int,
    grid: int,
    bits: int,
    l1: bool,
    factor: float,
    log2_base: int,
    shift: int,
    blocks: int,
    out: int,
    threads: int,
) -> bool: ...
def majority(
    base: int,
    stride: int,
    voters: list[int],
    casting: int,
    weights: int,
    sum_bits: int,
    ternary: bool,
    magnitudes: list[int],
    start: int,
    stop: int,
    out: int,
    threads: int,
) -> None: ...
def count_ones(
    base: int, stride: int, voters: list[int], planes: int, start: int, stop: int, out: int, threads: int
) -> None: ...
def apply(
    ints: list[int], floats: list[float], kind: int, planes: int, type: int, payload: int, threads: int
) -> None: ...
def lion(ints: list[int], floats: list[float], threads: int) -> int: ...
def count_matches(
    payload: int,
    up_planes: int,
    own_zeros: bool,
    outcome: int,
    down_planes: int,
    counts: bool,
    cuts: list[int],
    threads: int,
) -> int: ...
def read_words(address: int, words: int, threads: int) -> int: ...
def has_crc32() -> bool: ...
def crc32(address: int, size: int, crc: int) -> int: ...
def instruction_sets() -> list[str]: ...
def use(name: str) -> None: ...
def in_use() -> str: ...
