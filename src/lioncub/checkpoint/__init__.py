"""Checkpoints of training whose workers differ: every worker's momentum, or none is lost.

>>> from lioncub import checkpoint
>>> checkpoint.save("run", model, optimizer, step, extra={"position": position})     # on every worker
>>> done = checkpoint.load("run", model, optimizer)              # later, on as many workers or on others
"""

from lioncub.checkpoint.folders import latest
from lioncub.checkpoint.loading import Loaded, load
from lioncub.checkpoint.ownership import release
from lioncub.checkpoint.saving import Saving, save

__all__ = ["Loaded", "Saving", "latest", "load", "release", "save"]
