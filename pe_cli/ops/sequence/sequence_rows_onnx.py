"""Sequences in ONNX: rows that are copied, softmax; and lstm, gru and crf_decoding, a Scan whose states begin anew with every sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import lengths_of, owners
from pe_cli.ops.define.onnx import Writer, in_onnx, made_in_onnx
from pe_cli.ops.sequence.sequence_rows import reversed_rows

#: Activation -> kind of node.
ACTS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "identity": "Identity"}
_FLAG, _PLACE = TensorType((), "bool"), TensorType((), "int64")

Step = Callable[[Writer, list[str], list[str]], tuple[list[tuple[str, TensorType]], list[tuple[str, TensorType]]]]


def bounds_of(o: Writer, offsets: str) -> tuple[str, str]:
    """Return where sequences begin and end."""
    begins, ends = (o.node("Slice", [offsets, o.const([a]), o.const([b])]) for a, b in ((0, -1), (1, 2**31)))
    return begins, ends


def sequence_of(o: Writer, place: str, ends: str) -> str:
    """Return the sequence of each row."""
    # A row belongs to the sequence whose end it has not passed: as many as have ended before it.
    passed = o.node("GreaterOrEqual", [o.node("Unsqueeze", [place, o.const([1])]), ends])
    return o.node("ReduceSum", [o.node("Cast", [passed], to_=7), o.const([1])], keepdims=0)


def _ends(o: Writer, rows: str) -> tuple[str, str, str]:
    """Return for each row of all sequences its sequence, whether it is the first of it, and whether it is the last: [rows] each.

    Args:
        o: with the slot Offsets.
        rows: how many rows, a scalar.
    """
    begins, ends = bounds_of(o, o.x("Offsets"))
    place = o.node("Range", [o.const(0), rows, o.const(1)])
    owner = sequence_of(o, place, ends)
    first = o.node("Equal", [place, o.node("Gather", [begins, owner])])
    last = o.node("Equal", [o.node("Add", [place, o.const(1)]), o.node("Gather", [ends, owner])])
    return owner, first, last


def _rows(o: Writer, x: str) -> str:
    """Return how many rows there are, a scalar."""
    return o.node("Squeeze", [o.node("Shape", [x], start=0, end=1)])


def _scanned(
    o: Writer, given: Sequence[tuple[str, TensorType]], states: Sequence[tuple[str, TensorType]], step: Step, outs: int, *, back: bool
) -> list[str]:
    """Append a Scan and return what it collects.

    Args:
        o: gets it.
        given: what is gone through, with the type of a row.
        states: before the first row.
        step: of rows and states it writes the next states, and what is collected.
        outs: how many are collected.
        back: the last row first.
    """
    inside = o.inside()
    rows, held = ([(inside.fresh(), kind) for _, kind in part] for part in (given, states))
    after, found = step(inside, [n for n, _ in rows], [n for n, _ in held])
    body, made = inside.body([*held, *rows], [*after, *found]), [o.fresh() for _ in range(outs)]
    # A reverse sequence is scanned from the end, so that what is collected keeps the order of the rows.
    ways = {"scan_input_directions": [int(back)] * len(given), "scan_output_directions": [int(back)] * outs}
    inputs = [n for n, _ in (*states, *given)]
    o.nodes("Scan", inputs, [*(o.fresh() for _ in states), *made], body=body, num_scan_inputs=len(given), **ways)
    return made


def _begun(o: Writer, slot: str, owner: str, kind: TensorType) -> list[tuple[str, TensorType]]:
    """Return what each row's sequence begins with, where that is given."""
    return [(o.node("Gather", [o.x(slot), owner]), kind)] if o.has(slot) else []


def _part(o: Writer, x: str, k: int, width: int) -> str:
    return o.node("Slice", [x, o.const([k * width]), o.const([(k + 1) * width]), o.const([-1])])


@made_in_onnx(lengths_of)
def lengths_onnx(o: Writer) -> None:
    """Differences of bounds."""
    begins, ends = bounds_of(o, o.x())
    o.node("Sub", [ends, begins], to="Out")


def places_of(o: Writer, offsets: str) -> str:
    """Return the number of each row."""
    last = o.node("Gather", [offsets, o.const(-1)])
    return o.node("Range", [o.const(0), last, o.const(1)])


@made_in_onnx(owners)
def owners_onnx(o: Writer) -> None:
    """Each row's sequence."""
    o.node("Identity", [sequence_of(o, places_of(o, o.x()), bounds_of(o, o.x())[1])], to="Out")


@made_in_onnx(reversed_rows)
def reversed_rows_onnx(o: Writer) -> None:
    """As far from the end as a row is from the beginning."""
    (begins, ends), place = bounds_of(o, o.x()), places_of(o, o.x())
    both = o.node("Sub", [o.node("Add", [begins, ends]), o.const(1)])
    o.node("Sub", [o.node("Gather", [both, sequence_of(o, place, ends)]), place], to="Out")


@in_onnx("sequence_expand", "sequence_expand_as", "sequence_slice", "sequence_reverse")
def copied_rows_onnx(o: Writer) -> None:
    """Rows that an index has."""
    o.node("Gather", [o.x(), o.x("Index")], to="Y" if o.op.type == "sequence_reverse" else "Out")


@in_onnx("sequence_softmax")
def sequence_softmax_onnx(o: Writer) -> None:
    """Largest numbers and sums of sequences are taken over [rows, sequences]."""
    flat = o.node("Reshape", [o.x(), o.const([-1, 1])])
    place = o.node("Range", [o.const(0), _rows(o, flat), o.const(1)])
    begins, ends = bounds_of(o, o.x("Offsets"))
    column = o.node("Unsqueeze", [place, o.const([1])])
    # ONNX has no sums by segment: a row of the mask per sequence, and sums over masked columns.
    mine = o.node("And", [o.node("GreaterOrEqual", [column, begins]), o.node("Less", [column, ends])])
    owner = sequence_of(o, place, ends)
    most = o.node("ReduceMax", [o.node("Where", [mine, flat, o.const(-np.inf, "X")]), o.const([0])], keepdims=0)
    grown = o.node("Exp", [o.node("Sub", [flat, o.node("Unsqueeze", [o.node("Gather", [most, owner]), o.const([1])])])])
    total = o.node("ReduceSum", [o.node("Where", [mine, grown, o.const(0, "X")]), o.const([0])], keepdims=0)
    found = o.node("Div", [grown, o.node("Unsqueeze", [o.node("Gather", [total, owner]), o.const([1])])])
    o.node("Reshape", [found, o.node("Shape", [o.x()])], to="Out")


@in_onnx("lstm")
def lstm_onnx(o: Writer) -> None:
    """Row by row, whichever sequence it is of."""
    a, kind = o.attrs, o.type("Input")
    d, r = kind.shape[1] // 4, o.type("Weight").shape[0]
    owner, first, last = _ends(o, _rows(o, o.x("Input")))
    hidden, cell = TensorType((r,), kind.dtype), TensorType((d,), kind.dtype)
    begins = {slot: _begun(o, slot, owner, row) for slot, row in (("H0", hidden), ("C0", cell))}
    given = [(o.x("Input"), kind.with_shape(4 * d)), (last if a["is_reverse"] else first, _FLAG), *begins["H0"], *begins["C0"]]
    bias = o.node("Reshape", [o.x("Bias"), o.const([-1])])
    peeps = [_part(o, bias, 4 + k, d) for k in range(3)] if a["use_peepholes"] else []
    # ONNX needs a value where no first state is given: zeros, as the op has them.
    none = {width: o.const(np.zeros(width), "Input") for width in (d, r)}

    def step(s: Writer, rows: list[str], states: list[str]) -> tuple[list[tuple[str, TensorType]], list[tuple[str, TensorType]]]:
        x, begin, *firsts = rows
        h0 = firsts.pop(0) if begins["H0"] else none[r]
        c0 = firsts.pop(0) if begins["C0"] else none[d]
        # Where a sequence begins, the state of the one before is thrown away.
        h, c = s.node("Where", [begin, h0, states[0]]), s.node("Where", [begin, c0, states[1]])
        gates = s.node("Add", [s.node("Add", [x, s.node("MatMul", [h, o.x("Weight")])]), _part(s, bias, 0, 4 * d)])
        new, i, f, out = (_part(s, gates, k, d) for k in range(4))

        def seen(gate: str, k: int, by: str) -> str:
            return s.node(ACTS[a["gate_activation"]], [s.node("Add", [gate, s.node("Mul", [peeps[k], by])]) if peeps else gate])

        added = s.node("Mul", [seen(i, 0, c), s.node(ACTS[a["candidate_activation"]], [new])])
        c = _clipped(s, s.node("Add", [s.node("Mul", [seen(f, 1, c), c]), added]), a["cell_clip"], kind.dtype)
        h = s.node("Mul", [seen(out, 2, c), s.node(ACTS[a["cell_activation"]], [c])])
        if o.has("ProjWeight"):
            h = s.node(ACTS[a["proj_activation"]], [s.node("MatMul", [h, o.x("ProjWeight")])])
            h = _clipped(s, h, a["proj_clip"], kind.dtype)
        made = [(h, hidden), (c, cell)]
        return made, made

    found = _scanned(o, given, [(none[r], hidden), (none[d], cell)], step, 2, back=a["is_reverse"])
    for name, slot in zip(found, ("Hidden", "Cell"), strict=True):
        o.node("Identity", [name], to=slot)


def _clipped(o: Writer, x: str, most: float, dtype: str) -> str:
    return o.node("Clip", [x, o.const(-most, dtype=dtype), o.const(most, dtype=dtype)]) if most else x


@in_onnx("gru")
def gru_onnx(o: Writer) -> None:
    """Row by row, whichever sequence it is of."""
    a, kind = o.attrs, o.type("Input")
    d = kind.shape[1] // 3
    owner, first, last = _ends(o, _rows(o, o.x("Input")))
    hidden, none, one = TensorType((d,), kind.dtype), o.const(np.zeros(d), "Input"), o.const(1, "Input")
    begins = _begun(o, "H0", owner, hidden)
    # Both gates' weights lie before the candidate's, one block behind the other, in one tensor.
    flat = o.node("Reshape", [o.x("Weight"), o.const([-1])])
    both, new = (o.node("Slice", [flat, o.const([b]), o.const([e])]) for b, e in ((0, 2 * d * d), (2 * d * d, 3 * d * d)))
    both, new = o.node("Reshape", [both, o.const([d, 2 * d])]), o.node("Reshape", [new, o.const([d, d])])
    x = o.node("Add", [o.x("Input"), o.x("Bias")])

    def step(s: Writer, rows: list[str], states: list[str]) -> tuple[list[tuple[str, TensorType]], list[tuple[str, TensorType]]]:
        h = s.node("Where", [rows[1], rows[2] if begins else none, states[0]])
        gates = s.node("Add", [_part(s, rows[0], 0, 2 * d), s.node("MatMul", [h, both])])
        gates = s.node(ACTS[a["gate_activation"]], [gates])
        u, r = _part(s, gates, 0, d), _part(s, gates, 1, d)
        c = s.node("Add", [_part(s, rows[0], 2, d), s.node("MatMul", [s.node("Mul", [r, h]), new])])
        c, kept = s.node(ACTS[a["activation"]], [c]), s.node("Sub", [one, u])
        old, fresh = (u, kept) if a["origin_mode"] else (kept, u)
        made = [(s.node("Add", [s.node("Mul", [old, h]), s.node("Mul", [fresh, c])]), hidden)]
        return made, made

    given = [(x, kind.with_shape(3 * d)), (last if a["is_reverse"] else first, _FLAG), *begins]
    (found,) = _scanned(o, given, [(none, hidden)], step, 1, back=a["is_reverse"])
    o.node("Identity", [found], to="Hidden")


@in_onnx("crf_decoding")
def crf_decoding_onnx(o: Writer) -> None:
    """Forth for the best way to each tag, and back along it; rows of a block behind the ends of its sequences become 0."""
    kind, n = o.type("Emission"), o.type("Emission").shape[-1]
    x, row = o.node("Reshape", [o.x("Emission"), o.const([-1, n])]), TensorType((n,), kind.dtype)
    if o.has("Length"):
        steps = o.node("Shape", [o.x("Emission")], start=1, end=2)
        place = o.node("Mod", [o.node("Range", [o.const(0), _rows(o, x), o.const(1)]), steps])
        sizes = o.node("Concat", [o.const([1]), steps], axis=0)
        length = o.node("Expand", [o.node("Reshape", [o.x("Length"), o.const([-1, 1])]), sizes])
        length = o.node("Reshape", [length, o.const([-1])])
        first, last = o.node("Equal", [place, o.const(0)]), o.node("Equal", [o.node("Add", [place, o.const(1)]), length])
        there = o.node("Less", [place, length])
    else:
        (_, first, last), there = _ends(o, _rows(o, x)), ""
    weights = o.x("Transition")
    start, end = (o.node("Gather", [weights, o.const(k)]) for k in (0, 1))
    moves = o.node("Slice", [weights, o.const([2]), o.const([n + 2])])
    track = TensorType((n,), "int64")

    def forth(s: Writer, rows: list[str], states: list[str]) -> tuple[list[tuple[str, TensorType]], list[tuple[str, TensorType]]]:
        ways = s.node("Add", [s.node("Unsqueeze", [states[0], o.const([1])]), moves])
        # The best way to each tag; where a sequence begins, the weights of first tags instead.
        before = s.node("Where", [rows[1], start, s.node("ReduceMax", [ways, o.const([0])], keepdims=0)])
        score = s.node("Add", [before, rows[0]])
        return [(score, row)], [(score, row), (s.node("ArgMax", [ways], axis=0, keepdims=0), track)]

    scores, tracks = _scanned(o, [(x, row), (first, _FLAG)], [(o.const(np.zeros(n), "Emission"), row)], forth, 2, back=False)
    # The way back reads which tag led to the next row, so tracks move up by one row.
    behind = o.node("Concat", [o.node("Slice", [tracks, o.const([1]), o.const([2**31])]), o.const(np.zeros((1, n)))], axis=0)

    def back(s: Writer, rows: list[str], states: list[str]) -> tuple[list[tuple[str, TensorType]], list[tuple[str, TensorType]]]:
        best = s.node("ArgMax", [s.node("Add", [rows[0], end])], axis=0, keepdims=0)
        made = [(s.node("Where", [rows[1], best, s.node("Gather", [rows[2], states[0]])]), _PLACE)]
        return made, made

    (tags,) = _scanned(o, [(scores, row), (last, _FLAG), (behind, track)], [(o.const(0), _PLACE)], back, 1, back=True)
    if o.has("Label"):
        tags = o.node("Cast", [o.node("Equal", [tags, o.node("Reshape", [o.x("Label"), o.const([-1])])])], to_=7)
    # Behind the end of a sequence in its block the tags mean nothing, and are 0 as in the op.
    if there:
        tags = o.node("Where", [there, tags, o.const(0)])
    shape = o.node("Shape", [o.x("Emission")], start=0, end=2) if there else o.const([-1, 1])
    o.node("Reshape", [tags, shape], to="ViterbiPath")
