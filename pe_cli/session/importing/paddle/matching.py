"""Tries whether a layer appends the operators that it is to stand for: their types, attributes, inputs and parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.layers.define.registry import discover
from pe_cli.program.defaults import program_guard
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import EMPTY, Block, Operator, Parameter, Program, Variable
from pe_cli.program.param_attr import ParamAttr
from pe_cli.session.importing.paddle.candidates import Candidate, Named

#: Attributes that a phase sets, that say where an operator computes, or which gradient a row gets that `gather` takes twice: here the sum.
_NO_MATTER = {"is_test", "use_cudnn", "use_mkldnn", "overwrite"}
#: Operators that compute what another one does, for a case that is faster.
_SPECIAL = {"depthwise_conv2d": "conv2d"}
#: What a layer raises for arguments that it cannot do with.
_UNFIT = (PeError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def outputs_of(one: Candidate, ops: Sequence[Operator], block: Block, read: Mapping[str, int]) -> list[str] | None:
    """Return the names of what a layer gives in a program; None where it does not append these operators.

    Args:
        one: the layer.
        ops: that it is to stand for.
        block: that they are in.
        read: how often each variable is read or fetched.
    """
    program = Program("trial")
    inside = program.main_block
    try:
        given = {name: _given(value, inside) for name, value in one.args.items()}
        known = set(inside.vars)
        with program_guard(program, Program("startup")):
            result = discover()[one.layer].fn(**given)
    except _UNFIT:
        return None
    names = _same_ops(inside, ops, block, known, read)
    if names is None:
        return None
    outputs = [names.get(v.name, "") for v in flat(result)]
    return None if _hides(ops, outputs, block, read) else outputs


def _hides(ops: Sequence[Operator], outputs: Sequence[str], block: Block, read: Mapping[str, int]) -> bool:
    """Return whether others read what some operators write and a layer in their place does not give."""
    # An operator that leads to nothing is not counted among those that read.
    leading = [op for op in ops if any(read.get(name, 0) for name in op.output_names())]
    inside = Counter(name for op in leading for name in op.input_names())
    written = {name for op in ops for name in op.output_names() if name not in block.vars or not block.vars[name].persistable}
    return any(read.get(name, 0) > inside[name] for name in written.difference(outputs))


def variables(value: Any) -> Iterator[Variable]:
    """Yield the variables of an argument."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, Variable):
            yield one


def flat(result: Any) -> list[Variable]:
    """Return what a layer returns, one after the other."""
    return [v for each in result for v in flat(each)] if isinstance(result, (list, tuple)) else [result]


def _given(value: Any, block: Block) -> Any:
    """Return an argument as the layer's function takes it, with its variables made in the trial's block."""
    if isinstance(value, list):
        return [_given(one, block) for one in value]
    if isinstance(value, Named):
        return ParamAttr(name=value.name, initializer=Constant(0.0))
    if not isinstance(value, Variable):
        return value
    if value.name in block.vars:
        return block.vars[value.name]
    if isinstance(value, Parameter):
        return block.create_parameter(value.name, value.type)
    facts = {"persistable": value.persistable, "is_data": not value.persistable, "lod_level": value.lod_level}
    return block.create_var(value.name, value.type, stop_gradient=value.stop_gradient, **facts)


def _same_ops(
    made: Block, ops: Sequence[Operator], block: Block, known: set[str], read: Mapping[str, int]
) -> dict[str, str] | None:
    """Return name in the trial -> name in the program; None where the operators differ."""
    if len(made.ops) != len(ops):
        return None
    names = {name: name for name in known}
    for v in made.vars.values():
        if v.persistable and v.name in block.vars and block.vars[v.name].type == v.type and block.vars[v.name].persistable:
            names[v.name] = v.name
    for one, other in zip(made.ops, ops, strict=True):
        if _SPECIAL.get(one.type, one.type) != _SPECIAL.get(other.type, other.type) or not _same_attrs(one.attrs, other.attrs):
            return None
        if _named(one.inputs, names) != _named(other.inputs, None) or not _bind(one, other, names, read):
            return None
    # Values between these operators vanish with the layer: nothing else may read them.
    inner = {name for op in ops[:-1] for name in op.output_names()} - set(names.values())
    return None if any(read.get(name) for name in inner) else names


def _named(slots: Mapping[str, Sequence[str]], names: Mapping[str, str] | None) -> dict[str, list[str]]:
    found = {slot: [name if names is None else names.get(name, "") for name in given if name != EMPTY] for slot, given in slots.items()}
    return {slot: given for slot, given in found.items() if given}


def _bind(one: Operator, other: Operator, names: dict[str, str], read: Mapping[str, int]) -> bool:
    """Let the outputs of the layer's operator stand for those of the program's; return whether they can."""
    for slot in {*one.outputs, *other.outputs}:
        ours, theirs = ([n for n in op.outputs.get(slot, ()) if n != EMPTY] for op in (one, other))
        if len(ours) != len(theirs):
            # A program may lack an output that nothing reads, or have one that the layer does not make.
            if any(read.get(name) for name in theirs) or any(name in names for name in ours):
                return False
            continue
        for mine, name in zip(ours, theirs, strict=True):
            if names.setdefault(mine, name) != name:
                return False
    return True


def _same_attrs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(_same(one.get(name), other.get(name)) for name in {*one, *other} - _NO_MATTER)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        # Files keep attributes as float32.
        with np.errstate(all="ignore"):
            return bool(np.float32(one) == np.float32(other))
    return bool(one == other)
