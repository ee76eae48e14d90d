"""A checksum at the end of every message that carries a payload, so that damaged bytes never vote.

TCP's own checksum misses some damage, and none of what happens in memory before and after it. Messages between
accelerators have room for a seal and leave it empty: their bytes never pass through the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lioncub import kernels
from lioncub.errors import WireError, name_ranks

SEAL, CRC = 8, 4
"""Bytes: 0 or one more than the rank of a worker whose message came damaged, and the CRC-32 of all before it."""


def with_seal(*parts: Tensor, device: torch.device, notice: int = 0) -> Tensor:
    """Parts ``[messages, bytes]`` side by side, and a seal at the end. ``notice`` goes to whoever reads them."""
    room = parts[0].new_zeros(len(parts[0]), SEAL)
    rows = torch.cat([*parts, room], dim=1).to(device)
    if device.type == "cpu":
        rows[:, -SEAL:-CRC] = _as_bytes([notice])
        rows[:, -CRC:] = _as_bytes([[crc] for crc in _crcs(rows)])
    return rows


def broken(rows: Tensor) -> list[int]:
    """Which messages of ``[messages, bytes]`` are not what was sealed."""
    if rows.device.type != "cpu":
        return []
    return [row for row, (crc, (_, seal)) in enumerate(zip(_crcs(rows), _words(rows), strict=True)) if crc != seal]


def check(rows: Tensor, ranks: Sequence[int]) -> None:
    """Raise :class:`WireError` for messages that are damaged, or whose sender got a damaged one."""
    if damaged := broken(rows):
        raise WireError(_message("this worker", [ranks[row] for row in damaged]))
    notices = {ranks[row]: notice - 1 for row, (notice, _) in enumerate(_words(rows)) if notice}
    if notices:
        raise WireError(_message(name_ranks(list(notices)), sorted(set(notices.values()))))


def _message(who: str, senders: Sequence[int]) -> str:
    return (
        f"{who} got damaged bytes from {name_ranks(senders)}: the checksum does not match. Nothing was changed; a "
        "network card or memory is faulty. Restart from the last checkpoint, and look at those machines"
    )


def _crcs(rows: Tensor) -> list[int]:
    last = rows.shape[1] - CRC
    return [kernels.fingerprint(row, last=last) for row in rows]


def _words(rows: Tensor) -> list[tuple[int, int]]:
    words = rows[:, -SEAL:].cpu().contiguous().numpy().view("<u4")
    return [(int(notice), int(crc)) for notice, crc in words]


def _as_bytes(words: Sequence[Any]) -> Tensor:
    return torch.from_numpy(np.array(words, dtype="<u4").view(np.uint8))
