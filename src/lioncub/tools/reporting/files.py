"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, contents: bytes | memoryview) -> None:
    """Write beside ``path`` and rename: others see the old file or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(unfinished, "xb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
