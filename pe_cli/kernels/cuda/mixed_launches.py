"""CUDA kernels that run calls of several kernels in one launch: each kernel gets a range of the blocks.

The threads of a block are numbered along x alone; those that a kernel has too many are done at once, which no barrier waits for.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.cuda import language
from pe_cli.kernels.cuda.batched_launches import PLACES, Here, placed, tree_of
from pe_cli.kernels.cuda.language import Built, CudaIntrinsic, CudaKernel
from pe_cli.kernels.cuda.rounding import exactly, is_exact
from pe_cli.kernels.language import POINTERS

#: Placement of a kernel in a mixed launch: its first block behind its own ones, and its blocks along x, y and z.
TOLD = ("until", "gridDim_x", "gridDim_y", "gridDim_z")
#: Element type -> annotation of a pointer to it.
_NAMED = {"bool": "PtrU8"} | {kind: name for name, kind in POINTERS.items() if name.startswith("Ptr") and kind not in ("T", "U")}


@functools.cache
def shared_bytes(built: Built) -> int:
    """Return the bytes of shared memory that a kernel's text asks for."""
    tree, space = language.prepared(built)
    size = np.dtype(built.dtype).itemsize
    found = sum(map(shared_bytes, built.parts)) + sum(size * value.room for value in space.values() if isinstance(value, CudaIntrinsic))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cuda.shared.array"):
            shape, kind = (eval(compile(ast.Expression(arg), built.kernel.name, "eval"), space) for arg in node.args)
            found += int(np.prod(shape)) * np.dtype(kind).itemsize
    return found


@functools.cache
def can_mix(built: Built) -> bool:
    """Return whether a kernel may be one of several: its parameters can be those of a kernel with another type U."""
    plain = "PtrU" not in built.kernel.params or built.second == built.dtype
    return plain or (built.second in _NAMED and not built.halves)


def told(grids: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return what calls of so many blocks along each axis are told behind their arguments."""
    ends = itertools.accumulate(math.prod(grid) for grid in grids)
    return [[end, *(*grid, 1, 1)[:3]] for end, grid in zip(ends, grids, strict=True)]


@functools.cache
def mixed(parts: tuple[Built, ...], threads: int) -> Built:
    """Return the kernel that does a call of each; all have one element type T, and `can_mix` says yes.

    Args:
        parts: the kernels.
        threads: of a block.
    """
    space: dict[str, Any] = {"__builtins__": __builtins__, "__name__": __name__, "_cuda": language.cuda}
    helpers: set[types.FunctionType] = set()
    names: list[str] = []
    kinds: list[str] = []
    halves: set[int] = set()
    lines: list[str] = []
    before = "0"
    for number, built in enumerate(parts):
        member = space[f"_kernel_{number}"] = _member(built, number)
        helpers |= {member, *built.helpers}
        halves |= {len(names) + i for i in built.halves}
        own = [f"_{number}_{i}" for i in range(len(built.kernel.params))] + [f"_{number}_{what}" for what in TOLD]
        other = "Ptr" if built.second == built.dtype else _NAMED.get(built.second, "PtrU")
        kinds += [other if kind == "PtrU" else kind for kind in built.kernel.params] + ["Int"] * len(TOLD)
        names += own
        # The comparisons come out the same for all threads of a block, so its warps do not diverge.
        lines += [f"{'el' if number else ''}if _cuda.blockIdx.x < _{number}_until:", f"    _kernel_{number}({', '.join(own)}, {before})"]
        before = f"_{number}_until"
    name = "|".join(built.kernel.name for built in parts)
    text = f"def mixed({', '.join(names)}):\n    " + "\n    ".join(lines)
    exec(compile(text, name, "exec"), space)  # our own text: names of ours only
    fn, first = space.pop("mixed"), parts[0]
    of = CudaKernel(fn, tuple(kinds), name, text, block=(threads,), resident=_resident(parts, threads))
    return Built(fn, frozenset(helpers), of, first.dtype, first.dtype, (), False, frozenset(halves))


def _resident(parts: Sequence[Built], threads: int) -> int:
    """Return the blocks that a multiprocessor shall have room for; 0 where a kernel that works by blocks does not say how many."""
    bounded = [part.kernel.resident * math.prod(part.block) for part in parts if part.block and isinstance(part.kernel, CudaKernel)]
    return min(bounded, default=0) // threads


def _member(built: Built, number: int) -> types.FunctionType:
    """Return a kernel as a function, which is given its place behind its arguments, and the blocks that are not its own."""
    tree, space = placed(built)
    lines = [
        "_table_block = _u32(_cuda.blockIdx.x - _first)",
        *(f"_table_gridDim_{axis} = _i32(_told_gridDim_{axis})" for axis in "xyz"),
        "_table_blockIdx_x = _i32(_table_block % _u32(_table_gridDim_x))",
        "_table_blockIdx_y = _i32(_table_block // _u32(_table_gridDim_x) % _u32(_table_gridDim_y))",
        "_table_blockIdx_z = _i32(_table_block // _u32(_table_gridDim_x) // _u32(_table_gridDim_y))",
    ]
    if built.block:
        x, y = (*built.block, 1)[:2]
        lines += [
            f"if _cuda.threadIdx.x >= {math.prod(built.block)}:",
            "    return",
            f"_table_threadIdx_x = _i32(_u32(_cuda.threadIdx.x) % _u32({x}))",
            f"_table_threadIdx_y = _i32(_u32(_cuda.threadIdx.x) // _u32({x}) % _u32({y}))",
            f"_table_threadIdx_z = _i32(_u32(_cuda.threadIdx.x) // _u32({x * y}))",
        ]
    here = Here((*PLACES, "threadIdx") if built.block else PLACES)
    tree.body = [*statements("\n".join(lines)), *(here.visit(each) for each in tree_of(built, tree))]
    tree.args.args += [ast.arg(name) for name in (*(f"_told_{what}" for what in TOLD), "_first")]
    tree.name = f"_kernel_{number}"
    space["_i32"] = np.int32
    exec(compile(ast.fix_missing_locations(ast.Module([tree], [])), built.kernel.name, "exec"), space)
    found: types.FunctionType = space.pop(tree.name)
    return exactly(found, is_exact(built.fn))
