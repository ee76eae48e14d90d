"""What one run of the demo is made of."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lioncub.errors import ConfigError

METHODS = {"global": "Global Lion", "vote": "Distributed Lion", "cub": "Lion Cub"}
"""Key and label of each method, in the order they run. The first is what the others are compared with."""


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Sizes and hyperparameters. All methods share them, the learning rate and its schedule included."""

    workers: int = 4
    steps: int = 200
    seed: int = 0
    out: Path = Path("demo-out")

    width: int = 128
    layers: int = 4
    heads: int = 4
    context: int = 64  # bytes the model sees at once
    batch: int = 4  # sequences per worker and step

    lr: float = 1e-3
    warmup_steps: int = 20
    weight_decay: float = 0.1

    validations: int = 16  # how often the validation loss is taken, besides the start
    validation_windows: int = 128

    def __post_init__(self) -> None:
        for name, least in (("workers", 2), ("steps", 1), ("seed", 0), ("layers", 1), ("heads", 1)):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if self.width < 1 or self.width % (2 * self.heads):
            raise ConfigError(f"width must be a positive multiple of {2 * self.heads}, got {self.width}")
        if self.workers > self.validation_windows:
            raise ConfigError(
                f"workers must be at most {self.validation_windows}, one per validation window, got {self.workers}"
            )
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"out must be a directory, but {self.out} is a file")

    @property
    def validate_every(self) -> int:
        """Steps between two validations."""
        return max(1, self.steps // self.validations)

    def lr_at(self, step: int) -> float:
        """Learning rate of step 1, 2, …: linear warm-up, then linear decay to a tenth."""
        warmup = min(self.warmup_steps, self.steps)
        if step <= warmup:
            return self.lr * step / warmup
        done = (step - warmup) / (self.steps - warmup)
        return self.lr * (1.0 - 0.9 * done)

    def to_dict(self) -> dict[str, Any]:
        """Every field, as values JSON can hold."""
        return asdict(self) | {"out": str(self.out)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "DemoConfig":
        values = json.loads(text)
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ConfigError(f"unknown demo settings: {', '.join(sorted(unknown))}")
        return cls(**(values | {"out": Path(values["out"])}))
