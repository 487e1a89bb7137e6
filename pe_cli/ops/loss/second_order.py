"""Gradients of gradients of losses."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.ops.define.second_gradients import Again, second


@second("square_error_cost")
def _square_error(r: Again) -> None:
    """X@GRAD = 2 (X - Y) g, Y@GRAD its negative."""
    slope = r.times(r.one("elementwise_sub", {"X": r.input("X"), "Y": r.input("Y")}), r.input("Out@GRAD"))
    for slot, factor in (("X@GRAD", 2.0), ("Y@GRAD", -2.0)):
        if r.has(slot):
            r.instead[r.op.outputs[slot][0]] = r.scaled(slope, factor)


@second("cross_entropy")
def _cross_entropy(r: Again) -> None:
    """X@GRAD is -Label g / X: linear in g, and its own negative over X is its slope in X."""
    v, x, g = r.grad("X@GRAD"), r.input("X"), r.input("Y@GRAD")
    same = {"X": x, "Label": r.input("Label")}
    unit = r.back("cross_entropy_grad", {**same, "Y@GRAD": r.like(g, 1.0)}, "X@GRAD", x, r.attrs)
    r.given.append((g, r.one("reduce_sum", {"X": r.times(v, unit)}, {"dim": [-1], "keep_dim": True})))
    whole = r.back("cross_entropy_grad", {**same, "Y@GRAD": g}, "X@GRAD", x, r.attrs)
    r.given.append((x, r.scaled(r.one("elementwise_div", {"X": r.times(v, whole), "Y": x}), -1.0)))


@second("softmax_with_cross_entropy")
def _softmax_with_cross_entropy(r: Again) -> None:
    """Logits@GRAD = (Softmax sum of Label - Label) g, but 0 in rows that are left out.

    Raises:
        PeError: the probabilities are used, too.
    """
    if r.op.inputs.get("Softmax@GRAD"):
        raise PeError(
            "the gradient of 'softmax_with_cross_entropy' has no gradient of its own where its probabilities are used",
            hint="use softmax and cross_entropy",
        )
    v, g, p = r.grad("Logits@GRAD"), r.input("Loss@GRAD"), r.input("Softmax")
    over = {"dim": [r.attrs["axis"]], "keep_dim": True}
    unit = r.back(r.op.type, {"Label": r.input("Label"), "Softmax": p, "Loss@GRAD": r.like(g, 1.0)}, "Logits@GRAD", p, r.attrs)
    r.given.append((g, r.one("reduce_sum", {"X": r.times(v, unit)}, over)))
    label = r.input("Label")
    if r.attrs["soft_label"]:
        kept = r.times(g, r.one("reduce_sum", {"X": label}, over))
    else:
        ignored = r.like(label, float(r.attrs["ignore_index"]))
        mask = r.one("cast", {"X": r.one("not_equal", {"X": label, "Y": ignored})}, {"in_dtype": "bool", "out_dtype": r.type_of(g).dtype})
        kept = r.times(g, mask)
    r.given.append((p, r.times(v, kept)))


@second("sigmoid_cross_entropy_with_logits")
def _sigmoid_cross_entropy(r: Again) -> None:
    """X@GRAD = (sigmoid(X) - Label) g.

    Raises:
        PeError: with normalize.
    """
    if r.attrs["normalize"]:
        what = "the gradient of 'sigmoid_cross_entropy_with_logits' with normalize has no gradient of its own"
        raise PeError(what, hint="normalize: false")
    x, g, label = r.input("X"), r.input("Out@GRAD"), r.input("Label")
    apart = r.one("elementwise_sub", {"X": r.one("sigmoid", {"X": x}), "Y": label})
    kind = {"in_dtype": "bool", "out_dtype": r.type_of(g).dtype}
    mask = r.one("cast", {"X": r.one("not_equal", {"X": label, "Y": r.like(label, float(r.attrs["ignore_index"]))})}, kind)
    r.instead[r.op.outputs["X@GRAD"][0]] = r.times(r.times(apart, mask), g)
