"""A headless Chromium, driven through a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 120.0
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")

# Chromium reads commands from descriptor 3 and writes to 4, whatever numbers the pipes have here.
BECOME_CHROMIUM = """
import fcntl, os, sys
there, back = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(there, 3)
os.dup2(back, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

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


class Chromium:
    """One browser process; close it."""

    def __init__(self, program: str, profile: Path) -> None:
        (there, self._to), (self._from, back) = os.pipe(), os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        launch = [sys.executable, "-c", BECOME_CHROMIUM, str(there), str(back), *command]
        self._log = (profile.parent / f"{profile.name}.log").open("wb")
        self._process = subprocess.Popen(launch, pass_fds=(there, back), stdout=self._log, stderr=self._log)
        os.close(there)
        os.close(back)
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what happened meanwhile is added to ``events``."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self._last:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str, session: str) -> None:
        """Until such an event has come."""
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self.read())

    def read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE_SECONDS:.0f} s; see {self._log.name}")
            received = os.read(self._from, 1 << 20)
            if not received:
                raise RuntimeError(f"Chromium ended by itself; see {self._log.name}")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, fragment: str = "") -> Page:
        """A page that has drawn itself."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(browser=self, session=session, target=target)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        phone = width < 600
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=phone)
        page.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=COLLECT)
        self.events.clear()
        page.call("Page.navigate", url=path.as_uri() + fragment)
        self.wait_for("Page.loadEventFired", session)
        return page

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(30)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._log.close()


@dataclass(kw_only=True)
class Page:
    """A tab."""

    browser: Chromium
    session: str
    target: str

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of its promise; JSON can hold it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def errors(self) -> list[str]:
        """Exceptions, errors and warnings on the console, and what the page's policy stopped."""
        found = list(self.evaluate("violations"))
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            what, details = event["method"], event["params"]
            if what == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif what == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(str(details["entry"]["text"]))
            elif what == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(str(details["args"]))
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page, as long as it is."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(image))

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
