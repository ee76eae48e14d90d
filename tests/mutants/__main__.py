"""``make mutants``: each small wrong change in a copy of the package, and the fast test that notices it.

A mutant is killed when a test fails. Exit code 1: one survived. The tests pass on the copy without a mutant first.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.table import MUTANTS, PACKAGE, Mutant
from tests.support.paths import ROOT

SECONDS_PER_TEST, SECONDS_PER_MUTANT = 60, 240
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider")
SETTINGS = ("-m", "not slow", "--hypothesis-seed=0", f"--timeout={SECONDS_PER_TEST}")
PASSED, FAILED = 0, 1

SITE = """
import sys
from importlib.machinery import PathFinder

class CopyFinder(PathFinder):
    '''Finds the package in the copy: the finder of an editable installation comes before every path.'''

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] != "lioncub":
            return None
        return PathFinder.find_spec(name, [FOLDER] if path is None else path, target)

sys.meta_path.insert(0, CopyFinder)
"""


@dataclass(frozen=True)
class Result:
    """What came of one mutant."""

    killed: bool
    by: str
    """The test that failed, or why there is none."""
    seconds: float


class Copy:
    """A copy of the package with its native kernels, which Python processes started with ``environment`` import."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "lioncub"
        shutil.copytree(PACKAGE, self.package)
        native = find_spec("lioncub.kernels._native")
        if native and native.origin:
            shutil.copy2(native.origin, self.package / "kernels")
        (folder / "sitecustomize.py").write_text(f"FOLDER = {str(folder)!r}\n{SITE}", encoding="utf-8")
        self.environment = os.environ | {
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }

    def check_imports(self) -> None:
        """Raise RuntimeError unless the copy is what is imported."""
        found = subprocess.run(
            [sys.executable, "-c", "import lioncub.rule; print(lioncub.rule.__file__)"],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if Path(found) != self.package / "rule.py":
            raise RuntimeError(f"{found} is imported, not the copy in {self.package}")

    def run(self, tests: Sequence[str], *options: str) -> tuple[int | None, str]:
        """Exit code of pytest (None: it did not end in time), and its output."""
        command = [*PYTEST, *SETTINGS, *options, *(f"tests/{test}" for test in tests)]
        process = subprocess.Popen(
            command,
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=SECONDS_PER_MUTANT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output

    def result_of(self, mutant: Mutant) -> Result:
        path = self.package / mutant.file
        original = path.read_text(encoding="utf-8")
        started = time.monotonic()
        path.write_text(mutant.applied_to(original), encoding="utf-8")
        try:
            code, output = self.run(mutant.tests)
        finally:
            path.write_text(original, encoding="utf-8")
        seconds = time.monotonic() - started
        failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
        if code == FAILED and failed:
            return Result(True, failed[1], seconds)
        reason = "no test failed" if code == PASSED else f"pytest ended with {code}: {output.strip()[-300:]}"
        return Result(False, reason, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in their name or file")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not options.words or any(word in f"{m.name} {m.file}" for word in options.words)]
    for mutant in chosen:
        mutant.check()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lioncub-mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(copy := Copy(Path(folder, str(number))))
            copy.check_imports()
        code, output = copy.run(tests_of(chosen), "-n", str(options.jobs))
        if code != PASSED:
            print(output, "the tests fail without a mutant", sep="\n")
            return 2

        def killed(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                result = copy.result_of(mutant)
            finally:
                copies.put(copy)
            state = "killed  " if result.killed else "SURVIVED"
            print(f"{state} {result.seconds:5.1f} s  {mutant.name} ({mutant.file}): {result.by}", flush=True)
            return result.killed

        with ThreadPoolExecutor(options.jobs) as workers:
            num_killed = sum(workers.map(killed, chosen))
    print(f"{num_killed} of {len(chosen)} killed, in {time.monotonic() - started:.0f} s")
    return PASSED if num_killed == len(chosen) else FAILED


def tests_of(mutants: Sequence[Mutant]) -> list[str]:
    """The tests of all, each once: without the single tests of files that run as a whole."""
    tests = {test for mutant in mutants for test in mutant.tests}
    return sorted(test for test in tests if "::" not in test or test.partition("::")[0] not in tests)


if __name__ == "__main__":
    sys.exit(main())
