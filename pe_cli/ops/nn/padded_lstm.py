"""padded_lstm: one layer of an LSTM in one direction, over sequences padded to one length."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cpu.gemm import gemm_scratch, strips_size
from pe_cli.kernels.cpu.lstm import GIVEN, TOLD, backward_steps, forward_steps, nothing_told
from pe_cli.kernels.cpu.lstm_weights import narrow_gradients, pack_weights, wide_of, widen_biases, widen_weights
from pe_cli.kernels.language import Int, PtrI64, Status, kernel
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, ReportsData

#: Samples of a group at least: fewer make matrix products slow. Groups are cut by the shapes alone, so that no number of
#: threads changes a bit.
GROUP_ROWS = 16
MOST_GROUPS = 4
#: Rows of a chunk of steps: its gates of 128 units take half of a common L2.
CHUNK_ROWS = 256


@kernel
def check_lengths(lengths: PtrI64, batch: Int, steps: Int, status: Status):
    """Report a length that is not in [0, steps]."""
    for r in range(batch):
        if lengths[r] < 0 or lengths[r] > steps:
            report(status, r, lengths[r], steps + 1)
            return


_WEIGHTS = {"WeightIh": (3, 16), "WeightHh": (4, 16)}
_BIASES = {"BiasIh": (16,), "BiasHh": (16,)}


@op(
    "padded_lstm",
    traits=[Divisible(), ReportsData()],
    inputs="Input WeightIh WeightHh BiasIh? BiasHh? InitH? InitC? Lengths?",
    floats="Input",
    outputs="Out LastH LastC Gates Cells States",
    attrs={
        "is_reverse": Attr(False, "go from the last step to the first"),
        "time_major": Attr(False, "Input and Out are [time, batch, ...]"),
    },
    differentiable="Input WeightIh WeightHh BiasIh BiasHh InitH InitC",
    samples=[
        Sample({"Input": (2, 5, 3), **_WEIGHTS, **_BIASES}, name="two sequences of five"),
        Sample({"Input": (2, 5, 3), **_WEIGHTS, "InitH": (2, 4), "InitC": (2, 4)}, {"is_reverse": True}, "reversed, from given states"),
        Sample({"Input": (5, 2, 3), **_WEIGHTS, "BiasIh": (16,)}, {"time_major": True}, "time first"),
        Sample({"Input": (3, 4, 3), **_WEIGHTS, **_BIASES, "Lengths": classes(0, 5, 3, 1)}, name="three lengths"),
        Sample(
            {"Input": (4, 3, 3), **_WEIGHTS, "InitH": (3, 4), "InitC": (3, 4), "Lengths": classes(0, 5, 3)},
            {"is_reverse": True, "time_major": True},
            "lengths, reversed, time first, from given states",
        ),
        Sample({"Input": (35, 9, 2), "WeightIh": (2, 68), "WeightHh": (17, 68), "BiasHh": (68,)}, name="groups, chunks and odd units"),
        Sample({"Input": (1, 1, 1), "WeightIh": (1, 4), "WeightHh": (1, 4)}, name="one element"),
        Sample({"Input": (0, 4, 3), **_WEIGHTS, **_BIASES}, name="empty batch"),
    ],
)  # fmt: skip
def padded_lstm(
    x: TensorType,
    w_ih: TensorType,
    w_hh: TensorType,
    b_ih: TensorType | None,
    b_hh: TensorType | None,
    h0: TensorType | None,
    c0: TensorType | None,
    lengths: TensorType | None,
    *,
    is_reverse: bool,
    time_major: bool,
) -> tuple[TensorType, ...]:
    """Run one layer of an LSTM over all steps of padded sequences.

    i, f, g, o = split(x_t WeightIh + BiasIh + h WeightHh + BiasHh),  c = s(f) c + s(i) tanh(g),  h = s(o) tanh(c),
    with s the sigmoid; Out_t = h.

    Args:
        Input: [batch, time, inputs] float32 or float64; [time, batch, inputs] where time_major.
        WeightIh: [inputs, 4 units], the gates i, f, g, o side by side.
        WeightHh: [units, 4 units] likewise.
        BiasIh, BiasHh: [4 units]; default 0.
        InitH, InitC: [batch, units], the states before the first step; default 0.
        Lengths: [batch] or [batch, 1] int64, steps of each sequence; beyond them the states stay, and Out is 0. Default: all.

    Returns:
        Out: [batch, time, units], or [time, batch, units].
        LastH, LastC: [batch, units], the states after the last step.
        Gates, Cells, States: for the gradient, in an order of its own.

    Raises:
        PeError: shapes or types that do not fit; while running, a length that is not in [0, time].

    Source:
        fluid.layers.lstm; Gers, Schmidhuber, Cummins 2000, "Learning to forget".
    """
    if len(x.shape) != 3:
        raise PeError(f"padded_lstm needs Input [batch, time, inputs], got {x}")
    batch, steps = (x.shape[1], x.shape[0]) if time_major else x.shape[:2]
    if len(w_hh.shape) != 2 or w_hh.shape[1] != 4 * w_hh.shape[0] or w_hh.size == 0:
        raise PeError(f"padded_lstm needs WeightHh [units, 4 units], got {w_hh}")
    if steps == 0 or x.shape[2] == 0:
        raise PeError(f"padded_lstm needs at least one step and one input, got Input {x}")
    units = w_hh.shape[0]
    for name, got, wanted in (
        ("WeightIh", w_ih, (x.shape[2], 4 * units)),
        ("WeightHh", w_hh, (units, 4 * units)),
        ("BiasIh", b_ih, (4 * units,)),
        ("BiasHh", b_hh, (4 * units,)),
        ("InitH", h0, (batch, units)),
        ("InitC", c0, (batch, units)),
    ):
        if got is not None and (got.dtype != x.dtype or not _fits(got.shape, wanted)):
            raise PeError(
                f"padded_lstm needs {name} {x.with_shape(*wanted)} for Input {x} and {units} units, got {got}"
            )
    if lengths is not None and (
        lengths.dtype != "int64" or lengths.shape[1:] not in ((), (1,)) or not _fits(lengths.shape[:1], (batch,))
    ):
        raise PeError(f"padded_lstm needs Lengths int64[{batch}], one for each sequence, got {lengths}")
    wide = wide_of(units)
    # One state more than there are steps: that before the first stands at one end, so a step finds it as it finds all others.
    after = -1 if steps < 0 else steps + 1
    state = x.with_shape(batch, units)
    return (
        x.with_shape(*x.shape[:2], units),
        state,
        state,
        x.with_shape(steps, batch, 4 * wide),
        x.with_shape(after, batch, wide),
        x.with_shape(after, batch, wide),
    )


def groups_of(batch: int) -> int:
    """Return how many groups so many samples make."""
    return max(1, min(MOST_GROUPS, batch // GROUP_ROWS))


def _fits(got: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether shapes agree, where both are known."""
    return len(got) == len(wanted) and all(a == b or -1 in (a, b) for a, b in zip(got, wanted, strict=True))


class Sizes:
    """Sizes of one call, its groups of samples, and its weights in the order of the kernels."""

    def __init__(self, o: Lowering) -> None:
        self.o = o
        self.x = x = o.input("Input")
        self.time_major = o.attrs["time_major"]
        self.batch, self.steps = (x.shape[1], x.shape[0]) if self.time_major else x.shape[:2]
        self.inputs = x.shape[2]
        self.units = o.input("WeightHh").shape[0]
        self.wide = wide_of(self.units)
        count = groups_of(self.batch)
        ends = [self.batch * i // count for i in range(count + 1)]
        self.groups = [(a, b - a) for a, b in itertools.pairwise(ends) if b > a]

    def chunk(self, rows: int) -> int:
        """Return the steps that a group of so many samples does at once."""
        return max(1, min(self.steps, CHUNK_ROWS // rows))

    def record(self, first: int, rows: int, given: int) -> tuple[int, ...]:
        """Return a group's facts; see `kernels.cpu.lstm.GROUP`."""
        strides = [(n, self.batch * n) if self.time_major else (self.steps * n, n) for n in (self.inputs, self.units)]
        return (
            first, rows, self.steps, self.inputs, self.units, self.wide, self.chunk(rows), int(self.o.attrs["is_reverse"]),
            given, *strides[0], *strides[1],
        )  # fmt: skip

    def weights(self, transposed: bool) -> list[Buffer]:
        """Append the calls that pack the weights for the kernels, as parts; return (packed ih, packed hh)."""
        o, row = self.o, 4 * self.wide
        found = []
        for part, (slot, rows) in enumerate((("WeightIh", self.inputs), ("WeightHh", self.wide))):
            w = o.input(slot)
            # Units are widened to whole vectors with columns of zeros: their gates stay 0 and cost less than a remainder loop in every
            # step.
            if self.wide > self.units:
                given, w = w, o.scratch(rows * row, w.dtype)
                o.call(widen_weights, given, given.shape[0], rows, self.units, self.wide, w, part=part)
            found.append(o.scratch(strips_size(*((rows, row) if transposed else (row, rows))), w.dtype))
            o.call(pack_weights, w, rows, self.wide, int(transposed), found[-1], part=part)
        return found

    def bias(self) -> Buffer:
        """Append the call that adds up the biases, and return their sum."""
        biases = [(*self.o.inputs(slot), self.x)[0] for slot in ("BiasIh", "BiasHh")]
        given = self.o.has("BiasIh") + 2 * self.o.has("BiasHh")
        total = self.o.scratch(4 * self.wide, self.x.dtype)
        self.o.call(widen_biases, *biases, given, self.units, self.wide, total)
        return total

    def optional(self, **slots: str) -> tuple[int, list[Buffer]]:
        """Return the flags of the slots that are there, and a buffer for each, Input where it is absent."""
        o = self.o
        flags = sum(GIVEN[name] for name, slot in slots.items() if o.has(slot))
        found = [(*o.inputs(slot), *o.outputs(slot), self.x)[0] for slot in slots.values()]
        return flags, found


@padded_lstm.lower("cpu")
def padded_lstm_cpu(o: Lowering) -> None:
    """One call for all steps of a group of samples; groups may run at the same time."""
    s = Sizes(o)
    if not s.groups:
        return
    if o.has("Lengths"):
        # Before the steps: a wrong length must not index states.
        o.call(check_lengths, o.input("Lengths"), s.batch, s.steps, STATUS)
    packed, bias = s.weights(transposed=False), s.bias()
    given, optional = s.optional(h0="InitH", c0="InitC", lengths="Lengths")
    outputs = [o.output(slot) for slot in ("Out", "LastH", "LastC", "Gates", "Cells", "States")]
    for part, (first, rows) in enumerate(s.groups):
        taken = o.scratch(s.chunk(rows) * rows * s.inputs, s.x.dtype)
        o.call(
            forward_steps, s.x, *optional, bias, *packed, *outputs, taken, Numbers(s.record(first, rows, given)), part=part
        )


@padded_lstm.count
def padded_lstm_flops(x: TensorType, w_ih: TensorType, w_hh: TensorType, *others: TensorType | None, **attrs: object) -> int:
    """Return those of the products with both weights, for every step of every sample."""
    del others, attrs
    return 2 * x.shape[0] * x.shape[1] * (product(w_ih.shape) + product(w_hh.shape))


@padded_lstm.most_parts
def padded_lstm_parts(x: TensorType, *others: TensorType | None, time_major: bool, **attrs: object) -> int:
    """Return the groups: they are cut by the shapes alone."""
    del others, attrs
    return groups_of(x.shape[1 if time_major else 0])


@padded_lstm.grad(uses="Input WeightIh WeightHh Lengths Gates Cells States").lower("cpu")
def padded_lstm_grad_cpu(o: Lowering) -> None:
    """A call for each group of samples, which share the last of their products, then the sum of the groups' gradients of weights."""
    s = Sizes(o)
    row, dtype = 4 * s.wide, s.x.dtype
    count = len(s.groups)
    sizes = {"WeightIh": s.inputs * row, "WeightHh": s.wide * row, "BiasIh": row}
    # One group that is not widened writes the gradients itself; several have parts, which are added in the order of the groups.
    alone = count == 1 and s.wide == s.units
    direct = {slot: o.output(f"{slot}@GRAD") for slot in ("WeightIh", "WeightHh") if alone and o.has(f"{slot}@GRAD")}
    parts = {slot: direct.get(slot) or o.scratch(max(1, count) * n, dtype) for slot, n in sizes.items()}
    if s.groups:
        packed = s.weights(transposed=True)
        told = o.scratch(count * TOLD, "int64")
        o.call(nothing_told, told, count, part=len(packed))
        # Groups share the last of their products and tell each other by `told` how far they are: it has to be cleared before any of them
        # begins.
        o.wait()
        given, (lengths, *optional) = s.optional(
            lengths="Lengths", dout="Out@GRAD", dlast_h="LastH@GRAD", dlast_c="LastC@GRAD"
        )
        wanted, gradients = s.optional(dx="Input@GRAD", dh0="InitH@GRAD", dc0="InitC@GRAD")
        saved = [o.input(slot) for slot in ("Gates", "Cells", "States")]
        most = max(s.chunk(rows) * rows for _, rows in s.groups)
        every = [o.scratch(count * most * n, dtype) for n in (row, s.inputs, s.inputs if wanted & GIVEN["dx"] else 0)]
        records = [n for first, rows in s.groups for n in s.record(first, rows, given + wanted)]
        for part, (_, rows) in enumerate(s.groups):
            own = [o.scratch(n, dtype) for n in (gemm_scratch(row, most), rows * s.wide, rows * s.wide)]
            o.call(
                backward_steps, s.x, lengths, *optional, *saved, *packed, *gradients, *parts.values(), *every, told, *own,
                Numbers((part, count, most, *records)), part=part,
            )  # fmt: skip
    narrow = [("WeightIh", "WeightIh", s.inputs, s.inputs), ("WeightHh", "WeightHh", s.units, s.wide)]
    narrow += [("BiasIh", "BiasIh", 1, 1), ("BiasHh", "BiasIh", 1, 1)]
    o.wait()
    for part, (slot, found, rows, all_rows) in enumerate(narrow):
        if o.has(f"{slot}@GRAD") and slot not in direct:
            out = o.output(f"{slot}@GRAD")
            o.call(narrow_gradients, parts[found], count, rows, all_rows, s.units, s.wide, out, part=part)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def _gates(o: Writer, name: str, axis: int) -> str:
    """Return blocks of gates i, f, g, o in ONNX's order: i, o, f, g."""
    parts = [o.fresh() for _ in range(4)]
    o.nodes("Split", [name], parts, axis=axis, num_outputs=4)
    return o.node("Concat", [parts[0], parts[3], parts[1], parts[2]], axis=axis)


@in_onnx("padded_lstm")
def padded_lstm_onnx(o: Writer) -> None:
    """ONNX's own, with the axis of directions that it wants."""
    first = o.const([0])
    units = o.type("WeightHh").shape[0]
    x = o.x("Input") if o.attrs["time_major"] else o.node("Transpose", [o.x("Input")], perm=[1, 0, 2])
    names = [x]
    for slot in ("WeightIh", "WeightHh"):
        turned = _gates(o, o.node("Transpose", [o.x(slot)], perm=[1, 0]), 0)
        names.append(o.node("Unsqueeze", [turned, first]))
    # ONNX adds two biases to each gate, as the op does; one that is missing is 0.
    zero = o.const(np.zeros(4 * units), "Input")
    biases = [_gates(o, o.x(slot), 0) if o.has(slot) else zero for slot in ("BiasIh", "BiasHh")]
    names.append(o.node("Unsqueeze", [o.node("Concat", biases, axis=0), first]))
    lengths = ""
    if o.has("Lengths"):
        flat = o.node("Reshape", [o.x("Lengths"), o.const([-1])])
        lengths = o.node("Cast", [flat], to_=element_type("int32"))
    names.append(lengths)
    names += [o.node("Unsqueeze", [o.x(slot), first]) if o.has(slot) else "" for slot in ("InitH", "InitC")]
    y, h, c = (o.fresh() for _ in range(3))
    direction = "reverse" if o.attrs["is_reverse"] else "forward"
    o.nodes("LSTM", names, [y, h, c], hidden_size=units, direction=direction)
    all_steps = o.node("Squeeze", [y, o.const([1])])
    if o.attrs["time_major"]:
        o.node("Identity", [all_steps], to="Out")
    else:
        o.node("Transpose", [all_steps], to="Out", perm=[1, 0, 2])
    for slot, name in (("LastH", h), ("LastC", c)):
        if o.wanted(slot):
            o.node("Squeeze", [name, first], to=slot)
