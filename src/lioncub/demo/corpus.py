"""The training text: the source of Python's own standard library, which is on every machine."""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lioncub.data.stdlib import CHUNK_BYTES, MAX_BYTES, MIN_BYTES, read_sources
from lioncub.demo.errors import CorpusError

__all__ = ["CHUNK_BYTES", "Corpus", "load_corpus", "read_sources", "split"]


@dataclass(frozen=True)
class Corpus:
    """Bytes to learn from and bytes to be judged on; both uint8."""

    train: Tensor
    validation: Tensor

    def batch(self, generator: torch.Generator, sequences: int, context: int) -> Tensor:
        """`[sequences, context + 1]` training bytes from random places; the last column is target only."""
        starts = torch.randint(len(self.train) - context, (sequences,), generator=generator)
        return _windows(self.train, starts, context)

    def validation_batch(self, windows: int, context: int) -> Tensor:
        """`[windows, context + 1]` validation bytes, evenly spaced: the same for every run."""
        starts = torch.linspace(0, len(self.validation) - context - 1, windows, dtype=torch.float64).long()
        return _windows(self.validation, starts, context)


def load_corpus(root: Path | None = None, *, min_bytes: int = MIN_BYTES, max_bytes: int = MAX_BYTES) -> Corpus:
    """Read and split the `.py` files below `root`, by default those of the running Python."""
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    text = read_sources(root, max_bytes)
    if len(text) < min_bytes:
        raise CorpusError(
            f"found {len(text):,} bytes of Python source below {root}, need {min_bytes:,}: "
            "run the demo with a Python that ships its standard library as .py files"
        )
    return split(torch.frombuffer(text, dtype=torch.uint8))


def split(text: Tensor) -> Corpus:
    """Chunks 19, 39, 59, … are validation, the others training: 5% and 95%."""
    chunks = text.split(CHUNK_BYTES)
    return Corpus(
        train=torch.cat([chunk for index, chunk in enumerate(chunks) if index % 20 != 19]),
        validation=torch.cat([chunk for index, chunk in enumerate(chunks) if index % 20 == 19]),
    )


def _windows(data: Tensor, starts: Tensor, context: int) -> Tensor:
    return data[starts[:, None] + torch.arange(context + 1)].long()
