"""What can go wrong in a report."""

from lioncub.errors import LionCubError


class ReportError(LionCubError):
    """The records cannot be shown."""
