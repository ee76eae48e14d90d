"""Small data sets in the forms in which the real ones come."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from lioncub.tools.data.cifar10 import BATCHES, CIFAR10, file_name
from lioncub.tools.data.dataset import DataSet
from lioncub.tools.data.enwik8 import ENWIK8
from lioncub.tools.data.files import Bytes, DataFile

TEXT = bytes(range(250)) * 4  # 1,000 bytes
RECORDS = 5  # images in a file


def same_but(dataset: DataSet, files: dict[str, bytes]) -> DataSet:
    """``dataset`` as if ``files`` were the published ones."""
    published = [DataFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()]
    return replace(dataset, files=tuple(published))


def small_enwik8() -> DataSet:
    return same_but(ENWIK8, {"enwik8": TEXT})


def small_cifar10() -> DataSet:
    return same_but(CIFAR10, cifar_files())


def pixels(batch: int) -> Bytes:
    """``[images, 3, 32, 32]``"""
    return np.random.default_rng(batch).integers(256, size=(RECORDS, 3, 32, 32), dtype=np.uint8)


def labels(batch: int) -> list[int]:
    return [(3 * batch + image) % 10 for image in range(RECORDS)]


def cifar_files() -> dict[str, bytes]:
    """The ``.bin`` files by name."""
    return {
        file_name(name): b"".join(
            bytes([label]) + image.tobytes() for label, image in zip(labels(batch), pixels(batch), strict=True)
        )
        for batch, name in enumerate(BATCHES)
    }


# ---- text in a folder ------------------------------------------------------------------------------------------------


def put_plain(folder: Path) -> Path:
    (folder / "enwik8").write_bytes(TEXT)
    return folder / "enwik8"


def put_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "enwik8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("enwik8", TEXT)
    return folder / "enwik8.zip"


def put_gzip(folder: Path) -> Path:
    (folder / "enwik8.gz").write_bytes(gzip.compress(TEXT))
    return folder / "enwik8.gz"


def put_text_package(folder: Path) -> Path:
    members = {"p-1/README.md": b"words", "p-1/data/enwik8.gz": gzip.compress(TEXT)}
    return put_tar(folder / "p-1.tar.gz", members)


# ---- images in a folder ----------------------------------------------------------------------------------------------


def put_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def put_bin_folder(folder: Path) -> Path:
    for name, data in cifar_files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder / "cifar-10-batches-bin"


def put_bin_files(folder: Path) -> Path:
    for name, data in cifar_files().items():
        (folder / Path(name).name).write_bytes(data)
    return folder


def put_bin_archive(folder: Path) -> Path:
    return put_tar(folder / "cifar-10-binary.tar.gz", cifar_files())


def put_pickles(folder: Path) -> Path:
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    for batch, name in enumerate(BATCHES):
        contents = {b"labels": labels(batch), b"data": pixels(batch).reshape(RECORDS, -1)}
        (place / name).write_bytes(pickle.dumps(contents, protocol=3))
    return place


def put_image_package(folder: Path) -> Path:
    def text(batches: range) -> bytes:
        return json.dumps([label for batch in batches for label in labels(batch)]).encode()

    members = {
        f"package/{name}.png": encode_png(pixels(batch).transpose(0, 2, 3, 1).reshape(RECORDS, 1024, 3))
        for batch, name in enumerate(BATCHES)
    }
    members |= {"package/train_lables.json": text(range(5)), "package/test_lables.json": text(range(5, 6))}
    return put_tar(folder / "package.tgz", members)


def encode_png(image: Bytes) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()
