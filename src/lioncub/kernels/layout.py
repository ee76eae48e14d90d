"""The layout of a bucket, and the ballot: the voters on each of its elements.

A bucket is the concatenation of some tensors, cut into blocks of 64 elements. Payloads are ``uint8 [blocks, bytes]``:
a collective may split them between any two blocks without knowing what is in them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

BLOCK = 64


@dataclass(frozen=True)
class Layout:
    """Tensors of ``lengths`` elements back to back, padded to the same number of blocks for each worker."""

    lengths: tuple[int, ...]
    num_workers: int

    def __post_init__(self) -> None:
        if self.num_workers < 1 or min(self.lengths, default=0) < 0:
            raise ValueError(f"lengths {self.lengths} for {self.num_workers} workers: need no less than 0, and 1")

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.lengths, initial=0))[:-1]

    @cached_property
    def numel(self) -> int:
        return sum(self.lengths)

    @cached_property
    def blocks(self) -> int:
        return -(-self.numel // (BLOCK * self.num_workers)) * self.num_workers

    @property
    def padded_numel(self) -> int:
        return self.blocks * BLOCK


@dataclass(frozen=True)
class Span:
    """Elements ``start`` to ``stop`` and the workers who vote on them, in rank order."""

    start: int
    stop: int
    voters: tuple[int, ...]

    def casting_voter(self, step: int) -> int:
        """The voter that decides a tie: number ``step`` mod V in rank order."""
        return self.voters[step % len(self.voters)]


@dataclass(frozen=True)
class Ballot:
    """The voters on every element of a stretch of a bucket: spans that cover it without a gap."""

    step: int
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, layout: Layout, step: int, voters_by_tensor: Sequence[tuple[int, ...]]) -> Ballot:
        """Neighbours with the same voters share a span; the last one covers the padding."""
        spans: list[Span] = []
        stop = 0
        for voters, run in groupby(zip(voters_by_tensor, layout.lengths, strict=True), key=lambda pair: pair[0]):
            start, stop = stop, stop + sum(length for _, length in run)
            spans.append(Span(start, stop, voters))
        spans[-1] = Span(spans[-1].start, layout.padded_numel, spans[-1].voters)
        return cls(step, tuple(spans))

    def voters_at(self, element: int) -> tuple[int, ...]:
        """The voters on one element."""
        return self.spans[bisect_right(self.spans, element, key=lambda span: span.start) - 1].voters

    def part(self, start: int, stop: int) -> Ballot:
        """The ballot of elements ``start`` to ``stop``, counted from ``start``."""
        cut = (Span(max(s.start, start) - start, min(s.stop, stop) - start, s.voters) for s in self.spans)
        return Ballot(self.step, tuple(span for span in cut if span.start < span.stop))
