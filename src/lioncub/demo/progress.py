"""Progress: a bar on a terminal, a line now and then elsewhere."""

from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.records import Step

SECONDS_BETWEEN_LINES = 10.0


class DemoProgress:
    """One bar over the steps of all methods. Use it as a context manager."""

    def __init__(self, config: DemoConfig, console: Console) -> None:
        self.console = console
        self.steps = config.steps
        self.next_line = monotonic() + SECONDS_BETWEEN_LINES
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps ·"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("Starting the workers", total=config.steps * len(METHODS))

    def on_step(self, step: Step) -> None:
        """A step is done. What is shown is the validation loss, when there is a new one."""
        self.bar.advance(self.task, 1 if step.step else 0)
        if step.validation_loss is None:
            return
        text = f"{METHODS[step.method]}: loss {step.validation_loss:.3f}"
        self.bar.update(self.task, description=text)
        if not self.console.is_terminal and self._line_is_due(step):
            self.console.print(f"{text} after {step.step} of {self.steps} steps", highlight=False)

    def _line_is_due(self, step: Step) -> bool:
        if step.step < self.steps and monotonic() < self.next_line:
            return False
        self.next_line = monotonic() + SECONDS_BETWEEN_LINES
        return True

    def __enter__(self) -> "DemoProgress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
