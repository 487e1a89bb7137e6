"""The places of the code that a mutant can change, and a seeded sample of them.

A mutant is one change: a comparison turned round, a number that is one more, a condition that is its opposite, a statement that is left
out. Kernels are left alone, and so are texts, types, declarations and assertions.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import heapq
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What is not mutated: kernels, and what only declares or prints.
APART = ("kernels/", "/forms/", "__main__", "ops/conv_kernels", "/templates/")
KERNELS = ("kernel", "cuda_kernel", "helper", "shared", "on_cuda")
#: Texts of the mutants that replace a statement; those of all others are expressions.
STATEMENTS = ("pass", "break", "continue")
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

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # zip's own assertion
            self.generic_visit(node)

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
    """Return some mutants, of every file as likely as it has places.

    A place is drawn by the text of its line, so that a sample stays as it is while code is changed elsewhere, and a smaller sample is the
    beginning of a larger one.
    """
    seen: Counter[str] = Counter()
    drawn: list[tuple[bytes, Mutant]] = []
    lines: dict[str, list[str]] = {}
    for mutant in mutants(only):
        if mutant.file not in lines:
            lines[mutant.file] = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()
        key = f"{seed}\n{mutant.file}\n{lines[mutant.file][mutant.line - 1].strip()}\n{mutant.was}\n{mutant.text}"
        seen[key] += 1
        drawn.append((hashlib.sha256(f"{key}\n{seen[key]}".encode()).digest(), mutant))
    return [mutant for _, mutant in heapq.nsmallest(count, drawn, key=lambda d: d[0])]
