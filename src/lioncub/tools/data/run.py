"""`lioncub data`: list the data sets, or get some of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from lioncub.tools.data import stdlib
from lioncub.tools.data.cifar10 import CIFAR10
from lioncub.tools.data.config import DataConfig
from lioncub.tools.data.dataset import DataSet, cache_folder
from lioncub.tools.data.enwik8 import ENWIK8
from lioncub.tools.data.errors import DataDamagedError, DataError, DataMissingError
from lioncub.tools.data.fetch import Watcher, fetch
from lioncub.tools.reporting.grid import Grid

DATA_SETS = {dataset.name: dataset for dataset in (ENWIK8, CIFAR10)}


def run_data(config: DataConfig, console: Console | None = None) -> None:
    """Get what is named, or list what is there."""
    console = Console() if console is None else console
    place = cache_folder(config.cache)
    if not config.names:
        console.print(listing(place).to_rich())
    failures = [error for name in dict.fromkeys(config.names) if (error := _got(name, config, place, console))]
    if failures:
        raise DataError(". ".join(map(str, failures))) from failures[0]
    say(console, f"The cache is {place}")


def _got(name: str, config: DataConfig, place: Path, console: Console) -> DataError | None:
    """Get one of them; why it cannot be had, so that the others are tried all the same."""
    if name not in DATA_SETS:
        say(console, f"{name}: always there")
        return None
    try:
        with Bar(console) as bar:
            origin = fetch(DATA_SETS[name], folder=config.folder, cache=place, watcher=bar)
    except DataError as error:
        return error
    say(console, f"{name}: {DATA_SETS[name].size / 1e6:.0f} MB, checked, from {origin}")
    return None


def listing(place: Path) -> Grid:
    rows = [[dataset.name, dataset.about, state(dataset, place)] for dataset in DATA_SETS.values()]
    rows.append(["stdlib", stdlib.ABOUT, "always there"])
    return Grid("Data sets", ["name", "what it is", "state"], rows, num_texts=3)


def state(dataset: DataSet, place: Path) -> str:
    try:
        dataset.cached(place)
        return "there, checked"
    except DataMissingError:
        return f"not there: lioncub data {dataset.name}"
    except DataDamagedError as error:
        return str(error)


def say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bar(Watcher):
    """A bar on a terminal, a line for each beginning elsewhere. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), DownloadColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.progress.add_task("", total=None)

    def begin(self, what: str) -> None:
        self.progress.reset(self.task, description=what, total=None)
        if not self.console.is_terminal:
            say(self.console, what)

    def on_bytes(self, done: int, total: int | None) -> None:
        self.progress.update(self.task, completed=done, total=total)

    def failed(self, why: str) -> None:
        say(self.console, f"  no: {why}")

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
