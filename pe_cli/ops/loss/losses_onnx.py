"""Losses and counts in ONNX: huber_loss, kldiv_loss, bce_loss, log_loss, teacher_student_sigmoid_loss, cvm, mean_iou, ctc_align."""

from __future__ import annotations

import numpy as np

from pe_cli.ops.define.onnx import Writer, element_type, in_onnx


@in_onnx("huber_loss")
def huber_loss_onnx(o: Writer) -> None:
    """Both halves, and a choice."""
    delta, half = o.attrs["delta"], o.const(0.5, "X")
    away = o.node("Sub", [o.x("Y"), o.x("X")])
    if o.wanted("Residual"):
        o.node("Identity", [away], to="Residual")
    size = o.node("Abs", [away])
    near = o.node("Mul", [half, o.node("Mul", [away, away])])
    far = o.node("Mul", [o.const(delta, "X"), o.node("Sub", [size, o.const(0.5 * delta, "X")])])
    o.node("Where", [o.node("LessOrEqual", [size, o.const(delta, "X")]), near, far], to="Out")


@in_onnx("kldiv_loss")
def kldiv_loss_onnx(o: Writer) -> None:
    """A target of 0 gives 0."""
    target, zero = o.x("Target"), o.const(0, "X")
    there = o.node("Greater", [target, zero])
    log = o.node("Log", [o.node("Where", [there, target, o.const(1, "X")])])
    each = o.node("Where", [there, o.node("Mul", [target, o.node("Sub", [log, o.x()])]), zero])
    kind, to = o.attrs["reduction"], "Loss"
    if kind == "none":
        o.node("Identity", [each], to=to)
        return
    flat = o.node("Reshape", [each, o.const([-1])])
    found = o.node("ReduceMean" if kind == "mean" else "ReduceSum", [flat, *([] if kind == "mean" else [o.const([0])])], keepdims=1)
    if kind == "batchmean":
        batch = o.node("Cast", [o.node("Shape", [o.x()], start=0, end=1)], to_=element_type(o.type().dtype))
        found = o.node("Div", [found, batch])
    o.node("Identity", [found], to=to)


def _unlikely(o: Writer, chance: str, label: str, of_yes: str, of_no: str, to: str) -> None:
    """Write -label of_yes - (1 - label) of_no."""
    no = o.node("Mul", [o.node("Sub", [o.const(1, chance), o.x(label)]), of_no])
    o.node("Neg", [o.node("Add", [o.node("Mul", [o.x(label), of_yes]), no])], to=to)


@in_onnx("bce_loss")
def bce_loss_onnx(o: Writer) -> None:
    """Logarithms of -100 at least."""
    least, rest = o.const(-100, "X"), o.node("Sub", [o.const(1, "X"), o.x()])
    yes, no = (o.node("Max", [o.node("Log", [x]), least]) for x in (o.x(), rest))
    _unlikely(o, "X", "Label", yes, no, "Out")


@in_onnx("log_loss")
def log_loss_onnx(o: Writer) -> None:
    """Logarithms of a little more."""
    x, more = o.x("Predicted"), o.const(o.attrs["epsilon"], "Predicted")
    rest = o.node("Sub", [o.const(1, "Predicted"), x])
    yes, no = (o.node("Log", [o.node("Add", [v, more])]) for v in (x, rest))
    _unlikely(o, "Predicted", "Labels", yes, no, "Loss")


@in_onnx("teacher_student_sigmoid_loss")
def teacher_student_sigmoid_loss_onnx(o: Writer) -> None:
    """Four kinds of labels, by their size."""
    x, label, zero, one = o.x(), o.x("Label"), o.const(0, "X"), o.const(1, "X")
    small = o.node("Exp", [o.node("Neg", [o.node("Abs", [x])])])
    # max(x, 0) + ln(1 + exp(-|x|)): exp of a number that is not positive cannot overflow.
    soft = o.node("Add", [o.node("Max", [x, zero]), o.node("Log", [o.node("Add", [one, small])])])
    less = o.node("Sub", [soft, x])
    taught = o.node("GreaterOrEqual", [label, zero])
    over = o.node("GreaterOrEqual", [label, one])
    score = o.node("Where", [over, o.node("Sub", [label, one]), label])
    said = o.node("Where", [taught, o.node("Sub", [soft, o.node("Mul", [score, x])]), zero])
    # From -1 up to 0 a label is a click without a score; below -1 it is neither.
    silent = o.node("And", [o.node("Not", [taught]), o.node("GreaterOrEqual", [label, o.const(-1, "X")])])
    clicked = o.node("Or", [over, silent])
    o.node("Add", [o.node("Where", [clicked, less, soft]), said], to="Y")


@in_onnx("cvm")
def cvm_onnx(o: Writer) -> None:
    """Two columns and the others."""
    shown, clicked = (o.node("Slice", [o.x(), o.const([k]), o.const([k + 1]), o.const([1])]) for k in (0, 1))
    others = [o.x(), o.const([2]), o.const([2**31 - 1]), o.const([1])]
    if not o.attrs["use_cvm"]:
        o.node("Slice", others, to="Y")
        return
    one = o.const(1, "X")
    first, second = (o.node("Log", [o.node("Add", [v, one])]) for v in (shown, clicked))
    o.node("Concat", [first, o.node("Sub", [second, first]), o.node("Slice", others)], to="Y", axis=1)


@in_onnx("mean_iou")
def mean_iou_onnx(o: Writer) -> None:
    """A row of 0 and 1 for every element, and their sums."""
    n = o.const([o.attrs["num_classes"]])
    flat = [o.node("Reshape", [o.x(slot), o.const([-1])]) for slot in ("Predictions", "Labels")]
    said, true = (o.node("OneHot", [x, n, o.const([0, 1])], axis=-1) for x in flat)

    def total(x: str) -> str:
        return o.node("ReduceSum", [x, o.const([0])], keepdims=0)

    both = total(o.node("Mul", [said, true]))
    wrong = o.node("Sub", [o.node("Add", [total(said), total(true)]), o.node("Mul", [both, o.const(2)])])
    for slot, found in (("OutCorrect", both), ("OutWrong", wrong)):
        if o.wanted(slot):
            o.node("Cast", [found], to=slot, to_=element_type("int32"))
    if o.wanted("OutMeanIou"):
        union = o.node("Add", [both, wrong])
        there = o.node("Cast", [o.node("Greater", [union, o.const(0)])], to_=1)
        # A class that neither is labelled nor taken divides by 1 and is not counted.
        ratio = o.node("Div", [o.node("Cast", [both], to_=1), o.node("Cast", [o.node("Max", [union, o.const(1)])], to_=1)])
        classes = o.node("Max", [o.node("ReduceSum", [there, o.const([0])], keepdims=1), o.const(1, dtype="float32")])
        o.node("Div", [o.node("ReduceSum", [ratio, o.const([0])], keepdims=1), classes], to="OutMeanIou")


@in_onnx("ctc_align")
def ctc_align_onnx(o: Writer) -> None:
    """Labels go to the places that running counts give; all else goes to a column that is cut off."""
    x, a = o.x("Input"), o.attrs
    dtype = o.type("Input").dtype
    sizes = o.node("Shape", [x])
    steps = o.node("Gather", [sizes, o.const(1)])
    place = o.node("Range", [o.const(0), steps, o.const(1)])
    length = o.node("Reshape", [o.node("Cast", [o.x("InputLength")], to_=7), o.const([-1, 1])])
    kept = o.node("Less", [place, length])
    kept = o.node("And", [kept, o.node("Not", [o.node("Equal", [x, o.const(a["blank"], "Input")])])])
    if a["merge_repeated"]:
        edge = o.const(np.array([0, 1, 0, 0]))
        # Each label beside the one before it: one step to the right.
        shifted = o.node("Slice", [o.node("Pad", [x, edge]), o.const([0]), o.const([-1]), o.const([1])])
        # The 0 that Pad puts before the first label may equal it, but a first step repeats nothing.
        again = o.node("And", [o.node("Equal", [x, shifted]), o.node("Greater", [place, o.const(0)])])
        kept = o.node("And", [kept, o.node("Not", [again])])
    count = o.node("CumSum", [o.node("Cast", [kept], to_=7), o.const(1)])
    # What is left out goes to one column more than there are, which is cut off at the end.
    to = o.node("Where", [kept, o.node("Sub", [count, o.const(1)]), steps])
    wide = o.node("Add", [sizes, o.const([0, 1])])
    none = o.node("Expand", [o.const(a["padding_value"], dtype=dtype), wide])
    made = o.node("ScatterElements", [none, to, x], axis=1)
    o.node("Slice", [made, o.const([0]), o.const([-1]), o.const([1])], to="Output")
    if o.wanted("OutputLength"):
        o.node("ReduceSum", [o.node("Cast", [kept], to_=7), o.const([1])], to="OutputLength", keepdims=1)


@in_onnx("smooth_l1_loss")
def smooth_l1_loss_onnx(o: Writer) -> None:
    """Both halves, and a choice; then sums over samples."""
    square, half = o.attrs["sigma"] ** 2, o.const(0.5, "X")
    away = o.node("Sub", [o.x(), o.x("Y")])
    if o.has("InsideWeight"):
        away = o.node("Mul", [away, o.x("InsideWeight")])
    if o.wanted("Diff"):
        o.node("Identity", [away], to="Diff")
    if not o.wanted("Out"):
        return
    size = o.node("Abs", [away])
    # Written as in the op, so that both round alike.
    near = o.node("Mul", [o.node("Mul", [half, o.const(square, "X")]), o.node("Mul", [away, away])])
    far = o.node("Sub", [size, o.const(0.5 / square, "X")])
    each = o.node("Where", [o.node("Less", [size, o.const(1 / square, "X")]), near, far])
    if o.has("OutsideWeight"):
        each = o.node("Mul", [each, o.x("OutsideWeight")])
    o.node("ReduceSum", [o.node("Flatten", [each], axis=1), o.const([1])], to="Out", keepdims=1)
