"""A running job, seen while it runs: time, bytes and votes of every step, and what looks wrong about them."""

from lioncub.monitor.events import End, Event, Exchange, Finding, Reading, Start
from lioncub.monitor.monitor import Monitor
from lioncub.monitor.sink import Sink

__all__ = ["End", "Event", "Exchange", "Finding", "Monitor", "Reading", "Sink", "Start"]
