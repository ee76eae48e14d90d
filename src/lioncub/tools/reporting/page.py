"""Results as one HTML file that needs nothing but itself, light or dark as its reader's system is.

Figures are JSON in the page; `page.js` draws them. The page's policy lets nothing else run, and nothing be fetched.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

COLOURS = ("#e07b39", "#3f8fd2", "#2ca58d", "#b05fc3", "#c9a227")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
$sheets<script>$plotlyjs</script>
</head>
<body>
<h1>$heading</h1>
$parts
<script>$script</script>
</body>
</html>
""")


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure for each view of the page, or one for all of them. Where it is None, that view has no such plot."""

    name: str  # its id
    views: Sequence[go.Figure | None]
    caption: str = ""


def document(title: str, heading: str, parts: Iterable[str]) -> str:
    """The whole file. The parts are HTML already: what :func:`plots`, ``paragraph`` and ``Grid.to_html`` return."""
    style, script, plotlyjs = _beside("page.css"), _beside("page.js"), get_plotlyjs()
    return PAGE.substitute(
        policy=escape(policy(scripts=[plotlyjs, script], styles=[style, ""])),
        title=escape(title),
        heading=escape(heading),
        style=style,
        sheets="".join(f'<style id="{escape(name)}"></style>\n' for name in _sheets(plotlyjs)),
        plotlyjs=plotlyjs,
        script=script,
        parts="".join(parts),
    )


def policy(*, scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The Content-Security-Policy under which these scripts run and these styles hold, and no others."""
    return (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {' '.join(map(_hash, styles))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def plots(figures: Iterable[Plot]) -> str:
    """Figures side by side."""
    shown = list(figures)
    frames = "".join(map(_frame, shown))
    data = [{"name": plot.name, "views": [view and view.to_plotly_json() for view in plot.views]} for plot in shown]
    script = f'<script type="application/json" class="figures">{embedded(data)}</script>'
    return f'<div class="plots">{frames}</div>\n{script}\n'


def chooser(label: str, views: Sequence[str]) -> str:
    """What picks the view; the first one at first. An element with ``data-view="1"`` is shown with the second only."""
    options = "".join(f"<option>{escape(view)}</option>" for view in views)
    return f'<label class="chooser">{escape(label)} <select id="view" autocomplete="off">{options}</select></label>\n'


def embedded(data: object) -> str:
    """JSON that can stand in a script element whatever its strings hold."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: other characters are escaped already
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def drawn(text: str) -> str:
    """Text that plotly shows as it is: plotly reads some HTML in names, labels and ticks."""
    return escape(text, quote=False)


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
        xaxis=grid | xaxis,
        yaxis=grid | yaxis,
    )


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _sheets(plotlyjs: str) -> list[str]:
    """The ids of the style sheets that plotly would make as it starts, which the policy would stop.

    It fills the first one by script, which is allowed, and leaves the others, for maps, alone if they are there.
    """
    return ["plotly.js-style-global", *re.findall(r'getElementById\("([0-9a-f]{40,})"\)', plotlyjs)]


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _frame(plot: Plot) -> str:
    caption = f"<figcaption><h3>{escape(plot.caption)}</h3></figcaption>" if plot.caption else ""
    return f'<figure>{caption}<div class="plot" id="{escape(plot.name)}"></div></figure>\n'
