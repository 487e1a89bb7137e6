"""fused_elemwise_activation: a binary function of two tensors and a unary one, in either order."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable

_UNARY = ("scale", "relu", "tanh")
_BINARY = ("elementwise_add", "elementwise_mul")


@layer
def fused_elemwise_activation(
    x: Variable, y: Variable, functor_list: list[str], axis: int = -1, scale: float = 0.0, save_intermediate_out: bool = True
) -> Variable:
    """Combine two tensors and a function of one number.

    [unary, binary] gives unary(binary(x, y)), and [binary, unary] gives binary(x, unary(y)). Passes join the ops by themselves.

    Args:
        x: any shape.
        y: sizes of x from axis on.
        functor_list: `scale`, `relu` or `tanh`, and `elementwise_add` or `elementwise_mul`, in one of both orders.
        axis: of x, where y begins.
        scale: factor of `scale`.
        save_intermediate_out: of fluid's; changes no values.

    Returns:
        Type of x.

    Raises:
        PeError: other functions, or shapes that do not fit.

    Source:
        fluid.contrib.layers.fused_elemwise_activation.
    """
    # Kept or not is decided by the passes, which see who reads it.
    del save_intermediate_out
    helper, names = LayerHelper("fused_elemwise_activation"), functor_list
    if len(names) != 2 or {names[0] in _UNARY, names[1] in _UNARY} != {True, False} or not {*names} & {*_BINARY}:
        hint = f"one of {', '.join(_UNARY)} and one of {', '.join(_BINARY)}"
        raise helper.error(f"fused_elemwise_activation: functor_list is {functor_list}", hint=hint)

    def unary(name: str, of: Variable) -> Variable:
        return helper.one(name, {"X": of}, {"scale": scale} if name == "scale" else None)

    def binary(name: str, a: Variable, b: Variable) -> Variable:
        return helper.one(name, {"X": a, "Y": b}, {"axis": axis})

    # The outer function is named first, as in f(g(x)).
    first, second = names
    return unary(first, binary(second, x, y)) if first in _UNARY else binary(first, x, unary(second, y))
