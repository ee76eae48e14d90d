"""PNG images of 8-bit RGB, decoded with numpy alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lioncub.tools.data.files import Bytes

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB_8_BIT = (8, 2, 0, 0, 0)  # bit depth, colour type, compression, filters, not interlaced


def decode(png: bytes, most_bytes: int) -> Bytes:
    """The pixels ``[height, width, 3]``; ValueError for anything but a whole 8-bit RGB image without interlacing.

    Unpacked, each row with the number of its filter, they must not be longer than so many bytes.
    """
    chunks = list(split_chunks(png))
    if not chunks or chunks[0][0] != b"IHDR" or chunks[-1][0] != b"IEND":
        raise ValueError("not a whole PNG")
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    if tuple(kind) != RGB_8_BIT:
        raise ValueError(f"not an 8-bit RGB PNG without interlacing: {kind}")
    if height * (1 + 3 * width) > most_bytes:
        raise ValueError(f"a PNG of {width} x {height} pixels, {most_bytes:,} bytes are published")
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    data = zlib.decompressobj().decompress(packed, most_bytes + 1)
    rows = np.frombuffer(data, dtype=np.uint8).reshape(height, 1 + 3 * width)
    return unfilter(rows[:, 1:].reshape(height, width, 3), rows[:, 0])


def split_chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and body of each chunk, its CRC checked."""
    if not png.startswith(SIGNATURE):
        raise ValueError("not a PNG")
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        (crc,) = struct.unpack_from(">I", png, at + 8 + size)
        if zlib.crc32(name + body) != crc:
            raise ValueError(f"the CRC of a PNG's {name!r} chunk is wrong")
        yield name, body
        at += 12 + size


def unfilter(filtered: Bytes, filters: Bytes) -> Bytes:
    """Add to each pixel what its row's filter predicts from its neighbours left, above, and left above.

    A pixel needs the three before it, so that a whole anti-diagonal (one pixel a row) can be computed at once. With a
    border of zeros above and to the left, and stored row by row, an anti-diagonal is a slice of step ``width``.
    """
    height, width, channels = filtered.shape
    if filters.max(initial=0) > 4:
        raise ValueError(f"a PNG has no filter {filters.max()}")
    bordered = np.zeros((height + 1, width + 1, channels), dtype=np.uint8)
    bordered[1:, 1:] = filtered
    pixels = bordered.reshape(-1, channels)
    stride = width + 1
    for diagonal in range(height + width - 1):
        top = max(0, diagonal - width + 1)
        bottom = min(height - 1, diagonal)
        first = (top + 1) * stride + diagonal - top + 1
        count = bottom - top + 1

        def cells(start: int, count: int = count) -> Bytes:
            return pixels[start : start + (count - 1) * width + 1 : width]

        here = cells(first)
        here += predict(cells(first - 1), cells(first - stride), cells(first - stride - 1), filters[top : bottom + 1])
    return np.ascontiguousarray(bordered[1:, 1:])


def predict(left: Bytes, above: Bytes, corner: Bytes, filters: Bytes) -> Bytes:
    """What filters 0 (none), 1 (left), 2 (above), 3 (average) and 4 (Paeth) predict; all ``[pixels, channels]``."""
    a, b, c = (cells.astype(np.int16) for cells in (left, above, corner))
    choices = np.stack((np.zeros_like(a), a, b, (a + b) >> 1, paeth(a, b, c)))
    return choices[filters, np.arange(len(filters))].astype(np.uint8)


def paeth(a: NDArray[np.int16], b: NDArray[np.int16], c: NDArray[np.int16]) -> NDArray[np.int16]:
    """Whichever of a, b, c is nearest to a + b - c, in this order where two are."""
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))
