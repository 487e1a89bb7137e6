"""Finds what servers take over of a program: the updates of each parameter and the schedule of the learning rate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.traits import Pointwise, RowsApart
from pe_cli.program import ir
from pe_cli.program.ir import Operator, Role

#: Part of the scope of ops that clip gradients: trainers do that, as servers have no whole gradient.
CLIP = "gradient_clip/"
#: Part of the scope of ops that decay weights.
DECAY = "regularization/"
#: Part of the scope of ops that let parameters into their averages.
AVERAGE = "moving_average/"


@dataclass(frozen=True)
class Facts:
    """What is known of a variable after its program has been edited.

    Args:
        type: its type.
        persistable: it lives between steps.
    """

    type: TensorType
    persistable: bool


@dataclass(eq=False)
class Updated:
    """A parameter with what updates it.

    Args:
        name: of the parameter.
        type: of the parameter.
        gradient: what trainers send: the gradient, clipped where it is.
        rows: row numbers of a row-sparse gradient, None of others.
        ops: decay and update, in order; the first reads `gradient`.
    """

    name: str
    type: TensorType
    gradient: str
    rows: str | None
    ops: list[Operator] = field(default_factory=list)

    @property
    def decays(self) -> bool:
        """Whether a decay of weights changes the gradient first."""
        return DECAY in self.ops[0].scope

    @property
    def apart(self) -> bool:
        """Whether each row is updated by itself, so that servers may have pieces: not where a norm, or a product, of the whole counts."""
        return all(op.definition.has(RowsApart) or op.definition.has(Pointwise) for op in self.ops)


class Updates:
    """The updates of a program, as it was when this was made.

    Args:
        program: with gradients and updates.

    Attributes:
        kind: class of the program.
        parameters: by name, those with a decay of their weights first, in the order of names: what all servers and trainers share.
        schedule: ops that make learning rates, and what all moving averages have in common; once a step.
        facts: of every variable.

    Raises:
        PeError: there are no updates, or one that belongs to no single parameter.
    """

    def __init__(self, program: ir.Program) -> None:
        block = program.main_block
        self.kind = type(program)
        self.facts = {v.name: Facts(v.type, v.persistable) for v in block.vars.values()}
        parameters = {p.name for p in block.parameters()}
        # Averages with a common counter belong to no parameter and are done like a schedule.
        self._common = [op for op in block.ops if AVERAGE in op.scope and not parameters & set(op.input_names())]
        self.schedule = [copied(op) for op in block.ops if op.role is Role.LR_SCHED] + [copied(op) for op in self._common]
        self.parameters: dict[str, Updated] = {}
        common = {id(op) for op in self._common}
        self._updating = [op for op in block.ops if op.role is Role.OPTIMIZE and CLIP not in op.scope and id(op) not in common]
        self._clipped = {n for op in block.ops if op.role is Role.OPTIMIZE and CLIP in op.scope for n in op.output_names()}
        owners = dict(_owners(self._updating, block))
        for op in self._updating:
            name = owners[id(op)]
            if name not in self.parameters:
                self.parameters[name] = self._begun(op, name, block)
            self.parameters[name].ops.append(copied(op))
        if not self.parameters:  # as in the original, which warns of it, too
            warnings.warn("the program updates no parameter: call the optimizer's minimize before transpile", stacklevel=4)
        # One order on trainers and servers, whatever order the program has: pieces are dealt in it.
        self.parameters = dict(sorted(self.parameters.items(), key=lambda item: (not item[1].decays, item[0])))

    def _begun(self, op: Operator, name: str, block: ir.Block) -> Updated:
        gradient = (op.inputs.get("Grad") or op.role_vars[1:2] or [""])[0]
        if gradient not in block.vars:
            raise PeError(f"op '{op.type}' updates '{name}' without a gradient, so no server can do that")
        rows = op.inputs.get("Rows")
        return Updated(name, block.vars[name].type, gradient, rows[0] if rows else None)

    def is_moved(self, op: Operator) -> bool:
        """Return whether servers do an op of the program: an update or a schedule."""
        return op.role is Role.LR_SCHED or any(op is other for other in (*self._updating, *self._common))

    def is_clipped(self, gradient: str) -> bool:
        """Return whether an op that clips makes a gradient."""
        return gradient in self._clipped

    def left_out(self) -> list[str]:
        """Return the variables that trainers need no more: state of optimizers and learning rates."""
        used = {n for op in (*self._updating, *self._common) for n in (*op.input_names(), *op.output_names())}
        kept = {n for u in self.parameters.values() for n in (u.name, u.gradient, u.rows)}
        kept |= {n for op in self._updating for n in op.role_vars}
        return sorted(used - kept)

    def counters(self) -> list[str]:
        """Return the variables that count steps for schedules."""
        return [op.outputs["Out"][0] for op in self.schedule if counts(op)]


def counts(op: Operator) -> bool:
    """Return whether an op of a schedule counts steps: it writes what it reads."""
    return op.role is Role.LR_SCHED and any(n in op.input_names() for n in op.output_names())


def copied(op: Operator) -> Operator:
    """Return a copy of an operator that shares no list with it."""
    ins, outs = ({s: list(n) for s, n in slots.items()} for slots in (op.inputs, op.outputs))
    return replace(op, inputs=ins, outputs=outs, attrs=dict(op.attrs), role_vars=list(op.role_vars))


def renamed(op: Operator, names: Mapping[str, str]) -> Operator:
    """Return a copy of an operator with other variables."""
    made = copied(op)
    for slots in (made.inputs, made.outputs):
        for slot, used in slots.items():
            slots[slot] = [names.get(n, n) for n in used]
    return made


def _owners(ops: list[Operator], block: ir.Block) -> Iterator[tuple[int, str]]:
    """Yield the parameter that each op updates, by the op's id: its role variable, or that of the ops it shares results with."""
    made: dict[str, set[str]] = {}
    for op in ops:
        for name in op.output_names():
            made.setdefault(name, set()).update(op.role_vars[:1])
    for op in ops:
        if op.role_vars and op.role_vars[0] in block.vars:
            yield id(op), op.role_vars[0]
            continue
        # An op without a role variable belongs to the one parameter that its results are shared with.
        near = {p for n in (*op.input_names(), *op.output_names()) for p in made.get(n, ())}
        if len(near) != 1:
            named = ", ".join(sorted(near)) or "no parameter"
            raise PeError(f"op '{op.type}' is part of the updates of {named}: no server could do that", at=op.at)
        yield id(op), near.pop()
