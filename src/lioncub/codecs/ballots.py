"""Codecs whose payload is an integer per element, as a sign bit and bits of magnitude: a vote with a weight."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property, reduce

import torch
from torch import Tensor

from lioncub.codecs.base import Codec, from_planes, packed_planes, planes
from lioncub.kernels import in_cache, sign_bits
from lioncub.layout import BLOCK, Ballot, Layout

CHUNK_BLOCKS = 512


class SignMagnitude(Codec):
    """Element q = ±magnitudes[index]; the outcome is the sign of Σ q over the voters.

    The first plane is the sign, the others the index. A zero sum goes to the casting voter where ``casting``, else it
    stays zero. Where an outcome can be zero (``ternary``), a second plane on the way back says so.
    """

    @property
    @abstractmethod
    def magnitudes(self) -> tuple[int, ...]:
        """What each index is worth; 1, 2, 4 … of them."""

    @property
    @abstractmethod
    def casting(self) -> bool: ...

    @property
    @abstractmethod
    def ternary(self) -> bool: ...

    @abstractmethod
    def indices(self, u: Tensor, layout: Layout) -> Tensor:
        """The magnitude's index of each element of ``u``, as uint8."""

    @cached_property
    def index_bits(self) -> int:
        return (len(self.magnitudes) - 1).bit_length()

    @property
    def up_block_bytes(self) -> int:
        return BLOCK // 8 * (1 + self.index_bits)

    def down_block_bytes(self, num_voters: int) -> int:
        return BLOCK // 8 * (2 if self.ternary else 1)

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        bits = [sign_bits(u, layout.starts, step)]
        if self.index_bits:
            index = self.indices(u, layout)
            bits += [(index >> k) & 1 for k in range(self.index_bits)]
        return from_planes(bits)

    def values(self, payload: Tensor) -> Tensor:
        """The integers of a payload, int32 ``[blocks · 64]``."""
        sign, *index_planes = planes(payload)
        value = sign.to(torch.int32).mul_(2).sub_(1)
        if not index_planes:
            return value
        index = torch.zeros_like(value)
        for k, plane in enumerate(index_planes):
            index += plane.to(torch.int32) << k
        return value * torch.tensor(self.magnitudes, dtype=torch.int32, device=value.device)[index]

    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        chunks = [
            self._combine_chunk(chunk, ballot.part(k * CHUNK_BLOCKS * BLOCK, (k + 1) * CHUNK_BLOCKS * BLOCK))
            for k, chunk in enumerate(payloads.split(CHUNK_BLOCKS, dim=1))
        ]
        return torch.cat(chunks)

    def _combine_chunk(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        total = torch.zeros(payloads.shape[1] * BLOCK, dtype=torch.int32, device=payloads.device)
        decisive = torch.zeros_like(total)
        for worker, payload in enumerate(payloads):
            spans = [span for span in ballot.spans if worker in span.voters]
            if not spans:
                continue
            q = self.values(payload)
            for span in spans:
                part = slice(span.start, span.stop)
                total[part] += q[part]
                if self.casting and worker == span.casting_voter(ballot.step):
                    decisive[part] = q[part]
        if self.casting:
            total = torch.where(total == 0, decisive, total)
        return from_planes([total > 0, total != 0] if self.ternary else [total > 0])

    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        sign, *moved = planes(combined)
        direction = torch.empty(sign.shape, dtype=torch.float32, device=sign.device)
        for parts in in_cache(direction, sign, *moved):
            parts[0].copy_(parts[1]).mul_(2).sub_(1)
            if moved:
                parts[0].mul_(parts[2])
        return direction

    def matches(self, payload: Tensor, combined: Tensor, ballot: Ballot) -> Tensor:
        mine, *index_planes = packed_planes(payload)
        theirs, *moved = packed_planes(combined)
        same = ~(mine ^ theirs)
        if self.magnitudes[0] > 0 and not moved:
            return same.reshape(-1)
        ones = torch.full_like(same, 255)
        i_move = reduce(torch.bitwise_or, index_planes) if self.magnitudes[0] == 0 else ones
        it_moves = moved[0] if moved else ones
        return ((same & i_move & it_moves) | ~(i_move | it_moves)).reshape(-1)

    def votes(self, payload: Tensor) -> Tensor:
        return torch.sign(self.values(payload))
