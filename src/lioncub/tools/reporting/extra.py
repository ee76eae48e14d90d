"""Packages of the extras, which may be missing."""

from __future__ import annotations

from importlib.util import find_spec


def why_no_page() -> str:
    """What to install before a page can be drawn; "" where one can."""
    return _missing("Pages need", "report", {"jinja2": "jinja2", "plotly": "plotly"})


def why_no_fetch() -> str:
    """What to install before data sets can be fetched; "" where they can."""
    return _missing("Fetching data needs", "data", {"PIL": "pillow", "pooch": "pooch"})


def _missing(what: str, extra: str, packages: dict[str, str]) -> str:
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    return f"{what} {' and '.join(missing)}: pip install 'lioncub[{extra}]'" if missing else ""
