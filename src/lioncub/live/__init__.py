"""The public name of :mod:`lioncub.monitor`."""

from lioncub.monitor import End, Event, Exchange, Finding, Monitor, Reading, Sink, Start

__all__ = ["End", "Event", "Exchange", "Finding", "Monitor", "Reading", "Sink", "Start"]
