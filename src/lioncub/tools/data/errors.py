"""What can go wrong with data."""

from lioncub.errors import LionCubError


class DataError(LionCubError):
    """Data that cannot be had."""


class DataMissingError(DataError):
    """A data set is not on this machine; nothing is downloaded unless asked for."""


class DataDamagedError(DataError):
    """A file that cannot be read, or is not the published one."""


class FetchError(DataError):
    """No source gave a data set."""
