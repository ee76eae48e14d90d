"""The demo's model is the jobs' GPT."""

from torch import Tensor
from torch.nn import functional

from lioncub.jobs.gpt import ByteGPT

__all__ = ["ByteGPT", "next_byte_loss"]


def next_byte_loss(model: ByteGPT, windows: Tensor) -> Tensor:
    """Mean cross-entropy in nats over `[batch, length + 1]` bytes, each predicted from those before it."""
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
