"""Attention: of given queries, keys and values, and with its projections."""

from __future__ import annotations

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
    name: str | None = None,
) -> Variable:
    """Average values with weights from the likeness of queries and keys, each head on its own part of the last axis.

    Out = softmax(scale queries keys^T + mask) values

    Args:
        queries: [batch, time, width]; without keys and values [batch, time, 3 width]: all three side by side.
        keys: [batch, time of keys, width].
        values: [batch, time of keys, width of values].
        mask: [batch or 1, num_heads or 1, time or 1, time of keys], added to the scores; -1e9 hides a key.
        num_heads: heads side by side in the last axis.
        causal: a query sees the keys up to its own position only.
        scale: 0 stands for 1 / sqrt(width of a head).
        name: prefix of the output's name.

    Returns:
        [batch, time, width of values].

    Raises:
        PeError: shapes that do not fit.

    Source:
        Vaswani et al. 2017, section 3.2.
    """
    given = {"Q": queries, "K": keys, "V": values, "Mask": mask}
    attrs = {"num_heads": num_heads, "causal": causal, "scale": scale}
    return LayerHelper("attention", name).op("attention", given, attrs, ("Out", "Level"))[0]


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
    qkv = fc([input], 3 * width, 2, qkv_param_attr, qkv_bias_attr, name=f"{helper.name}.qkv")
    mixed = attention(qkv, mask=mask, num_heads=num_heads, causal=causal)
    out: Variable = fc([mixed], width, 2, out_param_attr, out_bias_attr, name=f"{helper.name}.out")
    return out
