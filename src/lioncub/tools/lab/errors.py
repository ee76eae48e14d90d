"""What can go wrong in the lab."""

from lioncub.errors import LionCubError


class LabError(LionCubError):
    """The lab cannot be built, or cannot go on."""
