"""Saving: agree on what is saved, copy it, write it, here or in the background."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from lioncub._version import __version__
from lioncub.checkpoint import disk, ownership, random_state, strict_json, values
from lioncub.checkpoint.consensus import Consensus, comm_of, ours
from lioncub.checkpoint.contents import BUFFER, MOMENTUM, RANDOM, Subject
from lioncub.checkpoint.disk import Entry
from lioncub.checkpoint.folders import hidden_folder, step_folder
from lioncub.checkpoint.manifest import FORMAT_VERSION, MAX_EXTRA_BYTES, WEIGHTS, Manifest, worker_file
from lioncub.checkpoint.tensors import Blob
from lioncub.checkpoint.writing import Job, explained, marker
from lioncub.errors import (
    AgreementError,
    CheckpointError,
    CheckpointTimeoutError,
    CheckpointWarning,
    ConfigError,
    ReplicasDifferError,
    name_ranks,
)
from lioncub.step.state import MomentumOptimizer
from lioncub.wire.consensus import odd_ones_out
from lioncub.wire.handshake import crc_of
from lioncub.wire.headers import WIRE_VERSION


class Saving:
    """A checkpoint on its way to the disk."""

    def __init__(self, step: int, folder: Path) -> None:
        self.step = step
        self.folder = folder
        """Where it will be."""
        self._problem: BaseException | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether it is in place, or has failed."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Block until it is in place; raise what went wrong, or after ``timeout`` seconds."""
        if not self._done.wait(timeout):
            raise CheckpointTimeoutError(f"{self.folder} is still being written after {timeout} s: wait again")
        if self in _background:
            _background.remove(self)  # told once
        if self._problem is not None:
            raise self._problem

    def _start(self, job: Job) -> None:
        """Not a daemon: the end of the interpreter waits for it."""
        threading.Thread(target=self._run, args=(job,), name=f"lioncub saves {self.folder.name}").start()

    def _run(self, job: Job) -> None:
        try:
            job.run_in_background()
        except BaseException as problem:
            self._problem = problem
        finally:
            self._done.set()


_background: list[Saving] = []
"""The save that this process may still be writing, or whose failure nobody has been told."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a worker asks for. Step, keep, plan and weights must be the same on all workers."""

    step: int
    keep: int
    asynchronous: bool
    plan: str
    weights: int
    """A checksum of all parameters."""
    extra: Any
    """As JSON."""
    randomness: str
    """SHA-256 of its random states."""
    save_id: str
    """A proposal; the first worker's is taken."""
    job: str
    """For which this worker holds the folder; empty if it does not yet."""

    def __post_init__(self) -> None:
        if type(self.step) is not int or not 0 <= self.step < 10**18:
            raise ConfigError(f"step={self.step!r}: a whole number, 0 or more")
        if type(self.keep) is not int or self.keep < 1:
            raise ConfigError(f"keep={self.keep!r}: how many checkpoints to keep, 1 or more")

    def told(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def save(
    directory: str | os.PathLike[str],
    model: nn.Module,
    optimizer: Optimizer,
    step: int,
    extra: Any = None,
    *,
    keep: int = 2,
    asynchronous: bool = False,
    process_group: Any = None,
) -> Saving:
    """Write everything that is needed to go on as if nothing had happened. All workers call it at the same step.

    The checkpoint appears as ``directory/step-0000001200`` when it is complete; until then the previous one stays.

    Args:
        directory: the folder of all checkpoints of a run, on a disk that all workers share or on each machine's own.
        model: its parameters are saved once, its buffers for every worker.
        optimizer: a :class:`DistributedLion`, :class:`LionCub` or :class:`Lion`.
        step: names the checkpoint; usually the number of steps done.
        extra: this worker's own: its position in the data, a scheduler's state. None, numbers, text, lists, tuples,
            dicts; all workers' together at most 64 MiB.
        keep: how many checkpoints to keep; at least 2 where machines have folders of their own.
        asynchronous: return as soon as everything is copied to CPU memory; a thread writes. A failure is raised by
            ``wait()``; the next ``save()`` warns of it, and saves.
        process_group: None is the optimizer's.

    Raises:
        ReplicasDifferError: the parameters are not the same on all workers: nothing was saved.
        CheckpointInUseError: the folder belongs to another job. It is this one's from the first save until the
            process ends, or :func:`lioncub.checkpoint.release`.
        CheckpointError: on every worker, if it fails on any. The previous checkpoint is as it was.
    """
    failures = _end_background()
    try:
        return _save(Path(directory).absolute(), model, optimizer, step, extra, keep, asynchronous, process_group)
    finally:
        for failed in failures:
            warnings.warn(f"an earlier checkpoint was not saved: {failed}", CheckpointWarning, stacklevel=2)


def _end_background() -> list[BaseException]:
    """Wait for what this process is still writing; what went wrong there, and has been told to nobody."""
    failures: list[BaseException] = []
    while _background:
        try:
            _background[0].wait()
        except CheckpointError as problem:
            failures.append(problem)
    return failures


def _save(
    directory: Path,
    model: nn.Module,
    optimizer: Optimizer,
    step: int,
    extra: Any,
    keep: int,
    asynchronous: bool,
    process_group: Any,
) -> Saving:
    consensus = Consensus(comm_of(optimizer, process_group))
    (subject, _), answers = consensus.require_all(
        lambda: _ask(directory, model, ours(optimizer), step, extra, keep, asynchronous),
        lambda asked: asked[1].told(),
    )
    requests = [Request(**answer) for answer in answers]
    _check_same(requests)
    _check_weights(requests, consensus)
    _check_room(requests)
    claimed = ownership.claim(directory, consensus, [request.job for request in requests])
    hidden = hidden_folder(directory, step, requests[0].save_id)
    unsafe, _ = consensus.require_all(lambda: _mark_folder(hidden, consensus.worker), lambda _: None)
    job, folders = consensus.require_all(
        lambda: _job(hidden, subject, requests, consensus), lambda job: list(job.manifest.workers)
    )
    _check_folders(folders, hidden)
    keep = max(keep, 2) if len(set(map(tuple, folders))) > 1 else keep
    job = replace(job, keep=keep, unsafe=[*claimed, *unsafe])
    saving = Saving(step, job.final)
    if asynchronous:
        _background.append(saving)
        saving._start(job)
    else:
        _write_together(job, consensus)
        saving._done.set()
    return saving


def _ask(
    directory: Path,
    model: nn.Module,
    optimizer: MomentumOptimizer,
    step: int,
    extra: Any,
    keep: int,
    asynchronous: bool,
) -> tuple[Subject, Request]:
    """This worker's request."""
    subject = Subject.of(model, optimizer)
    try:
        content = values.to_json(extra)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"extra cannot be saved: {problem}") from problem
    request = Request(
        step=step,
        keep=keep,
        asynchronous=asynchronous,
        plan=subject.plan(),
        weights=crc_of(list(subject.parameters.values())),
        extra=content,
        randomness=random_state.digest(random_state.capture(subject.device)),
        save_id=secrets.token_hex(8),
        job=ownership.job_of(directory),
    )
    return subject, request


def _check_same(requests: Sequence[Request]) -> None:
    for what in ("step", "keep", "asynchronous", "plan"):
        values = [getattr(request, what) for request in requests]
        if odd := odd_ones_out(values):
            raise AgreementError(
                f"workers do not save the same: {what} is {values[odd[0]]!r} on worker {odd[0]} and not on the others. "
                "Call save() on every worker at the same step, with the same model and settings"
            )


def _check_weights(requests: Sequence[Request], consensus: Consensus) -> None:
    """One worker's are saved for all: they must be everybody's."""
    if odd := odd_ones_out([request.weights for request in requests]):
        ranks = consensus.ranks(odd)
        raise ReplicasDifferError(
            f"the parameters of {name_ranks(ranks)} are not those of the others: nothing was saved, and the previous "
            "checkpoint is as it was. Something outside the optimizer wrote to them, or memory is faulty; parameters "
            "that are not trained must be the same as well: call lioncub.broadcast_parameters(model) before training",
            ranks,
        )


def _check_room(requests: Sequence[Request]) -> None:
    """What would be too long to be read must not be written."""
    sizes = [len(strict_json.dump(request.extra)) for request in requests]
    if sum(sizes) > MAX_EXTRA_BYTES:
        raise ConfigError(
            f"extra is {sum(sizes):,} bytes of JSON over all workers, {max(sizes):,} on one of them: at most "
            f"{MAX_EXTRA_BYTES:,}. It is for small things; put data into buffers of the model, or files of your own"
        )


def _mark_folder(hidden: Path, worker: int) -> list[Path]:
    """Make the hidden folder and leave a marker in it: whoever sees the marker shares the folder.

    Nothing is synced here, where training waits. Returns what is to be synced before the checkpoint is safe.
    """
    with explained(hidden):
        unsafe = disk.make_folders(hidden)
        disk.create(marker(hidden, worker)).close()
    return unsafe


def _job(hidden: Path, subject: Subject, requests: Sequence[Request], consensus: Consensus) -> Job:
    """This worker's part: with which others it shares the folder, and a copy of what it writes."""
    mine, first = requests[consensus.worker], requests[0]
    workers = tuple(worker for worker in range(consensus.size) if marker(hidden, worker).exists())
    states = random_state.capture(subject.device)
    state = {
        **{MOMENTUM + name: momentum for name, momentum in subject.momenta().items()},
        **{BUFFER + name: buffer for name, buffer in subject.buffers.items()},
        **{RANDOM + name: state for name, state in states.items()},
    }
    weights = subject.parameters if workers[0] == consensus.worker else {}
    return Job(
        hidden=hidden,
        final=step_folder(hidden.parent, mine.step),
        worker=consensus.worker,
        keep=mine.keep,
        manifest=_manifest(subject, requests, workers, first.save_id),
        state=[Blob.of(name, tensor, copy=mine.asynchronous) for name, tensor in state.items()],
        weights=[Blob.of(name, tensor, copy=mine.asynchronous) for name, tensor in weights.items()],
    )


def _manifest(subject: Subject, requests: Sequence[Request], workers: tuple[int, ...], save_id: str) -> Manifest:
    """All but the files, which are not written yet."""
    groups = subject.groups()
    unknown = Entry(0, "0" * 64)
    return Manifest(
        format_version=FORMAT_VERSION,
        wire_version=WIRE_VERSION,
        lioncub=__version__,
        save_id=save_id,
        step=requests[0].step,
        optimizer_step=groups[0].settings["step"],
        num_workers=len(requests),
        workers=workers,
        plan=requests[0].plan,
        seed=hashlib.sha256("".join(request.randomness for request in requests).encode()).hexdigest(),
        files=dict.fromkeys([WEIGHTS, *map(worker_file, workers)], unknown),
        extras=tuple(request.extra for request in requests),
        groups=groups,
        notes=subject.notes(),
    )


def _check_folders(folders: Sequence[Sequence[int]], hidden: Path) -> None:
    """Workers must agree on who shares a folder with whom."""
    for worker, seen in enumerate(folders):
        if worker not in seen or any(folders[other] != seen for other in seen):
            raise CheckpointError(
                f"workers do not agree on who shares {hidden.parent}: they see the files of {list(folders)}. Give all "
                "workers of a machine the same folder, and mount shared disks without delay"
            )


def _write_together(job: Job, consensus: Consensus) -> None:
    """All workers return once the checkpoint is in place everywhere, or raise."""
    try:
        _, answers = consensus.require_all(
            job.write, lambda files: {name: asdict(entry) for name, entry in files.items()}
        )
        files = {name: Entry(**answers[w][name]) for w in job.manifest.workers for name in answers[w]}
    except (CheckpointError, ConfigError):
        if job.holds:
            job.discard()
        raise
    consensus.require_all(lambda: _finish(job, files), lambda _: None)


def _finish(job: Job, files: dict[str, Entry]) -> bool:
    if job.holds:
        job.complete(files)
    return True
