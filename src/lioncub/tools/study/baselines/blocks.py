"""Tensors cut into blocks of at most 64x64, and the largest entries of each block as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lioncub.tools.study.baselines.packing import pack, packed_bytes, unpack

SIDE = 64


@dataclass(frozen=True)
class Group:
    """The blocks of one shape: ``count`` blocks of rows x columns, from ``start`` on in the order of blocks."""

    rows: int
    columns: int
    start: int
    count: int
    kept: int
    """Entries of each block that are sent."""

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def stop(self) -> int:
        return self.start + self.count * self.size

    @property
    def place_bits(self) -> int:
        """Of the place of an entry in its block."""
        return max((self.size - 1).bit_length(), 1)


class Blocks:
    """A flat vector of tensors, reordered so that every block is contiguous, blocks of equal shape side by side.

    A tensor is a matrix of its first dimension by all others. A block's sides are the largest divisors of the
    matrix's that are at most 64; of each block the ``top`` largest entries are sent, or all where it has fewer.
    """

    def __init__(self, params: Sequence[Tensor], top: int) -> None:
        self.numel = sum(param.numel() for param in params)
        orders: dict[tuple[int, int], list[Tensor]] = {}
        self.tensors: dict[tuple[int, int], list[int]] = {}
        start = 0
        for param in params:
            rows, columns = matrix_shape(param)
            a, b = side(rows), side(columns)
            places = torch.arange(start, start + param.numel())
            cut = places.view(rows // a, a, columns // b, b).transpose(1, 2).reshape(-1)
            orders.setdefault((a, b), []).append(cut)
            self.tensors.setdefault((a, b), []).append(param.numel() // (a * b))
            start += param.numel()
        self.order = torch.cat([cut for cuts in orders.values() for cut in cuts])
        self.groups = []
        at = 0
        for (a, b), cuts in orders.items():
            count = sum(map(len, cuts)) // (a * b)
            self.groups.append(Group(a, b, at, count, min(top, a * b)))
            at += count * a * b
        self.num_kept = sum(group.count * group.kept for group in self.groups)
        self.places_bytes = sum(packed_bytes(group.count * group.kept, group.place_bits) for group in self.groups)

    @property
    def kept_by_tensor(self) -> list[int]:
        """How many entries of each tensor are sent, in the order of blocks."""
        return [count * group.kept for group in self.groups for count in self.tensors[group.rows, group.columns]]

    def cut(self, flat: Tensor) -> Tensor:
        """A flat vector in the order of blocks."""
        return flat[self.order]

    def joined(self, cut: Tensor) -> Tensor:
        """The inverse of :meth:`cut`."""
        flat = torch.empty_like(cut)
        flat[self.order] = cut
        return flat

    def largest(self, cut: Tensor) -> Tensor:
        """Where in ``cut`` the largest entries of every block are."""
        found = []
        for group in self.groups:
            blocks = cut[group.start : group.stop].view(group.count, group.size)
            places = blocks.abs().topk(group.kept, dim=1, sorted=False).indices
            found.append((places + self._starts(group)).view(-1))
        return torch.cat(found)

    def pack_places(self, places: Tensor) -> bytes:
        """Places that :meth:`largest` found, each as one within its block: 12 bits for blocks of 64x64."""
        parts = places.split([group.count * group.kept for group in self.groups])
        within = ((part - group.start) % group.size for part, group in zip(parts, self.groups, strict=True))
        return b"".join(pack(part.numpy(), group.place_bits) for part, group in zip(within, self.groups, strict=True))

    def unpack_places(self, message: bytes) -> Tensor:
        """What :meth:`pack_places` packed."""
        found, at = [], 0
        for group in self.groups:
            num = group.count * group.kept
            stop = at + packed_bytes(num, group.place_bits)
            places = torch.from_numpy(unpack(message[at:stop], num, group.place_bits)).long()
            found.append((places.view(group.count, group.kept) + self._starts(group)).view(-1))
            at = stop
        return torch.cat(found)

    def _starts(self, group: Group) -> Tensor:
        return group.start + group.size * torch.arange(group.count)[:, None]


def matrix_shape(param: Tensor) -> tuple[int, int]:
    """Rows and columns of a tensor as a matrix of its first dimension by all others."""
    rows = len(param) if param.dim() else 1
    return rows, param.numel() // rows


def side(length: int) -> int:
    """The largest divisor of ``length`` that is at most 64."""
    return next(divisor for divisor in range(min(length, SIDE), 0, -1) if length % divisor == 0)
