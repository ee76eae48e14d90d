"""A running job, seen while it runs: time, bytes and votes of every step, and what looks wrong about them."""

from lioncub.live.events import End, Event, Exchange, Finding, Reading, Start
from lioncub.live.monitor import Monitor
from lioncub.live.sink import Sink

__all__ = ["End", "Event", "Exchange", "Finding", "Monitor", "Reading", "Sink", "Start"]
