"""`"%f" % x` and `float(x)` of an array of one number, which NumPy took for the number when scripts for 1.3 to 1.8 were written.

It refuses since 2.4.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from types import CodeType
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


def compiled(source: bytes, name: str) -> CodeType:
    """Return the code of a script whose formats, `float` and `int` take arrays of one number for numbers; of its file's name.

    Raises:
        SyntaxError: it is no Python.
    """
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
        if isinstance(node.func, ast.Name) and node.func.id in _CASTS and len(node.args) == 1 and not node.keywords:
            (given,) = node.args
            if not isinstance(given, (ast.Constant, ast.Starred)):
                called = ast.Call(ast.Name(_ONE, ast.Load()), [given], [])
                node.args = [ast.fix_missing_locations(ast.copy_location(called, given))]
        return node


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
