"""The kinds of layers that the study's models are made of."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from statistics import fmean

KINDS: Mapping[str, tuple[str, ...]] = {
    "embedding": ("*embedding.weight", "*embed_tokens.weight", "positions", "stem.weight"),
    "attention": ("*query_key_value.weight", "*attention_out.weight", "*self_attn.?_proj.weight"),
    "mlp": ("*mlp_in.weight", "*mlp_out.weight", "*mlp.*_proj.weight"),
    "convolution": ("*conv?.weight", "*shortcut.0.weight"),
    "head": ("head.weight", "*lm_head.weight"),
    "norms and biases": ("*",),
}
"""By name, as the study's models have them; the first match counts."""


def kind(name: str) -> str:
    """The kind of layer that a tensor belongs to."""
    return next(kind for kind, patterns in KINDS.items() if any(fnmatchcase(name, each) for each in patterns))


def by_kind(figures: Mapping[str, float]) -> dict[str, float]:
    """Means over the tensors of each kind."""
    grouped: dict[str, list[float]] = {}
    for name, value in figures.items():
        grouped.setdefault(kind(name), []).append(value)
    return {each: fmean(values) for each, values in grouped.items()}
