"""CUDA kernels that run many calls of one kernel in one launch, with the arguments of every call in a table on the device.

A table is int64 words: first, for every block of the launch, the word at which the row of its call begins, then the rows. A row is the
first block of the call, how many it has along x, y and z, and its arguments: addresses, whole numbers, the bits of floating ones.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.cuda import language
from pe_cli.kernels.cuda.language import Built, CudaIntrinsic, CudaKernel
from pe_cli.kernels.cuda.rounding import exactly, is_exact
from pe_cli.kernels.language import Kernel

#: Words of a row before its arguments.
HEAD = 4
#: What a kernel asks of its place in the grid; a helper or a text that asks otherwise cannot be given another.
PLACES = ("blockIdx", "gridDim")
_ASKS = frozenset({*PLACES, "grid", "gridsize"})


@functools.cache
def written(kernel: Kernel | CudaKernel) -> frozenset[int]:
    """Return the numbers of parameters that a kernel may write through: all that it does more with than read elements."""
    tree = _tree(kernel)
    more: Counter[str] = Counter()  # than is read of elements
    for n in ast.walk(tree):
        if isinstance(n, ast.Name):
            more[n.id] += 1
        elif isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) and isinstance(n.value, ast.Name):
            more[n.value.id] -= 1
    return frozenset(number for number, arg in enumerate(tree.args.args) if more[arg.arg] > 0)


@functools.cache
def of_table(built: Built) -> Built:
    """Return the kernel that takes a table of calls; `asks_elsewhere` says no."""
    kernel = built.kernel
    made, space = placed(built)
    _take_row(made, built)
    space |= meanings(built.elements)
    text = ast.unparse(ast.fix_missing_locations(made)) + "\n"
    exec(compile(text, kernel.name, "exec"), space)  # the text of a kernel of ours
    fn = exactly(space.pop(made.name), is_exact(built.fn))
    of = CudaKernel(fn, ("PtrI64",), f"{kernel.name}[]", text, block=built.block, dealt=not built.block)
    return Built(of.fn, built.helpers, of, built.dtype, built.second, (), False)


@functools.cache
def asks_elsewhere(built: Built) -> bool:
    """Return whether a kernel asks for its place in the grid in a way that `Here` does not answer."""
    asked = [n for n in ast.walk(_tree(built.kernel)) if isinstance(n, ast.Attribute) and n.attr in _ASKS]
    askers = [fn for fn in built.helpers if _ASKS & set(fn.__code__.co_names)]
    within = {name for fn in built.helpers for name in fn.__code__.co_names}
    return any(n.attr not in PLACES for n in asked) or any(fn.__code__.co_argcount or fn.__name__ in within for fn in askers)


def placed(built: Built) -> tuple[ast.FunctionDef, dict[str, Any]]:
    """Return the text of a kernel, its loops dealt, and its globals; what helpers ask of its place stands in the text itself."""
    tree, space = language.prepared(built)
    askers = {id(fn) for fn in built.helpers if _ASKS & set(fn.__code__.co_names)}
    asked = {name: _asked(value) for name, value in space.items() if id(value) in askers}

    class Put(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            return copy.deepcopy(asked[name]) if name in asked else self.generic_visit(node)

    return (Put().visit(tree) if asked else tree), space


def _asked(fn: types.FunctionType) -> ast.expr:
    """Return what a helper without arguments returns."""
    found = language.definition(fn, None).body[-1]
    assert isinstance(found, ast.Return)
    assert found.value

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Name("_cuda", ast.Load()) if node.id == "cuda" else ast.Constant(fn.__globals__[node.id])

    made: ast.expr = Put().visit(found.value)
    return made


def taken(built: Built, number: int, word: str) -> str:
    """Return the text that makes an argument of a word, for the parameter of a number."""
    kind = built.kernel.params[number]
    if element := built.element(number):
        return f"_at_{element}({word})"
    return f"_number_{built.number(kind)}({word})" if kind == "Real" else word


def tree_of(built: Built, tree: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a kernel whose loops are dealt; of one that deals none, those of its only thread."""
    if built.loops or built.block or (isinstance(built.kernel, CudaKernel) and built.kernel.dealt):
        return tree.body
    alone = statements("if _cuda.threadIdx.x == 0:\n    pass")
    assert isinstance(alone[0], ast.If)
    alone[0].body = tree.body
    return list(alone)


@functools.cache
def _tree(kernel: Kernel | CudaKernel) -> ast.FunctionDef:
    """Return the text of a kernel, to be looked at alone."""
    return language.definition(kernel.fn, kernel.text if isinstance(kernel, CudaKernel) else None)


def _take_row(tree: ast.FunctionDef, built: Built) -> None:
    """Let a function, whose loops are dealt, take its arguments and its place in the grid from a table."""
    lines = ["_table_row = _table[_cuda.blockIdx.x]", "_table_block = _u32(_cuda.blockIdx.x - _table[_table_row])"]
    for number, arg in enumerate(tree.args.args):
        lines.append(f"{arg.arg} = {taken(built, number, f'_table[_table_row + {HEAD + number}]')}")
    for axis in "xyz":
        lines.append(f"_table_gridDim_{axis} = _i32(_table[_table_row + {1 + 'xyz'.index(axis)}])")
    # Unsigned 32 bits suffice for the number of a block, and a division takes a fifth of the instructions that 64 bits take.
    lines += [
        "_table_blockIdx_x = _i32(_table_block % _u32(_table_gridDim_x))",
        "_table_blockIdx_y = _i32(_table_block // _u32(_table_gridDim_x) % _u32(_table_gridDim_y))",
        "_table_blockIdx_z = _i32(_table_block // _u32(_table_gridDim_x) // _u32(_table_gridDim_y))",
    ]
    start = statements("\n".join(lines))
    tree.body = [*start, *(Here().visit(statement) for statement in tree_of(built, tree))]
    tree.args.args = [ast.arg("_table")]


class Here(ast.NodeTransformer):
    """Puts a call's place among its own blocks where a text asks for that in the grid.

    Args:
        places: what of its place a text is told.
    """

    def __init__(self, places: Sequence[str] = PLACES) -> None:
        self._places = places

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Attribute) and node.value.attr in self._places:
            return ast.Name(f"_table_{node.value.attr}_{node.attr}", ast.Load())
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        # `deal_loops` takes both from the whole grid, which the calls of a table share.
        names = {"_dealt_first": "_u32(_table_block * _u32(_cuda.blockDim.x) + _u32(_cuda.threadIdx.x))",
                 "_dealt_stride": "_u32(_u32(_table_gridDim_x) * _u32(_cuda.blockDim.x))"}  # fmt: skip
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in names:
            return statements(f"{target.id} = {names[target.id]}")[0]
        return self.generic_visit(node)


def meanings(elements: frozenset[str]) -> dict[str, Any]:
    """Return what texts that take arguments from a table call; elements: types that are pointed to."""
    found: dict[str, Any] = {"_i32": np.int32}
    for element in elements:
        found[f"_at_{element}"] = _at(element)
    for number in ("float32", "float64"):
        found[f"_number_{number}"] = _number(number)
    return found


@functools.cache
def _at(element: str) -> CudaIntrinsic:
    def emit(env: Any, args: list[Any]) -> Any:
        """Make a pointer of an address in the device's memory: LLVM need not think of other spaces."""
        from llvmlite import ir

        from pe_cli.kernels.cuda.vectorized_loops import SIZES

        kind = {"float32": ir.FloatType(), "float64": ir.DoubleType()}.get(element, ir.IntType(8 * SIZES[element]))
        return env.builder.addrspacecast(env.builder.inttoptr(args[0], kind.as_pointer(1)), kind.as_pointer())

    return CudaIntrinsic(f"_at_{element}", f"{element}*", ("int64",), emit)


@functools.cache
def _number(number: str) -> CudaIntrinsic:
    def emit(env: Any, args: list[Any]) -> Any:
        """Return the number whose bits a word begins with."""
        from llvmlite import ir

        if number == "float64":
            return env.builder.bitcast(args[0], ir.DoubleType())
        return env.builder.bitcast(env.builder.trunc(args[0], ir.IntType(32)), ir.FloatType())

    return CudaIntrinsic(f"_number_{number}", number, ("int64",), emit)


@dataclass(frozen=True)
class Row:
    """A call in a table.

    Args:
        grid: its blocks along each axis.
        words: [arguments] uint64, as of a launch.
    """

    grid: tuple[int, ...]
    words: np.ndarray[Any, Any]

    @property
    def blocks(self) -> int:
        """How many blocks the launch has."""
        return int(np.prod(self.grid))


def words_of(rows: Sequence[Row]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Return a table, [words] int64, and the word at which the arguments of every row begin."""
    blocks = [row.blocks for row in rows]
    begins, at = [], sum(blocks)
    parts: list[Any] = []
    for k, row in enumerate(rows):
        begins.append(at)
        first = sum(blocks[:k])
        parts.append(np.array([first, *(*row.grid, 1, 1)[:3]], np.int64))
        parts.append(row.words.view(np.int64))
        at += HEAD + len(row.words)
    # One word for every block instead of a search: a block finds its row by one load.
    return np.concatenate([np.repeat(np.array(begins, np.int64), blocks), *parts]), [b + HEAD for b in begins]
