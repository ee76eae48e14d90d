"""What all workers conclude from everybody's headers: who votes, and whether the step can be applied.

Every worker sees every header, so all come to the same conclusion: they go on together or raise together, and none
waits for another that has raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from lioncub.errors import (
    AgreementError,
    GradientChangedError,
    QuorumError,
    ReplicasDifferError,
    SparseGradientError,
    WireError,
    name_ranks,
)
from lioncub.kernels.layout import Ballot, Layout
from lioncub.wire.headers import Flags, Header


@lru_cache(maxsize=1024)
def _voters(votes: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(voter for voter, votes_here in enumerate(votes) if votes_here)


def ballot(headers: Sequence[Header], layout: Layout, step: int) -> Ballot:
    """Who votes on which tensor of a bucket."""
    nothing = (False,) * len(layout.lengths)
    votes = [nothing if header.abstains else header.present for header in headers]
    return Ballot.of(layout, step, [_voters(of_tensor) for of_tensor in zip(*votes, strict=True)])


def check(headers: Sequence[Header], *, quorum: int, what: str, repaired: bool = False) -> None:
    """Raise, on every worker alike, when these headers forbid the step. ``what`` names the bucket's parameters.

    ``repaired``: replicas that differed when these headers were written are the same by now.
    """
    _same(headers, "version", lambda r: AgreementError(f"the wire version differs on {name_ranks(r)}"))
    _same(headers, "plan", lambda r: AgreementError(f"the parameters or settings of {name_ranks(r)} have changed"))
    _same(headers, "bucket", lambda r: WireError(f"{name_ranks(r)} sent another bucket than {what}"))
    _same(headers, "step", lambda r: AgreementError(_step_message(headers, r)))
    if replanning := flagged(headers, Flags.REPLANNING):
        raise AgreementError(
            f"{name_ranks(replanning)} froze, thawed, added or loaded parameters, the others did not: do it on every "
            "worker before the same step"
        )
    if abandoned := flagged(headers, Flags.ABANDONED):
        raise AgreementError(
            f"{name_ranks(abandoned)} dropped the batch of step {headers[0].step} after backward, the others did not. "
            "Nothing was changed, and the next step can go on: drop batches on every worker alike"
        )
    _same(
        headers,
        "hyper",
        lambda r: AgreementError(
            f"lr, betas, memory, warmup or weight_decay differ at step {headers[0].step} on {name_ranks(r)}: give "
            "every worker the same param_groups and step schedulers alike"
        ),
    )
    if not repaired:
        _same(
            headers,
            "fingerprint",
            lambda r: ReplicasDifferError(
                f"the parameters {what} are not the same on {name_ranks(r)} at step {headers[0].step}: something "
                "outside the optimizer wrote to them, or memory is faulty. Restart from a checkpoint, copy the "
                "parameters from a healthy worker with lioncub.broadcast_parameters(), or let the optimizer do it "
                "with repair=True",
                ranks=r,
            ),
        )
    if sparse := flagged(headers, Flags.SPARSE):
        raise SparseGradientError(
            f"sparse gradient in {what} on {name_ranks(sparse)}: use dense gradients (nn.Embedding(sparse=False))"
        )
    if changed := flagged(headers, Flags.CHANGED):
        raise GradientChangedError(changed_message(changed, "a gradient"))
    voters = sum(not header.abstains for header in headers)
    if voters < quorum and len(flagged(headers, Flags.ABSENT)) < len(headers):
        silent = [header.rank for header in headers if header.abstains]
        raise QuorumError(
            f"only {voters} of {len(headers)} workers have a finite gradient for {what} at step {headers[0].step} "
            f"(quorum {quorum}); NaN, Inf or no data on {name_ranks(silent)}. Nothing was changed: lower the learning "
            "rate, clip gradients, or skip this batch and go on"
        )


def changed_message(ranks: Sequence[int], what: str) -> str:
    return (
        f"{what} changed on {name_ranks(ranks)} after backward had sent it. DistributedDataParallel around the model "
        "changes them: take it off. Clipping, unscaling and a second backward need overlap=False; for accumulation, "
        "run all but the last backward inside no_sync(); to drop a batch, call optimizer.zero_grad(), not "
        "model.zero_grad(); a parameter belongs to one lioncub optimizer only"
    )


def flagged(headers: Sequence[Header], flag: Flags) -> list[int]:
    return [header.rank for header in headers if flag in header.flags]


def odd_ones_out(values: Sequence[object]) -> list[int]:
    """Positions that differ from the most common value; from the first worker's where that is a draw."""
    if len(set(values)) < 2:
        return []
    counts = Counter(values)
    normal = max(counts, key=lambda value: (counts[value], value == values[0]))
    return [position for position, value in enumerate(values) if value != normal]


def _same(headers: Sequence[Header], field: str, error: Callable[[list[int]], Exception]) -> None:
    odd = odd_ones_out([getattr(header, field) for header in headers])
    if odd:
        raise error([headers[position].rank for position in odd])


def _step_message(headers: Sequence[Header], ranks: Sequence[int]) -> str:
    steps = ", ".join(f"worker {header.rank} at step {header.step}" for header in headers)
    return f"workers are at different steps ({steps}): {name_ranks(ranks)} skipped or repeated a step()"
