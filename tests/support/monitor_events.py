"""Made-up figures and events of a job."""

from __future__ import annotations

from dataclasses import replace

from lioncub.live import End, Exchange, Finding, Reading, Start
from lioncub.stats import Stats

STATS = replace(
    Stats.before_the_first_step(),
    num_parameters=800,
    bytes_sent=100,
    bytes_received=200,
    seconds_waited=0.3,
    seconds_encoding=0.1,
    seconds_applying=0.2,
    voters=4,
    agreement=0.75,
)
EXCHANGE = Exchange(
    seconds_encoding=0.1,
    seconds_waited=0.3,
    seconds_applying=0.2,
    bytes_sent=160_000.0,
    bytes_received=320_000.0,
    bits_per_parameter=1.5,
    agreement=0.713,
    voters=3,
    abstentions=(2, 2, 5),
)
START = Start(time=1000.0, worker=0, optimizer="DistributedLion · Vote() · 800 parameters")
READING = Reading(time=1060.0, step=1239, num_steps=10, seconds=1.0, loss=2.5, exchange=EXCHANGE)
FINDING = Finding(step=7, signature="replicas differ", message="oh", remedy="do this", workers=(1, 3))
END = End(time=1061.0, error="")
