"""fused_elemwise_activation: the sum of two tensors and an activation of it in one pass, and their gradients in one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Op, Part, Pattern
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.define.registry import Attr, OpDef, Sample, Slot, find, op
from pe_cli.ops.define.traits import InPlace, Narrow, RowWise
from pe_cli.ops.define.work_parts import column_pairs, worth
from pe_cli.ops.math.broadcast import aligned, broadcast, call_binary
from pe_cli.ops.math.elementwise import ADD, check_dtypes, sum_into
from pe_cli.ops.math.pointwise import POINTWISE, Pointwise
from pe_cli.ops.math.pointwise_sum import SumKernels
from pe_cli.ops.math.reduction import WIDE, sum_rows

NAME = "fused_elemwise_activation"

# --- the op -----------------------------------------------------------------------------------------------------------


def activation_of(functors: Sequence[str]) -> str:
    """Return the activation of a functor list.

    Raises:
        PeError: the list is not [activation, elementwise_add], or the activation has no gradient or does not exist.
    """
    if len(functors) != 2 or functors[1] != "elementwise_add":
        raise PeError(
            f"{NAME}: functor_list must be [activation, elementwise_add], the last applied first, got {list(functors)}"
        )
    name = find(functors[0]).name
    if name not in POINTWISE or POINTWISE[name].with_sum is None:
        raise PeError(f"{NAME}: '{name}' is no pointwise op with a gradient", hint="use the separate ops")
    return name


def _of(shape: tuple[int, ...]) -> Any:
    # leaky_relu has a kink at 0, which central differences must not cross.
    return lambda rng: np.where(np.abs(v := rng.standard_normal(shape)) < 0.05, 0.5, v)


def _samples() -> list[Sample]:
    cases: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = [
        ("one shape", (3, 4), (3, 4), -1),
        ("a bias over the last axis", (5, 7), (7,), -1),
        ("a bias over narrow rows", (300, 3), (3,), -1),
        ("a bias over the channels", (2, 3, 4, 5), (3,), 1),
        ("a column", (3, 3), (3,), 0),
        ("one number", (3, 5), (1,), -1),
        ("X is the smaller one", (4,), (3, 4), -1),
        ("both are broadcast", (3, 1), (1, 4), -1),
        ("one element", (1,), (1,), -1),
        ("an empty batch", (0, 3), (3,), -1),
    ]
    found = []
    for functor, saved, given in (
        ("tanh", False, {}),
        ("leaky_relu", True, {"alpha": 0.3}),
        ("gelu", True, {"approximate": True}),
    ):
        attrs = {"functor_list": [functor, "elementwise_add"], "save_intermediate_out": saved, "functor_attrs": given}
        for name, x, y, axis in cases if functor == "tanh" else cases[:4]:
            found.append(Sample({"X": _of(x), "Y": _of(y)}, {**attrs, "axis": axis}, f"{functor}, {name}"))
    return found


@op(
    NAME,
    inputs="X Y",
    outputs="Out IntermediateOut?",
    attrs={
        "functor_list": Attr(["relu", "elementwise_add"], "the activation, and what it is applied to"),
        "functor_attrs": Attr({}, "attributes of the activation that differ from its defaults"),
        "axis": Attr(-1, "axis of X that Y's first axis stands for; -1 aligns the last axes"),
        "save_intermediate_out": Attr(False, "give the sum too"),
    },
    traits=[InPlace({"Out": "X"}), Narrow(), RowWise()],
    samples=_samples(),
    kinks=lambda arrays: arrays,
)
def fused_elemwise_activation(
    x: TensorType,
    y: TensorType,
    *,
    functor_list: list[str],
    functor_attrs: dict[str, Any],
    axis: int,
    save_intermediate_out: bool,
) -> tuple[TensorType, TensorType | None]:
    """Add two tensors and apply an activation to the sum.

    Out = activation(X + Y), with Y broadcast as for elementwise_add. Values and gradients are those of the separate ops.

    Args:
        X: any shape, float32 or float64.
        Y: dtype of X; sizes of X in a row, or 1.
        functor_list: [activation, elementwise_add], outermost first as in fluid; the activation is any pointwise op with a gradient.
        functor_attrs: of the activation.
        axis: of X, that Y's first axis stands for.
        save_intermediate_out: whether IntermediateOut is wanted; the gradient of an activation that uses its input needs it.

    Returns:
        Out: dtype of X, shape of the larger one.
        IntermediateOut: type of Out; X + Y.

    Raises:
        PeError: the shapes do not fit, the dtypes differ, or functor_list is not of this form.

    Source:
        fluid.contrib.layers.fused_elemwise_activation, made by fuse_elewise_add_act_ops.
    """
    check_dtypes(NAME, x, y, FLOATS)
    POINTWISE[activation_of(functor_list)].op.check_attrs(functor_attrs)
    out = TensorType(broadcast(NAME, x.shape, y.shape, axis), x.dtype)
    return out, out if save_intermediate_out else None


def _activation(o: Lowering) -> tuple[Pointwise, SumKernels, Mapping[str, Any]]:
    """Return the activation, its kernels, and its complete attributes."""
    name = activation_of(o.attrs["functor_list"])
    act = POINTWISE[name]
    assert act.with_sum is not None
    return act, act.with_sum, act.op.check_attrs(o.attrs["functor_attrs"])


def _separate(o: Lowering) -> None:
    """Append the calls of the separate ops."""
    act, _, attrs = _activation(o)
    out = o.output("Out")
    # Where nobody wants the sum, it is written to Out, and the activation works in place.
    middle = o.output("IntermediateOut") if o.has("IntermediateOut") else out
    kernel, _, values = act.chosen(attrs)
    call_binary(o, ADD, o.input("X"), o.input("Y"), middle, o.attrs["axis"])
    if out.size:
        o.call(kernel, middle, out, out.size, *values)


@fused_elemwise_activation.lower("cpu")
def fused_elemwise_activation_cpu(o: Lowering) -> None:
    """One pass; the separate kernels where an activation has other ones for its attributes."""
    act, fused, attrs = _activation(o)
    kernel, _, values = act.chosen(attrs)
    if kernel is not act.kernel:
        _separate(o)
        return
    saved = [o.output("IntermediateOut")] if o.has("IntermediateOut") else []
    chosen = fused.forward_saved if saved else fused.forward
    call_binary(o, chosen, o.input("X"), o.input("Y"), o.output("Out"), o.attrs["axis"], more=saved, values=values)


fused_elemwise_activation.lower("cuda")(_separate)
gradient = fused_elemwise_activation.grad(traits=[InPlace({"X@GRAD": "Out@GRAD"})])
# Which of the two the gradient reads depends on the activation, so that either may be absent.
gradient.inputs = (Slot("Out", True), Slot("IntermediateOut", True), *gradient.inputs)


def _value(o: Lowering, act: Pointwise) -> Buffer:
    """Return what the activation's gradient reads."""
    slot = "Out" if act.uses == "Out" else "IntermediateOut"
    if not o.has(slot):
        name = o.attrs["functor_list"][0]
        raise PeError(f"{NAME}: the gradient of {name} needs the sum", hint="set save_intermediate_out: true")
    return o.input(slot)


def _separate_back(o: Lowering) -> None:
    """The activation's gradient, then its sums over broadcast axes."""
    act, _, attrs = _activation(o)
    _, kernel, values = act.chosen(attrs)
    g, value = o.input("Out@GRAD"), _value(o, act)
    assert kernel is not None
    wanted = [s for s in ("X@GRAD", "Y@GRAD") if o.has(s)]
    whole = [s for s in wanted if aligned(o.output(s).shape, len(g.shape), o.attrs["axis"]) == g.shape]
    # An operand of the full shape has the activation's gradient as it is; the other's is summed from there.
    middle = o.output(whole[0]) if whole else o.scratch(g.size, g.dtype)
    if g.size:
        o.call(kernel, g, value, middle, g.size, *values)
    for slot in wanted:
        if o.output(slot) is not middle:
            sum_into(o, slot, middle, g.shape)


@gradient.lower("cpu")
def fused_elemwise_activation_grad_cpu(o: Lowering) -> None:
    """One pass where both operands have one shape or Y is one row; else as the separate ops."""
    act, fused, attrs = _activation(o)
    _, kernel, values = act.chosen(attrs)
    g, value = o.input("Out@GRAD"), _value(o, act)
    # The joined kernels have one loop for both gradients. Where only one is wanted, or the activation has another kernel for its
    # attributes, the separate ones do as well.
    both = o.has("X@GRAD") and o.has("Y@GRAD") and g.size > 0 and kernel is act.back_kernel
    if not both or o.output("X@GRAD").shape != g.shape:
        _separate_back(o)
        return
    dx, dy = o.output("X@GRAD"), o.output("Y@GRAD")
    own = aligned(dy.shape, len(g.shape), o.attrs["axis"])
    first = next((k for k, size in enumerate(own) if size != 1), len(own))
    n = math.prod(own)
    if own == g.shape:
        o.call(fused.back_two, g, value, dx, dy, g.size, *values)
    elif n > 1 and own[first:] == g.shape[first:]:
        _rows(o, fused, values, (g, value, dx, dy), n)
    else:
        _separate_back(o)


def _rows(
    o: Lowering, fused: SumKernels, values: Sequence[float], of: tuple[Buffer, Buffer, Buffer, Buffer], n: int
) -> None:
    """Append the pass over [rows, n]; rows that are narrow are taken side by side, exactly as `reduction.sum_axes` does."""
    g, value, dx, dy = of
    rows = g.size // n
    times = WIDE // n
    # As `reduction.sum_axes` decides: in the same order, the sums have the same bits.
    if n > WIDE // 4 or rows < 8 * times:
        pairs = column_pairs(n, worth(o.threads, 3 * g.type.nbytes))
        for number, (begin, end) in enumerate(pairs):
            places = [Offset(b, begin) for b in (g, value, dx, dy)]
            total = o.scratch(end - begin, "float64")
            part = number if len(pairs) > 1 else None
            o.call(fused.back_rows, *places, total, rows, end - begin, n, *values, part=part)
        return
    wide, left = divmod(rows, times)
    few, total = o.scratch((times + left) * n, dy.dtype), o.scratch(times * n, "float64")
    o.call(fused.back_rows, g, value, dx, few, total, wide, times * n, times * n, *values)
    # Rows that fill no wide one stand behind the wide row's sums, in the order in which `sum_axes` adds them.
    if left:
        act, _, attrs = _activation(o)
        _, kernel, _ = act.chosen(attrs)
        assert kernel is not None
        rest = wide * times * n
        o.call(kernel, Offset(g, rest), Offset(value, rest), Offset(dx, rest), left * n, *values)
        o.call(copy, Offset(dx, rest), Offset(few, times * n), left * n)
    one = (Numbers(()), 0, 1)
    o.call(sum_rows, few, dy, total, *one, *one, times + left, n, n, 1.0)


gradient.lower("cuda")(_separate_back)


# --- what it takes the place of ---------------------------------------------------------------------------------------


def _is_activation(definition: OpDef) -> bool:
    found = POINTWISE.get(definition.name)
    return found is not None and found.with_sum is not None


def _value_of(m: Match) -> str:
    """Return what the gradient of an activation reads: its result, or its input; empty where there is no activation."""
    if "act" not in m:
        return ""
    act = m["act"]
    return act.outputs["Out"][0] if POINTWISE[act.type].uses == "Out" else act.inputs["X"][0]


def _gradients(m: Match, variable: str) -> list[Op]:
    """Return the gradients of an activation, joined or not, that read a variable."""
    return [op for op in m.readers(variable) if op.definition.is_grad_of in (m["act"].type, NAME)]


def _overwritten(m: Match) -> str:
    value = _value_of(m)
    kept = all(m.unchanged(value, m["act"], op) for op in _gradients(m, value))
    return "" if kept else f"the result of {m['act'].type} is overwritten before its gradient"


def _attrs(m: Match, saved: bool) -> dict[str, Any]:
    add, act = m["add"], m["act"]
    defaults = act.definition.attrs
    given = {k: v for k, v in act.attrs.items() if v != defaults[k].default}
    functors = [act.type, add.type]
    return {"functor_list": functors, "functor_attrs": given, "axis": add.attrs["axis"], "save_intermediate_out": saved}


def _sum_stays(m: Match) -> str:
    """Return why the sum may not vanish; where a gradient reads it, it stays as another output."""
    (middle,) = m["add"].outputs["Out"]
    gradients = _gradients(m, middle)
    why = m.only_for(middle, [m["act"], *gradients], stays=bool(gradients))
    return f"the output of {m['add'].type} {why}" if why else ""


def _becomes(m: Match) -> list[Becomes]:
    add, act = m["add"], m["act"]
    saved = bool(_gradients(m, add.outputs["Out"][0]))
    outputs = {"Out": act.outputs["Out"], **({"IntermediateOut": add.outputs["Out"]} if saved else {})}
    return [Becomes((add, act), NAME, add.inputs, outputs, _attrs(m, saved))]


def _becomes_gradient(m: Match) -> list[Becomes]:
    first, last = m["act_grad"], m["add_grad"]
    uses_out = POINTWISE[m["act"].type].uses == "Out"
    inputs = {"Out": first.inputs["Out"]} if uses_out else {"IntermediateOut": first.inputs["X"]}
    inputs["Out@GRAD"] = first.inputs["Out@GRAD"]
    return [Becomes((first, last), f"{NAME}_grad", inputs, last.outputs, _attrs(m, not uses_out))]


def _of_activation(m: Match, op: Op) -> bool:
    uses = POINTWISE[m["act"].type].uses
    return op.definition.is_grad_of == m["act"].type and op.inputs.get(uses) == [_value_of(m)]


#: The gradients of an activation `act` and of the sum `add` that it is applied to.
GRADIENTS = Pattern(
    (
        Part("act_grad", lambda definition: definition.is_grad_of in POINTWISE, reads=_value_of, fits=_of_activation),
        Part("add_grad", ("elementwise_add_grad",), reads=("act_grad", "X@GRAD")),
    ),
    _becomes_gradient,
    vanish=[("act_grad", "X@GRAD")],
)

fused_elemwise_activation.give(
    Fuses(
        "fuse_elewise_add_act_ops",
        Pattern(
            (
                Part("act", _is_activation),
                Part("add", ("elementwise_add",), writes=("act", "X"), fits=lambda m, op: m.type(op.outputs["Out"][0]).dtype in FLOATS),
            ),
            _becomes,
            vanish=_sum_stays,
            unless=_overwritten,
        ),
        GRADIENTS,
        nothing="the program has no activation",
    )
)
