"""Replicas made equal: at the start, and when one is found to differ."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lioncub.errors import ReplicasDifferError
from lioncub.transport.comm import Comm
from lioncub.wire.consensus import odd_ones_out
from lioncub.wire.handshake import TAG_COPY, TAG_CRC, crc_of


def broadcast_parameters(module: nn.Module, process_group: object = None) -> None:
    """Copy parameters and buffers from the group's first worker to all others, as DistributedDataParallel does."""
    tensors = [*module.parameters(), *module.buffers()]
    comm = Comm.of(process_group, tensors[0].device if tensors else torch.device("cpu"))
    if comm.size == 1:
        return
    for tensor in tensors:
        message = tensor.detach().to(comm.device).contiguous()
        comm.broadcast(message).wait()
        tensor.detach().copy_(message)


def copy_from_majority(comm: Comm, params: Sequence[Tensor], problem: ReplicasDifferError) -> tuple[int, list[int]]:
    """Overwrite the parameters of whoever differs with the majority's; returns whose those are, and who differed.

    All workers call it. ``problem`` is what was seen in a part of the parameters: now all of them are compared. Without
    a majority it is raised on all workers.
    """
    ranks = comm.global_ranks
    odd = odd_ones_out(comm.gather_rows(struct.pack("<Q", crc_of(params)), TAG_CRC))
    if not odd or 2 * len(odd) >= comm.size:
        raise problem
    source = next(index for index in range(comm.size) if index not in odd)
    for param in params:
        message = param.detach().to(comm.device).contiguous().view(-1).view(torch.uint8)
        if comm.index == source:
            comm.swap(dict.fromkeys(odd, message), {}, TAG_COPY).wait()
        elif comm.index in odd:
            message = torch.empty_like(message)
            comm.swap({}, {source: message}, TAG_COPY).wait()
            param.detach().copy_(message.view(param.dtype).view(param.shape))
    if len(set(comm.gather_rows(struct.pack("<Q", crc_of(params)), TAG_CRC))) > 1:
        raise problem
    return ranks[source], [ranks[index] for index in odd]
