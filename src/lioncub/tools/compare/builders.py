"""The construction of each method: the wrapper of the model, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from lioncub import DistributedLion, Lion, LionCub, Mean, Vote
from lioncub.tools.compare.methods import ADAMW, BASELINE, COMPUTE_ALONE, POWERSGD_RANK


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    lr: float
    adamw_lr: float
    weight_decay: float


Build = Callable[[nn.Module, Hyperparameters], tuple[nn.Module, Optimizer]]
"""The module to call, and the optimizer."""


ONE_BUCKET_MB = 1 << 20
POWERSGD_START = 2
"""Steps before it begins to compress: the fewest that torch allows. They belong to the warm-up."""


def ddp(model: nn.Module, bucket_cap_mb: int | None = None) -> DistributedDataParallel:
    return DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_cap_mb)


def ddp_lion(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    return ddp(model), Lion(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)


def ddp_adamw(model: nn.Module, given: Hyperparameters) -> tuple[DistributedDataParallel, Optimizer]:
    decay = given.weight_decay * given.lr / given.adamw_lr  # so that weights shrink by the same factor
    return ddp(model), AdamW(model.parameters(), lr=given.adamw_lr, weight_decay=decay, fused=True)


def ddp_adamw_fp16(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    wrapped, optimizer = ddp_adamw(model, given)
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped, optimizer


def ddp_fp16(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    wrapped, optimizer = ddp(model), Lion(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped, optimizer


def ddp_powersgd(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    # One bucket: the hook's exchanges of several would meet in another order on each host, which aborts inside gloo.
    wrapped = ddp(model, ONE_BUCKET_MB)
    optimizer = Lion(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)
    state = PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_START)
    wrapped.register_comm_hook(state, powerSGD_hook)
    return wrapped, optimizer


def alone(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    return model, Lion(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)


def ours(kind: type[DistributedLion], **settings: Any) -> Build:
    """An optimizer of this library, by the two-phase exchange unless the method is another exchange."""

    def build(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
        common: dict[str, Any] = {"lr": given.lr, "weight_decay": given.weight_decay, "collective": "two-phase"}
        return model, kind(model.named_parameters(), **(common | settings))

    return build


BUILDERS: dict[str, Build] = {
    COMPUTE_ALONE: alone,
    BASELINE: ddp_lion,
    ADAMW: ddp_adamw,
    "ddp-adamw-fp16": ddp_adamw_fp16,
    "ddp-fp16": ddp_fp16,
    "ddp-powersgd": ddp_powersgd,
    "server": ours(DistributedLion, codec=Vote(), collective="server"),
    "vote": ours(DistributedLion, codec=Vote()),
    "mean": ours(DistributedLion, codec=Mean()),
    "cub-1": ours(LionCub, bits=1),
    "cub-2": ours(LionCub, bits=2, grid="midrise"),
    "cub-4": ours(LionCub, bits=4, grid="float"),
    "cub-8": ours(LionCub, bits=8),
}
