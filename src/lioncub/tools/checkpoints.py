"""`lioncub checkpoint verify` and `lioncub checkpoint show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from lioncub.checkpoint.folders import checkpoints
from lioncub.checkpoint.manifest import is_manifest
from lioncub.checkpoint.reading import Checkpoint
from lioncub.errors import CheckpointError, ConfigError, NoCheckpointError
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.units import bytes_text


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """The folder of a run, or one checkpoint's."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise ConfigError(f"there is no folder {self.folder}: give the one that save() writes to")

    def folders(self) -> list[Path]:
        """The checkpoints that are meant, in order of their steps."""
        if any(is_manifest(path.name) for path in self.folder.iterdir()):
            return [self.folder]
        found = list(checkpoints(self.folder).values())
        if not found:
            raise NoCheckpointError(f"{self.folder} holds no checkpoint")
        return found


def run_verify(config: CheckpointConfig, console: Console | None = None) -> bool:
    """Check every byte of every checkpoint; name what is damaged. Returns whether nothing is."""
    console = console or Console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    sound = True
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for folder in config.folders():
            problems = _problems(folder, progress)
            sound = sound and not problems
            console.print(f"{folder.name}: {'damaged' if problems else 'sound'}", highlight=False)
            for problem in problems:
                console.print(f"  {problem}", highlight=False, markup=False, soft_wrap=True)
    return sound


def _problems(folder: Path, progress: Progress) -> list[CheckpointError]:
    try:
        checkpoint = Checkpoint.open(folder)
    except CheckpointError as problem:
        return [problem]
    task = progress.add_task(folder.name, total=checkpoint.num_bytes)
    return list(checkpoint.problems(lambda num_bytes: progress.advance(task, num_bytes)))


def run_show(config: CheckpointConfig, console: Console | None = None) -> None:
    """Say what is in the checkpoints of a run, or in one of them file by file."""
    console = console or Console()
    folders = config.folders()
    grid = _files(Checkpoint.open(folders[0])) if folders == [config.folder] else _overview(folders)
    console.print(grid.to_rich())


def _overview(folders: list[Path]) -> Grid:
    headings = ["checkpoint", "step", "optimizer's step", "workers", "size", "lioncub"]
    return Grid(
        "", headings, [_row(folder) for folder in folders], note="`lioncub checkpoint verify` reads every byte."
    )


def _row(folder: Path) -> list[str]:
    try:
        checkpoint = Checkpoint.open(folder)
    except CheckpointError as problem:
        return [f"{folder.name}\n{problem}", "damaged", "", "", "", ""]
    manifest = checkpoint.manifest
    size = bytes_text(checkpoint.num_bytes)
    steps = [f"{manifest.step:,}", f"{manifest.optimizer_step:,}"]
    return [folder.name, *steps, _workers(checkpoint), size, manifest.lioncub]


def _files(checkpoint: Checkpoint) -> Grid:
    manifest = checkpoint.manifest
    rows = [[name, bytes_text(entry.num_bytes), entry.sha256[:16]] for name, entry in checkpoint.files.items()]
    settings = "; ".join(
        ", ".join(f"{key}={value}" for key, value in group.settings.items()) for group in manifest.groups
    )
    title = f"step {manifest.step:,}, {_workers(checkpoint)} workers"
    return Grid(title, ["file", "size", "SHA-256"], rows, note=f"saved by lioncub {manifest.lioncub}; {settings}")


def _workers(checkpoint: Checkpoint) -> str:
    here, total = len(checkpoint.workers), checkpoint.manifest.num_workers
    return str(total) if here == total else f"{here} of {total}"
