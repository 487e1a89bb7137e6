"""Predicates on whole tensors, and simple compositions: allclose, has_nan, clamp, addcmul and others."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable

#: What the original takes for a bound that is not given.
_LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


@layer
def allclose(input: Variable, other: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Variable:
    """Tell whether two tensors are near each other everywhere.

    Out = all(|input - other| <= atol + rtol |other|); infinities are near themselves only

    Args:
        input: float32 or float64, any shape.
        other: type of input.
        rtol: room as a part of other, no unit.
        atol: room in the units of other.
        equal_nan: whether NaN is near NaN.

    Returns:
        [1] bool.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.allclose.
    """
    one = LayerHelper("allclose").one
    # Not symmetric, as in NumPy: the room is a part of `other` alone.
    far = one("abs", {"X": one("elementwise_sub", {"X": input, "Y": other})})
    # Infinity has room for every number: it counts as near by the comparison for equality below alone.
    room = one("scale", {"X": one("abs", {"X": other})}, {"scale": float(rtol), "bias": float(atol)})
    near = one("logical_and", {"X": one("less_equal", {"X": far, "Y": room}), "Y": find("isfinite").fn(other)})
    near = one("logical_or", {"X": near, "Y": one("equal", {"X": input, "Y": other})})
    if equal_nan:
        both = one("logical_and", {"X": find("isnan").fn(input), "Y": find("isnan").fn(other)})
        near = one("logical_or", {"X": near, "Y": both})
    return _any_or_all("reduce_all", near)


def _any_or_all(kind: str, x: Variable) -> Variable:
    judged: Variable = find(kind).fn(x)
    return judged


@layer
def has_nan(x: Variable) -> Variable:
    """Tell whether an element is NaN.

    Args:
        x: any shape and dtype.

    Returns:
        [1] bool.

    Source:
        fluid.layers.has_nan.
    """
    return _any_or_all("reduce_any", find("isnan").fn(x))


@layer
def has_inf(x: Variable) -> Variable:
    """Tell whether an element is infinite, of either sign.

    Args:
        x: any shape, float32 or float64.

    Returns:
        [1] bool.

    Source:
        fluid.layers.has_inf.
    """
    return _any_or_all("reduce_any", find("isinf").fn(x))


@layer
def is_empty(x: Variable) -> Variable:
    """Tell whether a tensor has no element.

    Args:
        x: any shape and dtype.

    Returns:
        [1] bool.

    Source:
        fluid.layers.is_empty.
    """
    one = LayerHelper("is_empty").one
    # As float64, where a product of many sizes may be rounded but never becomes 0, as one of int64 might by overflow.
    sizes = one("cast", {"X": find("shape").fn(x)}, {"out_dtype": "float64"})
    none = one("fill_constant", {}, {"shape": [1], "dtype": "float64", "value": 0.0})
    return one("equal", {"X": find("reduce_prod").fn(sizes), "Y": none})


@layer
def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Tell which elements are equal.

    Args:
        x: any shape.
        y: type of x.
        name: prefix of the output's name.

    Returns:
        Shape of x, bool; gradients stop there.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.elementwise_equal, which is equal.
    """
    return LayerHelper("elementwise_equal", name).one("equal", {"X": x, "Y": y})


@layer
def clamp(input: Variable, min: float | None = None, max: float | None = None, name: str | None = None) -> Variable:
    """Limit numbers to a range, of which one side may be left out.

    Out = min(max(input, min), max)

    Args:
        input: float32 or float64, any shape.
        min: the least; null: there is none.
        max: the most; null: there is none.
        name: prefix of the output's name.

    Returns:
        Type of input.

    Raises:
        PeError: neither bound is given, min is above max, or another dtype.

    Source:
        fluid.layers.clamp.
    """
    helper = LayerHelper("clamp", name)
    if min is None and max is None:
        raise helper.error("clamp needs min, max or both")
    if input.dtype not in _LARGEST:
        raise helper.error(f"clamp needs float32 or float64, got {input}", hint="cast it")
    # The side without a bound cuts infinities to the largest finite number, unlike PyTorch's clamp.
    limit = _LARGEST[input.dtype]
    low, high = (-limit if min is None else float(min)), (limit if max is None else float(max))
    if low > high:
        raise helper.error(f"clamp: min {low:g} is above max {high:g}", hint="swap them")
    return helper.one("clip", {"X": input}, {"min": low, "max": high})


@layer
def addcmul(input: Variable, tensor1: Variable, tensor2: Variable, value: float = 1.0, name: str | None = None) -> Variable:
    """Add a product of two tensors, element by element.

    Out = input + value tensor1 tensor2; sizes of 1 fit any

    Args:
        input: float32 or float64, any shape.
        tensor1: a shape that fits.
        tensor2: a shape that fits.
        value: factor of the product.
        name: prefix of the output's name.

    Returns:
        The common shape, dtype of input.

    Raises:
        PeError: shapes or dtypes that do not fit.

    Source:
        fluid.layers.addcmul.
    """
    helper = LayerHelper("addcmul", name)
    product = find("scale").fn(find("elementwise_mul").fn(tensor1, tensor2), float(value))
    return helper.one("elementwise_add", {"X": input, "Y": product})


@layer
def t(input: Variable, name: str | None = None) -> Variable:
    """Transpose a matrix; what has fewer than two axes stays.

    Args:
        input: at most two axes, any dtype.
        name: prefix of the output's name.

    Returns:
        [columns, rows].

    Raises:
        PeError: more than two axes.

    Source:
        fluid.layers.t.
    """
    helper = LayerHelper("t", name)
    if len(input.shape) > 2:
        raise helper.error(f"t takes at most two axes, got {input}", hint="use transpose with a perm")
    return helper.one("transpose", {"X": input}, {"axis": [1, 0]}) if len(input.shape) == 2 else helper.one("assign", {"X": input})
