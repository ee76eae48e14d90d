"""Loading: read and check everything, agree with all workers, and only then change anything."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lioncub.checkpoint import random_state, resharding, values
from lioncub.checkpoint.consensus import Consensus, comm_of, ours
from lioncub.checkpoint.contents import BUFFER, MOMENTUM, RANDOM, Subject, check_alike
from lioncub.checkpoint.folders import checkpoints
from lioncub.checkpoint.manifest import WEIGHTS, worker_file
from lioncub.checkpoint.reading import Checkpoint
from lioncub.checkpoint.resharding import Shares
from lioncub.errors import CheckpointError, CheckpointWarning, NoCheckpointError


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint said besides tensors."""

    step: int
    extra: Any
    """What this worker saved; after a change of their number, what the worker saved that it inherits most from."""
    extras: tuple[Any, ...]
    """What every worker saved."""
    num_workers: int
    """Of the run that saved."""
    elastic: bool
    """Whether the number of workers has changed."""


def load(
    directory: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Optimizer,
    *,
    step: int | None = None,
    process_group: Any = None,
) -> Loaded:
    """Go on from the newest checkpoint that is sound on all workers. All of them call it together.

    Every byte is checked against its SHA-256 before anything changes; then everything does, on every worker: the
    model's parameters and buffers, momenta, hyperparameters, random states. Checkpoints that are damaged are passed
    over with a :class:`CheckpointWarning` that names the file. Codecs are configuration and stay as they are;
    a warning says where they differ.

    With as many workers as in the saved run, training goes on bit for bit. With another number W', new worker j
    inherits from old worker i by the overlap of [j/W', (j+1)/W') and [i/W, (i+1)/W): the mean of the momenta over the
    workers stays, and every new momentum is a convex combination of old ones. Floating-point buffers likewise; others
    come from the worker inherited most from. Random states start anew, from what was saved, the step and the worker.

    Args:
        step: this one and no other.
        process_group: None is the optimizer's.

    Raises:
        NoCheckpointError: there is none at all, on any worker.
        CheckpointError: there are some, and none can be loaded; it names the files.
    """
    consensus = Consensus(comm_of(optimizer, process_group))
    (subject, found), answers = consensus.require_all(
        lambda: (Subject.of(model, ours(optimizer)), checkpoints(Path(directory))), lambda result: list(result[1])
    )
    steps = sorted({number for answer in answers for number in answer if step in (None, number)}, reverse=True)
    if not steps:
        raise NoCheckpointError(f"{directory} holds no checkpoint" + ("" if step is None else f" of step {step}"))
    problems: list[str] = []
    for candidate in steps:
        outcomes = consensus.attempt_all(
            partial(_prepare, subject, found, Path(directory), candidate, consensus), lambda prepared: prepared.identity
        )
        wrong = outcomes.problems
        if not wrong and any(identity != outcomes.answers[0] for identity in outcomes.answers):
            wrong = [f"step {candidate} in {directory} is not the same checkpoint on all workers"]
        if not wrong:
            _say_what_differs(outcomes.result, subject)
            outcomes.result.take_effect_(subject)
            return outcomes.result.loaded
        problems += wrong
        if candidate != steps[-1]:
            warnings.warn("passed over a checkpoint: " + "; ".join(wrong), CheckpointWarning, stacklevel=2)
    raise CheckpointError("no checkpoint can be loaded, and nothing was changed: " + "; ".join(problems))


@dataclass(frozen=True)
class Prepared:
    """A checkpoint in memory, checked against the model: taking it over cannot fail any more."""

    loaded: Loaded
    identity: list[str]
    """The same on all workers that read the same checkpoint."""
    weights: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    groups: list[dict[str, Any]]
    codecs: list[str | None]
    """What each group's codec was called; None where it had none, or where one worker alone needs none."""
    notes: Mapping[str, Mapping[str, Any]]
    seed: str

    @torch.no_grad()
    def take_effect_(self, subject: Subject) -> None:
        subject.optimizer.load_state_dict(self._state_dict(subject, part(self.state, MOMENTUM)))
        for name, param in subject.parameters.items():
            param.copy_(self.weights[name])
        for name, buffer in part(self.state, BUFFER).items():
            subject.buffers[name].copy_(buffer)
        if self.loaded.elastic:
            random_state.start_anew(self.seed)
        else:
            random_state.restore(part(self.state, RANDOM), subject.device)

    def _state_dict(self, subject: Subject, momenta: Mapping[str, Tensor]) -> dict[str, Any]:
        """As torch's: parameters by number."""
        names = [name for group in subject.trained for name in group]
        numbers = {name: number for number, name in enumerate(names)}
        groups = [
            {**group, "params": [numbers[name] for name in trained]}
            for group, trained in zip(self.groups, subject.trained, strict=True)
        ]
        state = {number: {"exp_avg": momenta[name], **self.notes.get(name, {})} for name, number in numbers.items()}
        return {"state": state, "param_groups": groups}


def _say_what_differs(prepared: Prepared, subject: Subject) -> None:
    """Warn of settings that stay as they are, so that training does not go on bit for bit."""
    saved = part(prepared.state, MOMENTUM)
    dtypes = [
        f"momenta were saved in {saved[name].dtype} and are converted to {momentum.dtype}, this optimizer's"
        for name, momentum in subject.momenta().items()
        if saved[name].dtype != momentum.dtype
    ]
    codecs = [
        f"the saved run sent {before}, this optimizer sends {now}: make it with codec={before} to go on as before"
        for before, now in zip(prepared.codecs, subject.codecs(), strict=True)
        if before is not None and now is not None and before != now
    ]
    for found in (dtypes, codecs):
        if found:
            message = f"{found[0]}; training does not go on bit for bit"
            warnings.warn(message, CheckpointWarning, stacklevel=3)


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _prepare(subject: Subject, found: Mapping[int, Path], directory: Path, step: int, consensus: Consensus) -> Prepared:
    """Read and check all that this worker needs. Changes nothing."""
    if step not in found:
        raise CheckpointError(f"{directory} holds no checkpoint of step {step}")
    checkpoint = Checkpoint.open(found[step], step)
    manifest = checkpoint.manifest
    groups = subject.new_groups(manifest.groups, checkpoint.manifest_path)
    shares = resharding.shares(manifest.num_workers, consensus.size, consensus.worker)
    checkpoint.check_present([old for old, _ in shares])
    weights = checkpoint.weights()
    check_alike(weights, subject.parameters, checkpoint.folder / WEIGHTS)
    heir, extras = resharding.heir(shares), _extras(checkpoint)
    state = _inherited(checkpoint, subject, shares, heir)
    loaded = Loaded(
        step=step,
        extra=extras[heir],
        extras=extras,
        num_workers=manifest.num_workers,
        elastic=manifest.num_workers != consensus.size,
    )
    seed = f"{manifest.seed}, step {step}, worker {consensus.worker} of {consensus.size}"
    identity = [manifest.save_id, manifest.plan, checkpoint.files[WEIGHTS].sha256]
    codecs = [group.settings.get("codec") if consensus.size > 1 else None for group in manifest.groups]
    return Prepared(loaded, identity, weights, state, groups, codecs, manifest.notes, seed)


def _extras(checkpoint: Checkpoint) -> tuple[Any, ...]:
    try:
        return tuple(map(values.from_json, checkpoint.manifest.extras))
    except (ValueError, TypeError) as problem:
        raise CheckpointError(f"{checkpoint.manifest_path} has an extra that cannot be: {problem}") from problem


def _inherited(checkpoint: Checkpoint, subject: Subject, shares: Shares, heir: int) -> dict[str, Tensor]:
    """The state of a new worker: an old one's, or the weighted mean of some, read one after the other.

    What cannot be averaged comes from old worker ``heir``.
    """
    (first, _), *others = shares
    state = _own_state(checkpoint, subject, first)
    means = {
        name: resharding.Blend(tensor)
        for name, tensor in state.items()
        if tensor.is_floating_point() and not name.startswith(RANDOM)
    }
    for old, weight in others:
        theirs = _own_state(checkpoint, subject, old)
        for name, mean in means.items():
            mean.add(theirs[name], weight)
        if old == heir:
            state = theirs
    return state | {name: mean.result() for name, mean in means.items()}


def _own_state(checkpoint: Checkpoint, subject: Subject, worker: int) -> dict[str, Tensor]:
    """One old worker's file, checked against the model."""
    state, file = checkpoint.worker(worker), checkpoint.folder / worker_file(worker)
    momenta = part(state, MOMENTUM)
    check_alike(momenta, subject.momenta(), file, dtypes=False)
    check_alike(part(state, BUFFER), subject.buffers, file)
    if strange := [name for name, momentum in momenta.items() if not momentum.is_floating_point()]:
        raise CheckpointError(f"{file} has a momentum of {strange[0]} that is not floating-point")
    if strange := [name for name in state if not name.startswith((MOMENTUM, BUFFER, RANDOM))]:
        raise CheckpointError(f"{file} has a tensor {strange[0]!r} that belongs to nothing")
    try:
        random_state.check(part(state, RANDOM))
    except ValueError as problem:
        raise CheckpointError(f"{file} is damaged: {problem}") from problem
    return state
