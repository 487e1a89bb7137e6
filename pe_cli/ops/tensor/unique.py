"""unique_with_counts: the different values of a tensor. How many there are only a step knows: it runs on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.tensor.rows import Arrays, Made


@op(
    "unique_with_counts",
    inputs="X",
    outputs="Out Index Count",
    attrs={"dtype": Attr("int32", "element type of Index and Count", ("int32", "int64"))},
    differentiable="",
    samples=[
        Sample({"X": lambda rng: np.array([2, 3, 3, 1, 5, 3])}, name="some twice"),
        Sample({"X": lambda rng: np.zeros(0, "int64")}, {"dtype": "int64"}, "nothing"),
    ],
)
def unique_with_counts(x: TensorType, *, dtype: str) -> tuple[TensorType, TensorType, TensorType]:
    """Find the different values of a vector, in the order in which they come first.

    Args:
        X: [values] any element type.

    Returns:
        Out: [different values] element type of X.
        Index: [values] place of each value of X in Out.
        Count: [different values] how often each comes.

    Raises:
        PeError: X is no vector.

    Source:
        fluid.layers.unique_with_counts.
    """
    if len(x.shape) != 1:
        raise PeError(f"unique_with_counts needs a vector, got {x}", hint="reshape it")
    return x.with_shape(-1), TensorType(x.shape, dtype), TensorType((-1,), dtype)


@unique_with_counts.host
def unique_with_counts_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """Sort, then put the values in the order of their first places."""
    del attrs
    values, first, index, counts = np.unique(inputs["X"][0], return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return {"Out": [values[order]], "Index": [place[index]], "Count": [counts[order]]}
