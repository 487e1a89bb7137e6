"""Sizes given as variables: a program with fixed shapes needs their values when it is built."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.layers.define.registry import find
from pe_cli.ops.define.traits import Random
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.naming import CALL, apart, use
from pe_cli.program.ir import Block, Operator, Variable, agrees
from pe_cli.program.outline import Outline
from pe_cli.program.prune import prune

#: Loops whose blocks are being written, the outermost first: what ops before them make may change from round to round.
OPEN: list[Outline] = []
#: Bodies of `while_loop` that are being written, and that are no blocks of their own: what must be made before their loop cannot be.
CLOSED: list[Block] = []

#: Branches of `cond` and Switch that are being written, the outermost first; `varied` of each is what its ops write with other types.
BRANCHES: list[Outline] = []


def vary(block: Block, op: Operator) -> None:
    """Let what a round of a While writes with other sizes have unknown ones, and what a branch assigns the type that it gets there."""
    if BRANCHES and op.type == "assign":
        _retype(block, op)
    # Only while a loop is being written: elsewhere a variable with two sizes is a mistake, which the block reports.
    varied = OPEN[-1].varied if OPEN else None
    if varied is None or not any(n in block.vars for n in op.output_names()):
        return
    types = block.infer(op, lambda name: block.var(name).type)
    for slot, names in op.outputs.items():
        for name, found in zip(names, types.get(slot, ()), strict=False):
            v = block.vars.get(name)
            if v is None or lasts(v) or v.dtype != found.dtype or len(v.shape) != len(found.shape):
                continue
            # What was declared empty, such as a cache, is not known to stay so where any size may be written.
            filled = any(a == 0 and b < 0 for a, b in zip(v.shape, found.shape, strict=True))
            if agrees(v.type, found) and not filled:
                continue
            v.type = v.type.with_shape(*(a if a == b else -1 for a, b in zip(v.shape, found.shape, strict=True)))
            varied.add(name)


def lasts(v: Variable) -> bool:
    """Return whether a variable has its value in a scope: a persistable one, or one that `create_global_var` made."""
    return v.persistable or getattr(v, "in_scope", False)


def _retype(block: Block, op: Operator) -> None:
    """Give what a branch assigns, and nothing outside has read or written, the type of what is assigned."""
    branch = BRANCHES[-1]
    (name,), (source,) = op.outputs["Out"], op.inputs["X"]
    v, found = block.vars.get(name), block.var(source).type
    if v is None or branch.varied is None or v.dtype != found.dtype or agrees(v.type, found):
        return
    if v.persistable:
        return
    # Whoever has read it was built for the type before.
    used = {n for o in block.ops for n in (*o.input_names(), *o.output_names())}
    if name not in used:
        # A value that the scope has is of the type before.
        v.type, v.in_scope = found, False  # type: ignore[attr-defined]
        branch.varied.add(name)


def value_of(v: Variable) -> np.ndarray[Any, Any] | None:
    """Return the value of a variable where the program alone says it: what it depends on is neither fed, kept nor drawn.

    The sizes of a feed count as known where its shape is. The part of the program that makes the variable is run once.
    """
    part = prune(v.block.program, [v.name])
    block = part.global_block()
    _give_known(block)
    part = prune(part, [v.name])
    block = part.global_block()
    # Variables that something before an open loop makes may be changed by its rounds: their value when the program is built is not theirs
    # in a round.
    before = {n for op in v.block.ops[: OPEN[0].begin] for n in op.output_names()} if OPEN else set()
    if not before.isdisjoint(n for op in block.ops for n in op.output_names()):
        return None
    if v.name not in {n for op in block.ops for n in op.output_names()}:
        return None
    # A shape needs only the type of its input, so the sizes of feeds may stand for their values.
    sized = {n for op in block.ops if op.type == "shape" for n in op.input_names()}
    read = {n for op in block.ops if op.type != "shape" for n in op.input_names()}
    made = {n for op in block.ops for n in op.output_names()}
    outside = [block.vars[n] for n in (sized | read) - made]
    if any(u.name in read or not u.type.known for u in outside) or any(op.definition.has(Random) for op in block.ops):
        return None
    # What lies outside is fed with zeros of its shape: nothing but `shape` reads it, as was checked.
    for u in block.vars.values():
        u.is_data, u.persistable = any(u is other for other in outside), False
    feed = {u.name: np.zeros(u.shape, u.type.numpy) for u in outside}
    # One run of the pruned program says the value; folding it op by op would need a second meaning for every op.
    (values,) = Executor(part, Scope([Place("cpu", 0)])).run(feed, [v.name]).values
    found: np.ndarray[Any, Any] = values[v.name]
    return found


def _give_known(block: Block) -> None:
    """Put numbers in place of slices of a `shape` whose sizes are known, as other sizes of that variable need not be."""
    shapes = {op.outputs["Out"][0]: block.var(op.inputs["Input"][0]).shape for op in block.ops if op.type == "shape"}
    for op in block.ops:
        whole = shapes.get(op.inputs.get("Input", [""])[0]) if op.type == "slice" else None
        if whole is None or list(op.inputs) != ["Input"] or list(op.attrs["axes"]) != [0]:
            continue
        sizes = list(whole[slice(op.attrs["starts"][0], op.attrs["ends"][0])])
        if sizes and min(sizes) >= 0:
            kind = block.var(op.outputs["Out"][0]).dtype
            op.type, op.inputs, op.attrs = "assign_value", {}, {"shape": [len(sizes)], "dtype": kind, "values": sizes}


def known_or_fed(layer: str, argument: str, value: Any, *, single: bool = False) -> tuple[Any, Variable | None]:
    """Return sizes where the program alone says them, else the variable that a step reads them from.

    Args:
        layer: for errors.
        argument: for errors.
        value: as that of `sizes_of`.
        single: one number is wanted.
    """
    try:
        return sizes_of(layer, argument, value, single=single), None
    except NotThereYet:
        if isinstance(value, Variable):
            return None, value
        # The original makes a constant of every number beside variables; layers whose names follow from them say so themselves.
        if CALL.get() is None:
            use({"fill_constant": sum(not isinstance(v, Variable) for v in value)})
        with apart("sizes"):
            parts = [v if isinstance(v, Variable) else find("fill_constant").fn([1], "int64", float(v)) for v in value]
            return None, find("concat").fn([find("cast").fn(p, "int64") for p in parts], 0)


def open_sizes(layer: str, argument: str, value: Any, fed: Variable) -> list[int]:
    """Return sizes as far as the program alone says them, -1 where a step does.

    Args:
        layer: for errors.
        argument: for errors.
        value: what `known_or_fed` was given.
        fed: the variable that it returned.

    Raises:
        FluidValueError: a variable has the sizes, and how many is not known; a ValueError.
    """
    if not isinstance(value, Variable):
        found = [folded(layer, argument, v, single=True) for v in value]
        return [-1 if v is None or isinstance(v, Variable) else int(v) for v in found]
    if len(fed.shape) != 1 or fed.shape[0] < 0:
        raise FluidValueError(f"{layer}: the sizes are {fed}, whose length is not known", hint="declare its length")
    return [-1] * fed.shape[0]


def folded(layer: str, argument: str, value: Any, *, single: bool = False) -> Any:
    """Return sizes where the program alone says them, else what was given, which the layer reads in a step; arguments are `sizes_of`'s."""
    try:
        return sizes_of(layer, argument, value, single=single)
    except NotThereYet:
        return value


def sizes_of(layer: str, argument: str, value: Any, *, single: bool = False) -> Any:
    """Return sizes as integers, None as -1, variables by their constant values.

    Args:
        layer: for errors.
        argument: for errors.
        value: a variable, an array, or a list of numbers and variables.
        single: one number is wanted.

    Raises:
        NotThereYet: a variable whose value only a step knows.
    """
    if isinstance(value, Variable):
        found = value_of(value)
        if found is None:
            message = (
                f"{layer}: {argument} is the variable '{value.name}', whose value only a step knows: not there yet"
            )
            raise NotThereYet(message, hint="give numbers, or a constant")
        numbers = found.ravel().tolist()
        return numbers[0] if single and len(numbers) == 1 else numbers
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple, range)):
        return [
            -1
            if v is None
            else sizes_of(layer, argument, v, single=True)
            if isinstance(v, (Variable, np.generic))
            else v
            for v in value
        ]
    return value
