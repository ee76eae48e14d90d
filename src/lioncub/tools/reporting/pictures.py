"""Figures of a document: SVG files beside it, drawn by a browser that nobody sees.

A file ends with the digest of its figure. What is current is not drawn again, and whether it is can be said without a
browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import plotly.graph_objects as go

from lioncub.errors import ConfigError
from lioncub.tools.reporting.files import write_whole

FOLDER = "pictures"
SIZE = {"width": 960, "height": 480}
HOW = "pip install 'lioncub[docs]', and a Chromium browser"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of a document."""

    name: str
    caption: str
    figure: go.Figure

    @property
    def stamp(self) -> str:
        """What its file ends with as long as the figure is the same."""
        text = json.dumps([self.figure.to_plotly_json(), SIZE], sort_keys=True, allow_nan=False)
        return f"\n<!-- figure {sha256(text.encode()).hexdigest()} -->\n"

    def path(self, document: Path) -> Path:
        return document.parent / FOLDER / f"{self.name}.svg"

    def is_current(self, document: Path) -> bool:
        path = self.path(document)
        return path.is_file() and path.read_text(encoding="utf-8").endswith(self.stamp)

    def to_markdown(self) -> str:
        return f"![{self.caption}]({FOLDER}/{self.name}.svg)\n"


def draw(pictures: Iterable[Picture], document: Path) -> list[Picture]:
    """Draw those that are not current; returns them. ConfigError where nothing here can draw."""
    stale = [picture for picture in pictures if not picture.is_current(document)]
    if not stale:
        return []
    try:
        import kaleido  # here: only who writes documents has it
        from choreographer.errors import BrowserDepsError, BrowserFailedError, ChromeNotFoundError
    except ImportError as error:
        raise ConfigError(f"{len(stale)} pictures of {document} are to be drawn, which needs {HOW}: {error}") from error
    with TemporaryDirectory() as folder:
        drafts = {picture.name: Path(folder, f"{picture.name}.svg") for picture in stale}
        orders = [
            {"fig": for_paper(picture.figure), "path": str(drafts[picture.name]), "opts": {"format": "svg", **SIZE}}
            for picture in stale
        ]
        try:
            kaleido.write_fig_from_object_sync(orders)
        except (BrowserDepsError, BrowserFailedError, ChromeNotFoundError) as error:
            raise ConfigError(f"{len(stale)} pictures of {document} are to be drawn, which needs {HOW}") from error
        for picture in stale:
            text = drafts[picture.name].read_text(encoding="utf-8") + picture.stamp
            write_whole(picture.path(document), text.encode())
    return stale


def for_paper(figure: go.Figure) -> go.Figure:
    """On white, with the legend beside it."""
    return go.Figure(figure).update_layout(
        paper_bgcolor="white", legend={"orientation": "v", "x": 1.01, "y": 1.0, "yanchor": "top"}
    )
