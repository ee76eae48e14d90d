"""Training data: found on this machine, or fetched when asked for, and always the published bytes."""

from lioncub.data.images import Images
from lioncub.data.load import load_images, load_text
from lioncub.data.text import Text

__all__ = ["Images", "Text", "load_images", "load_text"]
