"""CUDA kernels that run several small launches one after the other in a single block, with the arguments of each in a table.

The table is int64 words, the arguments of one launch behind those of the launch before: addresses, whole numbers, the bits of floating
ones. Every launch sees what those before it have written, as threads of a block wait for one another.
"""

from __future__ import annotations

import ast
import functools
import types
from typing import Any

from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.cuda import language
from pe_cli.kernels.cuda.batched_launches import Here, asks_elsewhere, meanings, taken, tree_of
from pe_cli.kernels.cuda.language import Built, CudaKernel
from pe_cli.kernels.cuda.rounding import exactly, is_exact

#: Threads of the block.
THREADS = 256
#: Block number that a chained kernel sees: each launch had one block only.
ALONE = (
    "_table_block = _u32(0)\n"
    + "\n".join(f"_table_blockIdx_{axis} = _i32(0)\n_table_gridDim_{axis} = _i32(1)" for axis in "xyz")
)  # fmt: skip


@functools.cache
def fits(built: Built) -> bool:
    """Return whether a kernel may be one of a chain: dealt, for one thread, or for blocks of THREADS, and no helper asks for its place."""
    return built.block in ((), (THREADS,)) and not asks_elsewhere(built)


@functools.cache
def of_chain(parts: tuple[Built, ...]) -> Built:
    """Return the kernel that does one launch of each of these; all have one element type T, and `fits` says yes."""
    lines, at = [], 0
    space: dict[str, Any] = {"__builtins__": __builtins__, "__name__": __name__, "_cuda": language.cuda, **_meanings(parts)}
    helpers: set[types.FunctionType] = set()
    for number, built in enumerate(parts):
        member = space[f"_member_{number}"] = _member(built, number)
        helpers |= {member, *built.helpers}
        words = [taken(built, k, f"_table[{at + k}]") for k in range(len(built.kernel.params))]
        lines += [f"_member_{number}({', '.join(words)})", "_cuda.syncthreads()"]
        at += len(words)
    # Without the last barrier: nothing follows that would have to wait.
    text = "def chain(_table):\n    " + "\n    ".join(lines[:-1])
    exec(text, space)  # our own text: names of ours only
    fn, first = space.pop("chain"), parts[0]
    of = CudaKernel(fn, ("PtrI64",), "+".join(built.kernel.name for built in parts), text, block=(THREADS,))
    return Built(fn, frozenset(helpers), of, first.dtype, first.second, (), False, parts=parts)


def _meanings(parts: tuple[Built, ...]) -> dict[str, Any]:
    return meanings(frozenset().union(*(built.elements for built in parts)))


def _member(built: Built, number: int) -> types.FunctionType:
    """Return a kernel as a function for the only block that there is."""
    tree, space = language.prepared(built)
    tree.body = [*statements(ALONE), *(Here().visit(statement) for statement in tree_of(built, tree))]
    tree.name = f"_member_{number}"
    space |= _meanings((built,))
    exec(compile(ast.fix_missing_locations(ast.Module([tree], [])), built.kernel.name, "exec"), space)
    found: types.FunctionType = space.pop(tree.name)
    return exactly(found, is_exact(built.fn))
