"""Both papers, executable: the oracle that every fast path and every multi-process run equals bit for bit.

Everything works on one parameter tensor, flattened: ``x [numel]`` is the replicated parameter, ``g``, ``m``, ``u``
are ``[workers, numel]``, one row a worker. ``t`` is the step, from 0. ``voters`` are the rows that take part, in
rank order: all of them unless a worker abstains.

* Distributed Lion, arXiv 2404.00438: :func:`vote`, :func:`mean`.
* Lion Cub, arXiv 2411.16462: :func:`levels` (p-bit quantisation), :func:`synchronize_momentum`.
* Global Lion, the baseline of both: :func:`dense`.

A *combiner* maps ``(u, t, voters)`` to the direction ``[numel]`` in which all workers move.
Written for reading beside the papers, not for speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Combiner = Callable[[Tensor, int, Sequence[int]], Tensor]

LOG_BASE = {2: 8, 3: 4, 4: 2, 5: 2}
FLOAT_BASE = {2: 4, 3: 4, 4: 2, 5: 2}
FLOAT_BELOW = {2: 0, 3: 1, 4: 3, 5: 6}


def lion_step(
    x: Tensor,
    m: Tensor,
    g: Tensor,
    t: int,
    combine: Combiner,
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    memory: float = 0.0,
    warmup: int = 0,
    voters: Sequence[int] | None = None,
    store: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of all workers: the new ``x`` and ``m``. A worker that does not vote keeps its momentum.

    ``memory`` and ``warmup`` as in :func:`remembered` and :func:`risen`; without them it is the paper's Lion.
    Half precision is computed in float32 and rounded when it is stored; ``store`` does that for ``x``, else to nearest.
    """
    beta1, beta2 = betas[0], remembered(t, betas[1], memory)
    lr = risen(t, lr, warmup)
    voters = range(len(g)) if voters is None else voters
    if not voters:
        return x, m
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    g = g.to(wide)
    u = m.to(wide) * beta1 + g * (1 - beta1)
    direction = combine(u, t, voters) if len(g) > 1 else torch.sign(u[0])  # a world of one is Lion
    moved = x.to(wide) * (1 - lr * weight_decay) - direction * lr
    x = store(moved) if store else moved.to(x.dtype)
    advanced = m.clone()
    for i in voters:
        advanced[i] = (m[i].to(wide) * beta2 + g[i] * (1 - beta2)).to(m.dtype)
    return x, advanced


def remembered(t: int, beta2: float, memory: float) -> float:
    """β2(t) = min(β2, t / (t + c)): of the steps so far, the momentum remembers about a c-th. c = 0: all of β2."""
    return min(beta2, t / (t + memory)) if memory else beta2


def risen(t: int, lr: float, warmup: int) -> float:
    """lr(t) = lr · min(1, (t + 1) / w)."""
    return lr * min(1.0, (t + 1) / warmup) if warmup else lr


def rounded_at_random(x: Tensor, seed: int, tensor: int, t: int) -> Tensor:
    """float32 to bfloat16, up or down with a probability that keeps the mean, by a hash of where and when."""

    def mixed(z: int) -> int:  # splitmix64's finaliser
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    key = mixed((mixed((mixed(seed % 2**64) + tensor + 1) % 2**64) + t + 1) % 2**64)

    def random16(coordinate: int) -> int:
        z = (coordinate ^ key) % 2**32
        z = (z ^ z >> 16) * 0x21F0AAAD % 2**32
        z = ((z ^ z >> 15) + (key >> 32)) * 0x735A2D97 % 2**32
        return (z ^ z >> 15) >> 16

    def rounded(coordinate: int, bits: int) -> int:
        return bits + random16(coordinate) >> 16 << 16

    words = [rounded(i, bits % 2**32) for i, bits in enumerate(x.view(torch.int32).tolist())]
    signed = [word - 2**32 if word >= 2**31 else word for word in words]
    return torch.tensor(signed, dtype=torch.int32).view(torch.float32).to(torch.bfloat16)


# ---- Distributed Lion ----------------------------------------------------------------------------------------------


def alternating_sign(numel: int, t: int) -> Tensor:
    """What is sent for ``u == 0`` when one bit must do: ±1, alternating with the step and the coordinate."""
    return ((torch.arange(numel) + t) % 2 * 2 - 1).to(torch.int64)


def signs(u: Tensor, t: int, zeros: str) -> Tensor:
    """δ = sign(u), with zeros sent as :func:`alternating_sign` or as an abstention (0)."""
    delta = torch.sign(u).to(torch.int64)
    return delta if zeros == "abstain" else torch.where(u == 0, alternating_sign(u.shape[-1], t), delta)


def casting_voter(t: int, voters: Sequence[int]) -> int:
    """Voter number t mod V in rank order."""
    return voters[t % len(voters)]


def vote(u: Tensor, t: int, voters: Sequence[int], *, ties: str = "cast", zeros: str = "alternate") -> Tensor:
    """Majority vote: Δ = sign(Σ δ_i). With an even number of votes on a coordinate the casting voter votes twice."""
    delta = signs(u, t, zeros)
    total = delta[list(voters)].sum(0)
    if ties == "cast":
        votes = delta[list(voters)].abs().sum(0)
        total = total + torch.where(votes % 2 == 0, delta[casting_voter(t, voters)], 0)
    return torch.sign(total).to(u.dtype)


def mean(u: Tensor, t: int, voters: Sequence[int]) -> Tensor:
    """Averaging: Δ = (1/V) Σ δ_i."""
    return signs(u, t, "alternate")[list(voters)].sum(0).to(u.dtype) / len(voters)


# ---- Lion Cub ------------------------------------------------------------------------------------------------------


def magnitude_scale(u: Tensor, scale: str) -> Tensor:
    """The worker's own scale for one tensor: mean|u| (L1) or max|u| (L∞). The sum is taken in double precision."""
    if scale == "linf":
        return u.abs().amax()
    return (u.abs().double().sum() / u.numel()).to(u.dtype)


def quantise(u: Tensor, t: int, bits: int, scale: str, grid: str, max_level: int | None = None) -> Tensor:
    """One worker's tensor as integers.

    midtread:  q = clip(round(u/mean|u| · s/2), -s, s)                      s = 2^(p-1)-1, or ``max_level``
    midrise:   q = sign(u)·(2·min(⌊|u|/mean|u| · L/2⌋, L-1) + 1)            L = 2^(p-1)
    log:       q = sign(u)·b^e,  e = clip(⌊log_b(|u|/mean|u|)⌋ + 1, 0, L-1)
    float:     q = sign(u)·b^e,  e = clip(⌊log_b(|u|/mean|u|)⌋ + 1 + k, 0, L-1): ours, k levels more lie below the mean

    With L∞, the linear grids span max|u| instead of 2·mean|u|, and the logarithmic one puts max|u| on its top level.
    """
    L = 2 ** (bits - 1)
    r = torch.where(u == 0, 0, u.abs() / magnitude_scale(u, scale))
    half = 0.5 if scale == "l1" else 1.0
    sign = torch.where(u == 0, alternating_sign(len(u), t), torch.sign(u).to(torch.int64))
    if grid == "midtread":
        s = L - 1 if max_level is None else max_level
        return torch.sign(u).to(torch.int64) * torch.clamp(torch.round(r * (s * half)), max=s).to(torch.int64)
    if grid == "midrise":
        return sign * (2 * torch.clamp(torch.floor(r * (L * half)), max=L - 1).to(torch.int64) + 1)
    b = FLOAT_BASE[bits] if grid == "float" else LOG_BASE[bits]
    lowest = -FLOAT_BELOW[bits] if grid == "float" else 0 if scale == "l1" else 2 - L
    thresholds = [float(b) ** k for k in range(lowest, lowest + L - 1)]
    e = sum(((r >= threshold).to(torch.int64) for threshold in thresholds), torch.zeros_like(sign))
    return sign * b**e


def levels(
    u: Tensor,
    t: int,
    voters: Sequence[int],
    *,
    bits: int,
    scale: str,
    grid: str,
    max_level: int | None = None,
) -> Tensor:
    """p-bit allreduce: the sign of the sum of levels. Without a zero level, a zero sum goes to the casting voter."""
    q = torch.stack([quantise(row, t, bits, scale, grid, max_level) for row in u])
    total = q[list(voters)].sum(0)
    if grid != "midtread":
        total = torch.where(total == 0, q[casting_voter(t, voters)], total)
    return torch.sign(total).to(u.dtype)


def summed_max_level(bits: int, workers: int) -> int:
    """s of the summing allreduce: the largest level whose sum over workers still fits p bits."""
    return ((1 << (bits - 1)) - 1) // workers


def synchronize_momentum(m: Tensor, dtype: torch.dtype) -> Tensor:
    """Momenta averaged over workers, sent and returned in ``dtype``: every worker gets the same row."""
    return (rank_order_sum(m.to(dtype).float()).to(dtype).float() / len(m)).to(m.dtype).expand_as(m).clone()


# ---- global Lion and the two levels of a cluster -------------------------------------------------------------------


def rank_order_sum(rows: Tensor) -> Tensor:
    """Σ rows, added one after another in rank order: the float sum that every worker can repeat."""
    total = rows[0].clone()
    for row in rows[1:]:
        total = total + row
    return total


def dense(u: Tensor, t: int, voters: Sequence[int], *, dtype: torch.dtype = torch.float32) -> Tensor:  # noqa: ARG001
    """Global Lion: the sign of the average update vector. u is linear in g, so averaging u averages gradients."""
    return torch.sign(rank_order_sum(u[list(voters)].to(dtype).float()).to(dtype).to(u.dtype))


def hierarchical(u: Tensor, t: int, voters: Sequence[int], *, per_node: int, combine: Combiner) -> Tensor:
    """Full precision inside a node, ``combine`` between nodes. A node votes when one of its workers does."""
    means, nodes = torch.zeros(len(u) // per_node, u.shape[1], dtype=u.dtype), []
    for node in range(len(means)):
        members = [i for i in voters if i // per_node == node]
        if members:
            means[node] = rank_order_sum(u[members]) / len(members)
            nodes.append(node)
    return combine(means, t, nodes) if len(means) > 1 else torch.sign(means[0])
