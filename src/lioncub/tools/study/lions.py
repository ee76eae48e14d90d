"""Distributed Lion and Lion Cub with virtual workers: the library's own codecs and kernels, and no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from lioncub import kernels, reference
from lioncub.codecs import Codec
from lioncub.errors import ConfigError
from lioncub.kernels import Move, Part, UpdateVector
from lioncub.kernels.layout import Ballot, Layout, Span
from lioncub.kernels.torch_ops import blend_
from lioncub.momentum.memory import Memory, beta2_at, lr_at, share, usual_warmup
from lioncub.momentum.policy import MomentumSync, divergence, sample
from lioncub.tools.study.errors import DivergedError
from lioncub.tools.study.method import Method

CPU = torch.device("cpu")


@dataclass
class Bucket:
    """Tensors that share a codec, and what the workers said about them in this step."""

    codec: Codec
    members: list[int]
    layout: Layout
    payloads: dict[int, Tensor] = field(default_factory=dict)

    def ballot(self, step: int) -> Ballot:
        voters = tuple(range(self.layout.num_workers))
        return Ballot(step, (Span(0, self.layout.padded_numel, voters),))


class VirtualLion(Method):
    """Every worker's momentum, and one copy of everything that is the same on all of them.

    Equal bit for bit to as many processes with :class:`lioncub.DistributedLion`. ``codec`` may be a function of the
    parameter's name. ``watch``: note how often the outcome of each tensor agrees with the exact sign, in
    :attr:`agreements`.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        workers: int,
        *,
        codec: Codec | Callable[[str], Codec],
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.99),
        memory: Memory = "growing",
        warmup: int | None = None,
        momentum_sync: MomentumSync | None = None,
        watch: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__([param for _, param in named], workers, weight_decay=weight_decay, seed=seed)
        if workers < 2:
            raise ConfigError("a single worker is plain Lion: virtual workers are two or more")
        self.names = [name for name, _ in named]
        self.betas = betas
        self.memory = share(memory)
        self.warmup = usual_warmup(betas[1], memory) if warmup is None else warmup
        shapes = [param.numel() for param in self.params]
        self.momenta = [[torch.zeros(numel) for numel in shapes] for _ in range(workers)]
        self.rates = [1.0] * len(self.params)
        """Times the learning rate, tensor by tensor."""
        self.buckets = self._in_buckets(codec if callable(codec) else lambda _: codec)
        self.meeting = Meeting(momentum_sync, list(named), workers) if momentum_sync else None
        self.exact = [torch.zeros(numel) for numel in shapes] if watch else None
        self.agreements: dict[str, float] = {}

    def _in_buckets(self, codec_of: Callable[[str], Codec]) -> list[Bucket]:
        codecs = [codec_of(name) for name in self.names]
        order = sorted(range(len(codecs)), key=lambda index: repr(codecs[index]))
        buckets = []
        for _, run in groupby(order, key=lambda index: repr(codecs[index])):
            members = list(run)
            layout = Layout(tuple(self.params[index].numel() for index in members), self.workers)
            codecs[members[0]].check(self.workers)
            buckets.append(Bucket(codecs[members[0]], members, layout))
        return buckets

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        momenta, (beta1, beta2) = self.momenta[worker], self.betas
        beta2 = beta2_at(self.steps, beta2, self.memory)
        flat = [gradient.reshape(-1) for gradient in gradients]
        sent = 0
        for bucket in self.buckets:
            parts = [self.part(worker, index, momenta[index], flat[index]) for index in bucket.members]
            encoded = bucket.codec.encode_update(UpdateVector(parts, bucket.layout, torch.float32, CPU), self.steps)
            if not encoded.finite:
                raise DivergedError(f"step {self.steps}: a gradient of worker {worker} is not finite")
            bucket.payloads[worker] = encoded.payload
            sent += encoded.payload.nbytes
        if self.exact is not None:
            for total, m, g in zip(self.exact, momenta, flat, strict=True):
                total += blend_(m.clone(), g, beta1, 1 - beta1)
        if self.meeting:
            sent += self.meeting.sample(worker, momenta, self.steps)
        for m, g in zip(momenta, flat, strict=True):
            blend_(m, g, beta2, 1 - beta2)
        if self.meeting:
            sent += self.meeting.send(worker, momenta, self.steps)
        return sent

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        """What a worker speaks about: its update vector of a tensor."""
        return Part(m, g, self.betas[0], 1 - self.betas[0])

    def move(self, lr: float) -> int:
        lr = lr_at(self.steps, lr, self.warmup)
        received = sum(self._apply(bucket, lr) for bucket in self.buckets)
        if self.meeting:
            received += self.meeting.receive(self.momenta, self.steps)
        self.steps += 1
        return received

    def _apply(self, bucket: Bucket, lr: float) -> int:
        payloads = torch.stack([bucket.payloads.pop(worker) for worker in range(self.workers)])
        ballot = bucket.ballot(self.steps)
        combined = bucket.codec.combine(payloads, ballot)
        moves = []
        for index, start in zip(bucket.members, bucket.layout.starts, strict=True):
            own = lr * self.rates[index]
            decay = 1 - own * self.weight_decay
            moves.append(Move(self.params[index].view(-1), start, own, decay, self.workers))
        kernels.apply_(moves, bucket.codec.direction(combined, ballot))
        if self.exact is not None:
            self._compare(bucket, bucket.codec.decode(combined, ballot), self.exact)
        return combined.nbytes

    def _compare(self, bucket: Bucket, direction: Tensor, exact: list[Tensor]) -> None:
        for index, start in zip(bucket.members, bucket.layout.starts, strict=True):
            total = exact[index]
            moved = total != 0  # nobody has a say on the embedding of a token that nobody has seen
            same = (torch.sign(direction[start : start + total.numel()]) == torch.sign(total)) & moved
            self.agreements[self.names[index]] = int(same.sum()) / max(int(moved.sum()), 1)
            total.zero_()

    def divergences(self) -> dict[str, float]:
        """How far the workers' momenta differ, tensor by tensor, over at most 1,024 workers."""
        rows = [[sample(momentum) for momentum in momenta] for momenta in self.momenta[:1024]]
        return {
            name: divergence(torch.stack([row[index] for row in rows]).numpy()) for index, name in enumerate(self.names)
        }


class Meeting:
    """Momentum synchronisation of virtual workers; see :class:`lioncub.MomentumSync`."""

    def __init__(self, policy: MomentumSync, named: Sequence[tuple[str, Tensor]], workers: int) -> None:
        self.policy = policy
        self.workers = workers
        self.numel = sum(param.numel() for _, param in named)
        matching = policy.matching(named)
        self.members = [i for i, (_, param) in enumerate(named) if matching[i] and param.numel()]
        self.sizes = {index: named[index][1].numel() for index in self.members}
        self.selected = dict.fromkeys(self.members, policy.budget is None)
        self.measured = dict.fromkeys(self.members, 0.0)
        self.rows: list[Tensor] = []
        self.samples: list[Tensor] = []

    def sample(self, worker: int, momenta: Sequence[Tensor], step: int) -> int:
        """What a worker tells of its momenta as they are before the step, where tensors are chosen by divergence."""
        if not (chosen := self._measured_at(step)):
            return 0
        row = torch.cat([sample(momenta[index]) for index in chosen])
        self.samples.append(row)
        return row.nbytes

    def _measured_at(self, step: int) -> list[int]:
        every = self.policy.every
        return self.members[step % every :: every] if self.policy.budget is not None else []

    def _windows(self, step: int) -> list[tuple[int, int, int]]:
        """(tensor, first, last) of the elements that meet at ``step``."""
        selected = [index for index in self.members if self.selected[index]]
        pieces = self.policy.pieces(step, [self.sizes[index] for index in selected])
        return [(selected[place], first, last) for place, first, last in pieces]

    def send(self, worker: int, momenta: Sequence[Tensor], step: int) -> int:
        if not (windows := self._windows(step)):
            return 0
        row = torch.cat([momenta[index][first:last] for index, first, last in windows]).to(self.policy.dtype)
        self.rows.append(row)
        return row.nbytes

    def receive(self, momenta: Sequence[Sequence[Tensor]], step: int) -> int:
        received = 0
        if self.rows:
            mean = reference.synchronize_momentum(torch.stack(self.rows).float(), self.policy.dtype)[0]
            received += mean.to(self.policy.dtype).nbytes
            for own in momenta:
                offset = 0
                for index, first, last in self._windows(step):
                    own[index][first:last] = mean[offset : offset + last - first]
                    offset += last - first
            self.rows = []
        if self.samples:
            received += sum(row.nbytes for row in self.samples[1:])
            self._measure(torch.stack(self.samples), self._measured_at(step))
            self.samples = []
        if self.policy.chooses_at(step):
            sizes = [self.sizes[index] for index in self.members]
            chosen = self.policy.choose([self.measured[index] for index in self.members], sizes, self.numel)
            self.selected = dict(zip(self.members, chosen, strict=True))
        return received

    def _measure(self, samples: Tensor, chosen: Sequence[int]) -> None:
        widths = [len(sample(torch.empty(self.sizes[index]))) for index in chosen]
        for index, part in zip(chosen, samples.split(widths, dim=1), strict=True):
            self.measured[index] = divergence(part.numpy())
