"""Process groups: :func:`init` makes the default one, safe across restarts, on no wider an interface than needed."""

from lioncub.distributed.startup import TIMEOUT, World, init
from lioncub.transport.descriptors import closing_ports

__all__ = ["TIMEOUT", "World", "closing_ports", "init"]
