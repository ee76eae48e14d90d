"""What a measured figure depends on: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import lioncub
from lioncub._version import __version__

L3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
UNKNOWN_L3_BYTES = 64 << 20


def machine() -> dict[str, str | int]:
    import torch  # here: sizes of caches are read by commands that need no torch

    from lioncub.kernels import native

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "l3_bytes": l3_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
        "isa": native.describe().get("instruction set", ""),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "lioncub": __version__,
        "commit": commit(Path(lioncub.__file__)),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def command_line() -> str:
    """What was typed, to be typed again."""
    return shlex.join(["lioncub", *sys.argv[1:]])


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def l3_bytes(path: Path = L3) -> int:
    """The last cache's size; a large guess where the system does not say."""
    try:
        text = path.read_text(encoding="ascii").strip()
        return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return UNKNOWN_L3_BYTES


def commit(file: Path) -> str:
    """The commit that ``file`` belongs to, with a + where its sources have changes; "" outside of one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)  # a repository may surround a folder of installed packages
        changes = git("status", "--porcelain", "-uno", "--", ":/src", ":/native")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return ""
