"""Gradients of gradients of convolutions, softmax, normalisation and other layers of networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.ops.define.registry import OpDesc
from pe_cli.ops.define.second_gradients import Again, bilinear, linear, second

bilinear("conv2d", "Input", "Filter", "Output")
bilinear("depthwise_conv2d", "Input", "Filter", "Output")
bilinear("conv2d_transpose", "Input", "Filter", "Output")
linear("bilinear_interp")
linear("nearest_interp")
linear("affine_grid", "Theta", out="Output")
linear("lookup_table", "W", inputs="Ids", changed={"is_sparse": False})
linear("lookup_table_v2", "W", inputs="Ids", changed={"is_sparse": False})


@second("dropout")
def _dropout(r: Again) -> None:
    """The mask is a constant that the gradient is multiplied by, either way."""
    # In a test there is no mask, and the gradient is a constant factor.
    inputs = {"Mask": r.op.inputs["Mask"], "Out@GRAD": r.grad("X@GRAD")} if r.op.inputs.get("Mask") else {"Out@GRAD": r.grad("X@GRAD")}
    r.given.append((r.input("Out@GRAD"), r.back("dropout_grad", inputs, "X@GRAD", r.of("X@GRAD"), r.attrs)))


def _places_of_largest(r: Again, x: str, attrs: Mapping[str, Any]) -> str:
    largest, mask = r.unique("again"), r.unique("again")
    r.append(OpDesc("max_pool3d_with_index", {"X": [x]}, {"Out": [largest], "Mask": [mask]}, dict(attrs)))
    return mask


@second("pool2d", "pool3d")
def _pool(r: Again) -> None:
    """Averages are linear; of the largest, the gradient's gradient is taken from where each of them is."""
    kind = r.op.type.removesuffix("_grad")
    x, v, g = r.input("X"), r.grad("X@GRAD"), r.input("Out@GRAD")
    if r.attrs["pooling_type"] == "avg":
        r.given.append((g, r.one(kind, {"X": v}, r.attrs)))
        return
    # The places of the largest are computed once more instead of being kept by the pool: gradients of gradients are rare, and the mask
    # would cost every training step.
    attrs = {name: r.attrs[name] for name in ("ksize", "strides", "paddings", "global_pooling", "ceil_mode")}
    if kind == "pool3d":
        mask = _places_of_largest(r, x, {**attrs, "adaptive": r.attrs["adaptive"]})
        r.given.append((g, r.one("values_at_places", {"X": v, "Mask": mask})))
        return
    # Images are volumes of one layer here, so that one op of places serves both.
    deep = {"ksize": [1, *attrs["ksize"]], "strides": [1, *attrs["strides"]], "paddings": [0, *attrs["paddings"]]}
    last = r.attrs["data_format"] == "NHWC"

    def volume(of: str) -> str:
        first = r.one("transpose", {"X": of}, {"axis": [0, 3, 1, 2]}) if last else of
        return r.one("unsqueeze", {"X": first}, {"axes": [2]})

    mask = _places_of_largest(r, volume(x), {**attrs, **deep})
    found = r.one("squeeze", {"X": r.one("values_at_places", {"X": volume(v), "Mask": mask})}, {"axes": [2]})
    r.given.append((g, r.one("transpose", {"X": found}, {"axis": [0, 2, 3, 1]}) if last else found))


@second("max_pool3d_with_index")
def _largest(r: Again) -> None:
    """The places are constants."""
    r.given.append((r.input("Out@GRAD"), r.one("values_at_places", {"X": r.grad("X@GRAD"), "Mask": r.input("Mask")})))


linear("values_at_places", inputs="Mask")
linear("depth_windows")
linear("depth_overlay")
linear("unfold", out="Y")
linear("trilinear_interp")


# --- softmax --------------------------------------------------------------------------------------------------------------


def _row_sum(r: Again, x: str) -> str:
    return r.one("reduce_sum", {"X": x}, {"dim": [r.attrs["axis"]], "keep_dim": True})


@second("softmax")
def _softmax(r: Again) -> None:
    """X@GRAD = (g - sum of g Out) Out."""
    g, out = r.input("Out@GRAD"), r.input("Out")
    rest = r.one("elementwise_sub", {"X": g, "Y": _row_sum(r, r.times(g, out))})
    r.instead[r.op.outputs["X@GRAD"][0]] = r.times(rest, out)


@second("log_softmax")
def _log_softmax(r: Again) -> None:
    """X@GRAD = g - e^Out sum of g."""
    g = r.input("Out@GRAD")
    shares = r.times(r.one("exp", {"X": r.input("Out")}), _row_sum(r, g))
    r.instead[r.op.outputs["X@GRAD"][0]] = r.one("elementwise_sub", {"X": g, "Y": shares})


# --- normalisation --------------------------------------------------------------------------------------------------------


def _moments(r: Again, x: str, over: Mapping[str, Any], epsilon: float) -> tuple[str, str]:
    """Return x with mean 0 and variance 1 over axes, and 1 / its deviation."""
    # Written with plain ops, since a gradient of a gradient differentiates through the moments too, which the fused op's gradient does not
    # show.
    centred = r.one("elementwise_sub", {"X": x, "Y": r.one("reduce_mean", {"X": x}, over)})
    variance = r.one("reduce_mean", {"X": r.one("square", {"X": centred})}, over)
    inverse = r.one("rsqrt", {"X": r.scaled(variance, 1.0, epsilon)})
    return r.times(centred, inverse), inverse


def _input_gradient(r: Again, g: str, h: str, inverse: str, over: Mapping[str, Any]) -> str:
    """Return the gradient of the input of a normalisation, from that of its normalised values."""
    along = r.times(h, r.one("reduce_mean", {"X": r.times(g, h)}, over))
    rest = r.one("elementwise_sub", {"X": r.one("elementwise_sub", {"X": g, "Y": r.one("reduce_mean", {"X": g}, over)}), "Y": along})
    return r.times(rest, inverse)


@second("layer_norm")
def _layer_norm(r: Again) -> None:
    """Rows of the axes from begin_norm_axis on, as a matrix."""
    begin = r.attrs["begin_norm_axis"]
    x, g = (r.one("flatten", {"X": r.input(s)}, {"axis": begin}) for s in ("X", "Y@GRAD"))
    over = {"dim": [1], "keep_dim": True}
    h, inverse = _moments(r, x, over, r.attrs["epsilon"])
    if r.has("X@GRAD"):
        weighted = r.times(g, r.input("Scale")) if r.op.inputs.get("Scale") else g
        made = _input_gradient(r, weighted, h, inverse, over)
        r.instead[r.op.outputs["X@GRAD"][0]] = r.one("reshape", {"X": made}, {"shape": list(r.type_of(r.input("X")).shape)})
    for slot, whole in (("Scale@GRAD", r.times(g, h)), ("Bias@GRAD", g)):
        if r.has(slot):
            r.instead[r.op.outputs[slot][0]] = r.one("reduce_sum", {"X": whole}, {"dim": [0]})


@second("group_norm")
def _group_norm(r: Again) -> None:
    """Rows of the values of a group, behind the batch and the groups."""
    x, g = r.input("X"), r.input("Y@GRAD")
    shape, at = list(r.type_of(x).shape), {"axis": 1}
    groups, over = r.attrs["groups"], {"dim": [2], "keep_dim": True}

    def rows(of: str) -> str:
        return r.one("reshape", {"X": of}, {"shape": [0, groups, -1]})

    h, inverse = _moments(r, rows(x), over, r.attrs["epsilon"])
    if r.has("X@GRAD"):
        weighted = r.one("elementwise_mul", {"X": g, "Y": r.input("Scale")}, at) if r.op.inputs.get("Scale") else g
        made = _input_gradient(r, rows(weighted), h, inverse, over)
        r.instead[r.op.outputs["X@GRAD"][0]] = r.one("reshape", {"X": made}, {"shape": shape})
    others = {"dim": [i for i in range(len(shape)) if i != 1]}
    for slot in ("Scale@GRAD", "Bias@GRAD"):
        if r.has(slot):
            whole = r.times(g, r.one("reshape", {"X": h}, {"shape": shape})) if slot == "Scale@GRAD" else g
            r.instead[r.op.outputs[slot][0]] = r.one("reduce_sum", {"X": whole}, others)


@second("batch_norm")
def _batch_norm(r: Again) -> None:
    """Channels over the batch; with fixed moments the input's gradient is g Scale / deviation."""
    x, g = r.input("X"), r.input("Y@GRAD")
    axes = len(r.type_of(x).shape)
    channel = 1 if r.attrs["data_layout"] == "NCHW" else axes - 1
    over = {"dim": [i for i in range(axes) if i != channel], "keep_dim": True}
    fixed = r.attrs["is_test"] or r.attrs["use_global_stats"]
    at = {"axis": channel}
    # The saved moments depend on X as well; that dependence is in the ops below, so as inputs they are constants.
    r.constants |= {r.input("SavedMean"), r.input("SavedVariance")}
    if fixed:
        centred = r.one("elementwise_sub", {"X": x, "Y": r.input("SavedMean")}, at)
        h = r.one("elementwise_mul", {"X": centred, "Y": r.input("SavedVariance")}, at)
    else:
        h, inverse = _moments(r, x, over, r.attrs["epsilon"])
    if r.has("X@GRAD"):
        weighted = r.one("elementwise_mul", {"X": g, "Y": r.input("Scale")}, at)
        if fixed:
            made = r.one("elementwise_mul", {"X": weighted, "Y": r.input("SavedVariance")}, at)
        else:
            made = _input_gradient(r, weighted, h, inverse, over)
        r.instead[r.op.outputs["X@GRAD"][0]] = made
    for slot, whole in (("Scale@GRAD", r.times(g, h)), ("Bias@GRAD", g)):
        if r.has(slot):
            r.instead[r.op.outputs[slot][0]] = r.one("reduce_sum", {"X": whole}, {"dim": over["dim"]})
