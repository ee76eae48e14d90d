"""A file from its official place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lioncub._version import __version__
from lioncub.tools.data.errors import FetchError

TIMEOUT_SECONDS = 8.0
"""To connect, and for each piece: without a way to the internet the next source is tried soon."""

PIECE_BYTES = 1 << 18
HEADERS = {"User-Agent": f"lioncub/{__version__}", "Accept-Encoding": "identity"}


class Progress:
    """What pooch takes for a progress bar."""

    total = 0

    def __init__(self, most_bytes: int, on_bytes: Callable[[int, int | None], None]) -> None:
        self._most_bytes = most_bytes
        self._on_bytes = on_bytes
        self._done = 0

    def update(self, num_bytes: int) -> None:  # pooch says a whole piece of the last one too
        self._done += num_bytes
        if self._done > self._most_bytes + PIECE_BYTES:
            raise FetchError(f"it sent more than {self._most_bytes:,} bytes, which is longer than what is published")
        self._on_bytes(min(self._done, self.total or self._done), self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def download(url: str, path: Path, most_bytes: int, on_bytes: Callable[[int, int | None], None]) -> None:
    """Write what ``url`` has to ``path``, telling ``on_bytes`` how many bytes of how many are there."""
    from pooch import HTTPDownloader  # here: the extra data, which the data sets that are there do not need

    fetch = HTTPDownloader(Progress(most_bytes, on_bytes), PIECE_BYTES, timeout=TIMEOUT_SECONDS, headers=HEADERS)
    try:
        fetch(url, str(path), None)
    except (OSError, ValueError) as error:
        raise FetchError(f"{type(error).__name__}: {error}") from error
