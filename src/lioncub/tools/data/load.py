"""Data sets as tensors. Nothing here downloads: `lioncub data` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.data.cifar10 import BATCHES, CIFAR10, RECORD_BYTES, file_name
from lioncub.tools.data.dataset import DataSet, cache_folder
from lioncub.tools.data.enwik8 import ENWIK8, TRAIN_BYTES, VALIDATION_BYTES
from lioncub.tools.data.errors import DataMissingError
from lioncub.tools.data.files import Bytes, Files
from lioncub.tools.data.images import Images
from lioncub.tools.data.stdlib import load_stdlib
from lioncub.tools.data.text import Text

TEXTS = ("auto", "enwik8", "stdlib")


def load_text(name: str = "auto", *, folder: Path | None = None, cache: Path | None = None) -> Text:
    """``"enwik8"``, ``"stdlib"``, or ``"auto"``: enwik8 if it is in ``folder`` or the cache, else stdlib."""
    if name not in TEXTS:
        raise ConfigError(f"text must be one of {', '.join(TEXTS)}, got {name!r}")
    if name == "stdlib":
        return load_stdlib()
    try:
        whole = read_files(ENWIK8, folder, cache)["enwik8"]
    except DataMissingError:
        if name == "enwik8":
            raise
        return load_stdlib()
    parts = torch.from_numpy(whole).tensor_split((TRAIN_BYTES, TRAIN_BYTES + VALIDATION_BYTES))
    return Text(name="enwik8", train=parts[0], validation=parts[1], test=parts[2])


def load_images(name: str = "cifar10", *, folder: Path | None = None, cache: Path | None = None) -> Images:
    """``"cifar10"``, from ``folder`` if it is there, else from the cache."""
    if name != CIFAR10.name:
        raise ConfigError(f"images must be {CIFAR10.name}, got {name!r}")
    files = read_files(CIFAR10, folder, cache)
    *training, test = (files[file_name(batch)] for batch in BATCHES)
    train_x, train_y = unpack_records(training)
    test_x, test_y = unpack_records([test])
    return Images(name=name, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)


def read_files(dataset: DataSet, folder: Path | None, cache: Path | None) -> Files:
    """Checked files, from ``folder`` if they are there, else from the cache."""
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"folder must be a directory, but {folder} is not")
    found = dataset.find(folder) if folder is not None else None
    return dataset.check(found) if found else dataset.cached(cache_folder(cache))


def unpack_records(files: Sequence[Bytes]) -> tuple[Tensor, Tensor]:
    """Images and labels of CIFAR-10's binary files."""
    records = torch.from_numpy(np.concatenate(files)).view(-1, RECORD_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()
