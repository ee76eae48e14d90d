"""The command line: parse, build one dataclass, call one function."""

import signal
import sys
from pathlib import Path
from typing import Annotated

try:
    import plotly  # noqa: F401
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as missing:
    print(f"the command line needs {missing.name}: pip install 'lioncub[cli]'", file=sys.stderr)
    raise SystemExit(2) from None

from lioncub._version import __version__
from lioncub.bench.config import BenchConfig
from lioncub.demo.config import DemoConfig
from lioncub.errors import ConfigError, LionCubError
from lioncub.report.config import ReportConfig

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train over slow networks: one bit per parameter instead of 32.",
)
bench = typer.Typer(no_args_is_help=True, help="Measure this machine.")
app.add_typer(bench, name="bench")


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before a command."""


@app.command()
def demo(
    steps: Annotated[int, typer.Option(help="Optimizer steps per method.")] = DemoConfig.steps,
    workers: Annotated[int, typer.Option(help="Worker processes on this machine.")] = DemoConfig.workers,
    out: Annotated[Path, typer.Option(help="Where records.jsonl and demo.html go.")] = DemoConfig.out,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the batches.")] = DemoConfig.seed,
    width: Annotated[int, typer.Option(help="Width of the model.")] = DemoConfig.width,
    layers: Annotated[int, typer.Option(help="Blocks of the model.")] = DemoConfig.layers,
) -> None:
    """Train a byte-level GPT with global Lion, Distributed Lion and Lion Cub, and compare them."""
    from lioncub.demo.run import run_demo

    run_demo(DemoConfig(steps=steps, workers=workers, out=out, seed=seed, width=width, layers=layers))


@bench.command("kernels")
def bench_kernels(
    numel: Annotated[
        int | None, typer.Option(help="Elements each kernel works on.", show_default=f"{BenchConfig.numel:,}")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Samples of each case.", show_default=str(BenchConfig.repeats))
    ] = None,
    threads: Annotated[list[int], typer.Option(help="Threads; give it several times.")] = list(BenchConfig.threads),  # noqa: B006
    out: Annotated[Path, typer.Option(help="Where kernels.jsonl and kernels.html go.")] = BenchConfig.out,
    docs: Annotated[Path | None, typer.Option(help="A document to write the tables into, between its markers.")] = None,
    quick: Annotated[bool, typer.Option(help="Small sizes, 3 samples: to try it out.")] = False,
) -> None:
    """Time every kernel against what the memory allows, and whole steps against other optimizers."""
    from lioncub.bench.run import run_bench

    run_bench(BenchConfig.of(quick=quick, numel=numel, repeats=repeats, threads=tuple(threads), out=out, docs=docs))


@app.command()
def report(
    records: Annotated[list[Path], typer.Argument(help="What `lioncub compare` left: records.jsonl.")],
    out: Annotated[
        Path | None, typer.Option(help="The page.", show_default="report.html beside the first records")
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="A document to write the table into, between its markers.")] = None,
) -> None:
    """Show the records of comparisons: tables here, and a page with plots."""
    from lioncub.report.run import run_report

    run_report(ReportConfig(records=tuple(records), out=out, docs=docs))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say which kernels run on this machine, and why the others do not."""
    from lioncub.doctor import run_doctor

    run_doctor(as_json=as_json)


def main() -> None:
    """The console script: errors of this library are one message, not a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that workers are stopped too
    try:
        app()
    except LionCubError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
