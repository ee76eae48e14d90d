"""What can go wrong in a comparison."""

from lioncub.errors import LionCubError


class CompareError(LionCubError):
    """The comparison cannot go on."""
