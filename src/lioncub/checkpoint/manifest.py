"""The manifest of a checkpoint: what belongs to it, byte for byte. Whoever changes a bit of it is found out."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lioncub.checkpoint import strict_json
from lioncub.checkpoint.disk import Digest, Entry, Whole
from lioncub.checkpoint.tensors import open_plain
from lioncub.errors import CheckpointError

FORMAT_VERSION = 1
MAX_BYTES = 1 << 28
MAX_EXTRA_BYTES = 1 << 26
"""Of all workers together, as JSON: with names of parameters and indentation the manifest stays below its limit."""
MAX_WORKERS = 100_000
"""Five digits name a worker."""
WEIGHTS = "weights.safetensors"
_MANIFEST = re.compile(r"manifest(-\d{5})?\.json")


def worker_file(worker: int) -> str:
    return f"worker-{worker:05}.safetensors"


def manifest_file(holder: int) -> str:
    """The first worker's is ``manifest.json``. Folders of several machines can be copied together: no name clashes."""
    return f"manifest-{holder:05}.json" if holder else "manifest.json"


def is_manifest(name: str) -> bool:
    return _MANIFEST.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Group:
    """A parameter group: its hyperparameters, and the names of its parameters."""

    settings: dict[str, Any]
    parameters: list[str]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one folder holds of a checkpoint: on a disk that all workers share, everything."""

    format_version: Whole
    wire_version: Whole
    lioncub: str
    """The version that wrote it."""
    save_id: str
    """New with every save; the same in the folders of all machines."""
    step: Whole
    optimizer_step: Whole
    num_workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)]
    workers: Annotated[tuple[Whole, ...], Meta(min_length=1)]
    """Those whose files are in this folder; the first of them wrote the manifest."""
    plan: Digest
    """SHA-256 of the parameters' names, shapes and types and of the settings."""
    seed: Digest
    """What new random states are derived from when the number of workers changes."""
    files: dict[str, Entry]
    extras: tuple[Any, ...]
    """What every worker gave to save."""
    groups: Annotated[tuple[Group, ...], Meta(min_length=1)]
    notes: dict[str, dict[str, bool | int | float]]
    """By parameter: what its state holds besides the momentum."""

    def __post_init__(self) -> None:
        _require(sorted(set(self.workers)) == list(self.workers) and self.workers[-1] < self.num_workers, "workers")
        _require(set(self.files) == {WEIGHTS, *map(worker_file, self.workers)}, f"files {sorted(self.files)}")
        _require(len(self.extras) == self.num_workers, "extras")
        for note in self.notes.values():
            _require(not any(name.startswith("exp_avg") for name in note), "notes that take a momentum's place")

    @property
    def file(self) -> str:
        return manifest_file(self.workers[0])

    def metadata(self, name: str) -> dict[str, str]:
        """What a file of this checkpoint says about itself."""
        return metadata(name, self.save_id, self.step)

    def to_json(self) -> bytes:
        """Text that ends with its own SHA-256."""
        content = asdict(self)
        seal = hashlib.sha256(strict_json.dump(content).encode()).hexdigest()
        return strict_json.dump({**content, "sha256": seal}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """The inverse; raises ValueError. Text that was not written by :meth:`to_json`, byte for byte, is refused."""
        content = strict_json.parse(data)
        _require(isinstance(content, dict), "no object")
        if content.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"format {content.get('format_version')!r}; this version of lioncub reads {FORMAT_VERSION}"
            )
        seal = content.pop("sha256", None)
        manifest = msgspec.convert(content, cls)
        _require(type(seal) is str and manifest.to_json() == data, "a checksum that does not match its text")
        return manifest


def metadata(name: str, save_id: str, step: int) -> dict[str, str]:
    return {"file": name, "save_id": save_id, "step": str(step)}


def read_manifests(folder: Path) -> list[Manifest]:
    """All manifests in a folder, the first worker's first; raises :class:`CheckpointError`."""
    try:
        names = sorted(name for name in os.listdir(folder) if is_manifest(name))
    except OSError as problem:
        raise CheckpointError(f"{folder} cannot be read: {problem.strerror}") from problem
    if not names:
        raise CheckpointError(f"{folder} holds no manifest.json: it is not a checkpoint")
    return sorted((_read_manifest(folder / name) for name in names), key=lambda manifest: manifest.workers)


def _read_manifest(path: Path) -> Manifest:
    with open_plain(path) as file:
        data = file.read(MAX_BYTES)
    try:
        manifest = Manifest.from_json(data)
        _require(manifest.file == path.name, f"the name {path.name}")
    except (ValueError, TypeError) as problem:
        raise CheckpointError(f"{path} is damaged, or not written by this version of lioncub: {problem}") from problem
    return manifest


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"{what} cannot be")
