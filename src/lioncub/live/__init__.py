"""The public name of :mod:`lioncub.monitor`: ``lioncub.live.Monitor``."""

from lioncub.monitor import End, Event, Exchange, Finding, Monitor, Reading, Sink, Start

__all__ = ["End", "Event", "Exchange", "Finding", "Monitor", "Reading", "Sink", "Start"]
