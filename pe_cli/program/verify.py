"""What a valid program is: checked after it was read from a file, and after passes in tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pe_cli.core.errors import PeError, as_one, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.ops.define.inference import MAX_BYTES, MAX_SIZE, infer_types
from pe_cli.ops.define.registry import GRAD, find, forward_name, grad_name
from pe_cli.ops.define.traits import Remote
from pe_cli.program.ir import EMPTY, Block, Operator, Parameter, Program, Role, agrees
from pe_cli.program.region import regions_of
from pe_cli.program.sparse import rows_of


def verify(program: Program, *, read: bool = False) -> None:
    """Check that a program can be run.

    Every input is defined before it is used (or is fed, or persistable), no op writes what is fed, every op has the
    slots of its definition, op roles name what exists, and types agree with inference.

    Args:
        program: any.
        read: it comes from a text or a file: gradient ops are compared with the ops that they are of, as their kernels trust them; and any
            variable may be fed, so that one that is read before it is written is no mistake.

    Raises:
        PeError: the mistake, with the op's place; `PeErrors` for several.
    """
    errors = [error for block in program.blocks for error in _block_errors(block, read, ())]
    if errors:
        raise as_one(errors)


def _block_errors(block: Block, read: bool, like: Sequence[Operator]) -> Iterator[PeError]:
    """Yield the mistakes of a block; like: ops elsewhere that gradients in it are of."""
    around = block.program.vars if block.parent_idx >= 0 else {}
    # A program that was read may be a part of one: what it reads first is what it is given.
    defined = {name for name, v in {**around, **block.vars}.items() if v.persistable or v.is_data or read}
    for v in block.vars.values():
        # Sizes are products of numbers from a file: larger ones would overflow in the kernels' arithmetic.
        if any(size < -1 or size > MAX_SIZE for size in v.shape) or v.type.nbytes > MAX_BYTES:
            yield PeError(f"variable '{v.name}' is {v.type}, which no memory holds", at=v.at)
    # Gradient ops write variables of gradients, of which nothing is the gradient in turn.
    makers = {n: op for op in (*like, *block.ops) if not op.definition.is_grad_of for n in op.output_names()}
    for op in block.ops:
        found = list(_check(block, op, defined))
        if read and op.definition.is_grad_of and not found:
            found += _gradient_errors(block, op, makers)
        for error in (*found, *_check_regions(op, read)):
            error.at = error.at or op.at
            yield error
        defined.update(op.output_names())


def _gradient_errors(block: Block, op: Operator, makers: Mapping[str, Operator]) -> list[PeError]:
    try:
        return list(_check_gradient(block, op, makers))
    except PeError as error:
        return [error]


def _check_gradient(block: Block, op: Operator, makers: Mapping[str, Operator]) -> Iterator[PeError]:
    """Compare a gradient op with the op that it is the gradient of: its kernels trust that they agree."""
    outs = [n for s, names in op.inputs.items() if s.endswith(GRAD) for n in names if n != EMPTY]
    # The forward op is known by its output, whose gradient this op is given.
    forward = next((makers[forward_name(n)] for n in outs if forward_name(n) in makers), None)
    if forward is None or forward.type != op.definition.is_grad_of:
        yield from _check_alone(block, op, outs)
        return
    if any(op.attrs.get(name) != value for name, value in forward.attrs.items() if name in op.attrs):
        yield PeError(f"op '{op.type}' has other attributes than the {forward.type} that it is the gradient of")
    mine = {**forward.inputs, **forward.outputs}
    # Slot by slot, because a kernel indexes the forward op's arrays with sizes of the gradient's.
    for slot, names in (*op.inputs.items(), *op.outputs.items()):
        of = mine.get(forward_name(slot))
        if of is None or len(names) != len(of):
            yield PeError(f"op '{op.type}': {slot} is {names}, but its {forward.type} has {of} there")
            continue
        for name, other in zip(names, of, strict=True):
            if slot == forward_name(slot) and name != other:
                yield PeError(f"op '{op.type}' reads '{name}' as {slot}, but its {forward.type} has '{other}' there")
            elif name != EMPTY and block.find_var(other) is not None and not agrees(block.var(name).type, block.var(other).type):
                yield PeError(f"op '{op.type}': {slot} '{name}' is {block.var(name).type}, but '{other}' is {block.var(other).type}")


def _check_alone(block: Block, op: Operator, outs: Sequence[str]) -> Iterator[PeError]:
    """Check a gradient op whose forward op is elsewhere: what that would make of the same inputs has the types that the gradients have."""
    forward = find(op.definition.is_grad_of or "")
    if not outs:
        yield PeError(f"op '{op.type}' is given no gradient")
        return
    first = block.var(outs[0]).type
    given: dict[str, list[TensorType]] = {}
    # The forward op is run on types alone, with those of gradients where it has no input of its own.
    for slot in forward.inputs:
        names: list[str] = op.inputs.get(slot.name) or [n for n in op.outputs.get(grad_name(slot.name), ()) if n != EMPTY]
        if names or not slot.optional:
            given[slot.name] = [block.var(n).type for n in names] or [first]
    found = infer_types(forward, given, op.attrs)
    for slot_name, kinds in found.items():
        for names in (op.inputs.get(slot_name, []), op.inputs.get(grad_name(slot_name), [])):
            for name, kind in zip(names, kinds, strict=False):
                if name != EMPTY and not agrees(block.var(name).type, kind):
                    yield PeError(f"op '{op.type}' reads {block.var(name).type} as '{name}', but its {forward.name} makes {kind}")


def _check_regions(op: Operator, read: bool) -> Iterator[PeError]:
    for attr, region in regions_of(op).items():
        like: list[Operator] = []
        of = region.like
        while of is not None:
            like += of.block.ops
            of = of.like
        yield from _block_errors(region.block, read, like)
        written = {n for inner in region.block.ops for n in inner.output_names()}
        for name in region.args:
            if name in written or not region.block.var(name).is_data:
                yield PeError(f"op '{op.type}': the region {attr} writes its argument '{name}'")
        # The kernel copies results out of the region's memory: one that nobody writes would be what memory held.
        for name in set(region.results) - written:
            yield PeError(f"op '{op.type}': the region {attr} does not write its result '{name}'")
        for name, v in region.block.vars.items():
            if v.persistable or (v.is_data and name not in region.args):
                yield PeError(f"op '{op.type}': '{name}' of the region {attr} comes from outside, but is no argument")


def _check(block: Block, op: Operator, defined: set[str]) -> Iterator[PeError]:
    broken = list(_check_names(block, op, defined))
    yield from broken
    if block.parent_idx < 0:  # a server's roles name what the trainers' program has
        yield from _check_role(block, op)
    if broken:  # inference needs the names
        return
    try:
        types = block.infer(op, lambda name: block.var(name).type)
    except PeError as error:
        yield error
        return
    # Inference was written for attributes in range; a file may hold others, and that is the file's mistake.
    except (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
        yield PeError(f"op '{op.type}' does not fit: {error or type(error).__name__}")
        return
    if op.definition.has(Remote):
        return  # what comes from elsewhere has the types that are declared
    for slot, names in op.outputs.items():
        found = types.get(slot, [])
        if len(found) != len(names):
            yield PeError(f"op '{op.type}' gives {len(found)} variables in {slot}, but {len(names)} are named: {names}")
        for name, kind in zip(names, found, strict=False):
            if name != EMPTY and not agrees(block.var(name).type, kind):
                yield PeError(f"op '{op.type}' writes {kind} to '{name}', which is {block.var(name).type}")


def _check_names(block: Block, op: Operator, defined: set[str]) -> Iterator[PeError]:
    try:
        yield from _check_slots(op)
    except PeError as error:
        yield error
        return
    for name in op.input_names():
        if block.find_var(name) is None:
            yield PeError(f"op '{op.type}' reads '{name}', which does not exist", hint=did_you_mean(name, block.vars))
        elif name not in defined:
            what = f"op '{op.type}' reads '{name}' before any op writes it"
            yield PeError(what, hint="it is neither fed nor persistable")
    for name in op.output_names():
        if block.find_var(name) is None:
            yield PeError(f"op '{op.type}' writes '{name}', which does not exist")
        elif block.var(name).is_data:
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
        if block.find_var(name) is None:
            yield PeError(
                f"op '{op.type}' belongs to '{name}', which does not exist", hint=did_you_mean(name, block.vars)
            )
    parameters, gradients = op.role_vars[::2], op.role_vars[1::2]
    for name, gradient in zip(parameters, gradients, strict=True):
        p, g = block.vars.get(name), block.vars.get(gradient)
        if p is not None and not isinstance(p, Parameter):
            yield PeError(f"op '{op.type}' belongs to '{name}', which is no parameter")
        if p and g and not agrees(p.whole or p.type, g.type) and not rows_of(block, gradient):
            yield PeError(f"parameter '{name}' is {p.type}, but its gradient '{gradient}' is {g.type}")
    if op.role is not Role.OPTIMIZE:
        return
    for name in op.output_names():
        # An update that devices do not know as one would be done by each with its own gradient.
        v = block.vars.get(name)
        if isinstance(v, Parameter) and v.trainable and name not in parameters:
            yield PeError(
                f"op '{op.type}' updates the parameter '{name}', but its role names {op.role_vars}",
                hint="append it inside program.role(Role.OPTIMIZE, [parameter, gradient])",
            )
