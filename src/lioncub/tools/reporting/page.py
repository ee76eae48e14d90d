"""Results as one HTML file that needs nothing but itself, light or dark as its reader's system is.

Figures are plotly's JSON in the page; `page.js` draws them. The page's policy lets nothing else run, and nothing be
fetched.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

COLOURS = ("#e07b39", "#3f8fd2", "#2ca58d", "#b05fc3", "#c9a227")

TEMPLATES = Environment(
    loader=PackageLoader("lioncub.tools.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure for each view of the page, or one for all of them. Where it is None, that view has no such plot."""

    name: str  # its id
    views: Sequence[go.Figure | None]
    caption: str = ""


def document(template: str, title: str, heading: str, **values: Any) -> str:
    """The whole file, from one of the templates and what it shows."""
    style, script, plotlyjs = _source("page.css"), _source("page.js"), Markup(get_plotlyjs())
    return TEMPLATES.get_template(template).render(
        values,
        title=title,
        heading=heading,
        policy=policy(scripts=[plotlyjs, script], styles=[style, ""]),
        style=style,
        script=script,
        plotlyjs=plotlyjs,
        sheets=_sheets(plotlyjs),
    )


def policy(*, scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The Content-Security-Policy under which these scripts run and these styles hold, and no others."""
    return (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {' '.join(map(_hash, styles))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def data(figures: Iterable[Plot]) -> Markup:
    """Figures as JSON that can stand in a script element whatever its strings hold."""
    shown = [{"name": plot.name, "views": list(plot.views)} for plot in figures]
    return Markup(to_json_plotly(shown, engine="json"))


TEMPLATES.filters["data"] = data


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


def _source(name: str) -> Markup:
    return Markup(TEMPLATES.loader.get_source(TEMPLATES, name)[0]) if TEMPLATES.loader else Markup()


def _sheets(plotlyjs: str) -> list[str]:
    """The ids of the style sheets that plotly would make as it starts, which the policy would stop.

    It fills the first one by script, which is allowed, and leaves the others, for maps, alone if they are there.
    """
    return ["plotly.js-style-global", *re.findall(r'getElementById\("([0-9a-f]{40,})"\)', plotlyjs)]


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
