"""The errors of a lab."""

from lioncub.errors import LionCubError


class LabError(LionCubError):
    """The lab cannot be built, or cannot go on."""
