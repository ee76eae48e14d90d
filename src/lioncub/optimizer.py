"""The optimizer: who calls whom, when."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lioncub.codecs import Codec, Vote
from lioncub.codecs.levels import Grid, Scale
from lioncub.codecs.recommended import BITS, cub_codec
from lioncub.collectives import Collective, Traffic, collective_from
from lioncub.errors import ConfigError, LionCubError, ReplicasDifferError, name_ranks
from lioncub.momentum.memory import Memory
from lioncub.momentum.policy import MomentumSync
from lioncub.stats import Stats
from lioncub.step.buckets import Bucket, plan_buckets
from lioncub.step.hooks import GradientWatch
from lioncub.step.huge_pages import zeros_like_all
from lioncub.step.parameters import Slot
from lioncub.step.pipeline import CheckedStep, Pipeline
from lioncub.step.plan import Plan
from lioncub.step.state import MomentumOptimizer, momenta_of
from lioncub.step.synchronizer import Synchronizer
from lioncub.step.validation import Rounding, checked_carrier, checked_quorum, warn_of_ddp
from lioncub.transport.comm import Carrier, Comm
from lioncub.wire.handshake import agree
from lioncub.wire.headers import Flags, Stamp
from lioncub.wire.outliers import to_wire
from lioncub.wire.replicas import copy_from_majority


class DistributedLion(MomentumOptimizer):
    """Lion on many workers, each with its own data and momentum, that send signs or levels instead of gradients.

    Args:
        params: tensors, ``model.named_parameters()``, or groups, as every torch optimizer. A group may set ``lr``,
            ``betas``, ``memory``, ``warmup``, ``weight_decay``, ``maximize`` and ``codec``.
        lr: about a third of AdamW's.
        betas: β1 of the update vector, β2 of the momentum.
        memory: "growing": the momentum remembers about a tenth of the steps so far, until that is as much as β2 says;
            a number c: a c-th of them; "constant": β2 from the first step, as in the papers.
        warmup: steps in which the rate rises to lr, besides what your scheduler does; None is 2 / (1 - β2), and 0 with
            constant memory.
        weight_decay: decoupled; about three times AdamW's.
        codec: what is sent: :class:`Vote`, :class:`Mean`, :class:`Levels` or :class:`Dense`.
        collective: how it travels: "auto", "two-phase", "gather", "server", "sum" or a collective object.
        momentum_sync: a :class:`MomentumSync`, or None: momenta never meet.
        process_group: a ProcessGroup or a one-dimensional DeviceMesh; None is the default group, or a world of one.
        overlap: encode and send buckets while backward still runs.
        quorum: raise when fewer workers than this have finite gradients; None is 1.
        repair: overwrite replicas that differ with the parameters of the majority, warn, and go on; without it, or
            without a majority, :class:`ReplicasDifferError` stops all workers.
        maximize: ascend.
        bucket_numel: elements per bucket; None makes three of the model, and more of a large one.
        momentum_dtype: bfloat16 halves the state's memory.
        stochastic_rounding: round bfloat16 parameters up or down at random, by distance, so that updates smaller than
            half a step of bfloat16 are not lost. All replicas draw the same numbers, from ``rounding_seed``.
            Parameters of other types, float16 too, are rounded to nearest all the same.
        spare_momentum: keep a second momentum for each parameter, into which encoding writes the next one: a step then
            reads m and g once instead of twice. Costs as much memory as the momenta do.
        carrier: who moves messages between CPUs: "sockets", which lioncub opens itself; "backend", the process group's,
            which takes longer; "auto" is the former where every worker has the C++ part of lioncub.

    Construction compares settings and parameters with all workers and raises on each of them if any differs.

    Example (under ``torchrun``)::

        optimizer = DistributedLion(model.named_parameters(), lr=1e-4, weight_decay=0.1)
        loss.backward()          # no DistributedDataParallel: gradients stay on the worker
        optimizer.step()

    References: Distributed Lion, arXiv 2404.00438; Lion Cub, arXiv 2411.16462.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        memory: Memory = "growing",
        warmup: int | None = None,
        codec: Codec = Vote(),  # noqa: B008  (frozen)
        collective: str | Collective = "auto",
        momentum_sync: MomentumSync | None = None,
        process_group: Any = None,
        overlap: bool = True,
        quorum: int | None = None,
        maximize: bool = False,
        bucket_numel: int | None = None,
        momentum_dtype: torch.dtype = torch.float32,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
        spare_momentum: bool = True,
        repair: bool = False,
        carrier: Carrier = "auto",
    ) -> None:
        self._dirty = True
        self._collective = collective_from(collective)
        self._momentum_sync = momentum_sync
        self._bucket_numel = bucket_numel
        self._rounding = Rounding(stochastic_rounding, rounding_seed)
        self._keeps_spares = spare_momentum
        self._repairs = repair
        self._carrier = checked_carrier(carrier)
        self._absent = False
        self._spares: dict[Tensor, Tensor] = {}
        self._ready: CheckedStep | None = None
        self._stopping = False
        self._watch: GradientWatch | None = None
        defaults = {
            "lr": lr,
            "betas": betas,
            "memory": memory,
            "warmup": warmup,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "codec": codec,
            "step": 0,
            "since": 0,
        }
        super().__init__(params, defaults, momentum_dtype)
        first = next(param for group in self.param_groups for param in group["params"])
        self.process_group = process_group
        self._comm = Comm.of(process_group, first.device)
        self._overlap = overlap and self._comm.size > 1
        self._quorum = checked_quorum(quorum, self._comm.size)
        self._lay_out()  # what this worker can refuse by itself it refuses before it speaks to the others
        self._comm = self._comm.on_new_channel().connected(self._carrier)
        self._pipeline = Pipeline(self._comm)
        self.stats = Stats.before_the_first_step()
        self._refresh_plan()
        self._comm.check_carrier(self._carrier)
        warn_of_ddp([slot.name for slot in self._everything], self._comm.size)

    # ---- torch's conventions ----------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._dirty = True

    def state_dict(self) -> dict[str, Any]:
        """As torch's; codecs are written as text, so that the state loads with ``weights_only=True``."""
        state: dict[str, Any] = super().state_dict()
        for group in state["param_groups"]:
            group["codec"] = repr(group["codec"])
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, with two differences: momenta keep their precision (torch would cast them to the parameter's),
        and codecs are configuration: those of this optimizer stay."""
        momenta_of(state_dict, self.param_groups)  # a state that does not fit must not end a step that is under way
        codecs = [group["codec"] for group in self.param_groups]
        self._abandon()
        super().load_state_dict(state_dict)
        for group, codec in zip(self.param_groups, codecs, strict=True):
            group["codec"] = codec
        self._dirty = True

    def __deepcopy__(self, memo: object) -> None:
        raise ConfigError("this optimizer holds connections and cannot be copied: make a new one, load_state_dict() it")

    def __reduce_ex__(self, protocol: object) -> None:  # type: ignore[override]
        raise ConfigError("this optimizer holds connections and cannot be pickled: save its state_dict()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's. A step that backward has begun is called off, on every worker alike."""
        self._abandon()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Exchange, then apply. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.exchange()
        self.apply()
        return loss

    @torch.no_grad()
    def abstain(self) -> bool:
        """Take part in a step without a vote, for a worker that has run out of data while others have not.

        Its parameters move as everybody's, its momentum stays, but for what momentum synchronisation averages. False
        once all workers abstain: no parameter has moved, and all of them are done::

            for batch in my_share:
                ...
                optimizer.step()
            while optimizer.abstain():
                pass
        """
        if self._comm.size == 1:
            return False
        if self._watch and self._watch.touched:
            raise LionCubError(
                "abstain() after backward has begun the step: call step(), or zero_grad() on every worker and abstain"
            )
        self._absent = True
        try:
            self.exchange()
        finally:
            self._absent = False
        self.apply()
        return self.stats.voters > 0

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate gradients and send nothing."""
        paused = self._watch.paused if self._watch else False
        if self._watch:
            self._watch.paused = True
        try:
            yield
        finally:
            if self._watch:
                self._watch.paused = paused

    # ---- a step in its two halves -----------------------------------------------------------------------------------

    @torch.no_grad()
    def exchange(self) -> None:
        """Send what backward has not sent yet, wait, check. Changes neither parameters nor momenta.

        An outcome that was not applied is dropped.
        """
        self._check_usable()
        if self._plan_changed():
            self._pipeline.cancel(self._buckets, self._synchronizer, self._stamp(Flags.REPLANNING))
            self._refresh_plan()
        self._ready = None
        stamp = self._stamp(self._pipeline.changes() | self._wishes())
        for bucket in self._buckets:
            if not self._pipeline.has_sent(bucket):
                self._pipeline.send(bucket, stamp)
        if self._synchronizer:
            self._pipeline.send_momenta(self._synchronizer, self._step)
        if self._watch:
            self._watch.reset()
        self._ready = self._pipeline.complete(self._quorum, self._repair if self._repairs else None)

    @torch.no_grad()
    def apply(self) -> None:
        """Move the parameters and advance the momenta by what :meth:`exchange` has brought."""
        if self._ready is None:
            raise LionCubError("apply() without an exchange: call exchange() first, or step()")
        ready, self._ready = self._ready, None
        self.stats = ready.apply_(self._synchronizer, self._rounding, self._step)
        for group in self.param_groups:
            group["step"] += 1

    @torch.no_grad()
    def synchronize_momentum(self) -> None:
        """Average all momenta over the workers, in float32; they are bit-identical on all of them afterwards.

        For tools that believe that an optimizer's state is the same everywhere, such as torch's distributed checkpoint.
        Call it on every worker, between steps: a step that backward has begun is called off.
        """
        self._check_usable()
        self._abandon()
        if self._plan_changed():
            self._refresh_plan()
        for bucket in plan_buckets(self._everything, self._comm, self._collective, self._bucket_numel):
            self._pipeline.average(bucket.slots, self._step)

    def ask_to_stop(self) -> None:
        """Ask all workers, in the headers of the coming step, to stop after it: ``stats.stopping`` then names this
        worker on every one of them. May be called by a signal's handler."""
        self._stopping = True

    def traffic(self) -> Traffic:
        """What the coming step will send and receive: every bucket's collective and momentum synchronisation."""
        total = Traffic()
        for bucket in self._buckets:
            total += bucket.traffic
        if self._synchronizer:
            total += self._synchronizer.traffic(self._step)
        return total

    # ---- inside -----------------------------------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        step: int = self.param_groups[0]["step"]
        return step

    def _slots(self) -> list[Slot]:
        slots: list[Slot] = []
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names") or [f"{number}.{i}" for i in range(len(group["params"]))]
            for param, name in zip(group["params"], names, strict=True):
                slots.append(Slot(param, group, self.state[param], name, len(slots), self._spares))
        return slots

    def _plan_changed(self) -> bool:
        return self._dirty or self._trainable != [slot.param.requires_grad for slot in self._everything]

    def _lay_out(self) -> None:
        """Group what is to be trained into buckets. Frozen parameters take no room."""
        self._everything = self._slots()
        self._trainable = [slot.param.requires_grad for slot in self._everything]
        self._trained = [slot for slot in self._everything if slot.param.requires_grad]
        if self._keeps_spares:
            new = [slot for slot in self._trained if slot.param not in self._spares]
            momenta = [slot.momentum for slot in new]
            spares = zeros_like_all(momenta, [momentum.dtype for momentum in momenta])
            self._spares |= {slot.param: spare for slot, spare in zip(new, spares, strict=True)}
        self._buckets = plan_buckets(self._trained, self._comm, self._collective, self._bucket_numel)
        policy = self._momentum_sync if self._comm.size > 1 else None
        self._synchronizer = Synchronizer(policy, self._trained, self._comm) if policy else None

    def _refresh_plan(self) -> None:
        """Lay out the buckets, agree on them with all workers, and watch their gradients."""
        self._lay_out()
        plan = Plan.of(self._trained, self._buckets, self._settings())
        self._plan_number = plan.number
        if self._comm.size > 1:
            self._pipeline.nonce = agree(self._comm, plan.text, [slot.param for slot in self._everything])
        self._dirty = False
        if not self._overlap:
            return
        watch = GradientWatch(self._buckets, self._send_early, self._pipeline.note_change)
        if self._watch:
            self._watch.close()
            watch.paused = self._watch.paused
        self._watch = watch

    def _settings(self) -> list[str]:
        settings = [
            f"{self._comm.size} workers, optimizer {self._comm.channel} on them",
            f"step {self._step}",
            f"collective {self._collective}, carrier {self._carrier}",
        ]
        settings += [f"quorum {self._quorum}", f"overlap {self._overlap}", f"bucket_numel {self._bucket_numel}"]
        settings += [f"momentum in {self._momentum_dtype}", f"{self._rounding}", f"repair {self._repairs}"]
        if self._synchronizer:
            policy, chosen = self._synchronizer.policy, [slot.name for slot in self._synchronizer.slots]
            when = f"momentum every {policy.every}, spread {policy.spread}, budget {policy.budget}"
            settings.append(f"{when}, {policy.dtype}: {chosen}")
        return settings

    def _check_usable(self) -> None:
        self._pipeline.check_usable()
        unaware = self.process_group is None and self._comm.group is None
        if unaware and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigError(
                "the process group was made after the optimizer, which therefore trains alone: call "
                "init_process_group() first"
            )

    def _send_early(self, bucket: Bucket) -> None:
        """A bucket's last gradient has landed, in backward.

        The last bucket waits for :meth:`exchange` all the same: its header speaks for the step as a whole, with the
        hyperparameters of that moment, and says whether gradients changed after they were sent.
        """
        self._check_usable()
        if bucket is not self._buckets[-1] and not self._plan_changed():
            with torch.no_grad():
                self._pipeline.send(bucket, self._stamp(), early=True)

    def _stamp(self, flags: Flags = Flags.NONE) -> Stamp:
        """What this step's headers have in common, with the hyperparameters of this moment in 32 bits."""
        keys = ("betas", "memory", "warmup", "weight_decay", "maximize")
        facts = [(float(group["lr"]), *(group[key] for key in keys)) for group in self.param_groups]
        hyper = zlib.crc32(repr(facts).encode())
        return Stamp(self._step, self._plan_number, hyper, flags, to_wire(self.stats.agreement))

    def _wishes(self) -> Flags:
        """What the user asked of this step."""
        return (Flags.STOPPING if self._stopping else Flags.NONE) | (Flags.ABSENT if self._absent else Flags.NONE)

    def _repair(self, problem: ReplicasDifferError) -> list[int]:
        """Every worker comes here at the same step: all have seen the same headers. Returns who was repaired."""
        params = [slot.param for slot in self._everything]
        source, repaired = copy_from_majority(self._comm, params, problem)
        warnings.warn(
            f"the parameters of {name_ranks(repaired)} were not those of the others at step {self._step}; they "
            f"were overwritten with those of worker {source}. Look at that machine's memory",
            stacklevel=4,
        )
        return repaired

    @torch.no_grad()
    def _abandon(self) -> None:
        """Forget a step that was begun. If backward has begun it, the other workers must hear of it."""
        self._ready = None
        if self._watch and self._watch.touched:
            self._watch.reset()
            self._pipeline.cancel(self._buckets, self._synchronizer, self._stamp(Flags.ABANDONED))


SELECTIVE = MomentumSync(every=64, budget=0.25)
"""The most divergent tensors, for a quarter of a bit per parameter and step."""


class LionCub(DistributedLion):
    """The recipe of the Lion Cub paper, arXiv 2411.16462, on the grid that did well in our own study.

    ``bits=1`` is the 1-bit allreduce, 2 to 8 the p-bit allreduce of :class:`Levels` with ``scale`` and ``grid``; None:
    :data:`BEST_GRIDS`, which is "log" for 2 bits, "float" for 3 to 5, "midrise" beyond. The paper's own is "midtread".
    Momenta are synchronised selectively, :data:`SELECTIVE` unless told otherwise.
    All other arguments are :class:`DistributedLion`'s.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        bits: int = BITS,
        scale: Scale = "l1",
        grid: Grid | None = None,
        momentum_sync: MomentumSync | None = SELECTIVE,
        **others: Any,
    ) -> None:
        if "codec" in others:
            raise ConfigError("LionCub chooses the codec by bits, scale and grid: use DistributedLion to pass one")
        codec = cub_codec(bits, scale, grid)
        super().__init__(params, lr, betas, weight_decay, codec=codec, momentum_sync=momentum_sync, **others)
