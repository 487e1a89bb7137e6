"""Feeds of other shapes than declared: the step's types follow from what is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.program.ir import EMPTY, Program

#: Shapes that differ from the declared ones, by feed.
_Shapes = tuple[tuple[str, tuple[int, ...]], ...]
# Weak: a program that a script drops takes its forms with it.
_MADE: WeakKeyDictionary[Program, dict[tuple[Any, _Shapes], Program | None]] = WeakKeyDictionary()
#: Forms of one program that are kept.
MOST = 16


def fitted(program: Program, feed: Mapping[str, Any]) -> Program:
    """Return the program with the types that follow from a feed; the program itself where the feed has the declared sizes.

    Args:
        program: not changed.
        feed: name -> value; only those whose sizes may differ are looked at.
    """
    block = program.global_block()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in feed.items():
        v = block.vars.get(name)
        if v is not None and getattr(v, "any_sizes", False):
            shape = value.array.shape if isinstance(value, LoDTensor) else np.shape(value)
            if len(shape) != len(v.shape) or any(w not in (-1, g) for w, g in zip(v.shape, shape, strict=True)):
                shapes[name] = shape
    if not shapes:
        return program
    # Programs count their changes; those of the core do not, and there the number of ops stands for it.
    state = getattr(program, "version", None), len(block.ops)
    key = state, tuple(sorted(shapes.items()))
    kept = _MADE.setdefault(program, {})
    if key not in kept:
        # The oldest goes first: sequences of ever new lengths must not fill memory with programs.
        while len(kept) >= MOST:
            del kept[next(iter(kept))]
        kept[key] = _refitted(program, shapes)
    return kept[key] or program


def _refitted(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> Program | None:
    """Return a copy with every type inferred anew; None where an op cannot take these sizes."""
    made = program.clone()
    block = made.global_block()
    for name, shape in shapes.items():
        block.vars[name].type = TensorType(shape, block.vars[name].dtype)
    try:
        for op in block.ops:
            types = block.infer(op, lambda name: block.var(name).type)
            for slot, names in op.outputs.items():
                for name, found in zip(names, types.get(slot, ()), strict=False):
                    if name == EMPTY or block.vars[name].type == found:
                        continue
                    # A parameter whose size would follow from the feed has its size already; the declared program then says what does not
                    # fit.
                    if block.vars[name].persistable:
                        return None
                    block.vars[name].type = found
    except PeError:
        return None
    return made
