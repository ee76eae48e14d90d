"""Debian's Chromium, headless, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")

# Runs in every page before the page's own scripts.
COLLECT = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) =>
  violations.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
window.alerts = [];
window.alert = (text) => alerts.push(String(text));
"""


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass(frozen=True)
class Chromium:
    """One browser process."""

    browser: Browser

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, fragment: str = "") -> Tab:
        """A page that has drawn itself."""
        phone = width < 600
        context = self.browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
            is_mobile=phone,
            has_touch=phone,
        )
        context.add_init_script(COLLECT)
        page = context.new_page()
        messages: list[str] = []
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on(
            "console",
            lambda said: messages.append(said.text) if said.type in ("error", "warning", "assert") else None,
        )
        page.goto(path.as_uri() + fragment)
        return Tab(page, messages)


@dataclass(frozen=True)
class Tab:
    """A page and what went wrong in it."""

    page: Page
    messages: list[str]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of its promise; JSON can hold it."""
        return self.page.evaluate(expression)

    def errors(self) -> list[str]:
        """Exceptions, errors and warnings on the console, and what the page's policy stopped."""
        return [*self.evaluate("violations"), *self.messages]

    def close(self) -> None:
        self.page.context.close()


@contextmanager
def launched(program: str) -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield Chromium(browser)
        browser.close()
