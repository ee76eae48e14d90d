"""The manifest of a checkpoint: what belongs to it, byte for byte. Whoever changes a bit of it is found out."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lioncub.checkpoint import strict_json
from lioncub.checkpoint.disk import Entry
from lioncub.checkpoint.tensors import open_plain
from lioncub.errors import CheckpointError

FORMAT_VERSION = 1
MAX_BYTES = 1 << 28
MAX_EXTRA_BYTES = 1 << 26
"""Of all workers together, as JSON: with names of parameters and indentation the manifest stays below its limit."""
MAX_WORKERS = 100_000
"""Five digits name a worker."""
WEIGHTS = "weights.safetensors"
_SHA256 = re.compile(r"[0-9a-f]{64}")
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

    def __post_init__(self) -> None:
        _require(isinstance(self.settings, dict), "settings")
        _require(isinstance(self.parameters, list) and all(type(name) is str for name in self.parameters), "parameters")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one folder holds of a checkpoint: on a disk that all workers share, everything."""

    format_version: int
    wire_version: int
    lioncub: str
    """The version that wrote it."""
    save_id: str
    """New with every save; the same in the folders of all machines."""
    step: int
    optimizer_step: int
    num_workers: int
    workers: tuple[int, ...]
    """Those whose files are in this folder; the first of them wrote the manifest."""
    plan: str
    """SHA-256 of the parameters' names, shapes and types and of the settings."""
    seed: str
    """What new random states are derived from when the number of workers changes."""
    files: dict[str, Entry]
    extras: tuple[Any, ...]
    """What every worker gave to save."""
    groups: tuple[Group, ...]
    notes: dict[str, dict[str, Any]]
    """By parameter: what its state holds besides the momentum."""

    def __post_init__(self) -> None:
        for number in (self.format_version, self.wire_version, self.step, self.optimizer_step, self.num_workers):
            _require(type(number) is int and 0 <= number < 2**63, "a version, step or number of workers")
        _require(self.format_version == FORMAT_VERSION, f"format {self.format_version} (known: {FORMAT_VERSION})")
        _require(1 <= self.num_workers <= MAX_WORKERS, "num_workers")
        _require(all(type(text) is str for text in (self.lioncub, self.save_id)), "lioncub or save_id")
        for digest in (self.plan, self.seed, *(entry.sha256 for entry in self.files.values())):
            _require(type(digest) is str and _SHA256.fullmatch(digest) is not None, "a SHA-256")
        for entry in self.files.values():
            _require(type(entry.num_bytes) is int and 0 <= entry.num_bytes < 2**63, "num_bytes")
        _require(all(type(worker) is int and 0 <= worker < self.num_workers for worker in self.workers), "workers")
        _require(bool(self.workers) and sorted(set(self.workers)) == list(self.workers), "workers")
        _require(set(self.files) == {WEIGHTS, *map(worker_file, self.workers)}, f"files {sorted(self.files)}")
        _require(len(self.extras) == self.num_workers, "extras")
        _require(bool(self.groups), "groups")
        for note in self.notes.values():
            _require(all(type(value) in (bool, int, float) for value in note.values()), "notes")
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
        _require(set(content) == {field.name for field in fields(cls)}, "missing or unknown keys")
        for key in ("workers", "extras", "groups"):
            _require(isinstance(content[key], list), key)
            content[key] = tuple(content[key])
        for key in ("files", "notes"):
            _require(isinstance(content[key], dict) and all(type(v) is dict for v in content[key].values()), key)
        content["files"] = {name: Entry(**entry) for name, entry in content["files"].items()}
        content["groups"] = tuple(Group(**group) for group in content["groups"])
        manifest = cls(**content)
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
    except (ValueError, TypeError, AttributeError) as problem:
        raise CheckpointError(f"{path} is damaged, or not written by this version of lioncub: {problem}") from problem
    return manifest


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"{what} cannot be")
