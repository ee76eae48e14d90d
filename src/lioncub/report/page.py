"""Results as one HTML file that needs nothing but itself, light or dark as its reader's system is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

COLOURS = ("#e07b39", "#3f8fd2", "#2ca58d", "#b05fc3", "#c9a227")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8886; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem; }
@media (max-width: 50rem) { .plots { grid-template-columns: minmax(0, 1fr); } }
.scroll { overflow-x: auto; margin-top: 1.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
</style>
<script>$plotlyjs</script>
</head>
<body>
<h1>$heading</h1>
$parts
<script>
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.querySelectorAll(".plotly-graph-div").forEach(plot => Plotly.relayout(plot, {
  "font.color": dark.matches ? "#ddd" : "#222",
  "hoverlabel.bgcolor": dark.matches ? "#222" : "#fff",
}));
dark.addEventListener("change", paint);
paint();
</script>
</body>
</html>
""")


def document(title: str, heading: str, parts: Sequence[str]) -> str:
    """The whole file. The parts are HTML already: what :func:`plots`, ``paragraph`` and ``Grid.to_html`` return."""
    return PAGE.substitute(title=escape(title), heading=escape(heading), parts="".join(parts), plotlyjs=get_plotlyjs())


def plots(figures: Mapping[str, go.Figure]) -> str:
    """Figures side by side, under their ids."""
    divs = (
        figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config={"displayModeBar": False})
        for name, figure in figures.items()
    )
    return f'<div class="plots">{"".join(divs)}</div>\n'


def figure(*, xaxis: dict[str, Any], yaxis: dict[str, Any], height: int = 440) -> go.Figure:
    """An empty figure without colours of its own, so that it fits a light page and a dark one."""
    grid = {"gridcolor": "rgba(128,128,128,.3)", "zeroline": False}
    return go.Figure().update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 20, "t": 10, "b": 60},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        xaxis=xaxis | grid,
        yaxis=yaxis | grid,
    )
