"""``make demo``: four hosts on 100 Mbit links, a byte-level GPT of a million parameters, five methods."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from lioncub.tools.compare.config import CompareConfig
from lioncub.tools.compare.methods import ADAMW, COMPUTE_ALONE
from lioncub.tools.compare.run import run_compare
from lioncub.tools.report.config import ReportConfig
from lioncub.tools.report.run import run_report

OUT = Path("demo-out")
STEPS = 300
"""For those that are fast enough; the others train for as long as they are given."""


def demo_config(*, steps: int = STEPS, rate: str = "100mbit", seed: int = 0, out: Path = OUT) -> CompareConfig:
    """Small enough for two cores and five minutes."""
    return CompareConfig(
        job="gpt-1m",
        methods=(COMPUTE_ALONE, ADAMW, "ddp-adamw-fp16", "vote", "cub-4"),
        rates=(rate,),
        hosts=(4,),
        examples=(256,),
        steps=steps,
        seconds=60.0,
        validations=20,
        seed=seed,
        out=out,
    )


def run_demo(config: CompareConfig, console: Console | None = None) -> bool:
    """Anew each time; ends with the sentence that matters and the path of the page. False: some method failed."""
    config.records.unlink(missing_ok=True)
    cells = run_compare(config, console)
    run_report(ReportConfig(records=(config.records,)), console)
    return not any(cell.error for cell in cells)
