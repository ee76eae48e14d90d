"""What can go wrong in a study."""

from lioncub.errors import LionCubError


class StudyError(LionCubError):
    """The study cannot go on."""


class DivergedError(StudyError):
    """A run's loss or gradient is not finite any more: its settings do not train."""
