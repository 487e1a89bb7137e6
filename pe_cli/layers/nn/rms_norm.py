"""RMS norm: rows are divided by their root mean square."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def rms_norm(
    input: Variable, epsilon: float = 1e-6, param_attr: ParamAttr | None = None, name: str | None = None, offset: float = 0.0
) -> Variable:
    """Divide the values of the last axis by their root mean square, and multiply each position by a learned scale.

    Out = (scale + offset) input / sqrt(mean(input^2) + epsilon)

    Args:
        input: [batch, ..., width] float32 or float64.
        epsilon: added to the mean, in its unit.
        param_attr: of the scale, [width]; 1 less the offset by default.
        offset: added to the scale, no unit: 1 in Gemma, whose scales are learned around 0.
        name: prefix of the name of the scale.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: input has one axis only, a last axis of unknown size, or epsilon is negative.

    Source:
        Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4.
    """
    helper = LayerHelper("rms_norm", name)
    if len(input.shape) < 2 or input.shape[-1] < 1 or epsilon < 0:
        text = f"rms_norm needs [batch, ..., width] with a known width and an epsilon of at least 0, got {input} and {epsilon}"
        raise helper.error(text, hint="reshape the input")
    squares = helper.one("square", {"X": input})
    mean = helper.one("reduce_mean", {"X": squares}, {"dim": [len(input.shape) - 1], "keep_dim": True})
    length = helper.one("rsqrt", {"X": helper.one("scale", {"X": mean}, {"scale": 1.0, "bias": epsilon})})
    scaled = helper.one("elementwise_mul", {"X": input, "Y": length}, {"axis": -1})
    weight = helper.parameter(param_attr, [input.shape[-1]], input.dtype, default=Constant(1.0 - offset))
    if offset:
        weight = helper.one("scale", {"X": weight}, {"scale": 1.0, "bias": offset})
    return helper.one("elementwise_mul", {"X": scaled, "Y": weight}, {"axis": len(input.shape) - 1})
