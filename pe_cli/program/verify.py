"""What a valid program is: checked after it was read from a file, and after passes in tests."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.core.errors import PeError, PeErrors, did_you_mean
from pe_cli.program.ir import EMPTY, Block, Operator, Parameter, Program, Role, agrees
from pe_cli.program.region import blocks_of, regions_of
from pe_cli.program.sparse import rows_of


def verify(program: Program) -> None:
    """Check that a program can be run.

    Every input is defined before it is used (or is fed, or persistable), no op writes what is fed, every op has the
    slots of its definition, op roles name what exists, and types agree with inference.

    Args:
        program: any.

    Raises:
        PeError: the mistake, with the op's place; `PeErrors` for several.
    """
    errors = [error for block in blocks_of(program) for error in _block_errors(block)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise PeErrors(errors)


def _block_errors(block: Block) -> Iterator[PeError]:
    defined = {name for name, v in block.vars.items() if v.persistable or v.is_data}
    for op in block.ops:
        for error in (*_check(block, op, defined), *_check_regions(op)):
            error.at = error.at or op.at
            yield error
        defined.update(op.output_names())


def _check_regions(op: Operator) -> Iterator[PeError]:
    for attr, region in regions_of(op).items():
        written = {n for inner in region.block.ops for n in inner.output_names()}
        for name in region.args:
            if name in written or not region.block.var(name).is_data:
                yield PeError(f"op '{op.type}': the region {attr} writes its argument '{name}'")
        for name in set(region.results) - written:
            yield PeError(f"op '{op.type}': the region {attr} does not write its result '{name}'")
        for name, v in region.block.vars.items():
            if v.persistable or (v.is_data and name not in region.args):
                yield PeError(f"op '{op.type}': '{name}' of the region {attr} comes from outside, but is no argument")


def _check(block: Block, op: Operator, defined: set[str]) -> Iterator[PeError]:
    broken = list(_check_names(block, op, defined))
    yield from broken
    yield from _check_role(block, op)
    if broken:  # inference needs the names
        return
    try:
        types = block.infer(op, lambda name: block.var(name).type)
    except PeError as error:
        yield error
        return
    for slot, names in op.outputs.items():
        found = types.get(slot, [])
        if len(found) != len(names):
            yield PeError(f"op '{op.type}' gives {len(found)} variables in {slot}, but {len(names)} are named: {names}")
        for name, kind in zip(names, found, strict=False):
            if name != EMPTY and not agrees(block.vars[name].type, kind):
                yield PeError(f"op '{op.type}' writes {kind} to '{name}', which is {block.vars[name].type}")


def _check_names(block: Block, op: Operator, defined: set[str]) -> Iterator[PeError]:
    try:
        yield from _check_slots(op)
    except PeError as error:
        yield error
        return
    for name in op.input_names():
        if name not in block.vars:
            yield PeError(f"op '{op.type}' reads '{name}', which does not exist", hint=did_you_mean(name, block.vars))
        elif name not in defined:
            what = f"op '{op.type}' reads '{name}' before any op writes it"
            yield PeError(what, hint="it is neither fed nor persistable")
    for name in op.output_names():
        if name not in block.vars:
            yield PeError(f"op '{op.type}' writes '{name}', which does not exist")
        elif block.vars[name].is_data:
            yield PeError(f"op '{op.type}' writes '{name}', which is fed by the user", hint="write to another variable")


def _check_slots(op: Operator) -> Iterator[PeError]:
    definition = op.definition
    for given, slots, what in ((op.inputs, definition.inputs, "input"), (op.outputs, definition.outputs, "output")):
        known = {s.name: s for s in slots}
        for slot, names in given.items():
            if slot not in known:
                yield PeError(f"op '{op.type}' has no {what} '{slot}'", hint=did_you_mean(slot, known))
            elif len(names) > 1 and not known[slot].variadic:
                yield PeError(f"op '{op.type}' takes one variable as {what} {slot}, got {names}")


def _check_role(block: Block, op: Operator) -> Iterator[PeError]:
    if len(op.role_vars) % 2:
        yield PeError(f"op '{op.type}' names {op.role_vars}, but parameters and gradients come in pairs")
        return
    for name in op.role_vars:
        if name not in block.vars:
            yield PeError(
                f"op '{op.type}' belongs to '{name}', which does not exist", hint=did_you_mean(name, block.vars)
            )
    parameters, gradients = op.role_vars[::2], op.role_vars[1::2]
    for name, gradient in zip(parameters, gradients, strict=True):
        p, g = block.vars.get(name), block.vars.get(gradient)
        if p is not None and not isinstance(p, Parameter):
            yield PeError(f"op '{op.type}' belongs to '{name}', which is no parameter")
        if p and g and not agrees(p.type, g.type) and not rows_of(block, gradient):
            yield PeError(f"parameter '{name}' is {p.type}, but its gradient '{gradient}' is {g.type}")
    if op.role is not Role.OPTIMIZE:
        return
    for name in op.output_names():
        v = block.vars.get(name)
        if isinstance(v, Parameter) and v.trainable and name not in parameters:
            yield PeError(
                f"op '{op.type}' updates the parameter '{name}', but its role names {op.role_vars}",
                hint="append it inside program.role(Role.OPTIMIZE, [parameter, gradient])",
            )
