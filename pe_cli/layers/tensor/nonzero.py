"""Indices of elements, as many as there are: where, nonzero, unique, unique_with_counts."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def _constants(found: list[Variable]) -> list[Variable]:
    for v in found:
        v.stop_gradient = True
    return found


@layer
def where(condition: Variable) -> list[Variable]:
    """Find the places where a condition holds, in order, a row for every element that there is.

    Args:
        condition: bool, any shape but a scalar.

    Returns:
        Places [elements, axes of condition] int64, -1 behind the last one; and how many there are, [1] int64. On several devices they
        are those in each device's part of the batch.

    Raises:
        PeError: condition is not bool, or a scalar.

    Source:
        fluid.layers.where, which gives as many rows as there are places.
    """
    # Shapes follow from those of the feeds, never from values: so there is a row for every element that may be a place.
    return _constants(LayerHelper("where").op("padded_where", {"Condition": condition}, None, ("Out", "Count")))


@layer
def nonzero(input: Variable, as_tuple: bool = False) -> list[Variable]:
    """Find the places of what is not 0, in order, a row for every element that there is.

    Args:
        input: any number type or bool, any shape but a scalar.
        as_tuple: give the places along each axis apart.

    Returns:
        Places [elements, axes of input] int64, -1 behind the last one; and how many there are, [1] int64. With as_tuple, places
        [elements, 1] for each axis, one after the other, and then how many there are.

    Raises:
        PeError: input is a scalar.

    Source:
        fluid.layers.nonzero, which gives as many rows as there are places.
    """
    helper = LayerHelper("nonzero")
    condition = input
    if input.dtype != "bool":
        # By comparison, which has NumPy's meaning: NaN is not 0 and counts, -0.0 is 0 and does not.
        zero = helper.one("fill_constant", {}, {"shape": [1], "dtype": input.dtype, "value": 0.0})
        condition = helper.one("not_equal", {"X": input, "Y": zero})
    places, count = where(condition)
    if not as_tuple:
        return [places, count]
    ranges = [{"axes": [1], "starts": [axis], "ends": [axis + 1]} for axis in range(len(input.shape))]
    return [*_constants([helper.one("slice", {"Input": places}, attrs) for attrs in ranges]), count]


@layer
def unique(x: Variable, dtype: str = "int32") -> list[Variable]:
    """Find the different values of a vector, in the order in which they come first, in as many places as the vector has.

    Args:
        x: [values] numbers.
        dtype: element type of the places, int32 or int64.

    Returns:
        The different values, type of x, 0 behind the last one; the place of each value of x among them, [values]; and how many there are,
        [1] int64.

    Raises:
        PeError: x is no vector of numbers.

    Source:
        fluid.layers.unique, which gives as many values as there are.
    """
    # One op for both layers: times are a by-product of finding the first places.
    out, index, _, count = _unique("unique", x, dtype)
    return [out, index, count]


@layer(made_of="padded_unique")
def unique_with_counts(x: Variable, dtype: str = "int32") -> list[Variable]:
    """Find the different values of a vector, and how often each comes, in as many places as the vector has.

    Args:
        x: [values] numbers.
        dtype: element type of the places and of how often, int32 or int64.

    Returns:
        The different values in the order in which they come first, type of x, 0 behind the last one; the place of each value of x among
        them, [values]; how often each comes, [values], 0 behind the last one; and how many different ones there are, [1] int64.

    Raises:
        PeError: x is no vector of numbers.

    Source:
        fluid.layers.unique_with_counts, which gives as many values as there are.
    """
    return _unique("unique_with_counts", x, dtype)


def _unique(name: str, x: Variable, dtype: str) -> list[Variable]:
    return _constants(LayerHelper(name).op("padded_unique", {"X": x}, {"dtype": dtype}, ("Out", "Index", "Times", "Count")))
