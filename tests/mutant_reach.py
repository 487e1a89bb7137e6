"""Which tests execute which mutants: found by one run of all tests in a copy of the project with marks at the places of the mutants.

As a plugin of pytest (`-p tests.mutant_reach`) this module writes how long each test took and whether it failed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mutant_places import STATEMENTS, Mutant

#: The environment variable with the folder that marks and times are written into.
FOLDER = "PE_MUTANT_REACH"
#: The module that marks call, in the copy alone.
_WRITER = "_reached"
_MARK = f"__import__('pe_cli.{_WRITER}', fromlist=['hit']).hit({{}})"
#: What a mark does. Processes that a test starts inherit the name of the test.
_HIT = f'''"""Writes which test comes by which mark."""
import os

_seen = set()


def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (number, test) not in _seen:
        _seen.add((number, test))
        if folder := os.environ.get("{FOLDER}"):
            with open(f"{{folder}}/{{os.getpid()}}.hits", "a", encoding="utf-8") as file:
                file.write(f"{{number}}\\t{{test}}\\n")
'''


@dataclass
class Reach:
    """What the run with marks told.

    Args:
        tests: the tests that execute each mutant, by its number; "" stands for the import of a module.
        seconds: how long each test took.
        failed: tests that failed there.
    """

    tests: dict[int, set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def mark(source: str, placed: Sequence[tuple[int, Mutant]]) -> tuple[str, dict[int, int]]:
    """Return a source with marks, and the number of the mark that tells of each mutant.

    A mutant inside another one has the mark of the outer one. A place that cannot hold a mark (a pattern of `case`) gets none.
    """
    told: dict[int, int] = {}
    marks: list[tuple[int, Mutant]] = []
    for number, mutant in sorted(placed, key=lambda p: (p[1].begin, -p[1].end)):
        if marks and mutant.begin < marks[-1][1].end:
            told[number] = marks[-1][0]
            continue
        if _parses(_with(source, [(number, mutant)])):
            marks.append((number, mutant))
            told[number] = number
    return _with(source, marks), told


def _with(source: str, marks: Sequence[tuple[int, Mutant]]) -> str:
    for number, mutant in reversed(marks):
        call = _MARK.format(number)
        text = f"{call}; {mutant.was}" if mutant.text in STATEMENTS else f"({call} or ({mutant.was}))"
        source = source[: mutant.begin] + text + source[mutant.end :]
    return source


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def reach(chosen: Sequence[Mutant], home: Path, into: Path, workers: int) -> Reach:
    """Run all tests in a copy of the project, with marks, and return which of them execute which mutants.

    Args:
        chosen: the mutants; their numbers are their places here.
        home: the copy; it is as before when this returns.
        into: a folder for what is written.
        workers: how many processes run tests.
    """
    told: dict[int, int] = {}
    sources: dict[Path, str] = {}
    for file in sorted({mutant.file for mutant in chosen}):
        path = home / file
        sources[path] = path.read_text(encoding="utf-8")
        text, marks = mark(sources[path], [(i, m) for i, m in enumerate(chosen) if m.file == file])
        told.update(marks)
        path.write_text(text, encoding="utf-8")
    writer = home / "pe_cli" / f"{_WRITER}.py"
    writer.write_text(_HIT, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.mutant_reach"]
    given = {**os.environ, "PYTHONPATH": str(home), FOLDER: str(into)}
    try:
        subprocess.run([*run, "-n", str(workers)], cwd=home, env=given, stdout=subprocess.DEVNULL, check=False)
    finally:
        writer.unlink()
        for path, text in sources.items():
            path.write_text(text, encoding="utf-8")
    return _read(told, into)


def _read(told: dict[int, int], into: Path) -> Reach:
    found = Reach()
    hits: dict[int, set[str]] = {}
    for file in into.glob("*.hits"):
        for line in file.read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition("\t")
            hits.setdefault(int(number), set()).add(test)
    for number, marked in told.items():
        found.tests[number] = hits.get(marked, set())
    for line in (into / "times").read_text(encoding="utf-8").splitlines():
        test, seconds, outcome = line.rsplit("\t", 2)
        if _WRITER in test:  # a test of this file, which is there with marks alone
            continue
        found.seconds[test] = found.seconds.get(test, 0.0) + float(seconds)
        if outcome == "failed":
            found.failed.append(test)
    return found


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write how long a part of a test took; where several processes run tests, the one that gathers their reports does."""
    if (folder := os.environ.get(FOLDER)) and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(folder, "times").open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\t{report.duration:.4f}\t{report.outcome}\n")
