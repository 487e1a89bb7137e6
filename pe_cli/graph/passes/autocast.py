"""autocast: values between products are stored as bfloat16, half of the bytes.

Only how values are stored changes: every op goes on computing in float32, and rounds what it writes once. The pass asks traits which
values may be narrow (`Narrow`, and ops that are pointwise, views or move numbers), and makes those narrow that a product uses, directly
or by way of such ops. What an op without the trait touches stays float32: losses and what leads to them alone, softmax, sums, metrics,
statistics, and everything of an update. Parameters and their gradients stay float32, too. What products take of float32, such as
parameters and feeds, is cast once a step for all that read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pe_cli.core.types import BFLOAT16, TensorType
from pe_cli.ops.define.registry import forward_name
from pe_cli.ops.define.traits import Narrow, Pointwise, SameNumbers, View
from pe_cli.program.ir import EMPTY, Block, Operator, Program, Role, Variable

NAME = "autocast"


def run(program: Program, fetches: Collection[str], *, together: bool = False) -> tuple[Program, str]:
    """Return the program with values between products stored as bfloat16, and a sentence on what was done.

    Args:
        program: not changed.
        fetches: variables that are read after a step.
        together: cast parameters at the beginning of the step, by one launch where devices launch kernels, not where they are first read.
    """
    del fetches  # what is fetched is read as float32, and changes nothing
    narrow = _Search(program.main_block).found()
    made = program.clone()
    # Of a variable that several ops write, the second would have to round the first's value: it stays wide.
    made.is_test = program.is_test
    block = made.main_block
    for name in narrow:
        block.vars[name].type = TensorType(block.vars[name].shape, BFLOAT16)
    casts = _cast_factors(block, together)
    if not (narrow or casts):
        return program, f"{NAME}: no product of float32"
    temporaries = sum(not (v.persistable or v.is_data) and v.dtype in ("float32", BFLOAT16) for v in block.vars.values())
    return made, f"{NAME}: {len(narrow) + casts} of {temporaries} temporaries are {BFLOAT16}, {casts} casts"


class _Search:
    """Finds the variables of a block that are stored narrow.

    Args:
        block: after all passes that join ops.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._readers: dict[str, list[Operator]] = {}
        self._writers: dict[str, list[Operator]] = {}
        wide: set[str] = set()
        for op in block.ops:
            for slots, uses in ((op.inputs, self._readers), (op.outputs, self._writers)):
                for slot, names in slots.items():
                    for name in names:
                        uses.setdefault(name, []).append(op)
                        if not _allows(op, slot):
                            wide.add(name)
        self._narrow = {v.name for v in block.vars.values() if v.name not in wide and self._may_be(v)}

    def _may_be(self, v: Variable) -> bool:
        # Gradients of parameters are summed over devices and steps, where bfloat16's eight bits would lose small terms.
        of = self._block.vars.get(forward_name(v.name))
        kept = v.persistable or (of is not None and of.persistable)  # a parameter's gradient, or a part of it, too
        return v.dtype == "float32" and not (kept or v.is_data) and len(self._writers.get(v.name, ())) == 1

    def found(self) -> list[str]:
        """Return the variables that are stored narrow, in the block's order."""
        waiting = list(self._narrow)
        while waiting:
            name = waiting.pop()
            # Greatest fixed point: begin with all that may be narrow, and take away until every one has a reason.
            if name not in self._narrow or (self._comes(name) and self._leads(name) and self._moves(name)):
                continue
            self._narrow.discard(name)
            for op in (*self._writers[name], *self._readers.get(name, ())):
                waiting += [n for n in (*op.input_names(), *op.output_names()) if n in self._narrow]
        return [name for name in self._block.vars if name in self._narrow]

    def _comes(self, name: str) -> bool:
        """Return whether a variable is written by a product, by an op that reads a narrow variable, or by one that rounds as it copies."""
        (op,) = self._writers[name]
        return bool(_factors(op)) or self._rounds(name) or not self._narrow.isdisjoint(op.input_names())

    def _leads(self, name: str) -> bool:
        """Return whether a variable is read by a product, or by an op that writes a narrow variable."""
        return any(_factors(op) or not self._narrow.isdisjoint(op.output_names()) for op in self._readers.get(name, ()))

    def _moves(self, name: str) -> bool:
        """Return whether all ops next to a variable that pass numbers on unchanged would pass them on in the same type."""
        ops = [*([] if self._rounds(name) else self._writers[name]), *self._readers.get(name, ())]
        # Copies that did not round would be casts in disguise, one for each layer.
        near = {n for op in ops for pair in _moved(op) if name in pair for n in pair}
        return near <= self._narrow

    def _rounds(self, name: str) -> bool:
        """Return whether a variable is what an op copies of one that stays float32, for products alone: it rounds what they would."""
        (writer,) = self._writers[name]
        readers = self._readers.get(name, ())
        return (
            writer.definition.has(SameNumbers)
            and not writer.definition.has(View)
            and self._narrow.isdisjoint(writer.input_names())
            and all(slot in _factors(op) for op in readers for slot, names in op.inputs.items() if name in names)
        )


def _factors(op: Operator) -> tuple[str, ...]:
    trait = op.definition.get(Narrow)
    return trait.factors if trait else ()


def _allows(op: Operator, slot: str) -> bool:
    """Return whether the variables in an op's slot may be narrow."""
    if op.role not in (Role.FORWARD, Role.BACKWARD):
        return False
    definition, trait = op.definition, op.definition.get(Narrow)
    if trait is not None:
        return slot not in trait.keeps
    return any(definition.has(kind) for kind in (Pointwise, View, SameNumbers)) and "out_dtype" not in definition.attrs


def _moved(op: Operator) -> Iterator[tuple[str, str]]:
    """Yield pairs of an output of an op and the input whose numbers the output has unchanged."""
    view = op.definition.get(View)
    pairs = dict(view.pairs) if view else {}
    if op.definition.has(SameNumbers):
        pairs |= {out: next(iter(op.definition.slot_names(outputs=False))) for out in op.definition.slot_names(outputs=True)[:1]}
    for out, source in pairs.items():
        if op.outputs.get(out) and op.inputs.get(source):
            yield op.outputs[out][0], op.inputs[source][0]


def _cast_factors(block: Block, together: bool) -> int:
    """Put a cast to bfloat16 before the first product that reads a float32 variable, for all products; return the number of casts."""
    made: dict[str, str] = {}
    written: set[str] = set()
    first: list[Operator] = []
    ops: list[Operator] = []
    casts = 0
    for op in block.ops:
        for slot in _factors(op) if op.role in (Role.FORWARD, Role.BACKWARD) else ():
            for name in dict.fromkeys(op.inputs.get(slot, ())):
                if name == EMPTY or block.var(name).dtype != "float32":
                    continue
                if name not in made:
                    made[name] = _cast(block, name)
                    attrs = {"in_dtype": "", "out_dtype": BFLOAT16}
                    # A parameter's cast can run before the step's first op; on a card the casts of all then share a launch.
                    early = together and op.role is Role.FORWARD and block.var(name).persistable and name not in written
                    segment = 0 if early else op.segment
                    cast = Operator("cast", {"X": [name]}, {"Out": [made[name]]}, attrs, op.role, [], op.at, op.scope, segment)
                    (first if early else ops).append(cast)
                    casts += 1
                op.inputs[slot] = [made[name] if n == name else n for n in op.inputs[slot]]
        ops.append(op)
        for name in op.output_names():
            made.pop(name, None)  # what was cast is no longer its value
            written.add(name)
    block.ops = [*first, *ops]
    return casts


def _cast(block: Block, name: str) -> str:
    v = block.var(name)
    return block.create_var(block.program.unique(f"{name}@BF16"), TensorType(v.shape, BFLOAT16), stop_gradient=True, at=v.at).name
