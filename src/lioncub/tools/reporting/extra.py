"""The packages that draw pages and pictures: the extra ``report``, which may be missing."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("jinja2", "plotly")


def why_no_page() -> str:
    """What to install before a page can be drawn; "" where one can."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    return f"Pages need {' and '.join(missing)}: pip install 'lioncub[report]'" if missing else ""
