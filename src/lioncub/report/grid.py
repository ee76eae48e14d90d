"""A table, and the three places it goes to: a terminal, a page, a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Grid:
    """Rows under headings. The first ``num_texts`` columns hold words, the others figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    num_texts: int = 1

    def to_rich(self) -> Table:
        table = Table(title=self.title or None, caption=self.note or None, box=SIMPLE_HEAD, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        for index, heading in enumerate(self.headings):
            is_text = index < self.num_texts
            table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def to_html(self) -> str:
        rows = _html_row("th", self.headings) + "".join(_html_row("td", row) for row in self.rows)
        title = f"<h2>{escape(self.title)}</h2>\n" if self.title else ""
        note = paragraph(self.note) if self.note else ""
        return f'{title}<div class="scroll"><table>{rows}</table></div>\n{note}'

    def to_markdown(self) -> str:
        rule = ["---" if index < self.num_texts else "---:" for index in range(len(self.headings))]
        lines = [_markdown_row(row) for row in (self.headings, rule, *self.rows)]
        title = [f"### {self.title}", ""] if self.title else []
        note = ["", self.note] if self.note else []
        return "\n".join([*title, *lines, *note]) + "\n"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def _html_row(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>\n"


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(escape(text, quote=False).replace("|", "\\|") for text in texts) + " |"
