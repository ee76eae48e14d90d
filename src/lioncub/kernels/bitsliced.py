"""Votes added up 64 at a time: bit k of a word's sum lies in the k-th word of a list, and adders are made of ANDs, ORs.

A sum of V sign-magnitude numbers needs a few word operations per voter and 64 elements; nothing is ever unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub.kernels.bits import words
from lioncub.kernels.checks import check_ballot, check_tally
from lioncub.kernels.layout import BLOCK, Ballot, Span
from lioncub.kernels.operands import Tally

CHUNK_WORDS = 1 << 12


def majority(payloads: Tensor, ballot: Ballot, tally: Tally) -> Tensor:
    """The sign of Σ q over the voters of each element: ``[workers, blocks, up]`` to ``[blocks, down]``."""
    check_tally(tally, ballot)
    check_ballot(payloads, ballot, 1 + tally.index_bits)
    down = 2 if tally.ternary else 1

    def winners(rows: Tensor, span: Span) -> list[Tensor]:
        total = [rows.new_zeros(rows.shape[1])] * tally.sum_bits(len(span.voters))
        for voter in span.voters:
            sign, magnitude = rows[voter, :, 0], magnitude_planes(rows[voter], tally.magnitudes)
            total = add_signed(total, sign, magnitude)
        positive, moves = ~total[-1] & any_of(total), any_of(total)
        if tally.casting and span.voters:
            decisive = rows[span.casting_voter(ballot.step)]
            voted = any_of([plane for plane in magnitude_planes(decisive, tally.magnitudes) if plane is not None])
            positive, moves = positive | (~moves & voted & decisive[:, 0]), moves | voted
        return [positive, moves][:down]

    return _by_spans(payloads, ballot, winners, down)


def count_ones(payloads: Tensor, ballot: Ballot) -> Tensor:
    """The number of voters that sent a 1, as bit planes: ``[workers, blocks, 8]`` to ``[blocks, 8 · planes]``."""
    check_ballot(payloads, ballot, 1)
    down = len(payloads).bit_length()

    def counts(rows: Tensor, span: Span) -> list[Tensor]:
        count = [rows.new_zeros(rows.shape[1])] * down
        for voter in span.voters:
            carry = rows[voter, :, 0]
            for k, plane in enumerate(count):
                count[k], carry = plane ^ carry, plane & carry
        return count

    return _by_spans(payloads, ballot, counts, down)


def magnitude_planes(row: Tensor, magnitudes: Sequence[int]) -> list[Tensor | None]:
    """The bits of each element's magnitude, lowest first; None: 0 everywhere. ``row`` is [words, planes]."""
    index_bits = (len(magnitudes) - 1).bit_length()
    index = [row[:, 1 + k] for k in range(index_bits)]
    if tuple(magnitudes) == tuple(range(len(magnitudes))):
        return list(index)
    everywhere = torch.full_like(row[:, 0], -1)
    if tuple(magnitudes) == tuple(range(1, 2 * len(magnitudes), 2)):
        return [everywhere, *index]
    one_hot = [everywhere]  # element e of it: where the index is e
    for plane in index:
        one_hot = [chosen & ~plane for chosen in one_hot] + [chosen & plane for chosen in one_hot]
    bits: list[Tensor | None] = []
    for k in range(max(magnitudes).bit_length()):
        holders = [chosen for chosen, magnitude in zip(one_hot, magnitudes, strict=True) if magnitude >> k & 1]
        bits.append(any_of(holders) if holders else None)
    return bits


def add_signed(total: Sequence[Tensor], sign: Tensor, magnitude: Sequence[Tensor | None]) -> list[Tensor]:
    """``total ± magnitude`` in two's complement, sign 1 is plus: -x = ~x + 1, the 1 as the carry that comes in."""
    carry = minus = ~sign
    added = []
    for k, plane in enumerate(total):
        bit = magnitude[k] if k < len(magnitude) else None
        x = minus if bit is None else bit ^ minus
        either = plane ^ x
        added.append(either ^ carry)
        carry = (plane & x) | (carry & either)
    return added


def any_of(planes: Sequence[Tensor]) -> Tensor:
    result = planes[0]
    for plane in planes[1:]:
        result = result | plane
    return result


def _by_spans(payloads: Tensor, ballot: Ballot, combine, down: int) -> Tensor:  # type: ignore[no-untyped-def]
    """``combine(rows, span)`` for every span, chunk by chunk; words that two spans share are put together by masks."""
    source = words(payloads)
    out = torch.zeros(source.shape[1], down, dtype=torch.int64, device=payloads.device)
    for span in ballot.spans:
        last = -(-span.stop // BLOCK)
        for first in range(span.start // BLOCK, last, CHUNK_WORDS):
            stop = min(first + CHUNK_WORDS, last)
            result = torch.stack(combine(source[:, first:stop], span), dim=1)
            mask = _mask(first, stop, span, out.device)
            out[first:stop] = (out[first:stop] & ~mask) | (result & mask)
    return out.view(torch.uint8)


def _mask(first: int, stop: int, span: Span, device: torch.device) -> Tensor:
    """Ones for the elements of the span in words ``first`` to ``stop``, ``[words, 1]``."""
    mask = torch.full((stop - first, 1), -1, dtype=torch.int64, device=device)
    if span.start > first * BLOCK:
        mask[0] &= -1 << (span.start - first * BLOCK)
    if span.stop < stop * BLOCK:
        mask[-1] &= (1 << (span.stop - (stop - 1) * BLOCK)) - 1
    return mask
