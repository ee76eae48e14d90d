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
    rise: int
    """Steps in which the rate of the Lions rises: a tenth of a short run."""


Build = Callable[[nn.Module, Hyperparameters], tuple[nn.Module, Optimizer]]
"""The module to call, and the optimizer."""


ONE_BUCKET_MB = 1 << 20
POWERSGD_START = 2
"""Steps before it begins to compress: the fewest that torch allows. They belong to the warm-up."""


def lion(model: nn.Module, given: Hyperparameters) -> Optimizer:
    return Lion(model.parameters(), lr=given.lr, weight_decay=given.weight_decay, warmup=given.rise)


def adamw(model: nn.Module, given: Hyperparameters) -> Optimizer:
    decay = given.weight_decay * given.lr / given.adamw_lr  # so that weights shrink by the same factor
    return AdamW(model.parameters(), lr=given.adamw_lr, weight_decay=decay, fused=True)


def ddp(
    optimizer: Callable[[nn.Module, Hyperparameters], Optimizer],
    hook: Callable[[Any, Any], Any] | None = None,
    state: Callable[[], object] = lambda: None,
    bucket_cap_mb: int | None = None,
) -> Build:
    """torch's data parallel training, with one of its communication hooks or without."""

    def build(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_cap_mb)
        if hook is not None:
            wrapped.register_comm_hook(state(), hook)
        return wrapped, optimizer(model, given)

    return build


def powersgd_state() -> PowerSGDState:
    return PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_START)


def alone(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
    return model, lion(model, given)


def ours(kind: type[DistributedLion], **settings: Any) -> Build:
    """An optimizer of this library, by the two-phase exchange unless the method is another exchange."""

    def build(model: nn.Module, given: Hyperparameters) -> tuple[nn.Module, Optimizer]:
        common: dict[str, Any] = {"lr": given.lr, "weight_decay": given.weight_decay, "warmup": given.rise}
        common["collective"] = "two-phase"
        return model, kind(model.named_parameters(), **(common | settings))

    return build


BUILDERS: dict[str, Build] = {
    COMPUTE_ALONE: alone,
    BASELINE: ddp(lion),
    ADAMW: ddp(adamw),
    "ddp-adamw-fp16": ddp(adamw, fp16_compress_hook),
    "ddp-fp16": ddp(lion, fp16_compress_hook),
    # One bucket: the hook's exchanges of several would meet in another order on each host, which aborts inside gloo.
    "ddp-powersgd": ddp(lion, powerSGD_hook, powersgd_state, ONE_BUCKET_MB),
    "server": ours(DistributedLion, codec=Vote(), collective="server"),
    "vote": ours(DistributedLion, codec=Vote()),
    "mean": ours(DistributedLion, codec=Mean()),
    "cub-1": ours(LionCub, bits=1),
    "cub-2": ours(LionCub, bits=2, grid="midrise"),
    "cub-4": ours(LionCub, bits=4, grid="float"),
    "cub-8": ours(LionCub, bits=8),
}
