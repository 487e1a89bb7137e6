"""Operators of PaddlePaddle 1.x on sequences that have other slots here; what they write for their gradients alone is left out."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.io.fluid.operator_reader import Reader, reads

#: Activations of recurrent units by their number.
_NUMBERED = ("identity", "sigmoid", "tanh", "relu")
#: Attribute of an im2sequence whose sequences nobody asks for.
PLAIN_ROWS = "@plain_rows"


@reads("lstm", "lstmp")
def _lstm(o: Reader) -> None:
    o.same("lstm", slots={"Projection": "Hidden"})


@reads("gru_unit")
def _gru_unit(o: Reader) -> None:
    names = {name: _NUMBERED[int(o.attr(name, default))] for name, default in (("activation", 2), ("gate_activation", 1))}
    size = o.one("Input").shape[1]
    hidden, reset, gate = o.layer(
        "gru_unit", o.one("Input"), o.one("HiddenPrev"), size, o.named("Weight"), o.named("Bias"), **names,
        origin_mode=o.attr("origin_mode", False),
    )  # fmt: skip
    for slot, value in (("Hidden", hidden), ("ResetHiddenPrev", reset), ("Gate", gate)):
        if o.names(slot, outputs=True):
            o.give(slot, value)


@reads("im2sequence")
def _im2sequence(o: Reader) -> None:
    if o.names("Y"):
        raise PeError("the sizes of its images are variables")
    forms = (("kernels", [1, 1]), ("strides", [1, 1]), ("paddings", [0] * 4))
    windows = [[int(n) for n in o.attr(name, default)] for name, default in forms]
    rows = o.layer("im2sequence", o.one("X"), *windows)
    if o.attr(PLAIN_ROWS, False):
        o.give("Out", rows)
        return
    (height, width), (down, across), around = o.one("X").shape[2:], windows[1], windows[2]
    counts = [(height + around[0] + around[2] - windows[0][0]) // down + 1, (width + around[1] + around[3] - windows[0][1]) // across + 1]
    o.emit("even_sequences", {"X": rows}, {"Out": o.out()}, {"rows": counts[0] * counts[1]})


@reads("sequence_conv")
def _sequence_conv(o: Reader) -> None:
    o.unless(paddingTrainable=False, contextStride=1)
    length, weight = int(o.attr("contextLength", 3)), o.one("Filter")
    made = o.layer(
        "sequence_conv", o.one("X"), weight.shape[1], length, padding_start=int(o.attr("contextStart", 0)), bias_attr=False,
        param_attr=o.named("Filter"),
    )  # fmt: skip
    o.give("Out", made)


@reads("row_conv")
def _row_conv(o: Reader) -> None:
    o.give("Out", o.layer("row_conv", o.one("X"), o.one("Filter").shape[0] - 1, o.named("Filter")))


@reads("sequence_pool")
def _sequence_pool(o: Reader) -> None:
    kind = o.attr("pooltype", "AVERAGE")
    if kind != "MAX":
        o.op.outputs.pop("MaxIndex", None)
    o.same(pooltype=kind, is_test=o.attr("is_test", False))


@reads("sequence_softmax")
def _sequence_softmax(o: Reader) -> None:
    o.same(leave=("data_format",))


@reads("sequence_mask")
def _sequence_mask(o: Reader) -> None:
    if o.names("MaxLenTensor"):
        raise PeError("the longest length is a variable")
    o.same()


@reads("sequence_unpad")
def _sequence_unpad(o: Reader) -> None:
    x = o.one("X")
    if len(x.shape) == 2:  # rows of one number have an axis for it
        o.op.inputs["X"] = [o.made("unsqueeze", {"X": x}, {"axes": [2]}).name]
    o.same()


@reads("hierarchical_sigmoid")
def _hierarchical_sigmoid(o: Reader) -> None:
    o.same(leave=("is_sparse", "remote_prefetch"))


@reads("warpctc")
def _warpctc(o: Reader) -> None:
    label = o.one("Label")
    if label.dtype == "int32":
        o.op.inputs["Label"] = [o.made("cast", {"X": label}, {"out_dtype": "int64"}).name]
    o.same()


@reads("ctc_align")
def _ctc_align(o: Reader) -> None:
    o.same("ctc_align" if o.names("InputLength") else "ctc_align_sequences", leave=("padding_value",))
