"""Norms, variances and the like along axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def _reducer(helper: LayerHelper, axis: int | list[int] | None, keepdim: bool) -> Callable[[str, Variable], Variable]:
    """Return a function that reduces along these axes, None for all."""
    attrs = {"dim": [0] if axis is None else as_list(axis), "keep_dim": keepdim, "reduce_all": axis is None}
    return lambda kind, x: helper.one(f"reduce_{kind}", {"X": x}, attrs)


@layer
def logsumexp(x: Variable, axis: int | list[int] | None = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Add up powers of e and take the logarithm, without overflow.

    Out = m + ln sum e^(x - m),  m = max x

    Args:
        x: any shape, float32 or float64.
        axis: axis or axes, negative ones count from the last; null for all.
        keepdim: leave an axis of size 1 in place of each.
        name: prefix of the output's name.

    Returns:
        x's shape without those axes; [1] when all are gone. NaN where all elements are minus infinity.

    Raises:
        PeError: there is no such axis.

    Source:
        paddle.logsumexp.
    """
    helper = LayerHelper("logsumexp", name)
    kept, reduce = _reducer(helper, axis, True), _reducer(helper, axis, keepdim)
    # The largest is subtracted before exp and added after ln: exp of 89 overflows float32 already, and all terms are at most 1 this way.
    powers = helper.one("exp", {"X": helper.one("elementwise_sub", {"X": x, "Y": kept("max", x)})})
    total = helper.one("log", {"X": reduce("sum", powers)})
    return helper.one("elementwise_add", {"X": total, "Y": reduce("max", x)})


@layer
def var(
    x: Variable, axis: int | list[int] | None = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Average squared distances from the mean.

    Out = sum (x - mean x)^2 / (n - 1), or / n where unbiased is false

    Args:
        x: any shape, float32 or float64; sizes along the axes are known where unbiased.
        axis: axis or axes, negative ones count from the last; null for all.
        unbiased: divide by n - 1, so that the expected value is the population's variance.
        keepdim: leave an axis of size 1 in place of each.
        name: prefix of the output's name.

    Returns:
        x's shape without those axes; [1] when all are gone. NaN of one element where unbiased.

    Raises:
        PeError: there is no such axis, or its size is not known.

    Source:
        paddle.var.
    """
    return _variance(LayerHelper("var", name), x, axis, unbiased, keepdim)


@layer
def std(
    x: Variable, axis: int | list[int] | None = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Square root of the average squared distance from the mean.

    Out = sqrt(var(x))

    Args:
        x: any shape, float32 or float64; sizes along the axes are known where unbiased.
        axis: axis or axes, negative ones count from the last; null for all.
        unbiased: divide by n - 1.
        keepdim: leave an axis of size 1 in place of each.
        name: prefix of the output's name.

    Returns:
        x's shape without those axes; [1] when all are gone. NaN of one element where unbiased.

    Raises:
        PeError: there is no such axis, or its size is not known.

    Source:
        paddle.std.
    """
    helper = LayerHelper("std", name)
    return helper.one("sqrt", {"X": _variance(helper, x, axis, unbiased, keepdim)})


def _variance(helper: LayerHelper, x: Variable, axis: int | list[int] | None, unbiased: bool, keepdim: bool) -> Variable:
    # In two passes: mean(x^2) - mean(x)^2 would cancel where the mean is far from 0, and may be below 0.
    centred = helper.one("elementwise_sub", {"X": x, "Y": _reducer(helper, axis, True)("mean", x)})
    found = _reducer(helper, axis, keepdim)("mean", helper.one("square", {"X": centred}))
    if not unbiased:
        return found
    axes = range(len(x.shape)) if axis is None else as_list(axis)
    sizes = [x.shape[a] for a in axes]
    if -1 in sizes:
        message = f"{helper.layer_type}: how many elements of {x} there are along its axes is not known"
        raise helper.error(message, hint="set unbiased: false, or reduce other axes")
    n = math.prod(sizes)
    # n - 1 of one element is 0: NaN, as in NumPy.
    return helper.one("scale", {"X": found}, {"scale": n / (n - 1) if n > 1 else math.nan})


@layer
def norm(
    x: Variable, p: float = 2.0, axis: int | list[int] | None = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Measure the length of vectors.

    Out = (sum |x|^p)^(1/p); the largest |x| for p = inf, the smallest for -inf, how many are not 0 for p = 0

    Args:
        x: any shape, float32 or float64.
        p: the exponent; 2 along two axes is the Frobenius norm of matrices.
        axis: axis or axes, negative ones count from the last; null for all.
        keepdim: leave an axis of size 1 in place of each.
        name: prefix of the output's name.

    Returns:
        x's shape without those axes; [1] when all are gone. The gradient at a length of 0 is 0 for p = 2, else NaN.

    Raises:
        PeError: there is no such axis.

    Source:
        paddle.norm.
    """
    helper = LayerHelper("norm", name)
    reduce = _reducer(helper, axis, keepdim)
    if p == 2:
        total = reduce("sum", helper.one("square", {"X": x}))
        # The root has no derivative at 0. So it is taken of 1 there, less 1: vectors of zeros have gradients of 0, not NaN.
        none = helper.one("scale", {"X": helper.one("sign", {"X": total})}, {"scale": -1.0, "bias": 1.0})
        none.stop_gradient = True
        root = helper.one("sqrt", {"X": helper.one("elementwise_add", {"X": total, "Y": none})})
        return helper.one("elementwise_sub", {"X": root, "Y": none})
    sizes = helper.one("abs", {"X": x})
    if math.isinf(p):
        return reduce("max" if p > 0 else "min", sizes)
    if p == 0:
        return reduce("sum", helper.one("sign", {"X": sizes}))
    if p == 1:
        return reduce("sum", sizes)
    # Roots of other exponents have no such guard: their gradient at a length of 0 is NaN.
    total = reduce("sum", helper.one("pow", {"X": sizes}, {"factor": p}))
    return helper.one("pow", {"X": total}, {"factor": 1.0 / p})


@layer
def dist(x: Variable, y: Variable, p: float = 2.0, name: str | None = None) -> Variable:
    """Measure the distance of two tensors.

    Out = norm(x - y, p)

    Args:
        x: any shape, float32 or float64.
        y: dtype of x; sizes of x, or 1.
        p: the exponent, see norm.
        name: prefix of the output's name.

    Returns:
        [1].

    Raises:
        PeError: shapes or dtypes do not fit.

    Source:
        paddle.dist.
    """
    helper = LayerHelper("dist", name)
    return norm(helper.one("elementwise_sub", {"X": x, "Y": y}), p)


@layer
def median(x: Variable, axis: int | None = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Find the number in the middle, or the mean of the two there.

    Args:
        x: any shape, float32 or float64; the size along the axis is known.
        axis: a negative one counts from the last; null for all elements.
        keepdim: leave an axis of size 1 in its place, or one in place of each.
        name: prefix of the output's name.

    Returns:
        x's shape without that axis; [1] when all are gone. The gradient goes to the numbers in the middle.

    Raises:
        PeError: there is no such axis, or its size is not known, or 0.

    Source:
        paddle.median.
    """
    helper = LayerHelper("median", name)
    rank = len(x.shape)
    flat = axis is None
    if axis is not None and not -rank <= axis < rank:
        raise helper.error(f"median: {x} has no axis {axis}")
    n = math.prod(x.shape) if axis is None else x.shape[axis]
    if (-1 in x.shape and flat) or n < 1:
        raise helper.error(f"median needs a known size of at least 1, got {x}", hint="choose another axis")
    at = 0 if axis is None else axis % rank
    values = helper.one("reshape", {"X": x}, {"shape": [n]}) if flat else x
    ordered = helper.op("argsort", {"X": values}, {"axis": at}, ("Out", "Indices"))[0]
    # The middle one of an odd number, the two middle ones of an even number.
    middle = helper.one("slice", {"Input": ordered}, {"axes": [at], "starts": [(n - 1) // 2], "ends": [n // 2 + 1]})
    # One or two numbers, so that one slice serves odd and even sizes; PyTorch takes the lower of two, NumPy and Paddle their mean.
    found = helper.one("reduce_mean", {"X": middle}, {"dim": [at], "keep_dim": keepdim and not flat, "reduce_all": flat})
    return helper.one("reshape", {"X": found}, {"shape": [1] * rank}) if flat and keepdim else found
