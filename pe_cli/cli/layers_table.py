"""A table of a model's layers for pe check and pe summary: output shapes, parameters and operations."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from pe_cli.cli.common import Source
from pe_cli.config.nodes import ScalarNode, find
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.traits import Counted, View

if TYPE_CHECKING:
    from pe_cli.core.types import TensorType
    from pe_cli.program.ir import Operator, Parameter, Program


@dataclass
class Row:
    """One layer.

    Attributes:
        key: its name.
        type: its type.
        output: type of what it makes, of several the first; None when nothing is left of it.
        outputs: name and type of each, where there are several.
        parameters: that it is the first to read.
        flops: floating-point operations of one sample, forward; those that ops count.
        uncounted: types of its ops that do not count theirs.
    """

    key: str
    type: str
    output: TensorType | None = None
    parameters: list[Parameter] = field(default_factory=list)
    flops: int = 0
    uncounted: list[str] = field(default_factory=list)
    outputs: dict[str, TensorType] = field(default_factory=dict)

    @property
    def numbers(self) -> int:
        """Elements of its parameters."""
        return sum(p.type.size for p in self.parameters)

    @property
    def nbytes(self) -> int:
        """Bytes of its output for one sample; 0 where a size is only known from data."""
        if self.output is None:
            return 0
        made = list(self.outputs.values()) or [self.output]
        # A size of -1 makes the product negative.
        return sum(max(0, _of_one(kind).nbytes) for kind in made)

    def shown(self) -> list[tuple[str, object]]:
        """Return a name and a type for each line of a table: the layer's, or those of each of its outputs."""
        return list(self.outputs.items()) or [(self.key, self.output or "-")]


def _of_one(kind: TensorType) -> TensorType:
    """Return the type of one sample's, where the first axis is the batch."""
    return kind.with_shape(1, *kind.shape[1:]) if kind.shape[:1] == (-1,) else kind


def parameters_text(rows: list[Row]) -> str:
    """Return how many parameters there are; statistics that no optimizer updates are told apart."""
    parameters = [p for row in rows for p in row.parameters]
    total, trained = sum(p.type.size for p in parameters), sum(p.type.size for p in parameters if p.trainable)
    part = f", {trained:,} of them trained" if trained < total else ""
    return f"{total:,} in {len(parameters)} tensors{part}"


@dataclass(frozen=True)
class Member:
    """How a parameter is trained.

    Args:
        parameter: its name.
        group: what the group of `train.groups` matches that it belongs to, empty for none.
        frozen: it is not trained: never, or not until the time that a text such as `until 3 epochs` names.
        rate: factor on the optimizer's learning rate.
        decay: its own coefficient of weight decay, None for the optimizer's.
    """

    parameter: str
    group: str
    frozen: bool | str
    rate: float
    decay: float | None


def members_of(source: Source) -> list[Member]:
    """Return how the parameters are trained where a config does not train all of them alike; running statistics are left out."""
    section = source.run.train if source.run else None
    if section is None or not (section.groups or section.adapt or section.by_depth):
        return []
    groups = section.groups
    program = source.built.eval
    # What the model's own ops write, and no optimizer, are running statistics.
    kept = {n for op in source.built.ops for n in op.output_names()}
    found = []
    for p in program.parameters():
        number = source.built.groups.get(p.name)
        if p.trainable or number is not None or p.name not in kept:
            group = "" if number is None else ", ".join(groups[number].patterns)
            until = source.built.waiting.get(p.name)
            found.append(Member(p.name, group, f"until {until}" if until else not p.trainable, p.learning_rate, p.weight_decay))
    return found


@dataclass(frozen=True)
class Trained:
    """What a phase of every training step does.

    Args:
        phase: its name.
        loss: that it minimises, as written.
        optimizer: its type.
        repeat: updates in every step.
        parameters: that it trains.
        numbers: elements of them.
    """

    phase: str
    loss: str
    optimizer: str
    repeat: int
    parameters: list[str]
    numbers: int


def trained_of(source: Source) -> list[Trained]:
    """Return the phases of a config that names some."""
    found = []
    for phase in source.built.phases:
        if phase.name:
            parameters = [p for p in phase.program.parameters() if p.name in phase.trained]
            written = find(phase.spec.optimizer, ("type",)) if phase.spec.optimizer else None
            optimizer = str(written.value) if isinstance(written, ScalarNode) else ""
            names, numbers = [p.name for p in parameters], sum(p.type.size for p in parameters)
            found.append(Trained(phase.name, phase.spec.loss or "", optimizer, phase.repeat, names, numbers))
    return found


def rows_of(source: Source) -> list[Row]:
    """Return the layers of a model in order."""
    from pe_cli.graph.layer_picture import owner, several_outputs
    from pe_cli.program.ir import Parameter

    program = source.built.eval
    rows = {layer.key: Row(layer.key, layer.type) for layer in source.model.layers}
    types = one_sample_types(program)
    seen: set[str] = set()
    variables = program.vars
    for op in program.top_ops:
        row = rows.get(owner(op, rows))
        if row is None:
            continue
        for name in op.input_names():
            v = variables[name]
            if isinstance(v, Parameter) and name not in seen:
                seen.add(name)
                row.parameters.append(v)
        outputs = op.output_names()
        if outputs:
            # Each op of the layer overwrites what the one before it has left: the last one's output is the layer's.
            name = row.key if row.key in outputs else outputs[0]
            row.output = variables[name].type
        _count(op, row, types)
    several = several_outputs(program)
    for row in rows.values():
        row.outputs = {name: variables[name].type for name in several.get(row.key, ())}
        row.output = next(iter(row.outputs.values()), row.output)
        if row.output is None and row.key in variables:
            row.output = variables[row.key].type  # a parameter that is a layer
    return list(rows.values())


def one_sample_types(program: Program) -> dict[str, TensorType]:
    """Return the types of every variable for one sample; those without a known size are left as they are."""
    from pe_cli.core.errors import PeError
    from pe_cli.execute.diagnostics.estimate import batch_types
    from pe_cli.execute.lowering.types import concrete_types
    from pe_cli.graph.lod_resolution import resolve

    known = {v.name: v.type for v in program.list_vars()}
    try:
        sequences = resolve(program)
        return known | concrete_types(sequences.program, batch_types(sequences, [1])[0])
    except PeError:
        return known


def _count(op: Operator, row: Row, types: dict[str, TensorType]) -> None:
    """Add an op's operations: as it counts them, else nothing, and its type is named as not counted."""
    definition = op.definition
    if definition.has(View):
        return
    counted = definition.get(Counted)
    if counted is None:
        row.uncounted.append(op.type)
        return
    args = [types[op.inputs[slot.name][0]] if op.inputs.get(slot.name) else None for slot in definition.inputs]
    found = counted.flops(*args, **op.attrs)
    # Below 0: a size is only known from data.
    if found < 0:
        row.uncounted.append(op.type)
    else:
        row.flops += found
