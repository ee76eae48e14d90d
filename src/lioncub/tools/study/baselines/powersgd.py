"""PowerSGD: Vogels et al., arXiv 1905.13727."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.exchange import AdamW, Flat, HeavyBall
from lioncub.tools.study.baselines.packing import pack_floats, unpack_floats


class PowerSGD(Flat):
    """The mean gradient as a product of thin matrices, found by one step of power iteration, with error feedback.

    A tensor is a matrix of its first dimension by all others; vectors are sent as they are. In two rounds:

        M_i = g_i + e_i
        1. P_i = M_i·Q    goes up, the sum comes back;   P = orthonormal columns that span it
        2. Q_i = M_iᵀ·P   goes up, the sum comes back;   Q = the mean, where the next step starts from
        e_i ← M_i - P·Qᵀ

    e_i is the error feedback: what a message left out is added to the next. Parameters move by momentum SGD on P·Qᵀ,
    as with torch's own hook under SGD; the paper adds the new mean once more. With ``betas`` they move by AdamW on it.
    The first Q is drawn at random, from a seed that all share, and so is a column that is zero.
    4·r·(rows + columns) bytes up for every matrix, and as many down.
    """

    def __init__(
        self,
        *arguments: Any,
        rank: int = 4,
        momentum: float = 0.9,
        betas: tuple[float, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if rank < 1:
            raise ConfigError(f"PowerSGD(rank={rank}): at least 1")
        self.rule = HeavyBall(self.numel, momentum) if betas is None else AdamW(self.numel, betas)
        self.errors = self.private()
        shapes = [(len(param), param.numel() // len(param)) for param in self.params if param.dim() > 1]
        ranks = [min(rank, *shape) for shape in shapes]
        self.p_shapes = [(rows, r) for (rows, _), r in zip(shapes, ranks, strict=True)]
        self.q = self._start_from([torch.zeros(columns, r) for (_, columns), r in zip(shapes, ranks, strict=True)])
        self.second_bytes = 4 * sum(q.numel() for q in self.q)
        self.total = torch.zeros(0)

    def matrices(self, flat: Tensor) -> list[Tensor]:
        """Views of the parts of a flat vector that are compressed."""
        pairs = zip(self.params, flat.split(self.sizes), strict=True)
        return [part.view(len(param), -1) for param, part in pairs if param.dim() > 1]

    def vectors(self, flat: Tensor) -> list[Tensor]:
        """Views of the parts that are not."""
        return [part for param, part in zip(self.params, flat.split(self.sizes), strict=True) if param.dim() <= 1]

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        m = self.errors[worker].add_(self.flat(gradients))
        projected = [matrix @ q for matrix, q in zip(self.matrices(m), self.q, strict=True)]
        message = _packed([*projected, *self.vectors(m)])
        received = unpack_floats(message)
        self.total = received if worker == 0 else self.total.add_(received)
        return len(message) + self.second_bytes  # Qᵢ follows when P is known

    def move(self, lr: float) -> int:
        first = pack_floats(self.total)
        mean = unpack_floats(first).div_(self.workers)
        sizes = [rows * r for rows, r in self.p_shapes]
        *parts, vectors = mean.split([*sizes, len(mean) - sum(sizes)])
        p = [torch.linalg.qr(part.view(shape))[0] for part, shape in zip(parts, self.p_shapes, strict=True)]
        second = self._second_round(p)
        means = unpack_floats(second).div_(self.workers).split([q.numel() for q in self.q])
        q = [part.view_as(last) for part, last in zip(means, self.q, strict=True)]
        approximation = self._approximation(p, q, vectors)
        self.q = self._start_from(q)
        for error in self.errors:
            error -= approximation
            for part in self.vectors(error):
                part.zero_()
        self.displace(self.rule(approximation) * lr, lr)
        return len(first) + len(second)

    def _second_round(self, p: list[Tensor]) -> bytes:
        """Every worker's Q_i to the server, and the sum of them."""
        total = torch.zeros(self.second_bytes // 4)
        for m in self.errors:
            message = _packed([matrix.T @ basis for matrix, basis in zip(self.matrices(m), p, strict=True)])
            assert len(message) == self.second_bytes
            total += unpack_floats(message)
        return pack_floats(total)

    def _start_from(self, q: list[Tensor]) -> list[Tensor]:
        """``q``, its columns of zeros drawn anew, by all workers alike: M·0 would be zero for ever."""
        generator = self.generator(0)
        return [torch.where(part.any(0), part, torch.randn(part.shape, generator=generator)) for part in q]

    def _approximation(self, p: list[Tensor], q: list[Tensor], vectors: Tensor) -> Tensor:
        """P·Qᵀ for every matrix, and the mean of the vectors."""
        flat = torch.empty(self.numel)
        for matrix, basis, weights in zip(self.matrices(flat), p, q, strict=True):
            torch.mm(basis, weights.T, out=matrix)
        parts = self.vectors(flat)
        for part, mean in zip(parts, vectors.split([len(part) for part in parts]), strict=True):
            part.copy_(mean)
        return flat


def _packed(tensors: list[Tensor]) -> bytes:
    return b"".join(pack_floats(tensor) for tensor in tensors)
