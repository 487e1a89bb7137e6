"""`"%f" % x` and `float(x)` of an array of one number, which NumPy took for the number when scripts for 1.3 to 1.8 were written.

It refuses since 2.4.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

#: What stands for one value in a format: its name, width and precision, and its kind.
_VALUE = re.compile(r"%(?:\((?P<name>[^)]*)\))?[#0\- +]*(?P<width>\*|\d+)?(?:\.(?P<digits>\*|\d+)?)?[hlL]?(?P<kind>[diouxXeEfFgGcrsa%])")
#: Kinds that are written as numbers.
_NUMBERS = frozenset("diouxXeEfFgG")
#: Name of `numbers` in the code.
_HELPER = "@numbers"
#: Name of `number` in the code, and what it is given to.
_ONE, _CASTS = "@number", ("float", "int")
#: What a source has where something in it may be given such an array.
_MARKS = (b"%", b"float", b"int", b"math")


def compiled(source: bytes, name: str) -> CodeType:
    """Return the code of a script whose formats, `float`, `int` and `math.exp(x)` take arrays of one number for numbers.

    Args:
        source: of the script.
        name: of its file.

    Raises:
        SyntaxError: it is no Python.
    """
    if not any(mark in source for mark in _MARKS):
        return compile(source, name, "exec", dont_inherit=True)
    tree = ast.parse(source, name)
    _Formats().visit(tree)
    # Among the builtins: the script's own variables are those that Python gives it.
    vars(builtins)[_HELPER], vars(builtins)[_ONE] = numbers, number
    return compile(tree, name, "exec", dont_inherit=True)


class _Formats(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        left = node.left
        if isinstance(node.op, ast.Mod) and isinstance(left, ast.Constant) and isinstance(left.value, str):
            called = ast.Call(ast.Name(_HELPER, ast.Load()), [ast.Constant(left.value), node.right], [])
            node.right = ast.fix_missing_locations(ast.copy_location(called, node.right))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        casts = isinstance(called, ast.Name) and called.id in _CASTS and len(node.args) == 1
        computes = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "math"
        if (casts or computes) and not node.keywords:
            node.args = [given if isinstance(given, (ast.Constant, ast.Starred)) else _one(given) for given in node.args]
        return node


def _one(given: ast.expr) -> ast.expr:
    called = ast.Call(ast.Name(_ONE, ast.Load()), [given], [])
    return ast.fix_missing_locations(ast.copy_location(called, given))


class _Loader(SourceFileLoader):
    """Loads a module of the script's as the script itself is compiled; nothing is kept in a cache."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)


class _Modules(MetaPathFinder):
    """Finds modules that the script imports and that are no part of a library."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        self._libraries = (*(Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")), Path(__file__).parents[1])

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import a module of the script's; None where it is another one, or not there."""
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or type(found.loader) is not SourceFileLoader or found.origin is None:
            return None
        file = Path(found.origin)
        if {"site-packages", "dist-packages"} & set(file.parts) or any(file.is_relative_to(folder) for folder in self._libraries):
            return None
        found.loader = _Loader(fullname, found.origin)
        return found


def install() -> None:
    """Compile modules that the script imports from now on as the script itself."""
    if not any(isinstance(finder, _Modules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Modules())


def numbers(text: str, given: Any) -> Any:
    """Return what a format is given, with numbers in place of arrays of one where it writes numbers.

    >>> "%s %d" % numbers("%s %d", (np.ones(1), np.ones((1, 1))))
    '[1.] 1'
    """
    if isinstance(given, Mapping):
        wanted = {m["name"] for m in _VALUE.finditer(text) if m["kind"] in _NUMBERS}
        return {k: number(v) if k in wanted else v for k, v in given.items()} if wanted & given.keys() else given
    kinds = list(_kinds(text))
    if isinstance(given, tuple):
        return tuple(number(v) if kind in _NUMBERS else v for kind, v in zip(kinds, given, strict=False)) + given[len(kinds) :]
    return number(given) if kinds[:1] and kinds[0] in _NUMBERS else given


def _kinds(text: str) -> Iterator[str]:
    """Give the kind of each value that a format takes, in order."""
    for m in _VALUE.finditer(text):
        yield from ("d" for size in (m["width"], m["digits"]) if size == "*")
        if m["kind"] != "%":
            yield m["kind"]


def number(value: Any) -> Any:
    """Return the number of an array that has just one; anything else as it is."""
    return value.reshape(())[()] if isinstance(value, np.ndarray) and value.ndim and value.size == 1 else value
