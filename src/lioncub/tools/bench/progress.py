"""Progress: a bar on a terminal, a line for each part elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress


class BenchProgress(Progress):
    """A bar for each part of the benchmark. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, disable=not console.is_terminal)

    def part(self, title: str, num_samples: int) -> Callable[[], None]:
        """Begin a part; what is returned is to be called after every sample."""
        task = self.add_task(title, total=num_samples)
        if not self.console.is_terminal:
            self.console.print(f"{title}: {num_samples:,} samples", highlight=False)
        return lambda: self.advance(task)
