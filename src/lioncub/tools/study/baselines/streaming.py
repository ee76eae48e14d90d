"""Streaming DiLoCo: Douillard et al., arXiv 2501.18512."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.formats import Precision
from lioncub.tools.study.baselines.fragments import Fragment, strided
from lioncub.tools.study.baselines.local_steps import OwnWeights

MOST_DELAY = 5
"""Steps that the paper lets an outcome be late."""


class StreamingDiLoCo(OwnWeights):
    """DiLoCo by fragments of the model, each with a phase of its own, whose outcome arrives τ = ``delay`` steps later.

        due:     (t - t_p) mod H = 0 in step t, counted from 1;   t_p = pH/P for fragment p of P
        worker:  sends x_p - y_p in step t
        all:     in step t + τ the outer step of DiLoCo on x_p, with d = mean(x_p - y_p);   y_p ← α·y_p + (1-α)·x_p

    Workers step on with what they have meanwhile. In a run's last step all fragments that are not in flight are sent,
    and every outcome arrives. 4-bit floats both ways, 4/H bits up and 4/H down, without error feedback. ``names`` are
    the parameters', by which layers are known.
    """

    def __init__(
        self,
        *arguments: Any,
        names: Sequence[str],
        every: int = 32,
        delay: int = 2,
        alpha: float = 0.5,
        outer_lr: float = 0.4,
        outer_momentum: float = 0.9,
        layers_per_fragment: int = 3,
        up: Precision = "float4",
        down: Precision = "float4",
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        _check(every, delay, alpha)
        self.every, self.delay, self.alpha = every, delay, alpha
        members = strided(names, layers_per_fragment)
        own = [self._shaped(y) for y in self.y]
        self.fragments = [
            Fragment(
                [self.params[index] for index in tensors],
                [[weights[index] for index in tensors] for weights in own],
                phase=place * every // len(members),
                outer=(outer_lr, outer_momentum),
                up=up,
                down=down,
            )
            for place, tensors in enumerate(members)
        ]

    @property
    def due(self) -> list[Fragment]:
        """The fragments that are sent in this step."""
        t = self.steps + 1
        idle = (fragment for fragment in self.fragments if fragment.answer is None)
        return [fragment for fragment in idle if self.last or (t - fragment.phase) % self.every == 0]

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        self.inner_step(worker, gradients)
        num_bytes = 0
        for fragment in self.due:
            difference = fragment.difference(worker)
            self.check_finite(worker, difference)
            num_bytes += fragment.send(difference)
        return num_bytes

    def move(self, lr: float) -> int:
        for fragment in self.due:
            fragment.leave(self.steps + self.delay)
        in_flight = (fragment for fragment in self.fragments if fragment.answer is not None)
        arriving = [fragment for fragment in in_flight if self.last or fragment.arrival <= self.steps]
        self.steps += 1
        return sum(fragment.arrive(self.alpha) for fragment in arriving)


def _check(every: int, delay: int, alpha: float) -> None:
    if every < 1:
        raise ConfigError(f"StreamingDiLoCo(every={every}): an exchange after 1 step or more")
    if not 0 <= delay <= MOST_DELAY or delay >= every:
        most = min(MOST_DELAY, every - 1)
        raise ConfigError(f"StreamingDiLoCo(delay={delay}): an outcome is 0 to {most} steps late with every={every}")
    if not 0 <= alpha < 1:
        raise ConfigError(f"StreamingDiLoCo(alpha={alpha}): workers keep 0 or more of their weights, and less than all")
