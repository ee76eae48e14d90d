"""A checksum at the end of every message that carries a payload, so that damaged bytes never vote.

TCP's own checksum misses some damage, and none of what happens in memory before and after it. Messages between
accelerators have room for a seal and leave it empty: their bytes never pass through the processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lioncub import kernels
from lioncub.errors import WireError, name_ranks
from lioncub.kernels.buffers import pool

SEAL, CRC = 8, 4
"""Bytes: 0 or one more than the rank of a worker whose message came damaged, and the CRC-32 of all before it."""


def with_seal(*parts: Tensor, device: torch.device, notice: int = 0) -> Tensor:
    """Parts ``[messages, bytes]`` side by side, and a seal at the end. ``notice`` goes to whoever reads them."""
    if device.type != "cpu":
        return torch.cat([*parts, parts[0].new_zeros(len(parts[0]), SEAL)], dim=1).to(device)
    # numpy: its calls cost a fraction of torch's, and every bucket of every step comes by here twice.
    rows = pool.empty(len(parts[0]), sum(part.shape[1] for part in parts) + SEAL)
    to, start = rows.numpy(), 0
    for part in parts:
        to[:, start : start + part.shape[1]] = part.cpu().numpy()
        start += part.shape[1]
    words = _words(rows)
    words[:, 0] = notice
    words[:, 1] = kernels.checksums(rows, rows.shape[1] - CRC)
    return rows


def broken(rows: Tensor) -> list[int]:
    """Which messages of ``[messages, bytes]`` are not what was sealed."""
    if rows.device.type != "cpu":
        return []
    crcs, seals = kernels.checksums(rows, rows.shape[1] - CRC), _words(rows)[:, 1].tolist()
    return [] if crcs == seals else [row for row in range(len(rows)) if crcs[row] != seals[row]]


def check(rows: Tensor, ranks: Sequence[int]) -> None:
    """Raise :class:`WireError` for messages that are damaged, or whose sender got a damaged one."""
    if damaged := broken(rows):
        raise WireError(_message("this worker", [ranks[row] for row in damaged]))
    notices = {ranks[row]: notice - 1 for row, notice in enumerate(_words(rows.cpu())[:, 0].tolist()) if notice}
    if notices:
        raise WireError(_message(name_ranks(list(notices)), sorted(set(notices.values()))))


def side_by_side(contents: Tensor) -> Tensor:
    """What messages hold, ``[messages, bytes]``, in memory of its own without what is between."""
    return pool.empty(*contents.shape).copy_(contents) if contents.device.type == "cpu" else contents.contiguous()


def _message(who: str, senders: Sequence[int]) -> str:
    return (
        f"{who} got damaged bytes from {name_ranks(senders)}: the checksum does not match. Nothing was changed; a "
        "network card or memory is faulty. Restart from the last checkpoint, and look at those machines"
    )


def _words(rows: Tensor) -> NDArray[np.uint32]:
    """Notice and checksum of every message, in place."""
    words: NDArray[np.uint32] = rows.numpy()[:, -SEAL:].view("<u4")
    return words
