"""A file from its official place."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from lioncub._version import __version__
from lioncub.tools.data.errors import FetchError

TIMEOUT_SECONDS = 8.0
"""To connect, and for each piece: without a way to the internet the next source is tried soon."""

PIECE_BYTES = 1 << 18


def download(url: str, path: Path, most_bytes: int, on_bytes: Callable[[int, int | None], None]) -> None:
    """Write what ``url`` has to ``path``, telling ``on_bytes`` how many bytes of how many are there."""
    request = urllib.request.Request(url, headers={"User-Agent": f"lioncub/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, open(path, "wb") as file:
            total = int(response.headers["Content-Length"] or 0) or None
            done = 0
            while piece := response.read(PIECE_BYTES):
                file.write(piece)
                done += len(piece)
                on_bytes(done, total)
                if done > most_bytes:
                    raise FetchError(f"it sent more than {most_bytes:,} bytes, which is longer than what is published")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise FetchError(f"{type(error).__name__}: {reason}") from error
    if total is not None and done < total:
        raise FetchError(f"the connection closed after {done:,} of {total:,} bytes")
