"""The demo from end to end: train every method, then show and keep the results."""

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from lioncub._version import __version__
from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.corpus import load_corpus
from lioncub.demo.launch import run_workers
from lioncub.demo.model import ByteGPT
from lioncub.demo.page import page
from lioncub.demo.progress import DemoProgress
from lioncub.demo.records import Step, summarise
from lioncub.demo.table import closing, table, title


def run_demo(config: DemoConfig, console: Console | None = None) -> None:
    """Train each method in turn; print a table; write `records.jsonl` and `demo.html` into `config.out`."""
    console = Console() if console is None else console
    about = describe(config)
    console.print(
        f"{config.workers} workers, {about['parameters']:,} parameters, "
        f"{about['corpus_bytes']:,} bytes of the standard library's source",
        highlight=False,
    )
    with (
        tempfile.TemporaryDirectory(prefix="lioncub-demo-") as scratch,
        DemoProgress(config, console) as progress,
    ):
        steps = run_workers(config, Path(scratch), progress.on_step)

    runs = [[step for step in steps if step.method == method] for method in METHODS]
    summaries = summarise(runs)
    console.print(table(summaries, config))
    console.print(closing(summaries), highlight=False)
    html = page(runs, summaries, title(config), closing(summaries))
    for path in keep(config.out, about, runs, html):
        console.print(str(path), highlight=False, soft_wrap=True)


def describe(config: DemoConfig) -> dict[str, object]:
    """What the figures of a run depend on."""
    corpus = load_corpus()
    model = ByteGPT(width=config.width, layers=config.layers, heads=config.heads, context=config.context)
    return {
        "kind": "run",
        "config": config.to_dict(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "corpus_bytes": len(corpus.train) + len(corpus.validation),
        "lioncub": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "link": "loopback, not shaped",
    }


def keep(out: Path, about: dict[str, object], runs: Sequence[Sequence[Step]], html: str) -> tuple[Path, Path]:
    """Write both files and return where they are."""
    records_path, page_path = out / "records.jsonl", out / "demo.html"
    lines = [json.dumps(about), *(step.to_json() for steps in runs for step in steps)]
    out.mkdir(parents=True, exist_ok=True)
    records_path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page_path.write_text(html, encoding="utf-8")
    return records_path, page_path
