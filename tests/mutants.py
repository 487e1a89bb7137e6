"""Changes small things in the code, one at a time, and tells which changes no test notices.

Usage: python tests/mutants.py [--count 100] [--seed 1] [--only PATH] [--workers 2]

A mutant is one change: a comparison turned round, a number that is one more, a condition that is its opposite, a statement that is left
out. Kernels are left alone, and so are texts, types and declarations. For each mutant run, until one fails: the tests that name its module,
those of its folder, and those of commands and sessions. A run of 100 takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import copy
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What is not mutated: kernels, and what only declares or prints.
APART = ("kernels/", "/forms/", "__main__", "ops/conv_kernels", "/templates/")
KERNELS = ("kernel", "helper", "shared", "on_cuda")
#: Seconds that the tests of a step may take; a mutant that hangs counts as noticed.
LIMIT = 1200
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of one place.

    Args:
        file: relative to the project.
        line: of the place, from 1.
        begin, end: characters of the file that are replaced.
        text: what comes there.
        was: what was there.
    """

    file: str
    line: int
    begin: int
    end: int
    text: str
    was: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.was!r} -> {self.text!r}"


class _Places(ast.NodeVisitor):
    """Finds places of one file that can be changed."""

    def __init__(self, file: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._file, self._source = file, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        """Return the character of a place; columns count bytes."""
        row = self._source[self._starts[line - 1] : self._starts[line]]
        return self._starts[line - 1] + len(row.encode()[:column].decode())

    def _add(self, node: ast.expr | ast.stmt, text: str) -> None:
        begin = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        self.found.append(Mutant(self._file, node.lineno, begin, end, text, self._source[begin:end]))

    def _changed(self, node: ast.expr, **fields: object) -> None:
        made = copy.copy(node)
        for name, value in fields.items():
            setattr(made, name, value)
        self._add(node, f"({ast.unparse(made)})")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        names = {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
        if names.isdisjoint(KERNELS) and not node.name.startswith("__repr"):
            for statement in node.body:
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                self.visit(statement)

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                self.visit(statement)

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if type(node.ops[0]) in SWAPPED:
            self._changed(node, ops=[SWAPPED[type(node.ops[0])](), *node.ops[1:]])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple)) for side in (node.left, node.right))
        if type(node.op) in COUNTED and not text:
            self._changed(node, op=COUNTED[type(node.op)]())
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._add(node.test, f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int) and node.value < 100:
            self._add(node, str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, "pass")
            self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")


def mutants(only: str = "") -> list[Mutant]:
    """Return all mutants of the code below a path, in order."""
    found: list[Mutant] = []
    for path in sorted((ROOT / "pe_cli").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if any(part in name for part in APART) or not name.startswith(only):
            continue
        source = path.read_text(encoding="utf-8")
        places = _Places(name, source)
        places.visit(ast.parse(source))
        found += places.found
    return found


def sample(count: int, seed: int, only: str = "") -> list[Mutant]:
    """Return some mutants, of every file as likely as it has places."""
    known = mutants(only)
    return random.Random(seed).sample(known, min(count, len(known)))


def rounds(mutant: Mutant) -> Iterator[list[str]]:
    """Yield the tests that may notice a mutant, the nearest first: arguments of pytest."""
    module = mutant.file.removesuffix(".py").replace("/", ".")
    *_, folder, stem = mutant.file.removesuffix(".py").split("/")
    named = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if stem in path.stem or re.search(rf"{re.escape(module)}\b|\b{folder} import .*\b{stem}\b", path.read_text(encoding="utf-8"))
    ]
    if named:
        yield named
    top = mutant.file.split("/")[1]
    if top == "ops":
        ops = re.findall(r'^@op\(\s*"(\w+)"', (ROOT / mutant.file).read_text(encoding="utf-8"), re.MULTILINE)
        yield ["tests/ops", *(["-k", " or ".join(ops)] if ops else [])]
    elif (ROOT / "tests" / top).is_dir():
        yield [f"tests/{top}"]
    further = {
        "ops": ["cuda", "optim", "layers"], "layers": ["paddle"], "program": ["graph"], "graph": ["execute"], "devices": ["execute"],
        "core": ["config"],
    }  # fmt: skip
    yield [*(f"tests/{folder}" for folder in further.get(top, [])), "tests/cli", "tests/session"]


def noticed(mutant: Mutant, home: Path) -> str:
    """Return the first test that fails with a mutant, in a copy of the project, or nothing where none does."""
    target = home / mutant.file
    source = target.read_text(encoding="utf-8")
    target.write_text(source[: mutant.begin] + mutant.text + source[mutant.end :], encoding="utf-8")
    try:
        for tests in rounds(mutant):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
            if failed := _failed(command, home):
                return failed
        return ""
    finally:
        target.write_text(source, encoding="utf-8")


def _failed(command: list[str], home: Path) -> str:
    """Run tests in a copy of the project and return the one that fails; tests that hang are ended, with all that they began."""
    given = {**os.environ, "PYTHONPATH": str(home)}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(command, cwd=home, env=given, start_new_session=True, stdout=said, stderr=subprocess.STDOUT) as process,
    ):
        try:
            if process.wait(LIMIT) in (0, 5):  # 5: no test was chosen
                return ""
        except subprocess.TimeoutExpired:
            return f"no test: ended after {LIMIT} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", said.read(), re.MULTILINE)
        return found[0] if found else "pytest, which did not start"


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
        if failed := noticed(Mutant(chosen[0].file, 1, 0, 0, "", ""), home):
            raise SystemExit(f"the tests of {chosen[0].file} fail without a change: {failed}")

        def run(mutant: Mutant) -> str:
            home = homes.get()
            try:
                return noticed(mutant, home)
            finally:
                homes.put(home)

        with concurrent.futures.ThreadPoolExecutor(wished.workers) as pool:
            for i, (mutant, found) in enumerate(zip(chosen, pool.map(run, chosen), strict=True), 1):
                print(f"{i:4} {f'noticed by {found}' if found else 'SURVIVED'}: {mutant}", flush=True)  # noqa: T201
                if not found:
                    survived.append(mutant)
    killed = len(chosen) - len(survived)
    print(f"{killed} of {len(chosen)} mutants were noticed")  # noqa: T201
    for mutant in survived:
        print(f"  {mutant}")  # noqa: T201
    sys.exit(len(survived) * 10 > len(chosen))


if __name__ == "__main__":
    main()
