"""Attention and what goes with it: RMS and mean-variance normalisation, rotations, gates."""

from __future__ import annotations

import math

from pe_cli.session.importing.onnx.forms.arithmetic import combined
from pe_cli.session.importing.onnx.forms.elementwise import floats, kept
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value


@form("RMSNormalization")
def rms_normalization(node: Node) -> Value:
    x, axis = floats(node), node.axis(-1)
    axes = list(range(axis, len(x.dims)))
    dims = [1 if i in axes else size for i, size in enumerate(x.dims)]
    squares = node.mid("square", "squares", x=x, dims=x.dims)
    mean = node.mid("reduce_mean", "mean", input=squares, dim=axes, keep_dim=True, dims=dims)
    inside = node.mid("scale", "inside", x=mean, scale=1.0, bias=float(node.attr("epsilon", 1e-5)), dims=dims)
    factor = node.mid("rsqrt", "factor", x=inside, dims=dims)
    normal = node.mid("elementwise_mul", "normal", x=x, y=factor, dims=x.dims)
    return combined(node, "elementwise_mul", normal, node.var(1))


@form("MeanVarianceNormalization")
def mean_variance(node: Node) -> Value:
    x = floats(node)
    axes = [int(a) % len(x.dims) for a in node.attr("axes", [0, 2, 3])]
    dims = [1 if i in axes else size for i, size in enumerate(x.dims)]
    mean = node.mid("reduce_mean", "mean", input=x, dim=axes, keep_dim=True, dims=dims)
    away = node.mid("elementwise_sub", "away", x=x, y=mean, dims=x.dims)
    squares = node.mid("square", "squares", x=away, dims=x.dims)
    variance = node.mid("reduce_mean", "variance", input=squares, dim=axes, keep_dim=True, dims=dims)
    deviation = node.mid("sqrt", "deviation", x=variance, dims=dims)
    safe = node.mid("scale", "safe", x=deviation, scale=1.0, bias=1e-9, dims=dims)
    return kept(node, x, "elementwise_div", x=away, y=safe)


@form("SwiGLU")
def swiglu(node: Node) -> Value:
    gate, up = floats(node, 0), node.var(1)
    opened = node.mid("swish", "gate", x=gate, dims=gate.dims)
    return combined(node, "elementwise_mul", opened, up)


@form("Attention")
def attention(node: Node) -> list[Value | None]:
    """Scaled products of queries and keys, softmax, products with values, with heads as an axis of their own.

    Raises:
        Unimportable: it has a cache, or what no layer has.
    """
    unusual = [name for name in ("softcap", "qk_matmul_output_mode") if node.attr(name, 0)]
    if unusual or any(node.has(i) for i in (4, 5, 6)) or any(node.wants(i) for i in (1, 2, 3)):
        raise Unimportable(f"it has {', '.join(unusual) or 'a cache of keys and values'}")
    q, k, v = floats(node, 0), node.var(1), node.var(2)
    rows = len(q.dims) == 3
    if rows:
        own, shared = int(node.attr("q_num_heads", 1)), int(node.attr("kv_num_heads", 1))
        q, k, v = _heads(node, q, own, "q"), _heads(node, k, shared, "k"), _heads(node, v, shared, "v")
    batch, heads, time, width = q.dims
    if k.dims[1] != heads:
        k, v = _repeated(node, k, heads, "k"), _repeated(node, v, heads, "v")
    scale = float(node.attr("scale", 1 / math.sqrt(int(str(width)))))
    scores = node.mid("matmul", "scores", x=q, y=k, transpose_y=True, alpha=scale, dims=[batch, heads, time, k.dims[2]])
    if node.has(3):
        mask = node.var(3)
        if mask.dtype == "bool":
            raise Unimportable("its mask says which are seen, and not what is added")
        scores = combined(node, "elementwise_add", scores, mask, "masked")
    if node.attr("is_causal", 0):
        raise Unimportable("is_causal: queries see what is before them")
    weights = node.mid("softmax", "weights", input=scores, dims=scores.dims)
    dims = [batch, heads, time, v.dims[3]]
    if not rows:
        return [node.out("matmul", x=weights, y=v, dims=dims)]
    seen = node.mid("matmul", "seen", x=weights, y=v, dims=dims)
    turned = node.mid("transpose", "turned", x=seen, perm=[0, 2, 1, 3], dims=[batch, time, heads, v.dims[3]])
    return [node.reshaped(turned, [batch, time, heads * v.dims[3]])]


def _heads(node: Node, x: Value, heads: int, hint: str) -> Value:
    batch, time, width = x.dims
    if not isinstance(width, int):
        raise Unimportable("the width is not known")
    cut = node.reshaped(x, [batch, time, heads, width // heads], f"{hint}_cut")
    return node.mid("transpose", f"{hint}_heads", x=cut, perm=[0, 2, 1, 3], dims=[batch, heads, time, width // heads])


def _repeated(node: Node, x: Value, heads: object, hint: str) -> Value:
    """Repeat heads that several queries share."""
    batch, few, time, width = x.dims
    times = int(str(heads)) // int(str(few))
    apart = node.reshaped(x, [batch, few, 1, time, width], f"{hint}_apart")
    many = node.mid("expand", f"{hint}_many", x=apart, expand_times=[1, 1, times, 1, 1], dims=[batch, few, times, time, width])
    return node.reshaped(many, [batch, few * times, time, width], f"{hint}_repeated")
