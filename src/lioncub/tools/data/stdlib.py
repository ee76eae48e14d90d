"""The source of the running Python's own standard library: text that is on every machine."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from pathlib import Path

import torch

from lioncub.tools.data.errors import DataMissingError
from lioncub.tools.data.text import Text

ABOUT = "text: the running Python's own library source, about 11 MB; 90, 5 and 5% to train, validate and test"

MIN_BYTES = 1_000_000
MAX_BYTES = 16_000_000
CHUNK_BYTES = 16_384
"""Of twenty chunks one is for validation, one for the test: spread over the library, not a tail of some subject."""

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def load_stdlib(root: Path | None = None, *, min_bytes: int = MIN_BYTES, max_bytes: int = MAX_BYTES) -> Text:
    """Read and split the ``.py`` files below ``root``, by default those of the running Python."""
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    source = read_sources(root, max_bytes)
    if len(source) < min_bytes:
        raise DataMissingError(
            f"found {len(source):,} bytes of Python source below {root}, need {min_bytes:,}: "
            "use a Python that ships its standard library as .py files, or enwik8 (`lioncub data enwik8`)"
        )
    return split(source)


def read_sources(root: Path, max_bytes: int) -> bytearray:
    """The ``.py`` files below ``root`` in sorted order, without tests and installed packages, cut at ``max_bytes``."""
    source = bytearray()
    for path in sorted(root.rglob("*.py")):
        if _NOT_LIBRARY.isdisjoint(path.relative_to(root).parts) and path.is_file():
            source += path.read_bytes()
            if len(source) >= max_bytes:
                break
    return source[:max_bytes]


def split(source: bytearray) -> Text:
    """Chunks 19, 39, … are validation, 9, 29, … the test, all others training.

    Pythons differ in their library, even of one version: the text's version has the start of its SHA-256.
    """
    chunks = torch.frombuffer(source, dtype=torch.uint8).split(CHUNK_BYTES)
    training = [chunk for index, chunk in enumerate(chunks) if index % 20 not in (9, 19)]
    return Text(
        name="stdlib",
        version=f"Python {platform.python_version()}, {hashlib.sha256(source).hexdigest()[:8]}",
        train=torch.cat(training),
        validation=torch.cat(chunks[19::20]),
        test=torch.cat(chunks[9::20]),
    )
