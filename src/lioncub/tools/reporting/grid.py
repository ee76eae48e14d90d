"""A table, and the three places it goes to: a terminal, a page, a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lioncub.tools.reporting.texts import lines


@dataclass(frozen=True)
class Grid:
    """Rows under headings. The first ``num_texts`` columns hold words, the others figures.

    A first cell can have a second line. On a page, the first line can link somewhere, and a row can belong to one of
    the page's views.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    num_texts: int = 1
    links: Sequence[str] = ()
    views: Sequence[int] = ()

    def to_rich(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
        table.title = _rich(self.title, "table.title") if self.title else None
        table.caption = _rich(self.note, "table.caption") if self.note else None
        for index, heading in enumerate(self.headings):
            is_text = index < self.num_texts
            table.add_column(_rich(heading), justify="left" if is_text else "right", no_wrap=not is_text)
        for row in self.rows:
            table.add_row(*map(_rich, row))
        return table

    def to_markdown(self) -> str:
        rule = ["---" if index < self.num_texts else "---:" for index in range(len(self.headings))]
        rows = [_markdown_row(row) for row in (self.headings, rule, *self.rows)]
        title = [f"### {self.title}", ""] if self.title else []
        note = ["", self.note] if self.note else []
        return "\n".join([*title, *rows, *note]) + "\n"


def _rich(text: str, style: str = "") -> Text:
    """As it is: no markup is read in it, and no terminal obeys it."""
    return Text(lines(text), style)


def _markdown_row(texts: Sequence[str]) -> str:
    cells = (escape(lines(text), quote=False).replace("|", "\\|").replace("\n", "<br>") for text in texts)
    return f"| {' | '.join(cells)} |"
