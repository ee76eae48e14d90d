"""One checkpoint on disk: its manifests hold together, and its files are what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lioncub.checkpoint.disk import Entry
from lioncub.checkpoint.manifest import WEIGHTS, Manifest, manifest_file, read_manifests, worker_file
from lioncub.checkpoint.tensors import Progress, check_tensors, read_tensors
from lioncub.errors import CheckpointError, name_ranks


@dataclass(frozen=True)
class Checkpoint:
    """A folder: one machine's, or those of several copied together."""

    folder: Path
    manifest: Manifest
    """The first; all say the same of the run."""
    files: dict[str, Entry]
    workers: frozenset[int]
    """Those whose files are here."""

    @classmethod
    def open(cls, folder: Path, step: int | None = None) -> Checkpoint:
        """Read the manifests; raise :class:`CheckpointError` unless they belong together, and to ``step``."""
        first, *others = read_manifests(folder)
        files: dict[str, Entry] = {}
        for manifest in (first, *others):
            where = folder / manifest.file
            if (manifest.save_id, manifest.step, manifest.plan) != (first.save_id, first.step, first.plan):
                raise CheckpointError(f"{where} is of another save than {folder / first.file}: copy one step together")
            for name, entry in manifest.files.items():
                if files.setdefault(name, entry) != entry:
                    raise CheckpointError(f"{where} disagrees with {folder / first.file} about {folder / name}")
        if step is not None and first.step != step:
            raise CheckpointError(f"{folder / first.file} is of step {first.step}, in the folder of step {step}")
        workers = frozenset(worker for manifest in (first, *others) for worker in manifest.workers)
        return cls(folder, first, files, workers)

    @property
    def manifest_path(self) -> Path:
        return self.folder / manifest_file(self.manifest.workers[0])

    def check_present(self, workers: list[int]) -> None:
        """Raise unless the files of these workers are here."""
        if missing := [worker for worker in workers if worker not in self.workers]:
            raise CheckpointError(
                f"{self.folder} holds the files of {name_ranks(sorted(self.workers))} of {self.manifest.num_workers}; "
                f"{name_ranks(missing)} is needed as well, in {worker_file(missing[0])}. Every machine saved to a "
                "folder of its own: copy all machines' folders of this step into one, on every machine"
            )

    def weights(self) -> dict[str, Tensor]:
        return self._read(WEIGHTS)

    def worker(self, worker: int) -> dict[str, Tensor]:
        return self._read(worker_file(worker))

    def _read(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.folder / name, self.files[name], self.manifest.metadata(name))

    def problems(self, progress: Progress) -> Iterator[CheckpointError]:
        """Check every byte; what is wrong, file by file."""
        for name, entry in self.files.items():
            try:
                check_tensors(self.folder / name, entry, self.manifest.metadata(name), progress)
            except CheckpointError as problem:
                yield problem

    @property
    def num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.files.values())
