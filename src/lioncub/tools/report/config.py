"""What one report is made from, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.tools.reporting.docs import Markers

MARKERS = Markers("compare")


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Records of comparisons; a later file's cell replaces an earlier one's. ``out`` is the page."""

    records: tuple[Path, ...]
    out: Path | None = None  # None: report.html beside the first records
    docs: Path | None = None

    def __post_init__(self) -> None:
        if not self.records:
            raise ConfigError("records must name at least one file that `lioncub compare` wrote")
        for path in self.records:
            if not path.is_file():
                raise ConfigError(f"records must be files that `lioncub compare` wrote, but there is no file {path}")
        if self.page_path.is_dir():
            raise ConfigError(f"out must be the page's file, but {self.page_path} is a folder")
        if self.docs is not None:
            MARKERS.check(self.docs)

    @property
    def page_path(self) -> Path:
        return self.records[0].with_name("report.html") if self.out is None else self.out
