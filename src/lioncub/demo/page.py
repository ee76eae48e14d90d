"""The plots: one HTML file that needs nothing but itself."""

from collections.abc import Callable, Sequence
from html import escape
from string import Template

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from lioncub.demo.config import METHODS
from lioncub.demo.records import Step, Summary
from lioncub.demo.table import HEADINGS, NOTE, cells

COLOURS = ("#e07b39", "#3f8fd2", "#2ca58d")
DASHES = ("solid", "dash", "dot")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>lioncub demo</title>
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
<h1>A byte-level GPT, trained three ways</h1>
<p>$title</p>
<div class="plots">$plots</div>
<div class="scroll"><table>$table</table></div>
<p>$note</p>
<p>$closing</p>
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


def page(runs: Sequence[Sequence[Step]], summaries: Sequence[Summary], title: str, closing: str) -> str:
    """The whole document: loss against time, loss against bytes, and the table."""
    against_time = plot(runs, "seconds of training", "linear", lambda step: step.seconds)
    against_bytes = plot(runs, "bytes sent per worker", "log", lambda step: step.bytes_sent)
    return PAGE.substitute(
        plotlyjs=get_plotlyjs(),
        title=escape(title),
        plots="".join(
            figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config={"displayModeBar": False})
            for name, figure in (("time", against_time), ("bytes", against_bytes))
        ),
        table=row("th", HEADINGS) + "".join(row("td", cells(summary)) for summary in summaries),
        note=escape(NOTE),
        closing=escape(closing),
    )


def plot(runs: Sequence[Sequence[Step]], title: str, axis: str, x: Callable[[Step], float]) -> go.Figure:
    """Validation loss of every run against `x`, without the untrained model, which would dwarf the rest."""
    figure = go.Figure()
    for number, steps in enumerate(runs):
        shown = [step for step in steps if step.validation_loss is not None and step.step]
        figure.add_scatter(
            x=[x(step) for step in shown],
            y=[step.validation_loss for step in shown],
            name=escape(METHODS.get(steps[0].method, steps[0].method)),
            mode="lines+markers",
            line={"color": COLOURS[number % len(COLOURS)], "dash": DASHES[number % len(DASHES)]},
        )
    grid = {"gridcolor": "rgba(128,128,128,.3)", "zeroline": False}
    figure.update_layout(
        template="none",
        height=440,
        margin={"l": 60, "r": 20, "t": 10, "b": 60},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        xaxis={"title": {"text": title}, "type": axis, "tickformat": "~s"} | grid,
        yaxis={"title": {"text": "validation loss, nats per byte"}} | grid,
    )
    return figure


def row(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>\n"
