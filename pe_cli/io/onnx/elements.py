"""Element types in ONNX's files."""

from __future__ import annotations

#: Numbers of element types in ONNX's files.
ELEMENTS = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float64": 11}


def element_type(dtype: str) -> int:
    """Return ONNX's number of an element type."""
    return ELEMENTS[dtype]
