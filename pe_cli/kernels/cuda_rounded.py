"""Texts of kernels whose arrays are bfloat16 on CUDA: what is read through a parameter becomes float32, what is written is rounded.

There such an array is one of whole numbers of 16 bits, and the text converts. It must reach the array as `x[i]` alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection
from typing import Any

from pe_cli.kernels.halves import round_half, widen
from pe_cli.kernels.lang import Intrinsic

#: How an array of bfloat16 is stored, and its bytes.
STORED, BYTES = "uint16", 2
_READ, _WRITE, _NUMBER = "_read_half", "_written_half", "_as_float32"


def converting(tree: ast.FunctionDef, arrays: Collection[str]) -> None:
    """Let a function convert where it reads and writes elements of these parameters.

    Raises:
        AssertionError: it uses one of them otherwise, see `suits`.
    """
    assert suits(tree, arrays), f"{tree.name} hands on arrays of bfloat16"
    _Converting(arrays).visit(tree)
    ast.fix_missing_locations(tree)


def suits(tree: ast.FunctionDef, arrays: Collection[str]) -> bool:
    """Whether a function reaches the elements of these parameters itself, one at a time."""
    reached = [n.value for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]
    named = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in arrays]
    return len(named) == sum(n.id in arrays for n in reached)


class _Converting(ast.NodeTransformer):
    def __init__(self, arrays: Collection[str]) -> None:
        self._arrays = arrays

    def _is_element(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self._arrays

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not self._is_element(node) or isinstance(node.ctx, ast.Store):
            return node
        return ast.copy_location(_call(_READ, node), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(map(self._is_element, node.targets)):
            node.value = _rounded(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not self._is_element(node.target):
            return self.generic_visit(node)
        read: Any = copy.deepcopy(node.target)
        read.ctx = ast.Load()
        return ast.copy_location(self.visit_Assign(ast.Assign([node.target], ast.BinOp(read, node.op, node.value))), node)


def _call(name: str, value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [value], [])


def _rounded(value: ast.expr) -> ast.expr:
    return _call(_WRITE, _call(_NUMBER, value))


def _read(env: Any, args: list[Any]) -> Any:
    return widen(env.builder, args[0])


def _written(env: Any, args: list[Any]) -> Any:
    return round_half(env.builder, args[0])


def meanings(intrinsic: type[Intrinsic]) -> dict[str, Any]:
    """Return what the names of such texts mean; intrinsic: what instructions are made of."""
    import numpy as np

    return {
        _READ: intrinsic(_READ, "float32", (STORED,), _read),
        _WRITE: intrinsic(_WRITE, STORED, ("float32",), _written),
        _NUMBER: np.float32,
    }
