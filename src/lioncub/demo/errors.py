"""What can go wrong in the demo."""

from lioncub.errors import LionCubError


class DemoError(LionCubError):
    """The demo cannot go on."""


class CorpusError(DemoError):
    """Too little source text was found to train on."""


class WorkerFailedError(DemoError):
    """The processes that train a method ended with an error."""
