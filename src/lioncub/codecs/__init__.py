"""Codecs: the encoding of update vectors into payloads, the combination of payloads, and their size in bits."""

from lioncub.codecs.base import Codec
from lioncub.codecs.dense import Dense
from lioncub.codecs.levels import Levels
from lioncub.codecs.vote import Mean, Vote

__all__ = ["Codec", "Dense", "Levels", "Mean", "Vote"]
