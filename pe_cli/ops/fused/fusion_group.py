"""fusion_group: pointwise ops that feed one another in one pass over memory; made by enable_auto_fusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cuda.int32_index import reciprocal
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.define.registry import Attr, OpDef, Sample, find, op
from pe_cli.ops.define.strided_copy import copy_box
from pe_cli.ops.define.traits import InPlace, Narrow, Pointwise, RowWise
from pe_cli.ops.fused.fusion_kernel import COLUMN, FULL, MASK, ONE, ROW, Step, Text, fused_kernel
from pe_cli.ops.math.broadcast import aligned
from pe_cli.ops.math.reduction import WIDE

NAME = "fusion_group"
Values = Mapping[str, Sequence[int]]
#: A joined op: type, input slots and output slots with numbers of values, attributes that differ from the defaults.
Member = tuple[str, Values, Values, Mapping[str, Any]]

#: What a kernel call costs, and a byte that need not be written or read, in ns; and what a generated kernel must save to be worth
#: compiling, which takes about half a second.
CALL_NS, BYTE_NS, WORTH_NS = 8.0, 0.02, 300.0


def kind_of(shape: Sequence[int], full: Sequence[int], axis: int) -> str:
    """Return how an operand is read (see `fusion_kernel`) that is broadcast to a shape; empty where it is none of these ways.

    Args:
        shape: of the operand; -1 fits -1 only.
        full: of the result.
        axis: fluid's, of the full shape, that the operand's first axis stands for.
    """
    if len(shape) > len(full):
        return ""
    own = aligned(shape, len(full), axis)
    if own == tuple(full):
        return FULL
    wide = [k for k, size in enumerate(own) if size != 1]
    if not wide:
        return ONE
    first, last = wide[0], wide[-1]
    if len(own) != len(full) or own[first : last + 1] != tuple(full[first : last + 1]):
        return ""
    if all(size == 1 for size in full[last + 1 :]):
        return ROW
    return COLUMN if all(size == 1 for size in full[:first]) else ""


@dataclass
class Group:
    """The joined ops as functions of elements.

    Attributes:
        reads: number of values that are read; they come first.
        kinds: of the values read, as far as the ops use them.
        steps: further values.
        numbers: that the functions take, in order.
        known: value of the program -> value here: some are the same.
    """

    reads: int
    kinds: dict[int, str]
    steps: list[Step] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)

    def like(self, types: Sequence[TensorType], full: TensorType) -> int | None:
        """Return a value read that has the results' type; None where there is none.

        Leading axes of size 1 change no element, so that a value with fewer axes is read whole as well, but has another type.

        Args:
            types: of the values read.
            full: of the results.
        """
        return next((k for k, kind in self.kinds.items() if kind == FULL and types[k] == full), None)

    def text(self, outs: Sequence[int]) -> Text:
        """Return the text of the kernel that writes some values."""
        kinds = "".join(self.kinds[k] for k in range(self.reads))
        return Text(kinds, tuple(self.steps), tuple(self.known[v] for v in outs))


def group_of(members: Sequence[Member], types: Sequence[TensorType], full: TensorType) -> Group | None:
    """Return what joined ops compute; None where one of them does not work element by element on these types.

    Args:
        members: in order.
        types: of the values read.
        full: type of all other values.
    """
    found = Group(len(types), {}, known={k: k for k in range(len(types))})
    for name, inputs, outputs, attrs in members:
        definition = find(name)
        given = definition.check_attrs(attrs)
        values = dict(_named(definition, inputs))
        form = definition.get(Pointwise)
        scalars = form.scalars(given, inputs) if form else []
        # what no function takes changes what the op does: rows of a table, a gradient to add to
        if set(values) - {a for scalar in scalars for a in scalar.args}:
            return None
        if not scalars or not all(_read(found, v, slot, given, types, full) for slot, v in values.items()):
            return None
        here = {slot: found.known[v] for slot, v in values.items()}
        for scalar in scalars:
            args = tuple(here[a] for a in scalar.args)
            if scalar.kernel is None:
                here[scalar.out] = args[0]
                continue
            # Slots of the op itself, not names that stand for values between its functions.
            # An output that nobody asks for is not computed.
            if scalar.out in definition_outputs(definition) and scalar.out not in outputs:
                continue
            found.steps.append(Step(scalar.kernel.name, args))
            found.numbers += scalar.values
            here[scalar.out] = found.reads + len(found.steps) - 1
        if not all(slot in here for slot in outputs):
            return None
        found.known |= {row[0]: here[slot] for slot, row in outputs.items()}
    # A kernel's text has a letter for every value read: one that no function uses would have none.
    return found if found.like(types, full) is not None and len(found.kinds) == found.reads else None


def _named(definition: OpDef, inputs: Values) -> Iterator[tuple[str, int]]:
    """Yield (name that `Scalar` gives it, value) of every input."""
    variadic = {s.name for s in definition.inputs if s.variadic}
    for slot, row in inputs.items():
        for i, value in enumerate(row):
            yield (f"{slot} {i}" if slot in variadic else slot), value


def definition_outputs(definition: OpDef) -> set[str]:
    """Return the names of an op's output slots."""
    return {s.name for s in definition.outputs}


def _read(
    group: Group, value: int, slot: str, attrs: Mapping[str, Any], types: Sequence[TensorType], full: TensorType
) -> bool:
    """Note how a value is read; False where it cannot be, or is read in two ways."""
    if value >= group.reads:
        return True
    own = types[value]
    # only Y is broadcast, by fluid's axis; a learning rate or factor is one element
    kind = kind_of(own.shape, full.shape, attrs.get("axis", -1) if slot == "Y" else -1)
    if own.dtype in ("uint8", "bool") and slot == "Mask" and kind == FULL:
        kind = MASK
    elif own.dtype != full.dtype or not kind:
        return False
    return group.kinds.setdefault(value, kind) == kind


def members_of(attrs: Mapping[str, Any]) -> list[Member]:
    """Return the joined ops of a fusion_group's attributes."""
    return [(m[0], m[1], m[2], m[3]) for m in attrs["ops"]]


_SAMPLE_OPS = [
    ["elementwise_add", {"X": [0], "Y": [1]}, {"Out": [2]}, {}],
    ["tanh", {"X": [2]}, {"Out": [3]}, {}],
    ["scale", {"X": [3]}, {"Out": [4]}, {"scale": 2.0, "bias": 0.5}],
]


@op(
    NAME,
    inputs="X? Rest*",
    outputs="Out*",
    attrs={
        "ops": Attr(
            [],
            "the joined ops: [type, inputs, outputs, attributes], slots with numbers of values: those read come first",
        ),
        "outs": Attr([0], "numbers of the values that are written"),
        "like": Attr(0, "number of a value read whose type all others have"),
    },
    differentiable="",
    traits=[InPlace({"Out": "X"}), Narrow(), RowWise()],
    samples=[
        Sample(
            {"X": (3, 4), "Rest": [(4,)]},
            {"ops": _SAMPLE_OPS, "outs": [4]},
            "a bias, tanh and a line",
            outputs={"Out": 1},
        ),
        Sample(
            {"X": (3, 4), "Rest": [(3, 4)]}, {"ops": _SAMPLE_OPS, "outs": [4, 3]}, "two results", outputs={"Out": 2}
        ),
        Sample({"X": (0, 4), "Rest": [(1,)]}, {"ops": _SAMPLE_OPS, "outs": [4]}, "an empty batch", outputs={"Out": 1}),
    ],
)
def fusion_group(
    x: TensorType | None, rest: list[TensorType], *, ops: list[Any], outs: list[int], like: int
) -> list[TensorType]:
    """Compute several pointwise ops in one pass over memory.

    Values are numbered: 0, 1, ... are those read (X, then Rest), then come the results of the joined ops. Results and gradients are those
    of the separate ops, to the last bit; on the CPU large groups get a kernel of their own, which is compiled when it is first needed.

    Args:
        X: float32 or float64; its memory may be taken over by the first result. Absent where several results are written.
        Rest: what else is read: tensors of one shape, and others that are broadcast to it.
        ops: see the attribute.
        outs: values that others need.
        like: a value of the common shape.

    Returns:
        Out: the values of outs, each of the type of value like.

    Raises:
        PeError: like is not among the values read, or is no float.

    Source:
        fluid's operator fusion_group, made by enable_auto_fusion.
    """
    del ops
    read = [*([x] if x is not None else []), *rest]
    if not 0 <= like < len(read) or read[like].dtype not in FLOATS:
        raise PeError(f"{NAME}: value {like} is no float32 or float64 among the {len(read)} that are read")
    return [read[like]] * len(outs)


def _reads(o: Lowering) -> list[Buffer]:
    return [*o.inputs("X"), *o.inputs("Rest")]


@fusion_group.lower("cpu")
def fusion_group_cpu(o: Lowering) -> None:
    """One generated kernel where that saves enough; else the calls of the separate ops."""
    reads, outs = _reads(o), o.outputs("Out")
    full = reads[o.attrs["like"]]
    members = members_of(o.attrs)
    if full.size == 0:
        return
    group = group_of(members, [b.type for b in reads], full.type)
    # Below that, compiling one more kernel costs more than it saves: those of the separate ops exist already.
    if group is None or not group.steps or saved_ns(members, len(outs), full.type) < WORTH_NS:
        separate(o, "cpu")
        return
    shape = _rows(group, reads, full)
    if shape is None:
        separate(o, "cpu")
        return
    rows, n = shape
    kernel = fused_kernel(group.text(o.attrs["outs"]))
    sources, done = _widened(o, group, reads, rows, n)
    for count, width, at in done:
        places = [Offset(b, at) if at and group.kinds[k] in (FULL, MASK) else b for k, b in enumerate(sources)]
        targets = [Offset(b, at) if at else b for b in outs]
        o.call(kernel, *places, *targets, count, width, *group.numbers, dtype=full.dtype)


def saved_ns(members: Sequence[Member], written: int, full: TensorType) -> float:
    """Return about how many nanoseconds one pass saves against the separate ops: calls, and bytes of values that pass in registers."""
    made = {v for _, _, outputs, _ in members for row in outputs.values() for v in row}
    again = sum(v in made for _, inputs, _, _ in members for row in inputs.values() for v in row)
    return (len(members) - 1) * CALL_NS + (again + len(made) - written) * full.nbytes * BYTE_NS


def _rows(group: Group, reads: Sequence[Buffer], full: Buffer) -> tuple[int, int] | None:
    """Return rows and columns that fit every row and column that is read; None where there are none."""
    widths = {reads[k].size for k, kind in group.kinds.items() if kind == ROW}
    widths |= {full.size // reads[k].size for k, kind in group.kinds.items() if kind == COLUMN}
    # A generated loop has one width, so all rows and columns that it reads must agree.
    if len(widths) > 1:
        return None
    n = widths.pop() if widths else full.size
    return full.size // n, n


def _widened(
    o: Lowering, group: Group, reads: Sequence[Buffer], rows: int, n: int
) -> tuple[list[Buffer], list[tuple[int, int, int]]]:
    """Return what to read, and (rows, columns, first element) of the calls: narrow rows are repeated until they are wide."""
    narrow = ROW in group.kinds.values() and COLUMN not in group.kinds.values() and n <= WIDE // 4
    times = WIDE // n
    # Repeating a row costs a pass itself; it pays where the wide row is used several times.
    if not narrow or rows < 4 * times:
        return list(reads), [(rows, n, 0)]
    sources = list(reads)
    for k, kind in group.kinds.items():
        if kind == ROW:
            sources[k] = o.scratch(times * n, reads[k].dtype)
            copy_box(o, reads[k], sources[k], (times, n), (0, 1), (n, 1))
    wide, left = divmod(rows, times)
    return sources, [(wide, times * n, 0), *([(1, left * n, wide * times * n)] if left else [])]


# --- the separate ops -------------------------------------------------------------------------------------------------


def separate(o: Lowering, kind: str) -> None:
    """Append the calls of the separate ops; values that nobody else needs live in scratch, which is used again."""
    reads, outs, members = _reads(o), o.outputs("Out"), members_of(o.attrs)
    full = reads[o.attrs["like"]].type
    where = dict(enumerate(reads))
    last = {v: i for i, (_, inputs, _, _) in enumerate(members) for row in inputs.values() for v in row}
    wanted: dict[int, Buffer] = {}
    for value, b in zip(o.attrs["outs"], outs, strict=True):
        wanted.setdefault(value, b)
    free: list[Buffer] = []
    copies: list[tuple[Buffer, Buffer]] = []
    for i, (name, inputs, outputs, attrs) in enumerate(members):
        for row in outputs.values():
            (value,) = row
            # the first result may be given the bytes of X: nothing is written there before X was read for the last time
            early = wanted.get(value) is outs[0] and o.has("X") and last.get(0, -1) >= i
            if value in wanted and not early:
                where[value] = wanted[value]
            else:
                where[value] = free.pop() if free and value not in wanted else _shaped(o, full)
                copies += [(where[value], wanted[value])] if value in wanted else []
        _append(o, kind, find(name), (inputs, outputs), attrs, where)
        for row in inputs.values():
            for v in dict.fromkeys(row):
                if v >= len(reads) and last[v] == i and v not in wanted:
                    free.append(where[v])
    copies += [(where[v], b) for v, b in zip(o.attrs["outs"], outs, strict=True) if wanted[v] is not b]
    for source, target in copies:
        o.call(copy, source, target, target.size)


def _shaped(o: Lowering, kind: TensorType) -> Buffer:
    made = Buffer("scratch", kind)
    o.scratch_buffers.append(made)
    return made


def _append(
    o: Lowering,
    kind: str,
    definition: OpDef,
    slots: tuple[Values, Values],
    attrs: Mapping[str, Any],
    where: Mapping[int, Buffer],
) -> None:
    inputs, outputs = ({s: [where[v] for v in row] for s, row in side.items()} for side in slots)
    checked = definition.check_attrs(attrs)
    part = Lowering(definition, checked, inputs, outputs, o.seed, o.sample_offset, place=kind, precision=o.precision)
    definition.lowerings[kind](part)
    calls: list[Call] = part.calls
    o.calls += calls
    o.scratch_buffers += part.scratch_buffers


@fusion_group.lower("cuda")
def fusion_group_cuda(o: Lowering) -> None:
    """One generated kernel; the calls of the separate ops where what is read fits no common rows."""
    from pe_cli.ops.fused.fusion_kernel_cuda import fused_kernel_cuda  # which only a card needs

    reads = _reads(o)
    full = reads[o.attrs["like"]]
    if not full.size:
        return
    group = group_of(members_of(o.attrs), [b.type for b in reads], full.type)
    shape = _rows(group, reads, full) if group and group.steps else None
    if group is None or shape is None:
        separate(o, "cuda")
        return
    rows, n = shape
    kernel = fused_kernel_cuda(group.text(o.attrs["outs"]))
    o.call(kernel, *reads, *o.outputs("Out"), rows * n, n, *reciprocal(n), *group.numbers, dtype=full.dtype)
