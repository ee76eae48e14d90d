"""One call before training: :func:`init` makes the process group, survives restarts, listens no wider than needed."""

from lioncub.distributed.startup import TIMEOUT, World, init
from lioncub.transport.descriptors import closing_ports

__all__ = ["TIMEOUT", "World", "closing_ports", "init"]
