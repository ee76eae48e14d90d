"""The command line: parse, build one dataclass, call one function."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from lioncub._version import __version__
from lioncub.errors import ConfigError, LionCubError
from lioncub.tools.bench.config import BenchConfig
from lioncub.tools.bench.exchange_config import ExchangeConfig
from lioncub.tools.compare.config import JOBS, CompareConfig
from lioncub.tools.compare.methods import METHODS
from lioncub.tools.data.config import DataConfig
from lioncub.tools.lab.config import LabConfig
from lioncub.tools.report.config import ReportConfig
from lioncub.tools.study.config import StudyConfig, named_experiments

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train over slow networks: one bit per parameter instead of 32.",
)
bench = typer.Typer(no_args_is_help=True, help="Measure this machine.")
app.add_typer(bench, name="bench")
checkpoint = typer.Typer(no_args_is_help=True, help="Look at checkpoints.")
app.add_typer(checkpoint, name="checkpoint")


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
    steps: Annotated[int, typer.Option(help="Timed steps of each method.")] = 120,
    rate: Annotated[str, typer.Option(help="Of the four hosts' links.")] = "100mbit",
    seed: Annotated[int, typer.Option(help="Of the weights and the batches.")] = 0,
    out: Annotated[Path, typer.Option(help="Where records.jsonl and report.html go.")] = Path("demo-out"),
) -> None:
    """Train a byte-level GPT on four hosts with slow links, five ways, and compare them."""
    from lioncub.tools.demo import demo_config, run_demo

    raise typer.Exit(not run_demo(demo_config(steps=steps, rate=rate, seed=seed, out=out)))


class LabCommand(TyperCommand):
    """Notes whether there was a ``--``: what follows it is a command, even if it is called clean."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["is_command"] = "--" in args
        return super().parse_args(ctx, args)


@app.command(cls=LabCommand, context_settings={"allow_interspersed_args": False})
def lab(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(help="What every host runs, after --: a script (torchrun starts it) or any command; or: clean"),
    ],
    hosts: Annotated[int, typer.Option(help="Hosts, each in a network namespace of its own.")] = LabConfig.hosts,
    rate: Annotated[str, typer.Option(help="Of every link, both ways: 100mbit, 1gbit, none.")] = LabConfig.rate,
    host_rate: Annotated[
        list[str], typer.Option(help="One host's own rate, as in 2=100mbit; give it several times.")
    ] = [],  # noqa: B006
    workers_per_host: Annotated[
        int, typer.Option(help="Processes that torchrun starts on each host.")
    ] = LabConfig.workers_per_host,
    counters: Annotated[Path | None, typer.Option(help="A JSON file for the bytes of each host's link.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Print the commands and do nothing.")] = False,
) -> None:
    """Run a command on every host of a network that is as slow as you say."""
    from lioncub.tools.lab.run import run_clean, run_lab

    if command[0] == "clean" and not context.meta["is_command"]:
        run_clean(command[1:], dry_run=dry_run)
        return
    config = LabConfig(
        command=tuple(command),
        hosts=hosts,
        rate=rate,
        host_rates=tuple(host_rate),
        workers_per_host=workers_per_host,
        counters=counters,
        dry_run=dry_run,
    )
    raise typer.Exit(run_lab(config))


def named_methods() -> str:
    return "; ".join(f"{name} ({label})" for name, label in METHODS.items())


@app.command()
def compare(
    job: Annotated[str, typer.Option(help=f"What is trained: {', '.join(JOBS)}.")] = CompareConfig.job,
    data: Annotated[str, typer.Option(help="What a GPT learns from: enwik8, stdlib, auto.")] = CompareConfig.data,
    methods: Annotated[
        str, typer.Option(help=f"Some, separated by commas: {named_methods()}.", show_default="all")
    ] = ",".join(CompareConfig.methods),
    rates: Annotated[str, typer.Option(help="Of the links, separated by commas.")] = ",".join(CompareConfig.rates),
    hosts: Annotated[str, typer.Option(help="Numbers of hosts.")] = ",".join(map(str, CompareConfig.hosts)),
    examples: Annotated[str, typer.Option(help="Tokens or images per host and step.")] = ",".join(
        map(str, CompareConfig.examples)
    ),
    steps: Annotated[int, typer.Option(help="Timed steps of each cell.")] = CompareConfig.steps,
    seconds: Annotated[float, typer.Option(help="The most a cell may train.")] = CompareConfig.seconds,
    validations: Annotated[
        int, typer.Option(help="How often the validation loss is taken; 0: never.")
    ] = CompareConfig.validations,
    lr: Annotated[float | None, typer.Option(help="Lion's learning rate.", show_default="the job's")] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and the batches.")] = CompareConfig.seed,
    out: Annotated[Path, typer.Option(help="Where records.jsonl is kept.")] = CompareConfig.out,
) -> None:
    """Train one job with every method on slow networks: time, bytes, loss."""
    from lioncub.tools.compare.run import run_compare
    from lioncub.tools.report.run import run_report

    config = CompareConfig(
        job=job,
        data=data,
        methods=words(methods),
        rates=words(rates),
        hosts=numbers("hosts", hosts),
        examples=numbers("examples", examples),
        steps=steps,
        seconds=seconds,
        validations=validations,
        lr=lr,
        seed=seed,
        out=out,
    )
    cells = run_compare(config)
    run_report(ReportConfig(records=(config.records,)))
    raise typer.Exit(any(cell.error for cell in cells))


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words(text))
    except ValueError:
        raise ConfigError(f"{name}: whole numbers separated by commas, got {text!r}") from None


@bench.command("kernels")
def bench_kernels(
    numel: Annotated[
        int | None, typer.Option(help="Elements each kernel works on.", show_default=f"{BenchConfig.numel:,}")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Samples of each case in a round.", show_default=str(BenchConfig.repeats))
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Times that all is set up anew, in other memory.", show_default=str(BenchConfig.rounds)),
    ] = None,
    threads: Annotated[list[int], typer.Option(help="Threads; give it several times.")] = list(BenchConfig.threads),  # noqa: B006
    out: Annotated[Path, typer.Option(help="Where kernels.jsonl and kernels.html go.")] = BenchConfig.out,
    docs: Annotated[Path | None, typer.Option(help="A document to write the tables into, between its markers.")] = None,
    quick: Annotated[bool, typer.Option(help="Small sizes, 3 samples: to try it out.")] = False,
) -> None:
    """Time every kernel against what the memory allows, and whole steps against other optimizers."""
    from lioncub.tools.bench.run import run_bench

    given = {"numel": numel, "repeats": repeats, "rounds": rounds, "out": out, "docs": docs}
    run_bench(BenchConfig.of(quick=quick, threads=tuple(threads), **given))


@bench.command("exchange")
def bench_exchange(
    numel: Annotated[int, typer.Option(help="Parameters of the model.")] = ExchangeConfig.numel,
    hosts: Annotated[str, typer.Option(help="Numbers of hosts that exchange, separated by commas.")] = ",".join(
        map(str, ExchangeConfig.hosts)
    ),
    rates: Annotated[str, typer.Option(help="Of the links, separated by commas.")] = ",".join(ExchangeConfig.rates),
    repeats: Annotated[int, typer.Option(help="Samples of each.")] = ExchangeConfig.repeats,
    out: Annotated[Path, typer.Option(help="Where exchange.jsonl goes.")] = ExchangeConfig.out,
    docs: Annotated[Path | None, typer.Option(help="A document to write the table into, between its markers.")] = None,
) -> None:
    """Time the exchange of a step on slow networks against what the wire needs for its bytes."""
    from lioncub.tools.bench.exchange import run_exchange

    run_exchange(
        ExchangeConfig(
            numel=numel, hosts=numbers("hosts", hosts), rates=words(rates), repeats=repeats, out=out, docs=docs
        )
    )


@bench.command("hostile")
def bench_hostile(
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "8,9",
    most_liars: Annotated[int, typer.Option(help="From none to so many of them lie.")] = 4,
    steps: Annotated[int, typer.Option(help="Of each training run.")] = 200,
    seeds: Annotated[int, typer.Option(help="Runs of each kind.")] = 3,
    out: Annotated[Path, typer.Option(help="Where hostile.jsonl goes.")] = Path("bench-out"),
    docs: Annotated[Path | None, typer.Option(help="A document to write the tables into, between its markers.")] = None,
) -> None:
    """Train among workers that lie: how many can a vote, a mean, a dense average bear?"""
    from lioncub.tools.bench.hostile import HostileConfig, run_hostile

    run_hostile(
        HostileConfig(
            workers=numbers("workers", workers), most_liars=most_liars, steps=steps, seeds=seeds, out=out, docs=docs
        )
    )


@app.command()
def study(
    preset: Annotated[
        str, typer.Option(help="How much: quick, full, or paper: the papers' own settings, for GPUs.")
    ] = StudyConfig.preset,
    experiments: Annotated[
        str, typer.Option(help=f"Some, separated by commas. {named_experiments()}", show_default="all of the preset")
    ] = "",
    tasks: Annotated[
        str, typer.Option(help="Some of gpt, vit and resnet, separated by commas.", show_default="all they have")
    ] = "",
    jobs: Annotated[int, typer.Option(help="Runs at a time, a core each.")] = StudyConfig.jobs,
    device: Annotated[str, typer.Option(help="Where gradients are computed: cpu, cuda, cuda:1.")] = StudyConfig.device,
    minutes: Annotated[float | None, typer.Option(help="Begin no run after so long.", show_default="no limit")] = None,
    records: Annotated[list[Path], typer.Option(help="Finished runs from elsewhere; give it several times.")] = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Where records.jsonl and study.html go.")] = StudyConfig.out,
    docs: Annotated[
        Path | None,
        typer.Option(help="A document to write tables into, between its markers, with pictures beside it."),
    ] = None,
    draw: Annotated[bool, typer.Option(help="Draw the document's pictures where they are not current.")] = True,
    run: Annotated[bool, typer.Option(help="Train, or only show what the records hold.")] = StudyConfig.run,
) -> None:
    """Train with every method on virtual workers: does it learn as well? Goes on where it was stopped."""
    from lioncub.tools.study.run import run_study

    run_study(
        StudyConfig(
            preset=preset,
            experiments=words(experiments),
            tasks=words(tasks),
            jobs=jobs,
            device=device,
            minutes=minutes,
            records=tuple(records),
            out=out,
            docs=docs,
            draw=draw,
            run=run,
        )
    )


@app.command()
def data(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to get: enwik8, cifar10. None: a list.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where to look before downloading.")] = DataConfig.folder,
    cache: Annotated[
        Path | None, typer.Option(help="Where they are kept.", show_default="the user's cache folder")
    ] = DataConfig.cache,
) -> None:
    """List the data sets that jobs train on, or get some of them."""
    from lioncub.tools.data.run import run_data

    run_data(DataConfig(names=tuple(names or ()), folder=folder, cache=cache))


@app.command()
def report(
    records: Annotated[list[Path], typer.Argument(help="What `lioncub compare` left: records.jsonl.")],
    out: Annotated[
        Path | None, typer.Option(help="The page.", show_default="report.html beside the first records")
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="A document to write the table into, between its markers.")] = None,
) -> None:
    """Show the records of comparisons: tables here, and a page with plots."""
    from lioncub.tools.report.run import run_report

    page = run_report(ReportConfig(records=tuple(records), out=out, docs=docs))
    raise typer.Exit(0 if page else 2)


CheckpointFolder = Annotated[Path, typer.Argument(help="The folder of a run's checkpoints, or of one of them.")]


@checkpoint.command()
def verify(folder: CheckpointFolder) -> None:
    """Check every byte, and name the files that are damaged."""
    from lioncub.tools.checkpoints import CheckpointConfig, run_verify

    raise typer.Exit(not run_verify(CheckpointConfig(folder=folder)))


@checkpoint.command()
def show(folder: CheckpointFolder) -> None:
    """Say what is in the checkpoints of a run, or in one of them file by file."""
    from lioncub.tools.checkpoints import CheckpointConfig, run_show

    run_show(CheckpointConfig(folder=folder))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say which kernels run on this machine, and why the others do not."""
    from lioncub.tools.doctor import run_doctor

    run_doctor(as_json=as_json)


@app.command()
def live(
    records: Annotated[Path, typer.Argument(help="The file that lioncub.live.Monitor(records=…) writes.")],
) -> None:
    """Show a running job: time, bytes, votes, loss, and what looks wrong. Ends with the job, or on Ctrl-C."""
    from lioncub.tools.live.follow import LiveConfig, run_live

    run_live(LiveConfig(records=records))


def main() -> None:
    """The console script: errors of this library are one message, not a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that workers are stopped too
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except LionCubError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
