"""The settings of a lab, and the commands that it would run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lioncub.errors import ConfigError
from lioncub.records import from_json, to_json
from lioncub.tools.cli import app, main
from lioncub.tools.lab import isolation, processes, registry, run
from lioncub.tools.lab.config import LabConfig
from lioncub.tools.lab.isolation import Isolation
from lioncub.tools.lab.network import host_launch
from lioncub.tools.lab.plan import HostPlan, Plan, caller, plan_of
from lioncub.tools.lab.rates import Rate
from lioncub.tools.lab.run import describe, dry_run


@pytest.mark.parametrize(
    ("text", "bits"),
    [("100mbit", 10**8), ("1gbit", 10**9), ("2.5Gbit", 25 * 10**8), ("512kbit", 512_000), (" 10mbit ", 10**7)],
)
def test_rates(text: str, bits: int) -> None:
    assert Rate.parse(text).bits_per_second == bits
    assert Rate.parse(str(Rate.parse(text))) == Rate.parse(text)


@pytest.mark.parametrize(
    "text", ["", "fast", "1", "1 gbit", "-1gbit", "1gbps", "1gbit; reboot", "99kbit", "101gbit", "0mbit"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigError, match=r"100mbit|100kbit"):
        Rate.parse(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosts": 0}, "1 to 150"),
        ({"hosts": 151}, "1 to 150"),
        ({"command": ()}, "after --"),
        ({"workers_per_host": 0}, "at least 1"),
        ({"rate": "quick"}, "no rate"),
        ({"host_rates": ("4=1gbit",)}, "no host 4"),
        ({"host_rates": ("1gbit",)}, "2=100mbit"),
        ({"host_rates": ("-1=1gbit",)}, "2=100mbit"),
        ({"host_rates": ("1=1gbit", "1=2gbit")}, "not two"),
        ({"counters": Path("/")}, "name a file"),
        ({"counters": Path("/nowhere/at/all")}, "no folder"),
    ],
)
def test_bad_settings(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LabConfig(**({"command": ("true",)} | given))  # type: ignore[arg-type]


def test_one_slow_link() -> None:
    config = LabConfig(command=("true",), hosts=3, rate="1gbit", host_rates=("1=100mbit", "2=none"))
    assert [str(rate) for rate in config.rates()] == ["1gbit", "100mbit", "None"]
    assert (
        describe(config, Isolation("root"))
        == "3 hosts on a bridge (root), links: host0 1gbit, host1 100mbit, host2 unshaped"
    )


def test_scripts_run_under_torchrun_and_other_commands_as_they_are() -> None:
    script = plan_of(LabConfig(command=("train.py", "--steps", "3"), hosts=2), networked=True).hosts[1]
    assert script.command[:3] == (sys.executable, "-m", "torch.distributed.run")
    assert script.command[-3:] == ("train.py", "--steps", "3")
    assert script.command[script.command.index("--local-addr") + 1] == "10.77.0.102"
    on_loopback = plan_of(LabConfig(command=("train.py",), hosts=2), networked=False).hosts[1]
    assert on_loopback.command[on_loopback.command.index("--node-rank") + 1] == "1"
    module = plan_of(LabConfig(command=("-m", "train"), hosts=2), networked=True).hosts[0]
    assert module.command[-2:] == ("-m", "train")
    other = plan_of(LabConfig(command=("iperf3", "-s"), hosts=2), networked=True).hosts[0]
    assert other.command == ("iperf3", "-s")


def test_a_plan_survives_the_pipe() -> None:
    plan = plan_of(LabConfig(command=("echo", "line\nbreak", '"'), hosts=2), networked=True)
    assert "\n" not in to_json(plan)
    assert from_json(to_json(plan), Plan) == plan


def test_dry_run_prints_every_command() -> None:
    config = LabConfig(command=("train.py",), hosts=2, rate="100mbit")
    lines = dry_run(plan_of(config, networked=True), Isolation("user namespaces", ("--user", "--map-root-user")))
    text = "\n".join(lines)
    assert lines[0].startswith("unshare --user --map-root-user --net")
    for wanted in (
        "ip link add br0 type bridge",
        "ip link add port1 type veth peer name eth0 netns HOST1",
        "nsenter --net=/proc/HOST1/ns/net ip address add 10.77.0.102/24 dev eth0",
        "tc qdisc add dev port0 root tbf rate 100000000bit burst 131072 latency 200ms",
        "nsenter --net=/proc/HOST0/ns/net tc qdisc add dev eth0 root tbf rate 100000000bit burst 131072 latency 200ms",
    ):
        assert wanted in lines
    assert text.count("torch.distributed.run") == 2
    assert text.count("lioncub.tools.lab.store 10.77.0.254 29400") == 1


def test_dry_run_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lioncub.tools.lab.run.running", lambda *_: pytest.fail("started"))
    done = CliRunner().invoke(app, ["lab", "--dry-run", "--hosts", "3", "--", "train.py"])
    assert done.exit_code == 0
    assert done.stdout.count("torch.distributed.run") == 3


def test_without_a_network_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: "/bin/true")
    monkeypatch.setattr(isolation, "probe", lambda options: "Operation not permitted")
    found = isolation.find_isolation()
    assert not found.networked
    assert "user namespaces: Operation not permitted" in found.reason
    assert describe(LabConfig(command=("true",)), found).startswith("UNSHAPED: 4 hosts on loopback")


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None if tool in ("ip", "tc") else "/bin/true")
    assert isolation.find_isolation().reason == "install iproute2"


def test_the_command_line_starts_without_torch() -> None:
    program = "import sys, lioncub.tools.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_process_is_known_by_its_start() -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    assert processes.start_time(os.getpid()) == started
    assert processes.start_time(2**22 + 1) is None


def test_hosts_run_as_the_user_who_called_sudo_and_with_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caller({"SUDO_UID": "1000", "SUDO_GID": "100"}) == ("--reuid=1000", "--regid=100", "--clear-groups")
    for environment in ({}, {"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "1000; rm", "SUDO_GID": "1"}):
        assert caller(environment) == ()
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "100")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    config = LabConfig(command=("true",), hosts=1)
    assert plan_of(config, networked=True).hosts[0].identity == caller(os.environ)
    assert plan_of(config, networked=True, ours=True).hosts[0].identity == ()
    host = HostPlan(name="host0", address="", shaping=(), command=("true",), environment={}, identity=("--reuid=7",))
    launched = host_launch(host, "42")
    assert launched[-6:] == ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--reuid=7", "--", "true"]


def test_an_unshaped_lab_says_that_it_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_isolation", lambda: Isolation("loopback", networked=False, reason="because"))
    counters = tmp_path / "counters.json"
    counters.write_text("OLD")
    said = Console(file=io.StringIO(), width=200)
    config = LabConfig(command=("true",), hosts=1, counters=counters)
    assert run.run_lab(replace(config, dry_run=True), said) == 0
    assert counters.read_text() == "OLD"
    assert run.run_lab(config, said) == 0
    assert not counters.exists()
    assert isinstance(said.file, io.StringIO)
    assert "UNSHAPED: 1 host on loopback" in said.file.getvalue()
    assert "counters.json is not written" in said.file.getvalue()


def test_clean_is_a_command_of_its_own_unless_it_follows_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[tuple[list[str], bool]] = []
    ran: list[LabConfig] = []
    monkeypatch.setattr(run, "run_clean", lambda words, *, dry_run: cleaned.append((words, dry_run)))

    def run_lab(config: LabConfig) -> int:
        ran.append(config)
        return 0

    monkeypatch.setattr(run, "run_lab", run_lab)
    for words in (["clean"], ["--dry-run", "clean"], ["clean", "--dry-run"], ["--", "clean"]):
        assert CliRunner().invoke(app, ["lab", *words]).exit_code == 0
    assert cleaned == [([], False), ([], True), (["--dry-run"], False)]
    assert [config.command for config in ran] == [("clean",)]


def test_clean_takes_nothing_else() -> None:
    with pytest.raises(ConfigError, match=r"lab clean takes --dry-run and nothing else, got --all"):
        run.run_clean(["--all"])


def test_scratch_folders_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with registry.scratch() as mine:
        dead = mine.with_name(mine.name.replace(f"-{os.getpid()}-", "-999999999-"))
        (dead / "inside").mkdir(parents=True)
        assert registry.clean(dry_run=True) == ["would have removed the scratch folder of process 999999999"]
        assert dead.exists()
        assert registry.clean() == ["removed the scratch folder of process 999999999"]
        assert not dead.exists()
        assert mine.exists()
    assert not mine.exists()


def test_a_script_that_is_not_there_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_lab() -> Isolation:
        raise AssertionError("nothing is to be started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "find_isolation", no_lab)
    monkeypatch.setattr(sys, "argv", ["lioncub", "lab", "--", "missing.py"])
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said.getvalue() == "error: there is no script missing.py: give its path from this folder\n"
