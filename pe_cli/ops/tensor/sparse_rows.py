"""get_tensor_from_selected_rows: the rows of a row-sparse gradient. How many there are only a step knows: it runs on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.tensor.masked_rows import Arrays, Made


@op(
    "get_tensor_from_selected_rows",
    inputs="X Rows",
    differentiable="",
    samples=[
        Sample({"X": (6, 3), "Rows": lambda rng: np.array([5, 1, -1, 3])}, name="a place without a row"),
        Sample({"X": (0, 3), "Rows": lambda rng: np.zeros(0, "int64")}, name="no row"),
    ],
)
def get_tensor_from_selected_rows(x: TensorType, rows: TensorType) -> TensorType:
    """Return the values of a row-sparse gradient, in the order of their row numbers.

    Args:
        X: [height, width]; between parts of a cut program a row-sparse gradient is whole, with zeros in the other rows.
        Rows: [n] int64 row numbers, each once; -1 where there is none.

    Returns:
        Out: [rows, width], without the places that hold no row.

    Raises:
        PeError: Rows is no vector of int64.

    Source:
        fluid.layers.get_tensor_from_selected_rows, after merge_selected_rows.
    """
    if rows.dtype != "int64" or len(rows.shape) != 1:
        raise PeError(f"get_tensor_from_selected_rows needs Rows int64 [n], got {rows}")
    return x.with_shape(-1, *x.shape[1:])


@get_tensor_from_selected_rows.host
def get_tensor_from_selected_rows_host(inputs: Arrays, attrs: Mapping[str, Any]) -> Made:
    """Take the rows by their sorted numbers."""
    del attrs
    # Places of the gradient that have no row are numbered -1.
    rows = inputs["Rows"][0]
    return {"Out": [inputs["X"][0][np.sort(rows[rows >= 0])]]}
not_in_onnx("it reads gradients by row", "get_tensor_from_selected_rows")
