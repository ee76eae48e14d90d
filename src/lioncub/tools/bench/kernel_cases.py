"""Every kernel on one large tensor, with every body that works here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lioncub import Levels, Vote, kernels
from lioncub.kernels import Cut, Direction, Move, Part, Stride, Tally, UpdateVector
from lioncub.kernels.layout import BLOCK, Ballot, Layout, Span
from lioncub.tools.bench import naive
from lioncub.tools.bench.cases import Case, Limit
from lioncub.tools.bench.ceilings import ceiling_cases
from lioncub.tools.bench.config import MOST_VOTERS, BenchConfig

NAIVE = "naive encode"
ENCODE_AHEAD = "encode_signs, and the next momentum"
APPLY_ALONE = "apply_, signs, x alone"
WARM_CALLS = 256
CPU = torch.device("cpu")


def kernel_cases(config: BenchConfig, bodies: Sequence[str]) -> list[Case]:
    """Every kernel, and the ceilings over the momentum and the gradient that they read."""
    work = Workbench(config)
    cases = [*work.encoding(), *work.voting(), *work.moving(), *work.looking_back()]
    return [
        *ceiling_cases(work.m, work.g),
        work.naive(),
        *(replace(case, body=body) for case in cases for body in bodies),
    ]


class Workbench:
    """The inputs of all cases."""

    def __init__(self, config: BenchConfig) -> None:
        generator = torch.Generator().manual_seed(0)
        self.numel = config.numel
        self.x, self.m, self.g = (torch.randn(self.numel, generator=generator) for _ in range(3))
        parts = [Part(self.m, self.g, 0.9, 0.1)]
        self.u = UpdateVector(parts, Layout((self.numel,), MOST_VOTERS), torch.float32, CPU)
        ahead = [parts[0]._replace(next_m=torch.empty_like(self.m), next_beta=0.99, next_gain=0.01)]
        self.u_and_next = replace(self.u, parts=ahead)
        self.rotating_bytes = config.rotating_bytes
        num_words = (self.rotating_bytes + self.numel) // 8  # a set is at most 8 bits an element
        self.random = torch.randint(-(2**63), 2**63 - 1, (num_words,), generator=generator).view(torch.uint8)

    def case(
        self,
        name: str,
        run: Callable[[int], object],
        *,
        read: float,
        written: float,
        limit: Limit = "read",
        calls: int = 1,
        warm: bool = False,
        ratio_to: str = "",
    ) -> Case:
        """``read`` and ``written`` are bytes per element."""
        return Case(
            group="kernel",
            name=name,
            run=run,
            bytes_read=round(read * self.numel),
            bytes_written=round(written * self.numel),
            limit=limit,
            numel=self.numel,
            calls=calls,
            warm=warm,
            ratio_to=ratio_to,
        )

    def payloads(self, num_planes: int, num_voters: int = 1) -> list[Tensor]:
        """Random ``[voters, blocks, bytes]``, voters times elements as in a payload, larger than the caches in all."""
        size = self.numel * num_planes // 8
        starts = range(0, self.rotating_bytes, size)
        shape = (num_voters, self.numel // BLOCK // num_voters, num_planes * BLOCK // 8)
        return [self.random[start : start + size].view(shape) for start in starts]

    def naive(self) -> Case:
        return self.case(NAIVE, lambda _: naive.encode_signs(self.u), read=8, written=1 / 8)

    def encoding(self) -> Iterator[Case]:
        """u is read as m and g; a level needs the mean of all |u| first, so both are read twice."""
        u = self.u
        signs = self.case(
            "encode_signs", lambda _: kernels.encode_signs(u, 0, abstain=False), read=8, written=1 / 8, ratio_to=NAIVE
        )
        yield signs
        yield self.case(
            ENCODE_AHEAD,
            lambda _: kernels.encode_signs(self.u_and_next, 0, abstain=False),
            read=8,
            written=4 + 1 / 8,
            limit="axpy",
        )
        yield self.case(
            "encode_signs, abstain", lambda _: kernels.encode_signs(u, 0, abstain=True), read=8, written=2 / 8
        )
        for codec in (Levels(4, grid="log"), Levels(4), Levels(8)):
            yield self.case(
                f"encode_levels, {codec.bits} bits {codec.grid}",
                lambda _, quantiser=codec.quantiser: kernels.encode_levels(u, 0, quantiser),  # type: ignore[misc]
                read=16,
                written=codec.bits / 8,
            )
        yield self.case(
            "encode_values", lambda _: kernels.encode_values(u, torch.float32), read=8, written=4, limit="axpy"
        )

    def voting(self) -> Iterator[Case]:
        """A worker's shard from n workers: as many bytes as one payload, whatever n is."""
        for n in (2, 4, 8, 16, 32):
            yield from self._majority(f"majority of {n}", n, Vote().tally, both=True)
        yield from self._majority("majority of 4, 4 bits log", 4, Levels(4, grid="log").tally, both=False)
        sets, ballot = self.payloads(1, 4), self._ballot(4)
        yield self.case(
            "count_ones of 4",
            lambda i: kernels.count_ones(sets[i], ballot),
            read=1 / 8,
            written=3 / 8 / 4,
            calls=len(sets),
        )

    def _majority(self, name: str, num_voters: int, tally: Tally, *, both: bool) -> Iterator[Case]:
        num_planes = 1 + tally.index_bits
        sets, ballot = self.payloads(num_planes, num_voters), self._ballot(num_voters)
        cold = self.case(
            f"{name}, from memory" if both else name,
            lambda i: kernels.majority(sets[i], ballot, tally),
            read=num_planes / 8,
            written=1 / 8 / num_voters,
            calls=len(sets),
        )
        yield cold
        if both:
            yield replace(
                cold,
                name=f"{name}, in cache",
                run=lambda _: kernels.majority(sets[0], ballot, tally),
                calls=WARM_CALLS,
                warm=True,
            )

    def _ballot(self, num_voters: int) -> Ballot:
        return Ballot(0, (Span(0, self.numel // num_voters, tuple(range(num_voters))),))

    def moving(self) -> Iterator[Case]:
        """x and m are read and written, g is read; where encoding has written the next momentum, x alone moves."""
        signs, counts = self.payloads(1)[0][0], self.payloads(3)[0][0]
        move = Move(self.x, 0, 1e-4, 0.9999, 4, self.m, self.g, 0.99, 0.01)
        for name, direction, bits in (
            ("apply_, signs", Direction("signs", signs), 1),
            ("apply_, counts of 4", Direction("counts", counts), 3),
        ):
            yield self.case(
                name,
                lambda _, direction=direction: kernels.apply_([move], direction),  # type: ignore[misc]
                read=12 + bits / 8,
                written=8,
                limit="axpy",
            )
        x_alone = Move(self.x, 0, 1e-4, 0.9999, 4)
        yield self.case(
            APPLY_ALONE,
            lambda _: kernels.apply_([x_alone], Direction("signs", signs)),
            read=4 + 1 / 8,
            written=4,
            limit="axpy",
        )
        stride = Stride(self.x, self.m, self.g, 1e-4, 0.9999, 0.9, 0.1, 0.99, 0.01)
        yield self.case("lion_", lambda _: kernels.lion_([stride]), read=12, written=8, limit="axpy")

    def looking_back(self) -> Iterable[Case]:
        mine, cuts = self.payloads(1), [Cut(0, self.numel, 4)]
        outcomes = [Direction("signs", payload[0]) for payload in reversed(mine)]
        matches = self.case(
            "count_matches",
            lambda i: kernels.count_matches(mine[i][0], outcomes[i], cuts, own_zeros=False),
            read=2 / 8,
            written=0,
            calls=len(mine) // 2 or 1,
        )
        return matches, self.case("fingerprint", lambda _: kernels.fingerprint(self.g), read=4, written=0)
