"""Changes small things in the code, one at a time, and tells which changes no test notices.

Usage: python -m tests.mutants [--count 100] [--seed 1] [--only PATH] [--workers 2]

First, one run of all tests tells which of them execute which mutants (`mutant_reach.py`). Then, for each mutant, those run until one fails:
those of its folder first, at most `SECONDS` of tests in all. A sample of 100 takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.mutant_places import ROOT, Mutant, sample
from tests.mutant_reach import Reach, reach

#: Seconds of tests, as one run of all took them, that a mutant is shown to at most.
SECONDS = 240.0
#: Seconds after which tests are ended; a mutant that hangs counts as noticed.
LIMIT = 1200


def chosen_tests(mutant: Mutant, executing: Iterable[str], seconds: dict[str, float], limit: float = SECONDS) -> list[list[str]]:
    """Return the tests that a mutant is shown to: those of its folder, then others, each in the order of a run of all.

    Args:
        mutant: the mutant.
        executing: the tests that execute its place.
        seconds: how long each test takes; tests of a file stay in this order.
        limit: seconds that all together may take, the nearest and quickest first; one test is there in any case.
    """
    top = mutant.file.split("/")[1].removesuffix(".py")
    stem = Path(mutant.file).stem

    def near(test: str) -> int:
        file = test.partition("::")[0]
        return 0 if stem in Path(file).stem else 1 if file.startswith((f"tests/{top}/", "pe_cli/")) else 2

    taken: list[str] = []
    total = 0.0
    for test in sorted(executing, key=lambda t: (near(t), seconds.get(t, 0.0), t)):
        total += seconds.get(test, 0.0)
        if taken and total > limit:
            break
        taken.append(test)
    place = {test: i for i, test in enumerate(seconds)}
    taken.sort(key=lambda t: (t.partition("::")[0], place[t]))
    rounds = [t for t in taken if near(t) < 2], [t for t in taken if near(t) == 2]
    return [tests for tests in rounds if tests]


def noticed(mutant: Mutant, rounds: list[list[str]], home: Path) -> str:
    """Return the first of some tests that fails with a mutant, in a copy of the project, or nothing where none does."""
    target = home / mutant.file
    source = target.read_text(encoding="utf-8")
    target.write_text(source[: mutant.begin] + mutant.text + source[mutant.end :], encoding="utf-8")
    try:
        return next((failed for tests in rounds for failed in failing(tests, home, "-x")), "")
    finally:
        target.write_text(source, encoding="utf-8")


def failing(tests: list[str], home: Path, *arguments: str) -> list[str]:
    """Run tests in a copy of the project and return those that fail; tests that hang are ended, with all that they began.

    Raises:
        RuntimeError: a test is not there.
    """
    given = {**os.environ, "PYTHONPATH": str(home)}
    with (
        tempfile.NamedTemporaryFile("w", encoding="utf-8") as names,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
    ):
        names.write("\n".join(tests))
        names.flush()
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *arguments, f"@{names.name}"]
        with subprocess.Popen(command, cwd=home, env=given, start_new_session=True, stdout=said, stderr=subprocess.STDOUT) as process:
            try:
                if process.wait(LIMIT) == 0:
                    return []
            except subprocess.TimeoutExpired:
                return [f"no test: ended after {LIMIT} s"]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        text = said.read()
        if "ERROR: not found: " in text:
            raise RuntimeError(text)
        return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE) or ["pytest, which did not start"]


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return what a copy of the project does not need: caches everywhere, and at its top what was made there."""
    made = {".git", ".venv", "runs", "build", "dist"} if Path(folder) == ROOT else set[str]()
    return {name for name in names if name in made or name == "__pycache__" or (name.startswith(".") and name.endswith("_cache"))}


def main() -> None:
    """Run a sample and print what survived; the exit code is 1 where that is more than a tenth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="PATH", help="such as pe_cli/execute")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    wished = parser.parse_args()
    chosen = sample(wished.count, wished.seed, wished.only)
    homes: queue.Queue[Path] = queue.Queue()
    survived: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(wished.workers):
            home = Path(folder) / str(i)
            shutil.copytree(ROOT, home, ignore=_left_out)
            homes.put(home)
        into = Path(folder) / "reach"
        into.mkdir()
        found = reach(chosen, home, into, wished.workers)
        failed = set(failing(found.failed, home) if found.failed else ())
        print(f"{len(found.seconds)} tests ran, {len(failed)} of them fail without a change and are left out", flush=True)  # noqa: T201

        def run(numbered: tuple[int, Mutant]) -> str:
            home = homes.get()
            try:
                return verdict(*numbered, found, failed, home)
            finally:
                homes.put(home)

        with concurrent.futures.ThreadPoolExecutor(wished.workers) as pool:
            for i, (mutant, by) in enumerate(zip(chosen, pool.map(run, enumerate(chosen)), strict=True), 1):
                print(f"{i:4} {f'noticed by {by}' if by else 'SURVIVED'}: {mutant}", flush=True)  # noqa: T201
                if not by:
                    survived.append(mutant)
    killed = len(chosen) - len(survived)
    print(f"{killed} of {len(chosen)} mutants were noticed")  # noqa: T201
    for mutant in survived:
        print(f"  {mutant}")  # noqa: T201
    sys.exit(len(survived) * 10 > len(chosen))


def verdict(number: int, mutant: Mutant, found: Reach, failed: set[str], home: Path) -> str:
    """Return the test that notices a mutant, or nothing.

    A place that imports execute is shown to the nearest tests. In a kernel no mark is executed: it cannot be compiled with one, and
    the tests that only fail with marks are those that use it.
    """
    executing = found.tests.get(number, {""}) or set(found.failed)
    if "" in executing:
        executing = set(found.seconds)
    return noticed(mutant, chosen_tests(mutant, executing & set(found.seconds) - failed, found.seconds), home)


if __name__ == "__main__":
    main()
