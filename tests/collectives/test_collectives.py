"""Collectives without a network: the automatic choice, and the bytes that traffic() computes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lioncub import Dense, Hierarchical, Levels, Mean, Vote
from lioncub.collectives import Auto, GatherAll, Server, SumAllReduce, Traffic, TwoPhase, Wire
from lioncub.errors import ConfigError
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm
from lioncub.wire.checksums import SEAL


def workers(num_workers: int, index: int = 0) -> Comm:
    return Comm(None, tuple(range(num_workers)), index)


def sent_bits(collective: object, codec: object, num_workers: int, numel: int = 64 * 2**14, index: int = 0) -> float:
    """Bits that one worker sends per parameter, without headers and seals."""
    layout = Layout((numel,), num_workers)
    wire = replace(Wire.of(codec, layout, num_workers), header_bytes=0)  # type: ignore[arg-type]
    traffic: Traffic = collective.traffic(wire, workers(num_workers, index))  # type: ignore[attr-defined]
    return (traffic.sent_bytes - traffic.num_messages * SEAL) * 8 / numel


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_bits_per_parameter_are_the_papers(n: int) -> None:
    assert sent_bits(TwoPhase(), Vote(), n) == 2 * (n - 1) / n
    assert sent_bits(TwoPhase(), Dense(), n) == 64 * (n - 1) / n, "what an fp32 ring moves"
    assert sent_bits(TwoPhase(), Levels(4), n) == 5 * (n - 1) / n
    assert sent_bits(TwoPhase(), Levels(4, grid="midtread"), n) == 6 * (n - 1) / n
    assert sent_bits(TwoPhase(), Mean(), n) == (1 + n.bit_length()) * (n - 1) / n
    assert sent_bits(GatherAll(), Vote(), n) == n - 1
    assert sent_bits(Server(), Vote(), n, index=1) == 1
    assert sent_bits(Server(), Vote(), n) == pytest.approx((n - 1) * 1, rel=1e-3)
    assert sent_bits(Hierarchical(inner=1, outer="two-phase"), Vote(), n) == sent_bits(TwoPhase(), Vote(), n)


def test_the_exchange_between_nodes_is_shared_out() -> None:
    inside = sent_bits(TwoPhase(), Dense(), 4) + 3 / 4  # the node's average, then the outcome's shares
    between = sent_bits(TwoPhase(), Vote(), 2) / 4
    assert sent_bits(Hierarchical(inner=4, outer="two-phase"), Vote(), 8) == inside + between


@pytest.mark.parametrize(
    ("num_workers", "numel", "expected"),
    [
        (2, 10_000_000, GatherAll),  # the same bytes in one phase
        (3, 10_000_000, TwoPhase),
        (8, 10_000_000, TwoPhase),
        (8, 10_000, GatherAll),  # a second phase costs more than the bytes it saves
        (64, 100_000, TwoPhase),
    ],
)
def test_auto_picks_by_size_and_number_of_workers(num_workers: int, numel: int, expected: type) -> None:
    chosen = Auto().resolve(Vote(), Layout((numel,), num_workers), workers(num_workers))
    assert type(chosen) is expected


def test_accelerators_get_the_backends_collectives() -> None:
    comm = replace(workers(4), device=torch.device("meta"))
    layout = Layout((10_000_000,), 4)
    assert TwoPhase().resolve(Vote(), layout, comm).ordered
    assert Auto().resolve(Vote(), layout, comm).ordered
    assert not TwoPhase("point-to-point").resolve(Vote(), layout, comm).ordered


def test_what_does_not_add_up_is_refused() -> None:
    for codec in (Vote(), Mean(), Levels(8), Levels(4, grid="log")):
        with pytest.raises(ConfigError, match="cannot add up"):
            SumAllReduce().codec_for(codec, 4)
    with pytest.raises(ConfigError, match="leaves each worker none"):
        SumAllReduce().codec_for(Levels(8, grid="midtread"), 128)


def test_unknown_transports_are_refused() -> None:
    with pytest.raises(ConfigError, match="point-to-point"):
        TwoPhase("carrier pigeon")  # type: ignore[arg-type]
