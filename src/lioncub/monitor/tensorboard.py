"""Events in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.monitor.events import End, Event, Finding, Reading, Start

FLUSH_SECONDS = 10


class TensorBoard:
    """A sink: readings become scalars, the start, findings and the end become texts."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as missing:
            raise ConfigError(f"writing for TensorBoard needs {missing.name}: pip install 'lioncub[live]'") from missing
        try:
            self._writer = SummaryWriter(str(folder), flush_secs=FLUSH_SECONDS)
        except OSError as problem:
            raise ConfigError(f"TensorBoard's files cannot be written to {folder}: {problem.strerror}") from problem
        self._step = 0

    def take(self, event: Event) -> None:
        if isinstance(event, Reading):
            self._step = event.step
            for tag, value in scalars(event).items():
                self._writer.add_scalar(tag, value, event.step, walltime=event.time)
        elif isinstance(event, Finding):
            text = f"**{event.signature}**, step {event.step}: {event.message}.\n\n{event.remedy}"
            self._writer.add_text(f"findings/{event.signature.replace(' ', '_')}", text, event.step)
            self._writer.flush()
        elif isinstance(event, Start):
            self._writer.add_text("job/start", f"worker {event.worker}: {event.optimizer}", self._step)
        elif isinstance(event, End):
            self._writer.add_text("job/end", event.error or "all went well", self._step)

    def close(self) -> None:
        self._writer.close()


def scalars(reading: Reading) -> dict[str, float]:
    """Tags and values; what a reading does not have is left out."""
    values = {"time/step_seconds": reading.seconds}
    if reading.loss is not None:
        values["loss"] = reading.loss
    values |= {f"time/{part}_seconds": seconds for part, seconds in reading.parts().items()}
    exchange = reading.exchange
    if exchange is None:
        return values
    values |= {
        "network/bytes_sent": exchange.bytes_sent,
        "network/bytes_received": exchange.bytes_received,
        "network/bits_per_parameter": exchange.bits_per_parameter,
        "time/wait_share": exchange.seconds_waited / reading.seconds if reading.seconds else 0.0,
        "votes/voters": exchange.voters,
        "votes/abstentions": len(exchange.abstentions) / reading.num_steps,
    }
    if exchange.agreement is not None:
        values["votes/agreement"] = exchange.agreement
    return values
