"""The shapes of the tensors of ResNet-50 and GPT-2."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """161 tensors, 25,557,032 parameters."""
    shapes = [*_convolution(3, 64, 7)]
    channels = 64
    for stage, num_blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(num_blocks):
            shapes += _convolution(channels, inner, 1) + _convolution(inner, inner, 3)
            shapes += _convolution(inner, 4 * inner, 1)
            if block == 0:
                shapes += _convolution(channels, 4 * inner, 1)
            channels = 4 * inner
    return [*shapes, (1000, channels), (1000,)]


def _convolution(channels_in: int, channels_out: int, size: int) -> list[Shape]:
    """A convolution without bias, and its batch normalisation."""
    return [(channels_out, channels_in, size, size), (channels_out,), (channels_out,)]


def gpt2_small(width: int = 768, num_blocks: int = 12) -> list[Shape]:
    """148 tensors, 124,439,808 parameters; the head is tied to the embedding."""
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    embeddings = [(50257, width), (1024, width)]
    return embeddings + num_blocks * (norm + attention + norm + feed_forward) + norm


MODELS: dict[str, Callable[[], list[Shape]]] = {"ResNet-50": resnet50, "GPT-2 small": gpt2_small}


def shrunk(shapes: Sequence[Shape], factor: int) -> list[Shape]:
    """As many tensors, every dimension divided by ``factor``."""
    return [tuple(max(1, size // factor) for size in shape) for shape in shapes]
