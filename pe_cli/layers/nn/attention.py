"""Attention: of given queries, keys and values, and with its projections."""

from __future__ import annotations

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.fc import fc
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def attention(
    queries: Variable,
    keys: Variable | None = None,
    values: Variable | None = None,
    mask: Variable | None = None,
    num_heads: int = 1,
    causal: bool = False,
    scale: float = 0.0,
    num_key_heads: int = 0,
    name: str | None = None,
) -> Variable:
    """Average values with weights from the likeness of queries and keys, each head on its own part of the last axis.

    Out = softmax(scale queries keys^T + mask) values

    Args:
        queries: [batch, time, width]; without keys and values [batch, time, 3 width]: all three side by side.
        keys: [batch, time of keys, width].
        values: [batch, time of keys, width of values].
        mask: [batch or 1, num_heads or 1, time or 1, time of keys], added to the scores; -1e9 hides a key. A mask
            that is learned gets its gradient, for which the layer is made of products and a softmax.
        num_heads: heads side by side in the last axis.
        causal: a query sees the keys up to its own position only.
        scale: 0 stands for 1 / sqrt(width of a head).
        num_key_heads: heads of keys and values, each of which num_heads / num_key_heads heads of queries share; 0 for as many as
            of queries.
        name: prefix of the output's name.

    Returns:
        [batch, time, width of values], times num_heads / num_key_heads where they are shared.

    Raises:
        PeError: shapes that do not fit.

    Source:
        Vaswani et al. 2017, section 3.2; Ainslie et al. 2023 for heads that are shared.
    """
    helper = LayerHelper("attention", name)
    if num_key_heads not in (0, num_heads):
        # The op wants as many heads of keys as of queries; the gradient of `expand` adds up what the copies of a shared head get.
        keys, values = (_shared_heads(helper, x, num_heads, num_key_heads) for x in (keys, values))
    # The fused op keeps no scores, so it has no gradient for a mask that is learned.
    if mask is not None and not mask.stop_gradient:
        return _with_learned_mask(helper, queries, keys, values, mask, num_heads, causal, scale)
    given = {"Q": queries, "K": keys, "V": values, "Mask": mask}
    attrs = {"num_heads": num_heads, "causal": causal, "scale": scale}
    # Level has the logarithms of the softmax's denominators: with them backward makes the scores again instead of keeping them.
    return helper.op("attention", given, attrs, ("Out", "Level"))[0]


def _shared_heads(helper: LayerHelper, x: Variable | None, heads: int, shared: int) -> Variable:
    """Return keys or values with each head as often as heads of queries share it, side by side."""
    if x is None or shared < 1 or heads % shared or len(x.shape) != 3 or x.shape[-1] < 1 or x.shape[-1] % shared:
        text = f"attention: {heads} heads of queries cannot share {shared} heads of keys and values{'' if x is None else f' of {x}'}"
        raise helper.error(text, hint="give keys and values [batch, time, a multiple of num_key_heads], which divides num_heads")
    width = x.shape[-1] // shared
    # A new axis of 1 behind the shared heads is repeated: each head stands beside its copies, in the order of the query heads.
    apart = helper.one("reshape", {"X": x}, {"shape": [0, 0, shared, 1, width]})
    often = helper.one("expand", {"X": apart}, {"expand_times": [1, 1, 1, heads // shared, 1]})
    return helper.one("reshape", {"X": often}, {"shape": [0, 0, heads * width]})


def _with_learned_mask(
    helper: LayerHelper,
    queries: Variable,
    keys: Variable | None,
    values: Variable | None,
    mask: Variable,
    heads: int,
    causal: bool,
    scale: float,
) -> Variable:
    """Append attention as products and a softmax, so that the scores have a gradient of their own."""
    if (keys is None) != (values is None) or heads < 1 or scale < 0:
        raise helper.error("attention needs both keys and values or neither, one head or more, and a scale of at least 0")
    if keys is None or values is None:
        # One tensor holds queries, keys and values, a third of the width each.
        third = queries.shape[-1] // 3
        parts = [
            helper.one("slice", {"Input": queries}, {"axes": [2], "starts": [i * third], "ends": [(i + 1) * third]}) for i in range(3)
        ]
    else:
        parts = [queries, keys, values]
    if any(len(x.shape) != 3 or x.shape[-1] < 1 or x.shape[-1] % heads for x in parts):
        raise helper.error(f"attention: {heads} heads on {', '.join(map(str, parts))}", hint="[batch, time, a multiple of num_heads]")
    q, k, v = (_parted(helper, x, heads) for x in parts)
    # 1 / sqrt(width of a head), as in Vaswani et al. 2017, eq. 1.
    factor = scale or (parts[0].shape[-1] // heads) ** -0.5
    scores = helper.one("matmul", {"X": q, "Y": k}, {"transpose_Y": True, "alpha": factor})
    scores = helper.one("elementwise_add", {"X": scores, "Y": mask}, {"axis": -1})
    if causal:
        if min(parts[0].shape[1], parts[1].shape[1]) < 1:
            text = f"attention: causal with a mask that is learned needs sequences of known length, got {parts[0]} and {parts[1]}"
            raise helper.error(text, hint="declare the feeds with their sizes, or write the order of time into the mask")
        # The fused op hides later keys by its loop; here a constant is added, as the products know no order.
        # -1e9 and not minus infinity, of which a row that is hidden as a whole would have a softmax of NaN.
        later = np.triu(np.full((parts[0].shape[1], parts[1].shape[1]), -1e9), 1)
        facts = {"shape": [*later.shape], "dtype": scores.dtype, "values": later.ravel().tolist()}
        scores = helper.one("elementwise_add", {"X": scores, "Y": helper.one("assign_value", {}, facts)}, {"axis": -1})
    mixed = helper.one("matmul", {"X": helper.one("softmax", {"X": scores}, {}), "Y": v})
    mixed = helper.one("transpose", {"X": mixed}, {"axis": [0, 2, 1, 3]})
    return helper.one("reshape", {"X": mixed}, {"shape": [0, 0, parts[2].shape[-1]]})


def _parted(helper: LayerHelper, x: Variable, heads: int) -> Variable:
    """Return [batch, heads, time, width of a head]."""
    parted = helper.one("reshape", {"X": x}, {"shape": [0, 0, heads, x.shape[-1] // heads]})
    return helper.one("transpose", {"X": parted}, {"axis": [0, 2, 1, 3]})


@layer
def multi_head_attention(
    input: Variable,
    num_heads: int,
    mask: Variable | None = None,
    causal: bool = False,
    qkv_param_attr: ParamAttr | None = None,
    qkv_bias_attr: ParamAttr | bool | None = None,
    out_param_attr: ParamAttr | None = None,
    out_bias_attr: ParamAttr | bool | None = None,
    name: str | None = None,
) -> Variable:
    """Let every position of a sequence attend to the others: one projection to queries, keys and values, heads, one back.

    Out = attention(input W_qkv + b_qkv) W_out + b_out

    Args:
        input: [batch, time, width].
        num_heads: heads, which divide width.
        mask: [batch or 1, num_heads or 1, time or 1, time], added to the scores.
        causal: a position sees itself and those before it only.
        qkv_param_attr: of W_qkv, [width, 3 width]; Xavier by default.
        qkv_bias_attr: of b_qkv, [3 width]; 0 by default; False for none.
        out_param_attr: of W_out, [width, width].
        out_bias_attr: of b_out, [width].
        name: prefix of the names of the parameters.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: num_heads does not divide width.

    Source:
        Vaswani et al. 2017, section 3.2.2.
    """
    helper = LayerHelper("multi_head_attention", name)
    width = input.shape[-1]
    if len(input.shape) != 3 or num_heads < 1 or width % num_heads:
        raise helper.error(
            f"multi_head_attention: {num_heads} heads on {input}",
            hint="give it [batch, time, width] with a multiple of num_heads as width",
        )
    # One wide product is faster than three narrow ones, and the op reads the three parts where they lie.
    qkv = fc([input], 3 * width, 2, qkv_param_attr, qkv_bias_attr, name=f"{helper.name}.qkv")
    mixed = attention(qkv, mask=mask, num_heads=num_heads, causal=causal)
    out: Variable = fc([mixed], width, 2, out_param_attr, out_bias_attr, name=f"{helper.name}.out")
    return out
