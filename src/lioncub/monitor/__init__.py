"""Monitoring of a running job: time, bytes, votes and loss of every step, and findings about them."""

from lioncub.monitor.events import End, Event, Exchange, Finding, Reading, Start
from lioncub.monitor.monitor import Monitor
from lioncub.monitor.sink import Sink

__all__ = ["End", "Event", "Exchange", "Finding", "Monitor", "Reading", "Sink", "Start"]
