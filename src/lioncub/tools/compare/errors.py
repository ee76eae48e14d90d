"""The errors of a comparison."""

from lioncub.errors import LionCubError


class CompareError(LionCubError):
    """The comparison cannot go on."""
