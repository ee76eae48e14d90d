"""Where checkpoints lie in the folder of a run: complete ones in sight, all others hidden."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lioncub.checkpoint import disk
from lioncub.checkpoint.manifest import read_manifests
from lioncub.checkpoint.tensors import open_exactly
from lioncub.errors import CheckpointError

_STEP = re.compile(r"step-(\d{10,19})")
_REPLACED = re.compile(r"\.step-(\d{10,19})\.[0-9a-f]+\.replaced")
_HIDDEN = re.compile(r"\.step-\d{10,19}\.[0-9a-f]+(\.replaced|\.old)?")


def step_folder(directory: Path, step: int) -> Path:
    return directory / f"step-{step:010}"


def hidden_folder(directory: Path, step: int, save_id: str) -> Path:
    """Where a checkpoint is while it is being written."""
    return directory / f".step-{step:010}.{save_id}"


def checkpoints(directory: Path) -> dict[int, Path]:
    """Every checkpoint by its step, in order.

    A save that replaces a checkpoint of the same step moves the old one away first. If it crashed right then, the old
    one is the one.
    """
    found: dict[int, Path] = {}
    names = _names(directory)
    for pattern in (_REPLACED, _STEP):
        for name in names:
            if match := pattern.fullmatch(name):
                found[int(match[1])] = directory / name
    return dict(sorted(found.items()))


def latest(directory: str | os.PathLike[str]) -> int | None:
    """The step of the newest checkpoint in ``directory`` that has all its files in full length, or None.

    For one process; hashes are not computed: :func:`lioncub.checkpoint.load` and ``lioncub checkpoint verify`` do.
    """
    for step, folder in reversed(checkpoints(Path(directory)).items()):
        try:
            for manifest in read_manifests(folder):
                for name, entry in manifest.files.items():
                    open_exactly(folder / name, entry).close()
        except CheckpointError:
            continue
        return step
    return None


def place(hidden: Path, final: Path) -> None:
    """Bring a finished checkpoint into sight; one of the same step that was there goes."""
    directory, replaced = final.parent, hidden.with_name(f"{hidden.name}.replaced")
    if final.exists():
        disk.rename(final, replaced)
    disk.rename(hidden, final)
    disk.sync_folder(directory)


def sweep(directory: Path, spared: Path | None = None) -> None:
    """Remove what crashed, failed or replaced saves left, but for the folder of the save that is going on."""
    _restore(directory)
    for name in _names(directory):
        if _HIDDEN.fullmatch(name) and directory / name != spared:
            disk.remove_tree(directory / name)


def _restore(directory: Path) -> None:
    """Bring back what a save that crashed had moved away and not replaced."""
    for name in _names(directory):
        if (match := _REPLACED.fullmatch(name)) and not (final := step_folder(directory, int(match[1]))).exists():
            disk.rename(directory / name, final)


def tidy(directory: Path, step: int, keep: int) -> None:
    """Remove the older ones of more than ``keep`` checkpoints up to ``step``, and all that is left of others.

    Later ones stay: they are of a run that was rolled back, and nobody said that they may go.
    """
    _restore(directory)
    for old in [found for found in checkpoints(directory) if found <= step][:-keep]:
        folder = step_folder(directory, old)
        disk.rename(folder, folder.with_name(f".{folder.name}.0.old"))
    disk.sync_folder(directory)  # half of a checkpoint must never be in sight, not even after a power cut
    sweep(directory)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise CheckpointError(f"{directory} cannot be read: {problem.strerror}") from problem
