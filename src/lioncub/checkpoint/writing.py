"""One worker's part in a save: plain bytes to files, without torch and without the process group.

A checkpoint is written into a hidden folder, every file synced, then the folder; then it is renamed into sight and the
run's folder is synced. Whatever happens on the way, the checkpoints in sight are complete.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from lioncub.checkpoint import disk, strict_json
from lioncub.checkpoint.disk import Entry
from lioncub.checkpoint.folders import place, sweep, tidy
from lioncub.checkpoint.manifest import WEIGHTS, Manifest, read_manifests, worker_file
from lioncub.checkpoint.tensors import Blob, write_tensors
from lioncub.errors import CheckpointError, CheckpointWarning

T = TypeVar("T")
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 120.0
"""How long the workers of a background save wait while nothing changes in their folder."""


def marker(folder: Path, worker: int) -> Path:
    """Says that a worker writes to this folder; becomes its note."""
    return folder / f"worker-{worker:05}.here"


def note(folder: Path, worker: int) -> Path:
    """Says what a worker has written."""
    return folder / f"worker-{worker:05}.json"


def failure(folder: Path, worker: int) -> Path:
    """Says that a worker has given up and could not write why."""
    return folder / f"worker-{worker:05}.failed"


@dataclass(frozen=True)
class Job:
    """What one worker has to write."""

    hidden: Path
    final: Path
    worker: int
    keep: int
    manifest: Manifest
    """Complete but for its files. The first of its workers puts the checkpoint together."""
    state: Sequence[Blob]
    weights: Sequence[Blob]
    unsafe: Sequence[Path] = ()
    """Folders with new names in them, which are not synced yet."""

    @property
    def holds(self) -> bool:
        """Whether this worker puts together what the workers of this folder have written."""
        return self.worker == self.manifest.workers[0]

    def write(self) -> dict[str, Entry]:
        """This worker's file, and the weights where it is the first of its folder."""
        files = {worker_file(self.worker): self.state} | ({WEIGHTS: self.weights} if self.holds else {})
        if self.holds:
            with removing():  # first: what failed saves left may be what fills the disk
                sweep(self.hidden.parent, self.hidden)
        with explained(self.hidden):
            for folder in self.unsafe:
                disk.sync_folder(folder)
            return {
                name: write_tensors(self.hidden / name, blobs, self.manifest.metadata(name))
                for name, blobs in files.items()
            }

    def complete(self, files: Mapping[str, Entry]) -> None:
        """Write the manifest, bring the checkpoint into sight, and remove what it makes superfluous."""
        with explained(self.hidden):
            manifest = replace(self.manifest, files=dict(files))
            disk.write_file(self.hidden / manifest.file, [memoryview(manifest.to_json())])
            for worker in manifest.workers:
                disk.unlink(marker(self.hidden, worker))
                disk.unlink(note(self.hidden, worker))
            disk.sync_folder(self.hidden)
            place(self.hidden, self.final)
        with removing():
            tidy(self.final.parent, manifest.step, self.keep)

    def discard(self) -> None:
        """Remove what was written. What cannot be removed now, the next save removes."""
        with suppress(OSError):
            disk.remove_tree(self.hidden)

    # ---- in the background: workers speak through the folder, for the process group is busy with training -----------

    def run_in_background(self) -> None:
        """Write, and return when the checkpoint is in place."""
        try:
            files = self.write()
            self._leave_note({name: asdict(entry) for name, entry in files.items()})
            if self.holds:
                self.complete(self._collected())
            else:
                self._wait_until(self._placed)
        except Exception as problem:
            self._make_room()  # first: on a full disk there may be none for the note
            self._give_up(f"worker {self.worker}: {problem}")
            raise

    def _give_up(self, problem: str) -> None:
        """Tell the other workers of this folder, who wait for this one's part."""
        try:
            self._leave_note({"problem": problem})
        except CheckpointError:
            with suppress(OSError):  # a new name needs no room
                disk.rename(marker(self.hidden, self.worker), failure(self.hidden, self.worker))

    def _make_room(self) -> None:
        """Remove what was written of a save that was given up. Notes stay for the others to read; the next save
        removes them."""
        if self.manifest.workers == (self.worker,):
            return self.discard()
        for name in self.manifest.files if self.holds else [worker_file(self.worker)]:
            with suppress(OSError):
                disk.unlink(self.hidden / name)
        return None

    def _leave_note(self, content: dict[str, Any]) -> None:
        with explained(self.hidden):
            draft = self.hidden / f"worker-{self.worker:05}.draft"
            disk.write_file(draft, [memoryview(strict_json.dump(content).encode())])
            disk.rename(draft, note(self.hidden, self.worker))

    def _collected(self) -> dict[str, Entry]:
        notes = self._wait_until(self._all_notes)
        return {name: Entry(**entry) for content in notes for name, entry in content.items()}

    def _all_notes(self) -> list[dict[str, Any]] | None:
        """What every worker of this folder has written, when all have."""
        contents = [_read_note(note(self.hidden, worker)) for worker in self.manifest.workers]
        for content in contents:
            if content and "problem" in content:
                raise CheckpointError(f"{self.hidden} was given up: {content['problem']}")
        for worker in self.manifest.workers:
            if failure(self.hidden, worker).exists():
                raise CheckpointError(
                    f"{self.hidden} was given up by worker {worker}, which could not write why: its own log says it, "
                    "and a full disk is the likeliest reason"
                )
        return [content for content in contents if content] if all(contents) else None

    def _placed(self) -> bool:
        """Whether the folder has come into sight; raises if it never will."""
        if self.hidden.exists():
            self._all_notes()
            return False
        if self.manifest.save_id not in {manifest.save_id for manifest in read_manifests(self.final)}:
            raise CheckpointError(f"{self.hidden} was given up by worker {self.manifest.workers[0]}")
        return True

    def _wait_until(self, ready: Callable[[], T | None]) -> T:
        seen, since = None, time.monotonic()
        while not (result := ready()):
            if (now := _sizes(self.hidden)) != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > PATIENCE_SECONDS:
                missing = [w for w in self.manifest.workers if not note(self.hidden, w).exists()]
                raise CheckpointError(
                    f"{self.hidden} was given up: nothing changed in it for {PATIENCE_SECONDS:.0f} s, and workers "
                    f"{missing} are not done. The previous checkpoint is as it was"
                )
            time.sleep(POLL_SECONDS)
        return result


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """The system's errors as typed ones that name the file."""
    try:
        yield
    except OSError as problem:
        raise CheckpointError(
            f"{problem.filename or folder} cannot be written: {problem.strerror}. The previous checkpoint is as it was"
        ) from problem


@contextmanager
def removing() -> Iterator[None]:
    """What cannot be removed is said, and left to the next save: the new checkpoint is as good without."""
    try:
        yield
    except OSError as problem:
        warnings.warn(f"{problem.filename} cannot be removed: {problem.strerror}", CheckpointWarning, stacklevel=3)


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = strict_json.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    return content


def _sizes(folder: Path) -> dict[str, int]:
    """What is in a folder: changes while somebody writes to it."""
    with suppress(OSError):
        return {path.name: path.stat().st_size for path in folder.iterdir()}
    return {}
