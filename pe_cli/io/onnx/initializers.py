"""The weights that an ONNX file holds: its initializers by name, and how the nodes that take them read their axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io.regular_files import read_regular
from pe_cli.io.tensors import data_error

#: Bytes of a file; protobuf itself reads no more than 2 GiB.
MOST_BYTES = 2**31 - 1


#: Operator and input -> kind of the weight that it takes, and its axes; see `pe_cli.io.weight_layouts`.
_WEIGHTS = {
    ("MatMul", 0): ("matrix", "oi"),
    ("MatMul", 1): ("matrix", "io"),
    ("Gemm", 0): ("matrix", "oi"),
    ("Gemm", 1): ("matrix", "io"),
    ("Conv", 1): ("filters", "oihw"),
    ("ConvTranspose", 1): ("transposed filters", "iohw"),
    ("Gather", 0): ("table", "vd"),
}
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu", "Where"})
#: Operators whose output has the axes of their first input.
_SAME_AXES = frozenset({"Identity", "Cast", "DequantizeLinear", "QuantizeLinear", "Neg", "Abs", "Sqrt", "Exp"})
#: Nodes that stand one behind the other between an initializer and what takes it, at most.
_STEPS = 16


def read_graph(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, dict[str, str]], bool]:
    """Read the initializers of an ONNX file; what lies in files beside it is refused.

    Returns:
        name -> array, floats of less than 32 bits and whole numbers with scales as float32; name -> kind of weight -> axes, nothing for
        one that no known node takes, and an empty kind for one that `pe export` has kept as it is; whether that has written the file.

    Raises:
        PeError: DATA; the file is missing, too large or damaged, or names other files. USAGE; the package onnx is not installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        raise PeError("ONNX files need the package onnx", hint="pip install 'pe-cli[onnx]'") from None
    try:
        if path.stat().st_size > MOST_BYTES:
            raise data_error(f"{path}: more than {MOST_BYTES} bytes")
        model = onnx.ModelProto.FromString(read_regular(path))
        graph, own = model.graph, {"": ""} if model.producer_name == "pe" else {}
        arrays = {tensor.name: _array(path, tensor) for tensor in graph.initializer}
        taken = _takers(graph.node)
        found = {name: {kind: axes for kind, axes in _readings(name, taken, _STEPS) if kind} or own for name in arrays}
        return _with_scales(graph.node, arrays), found, bool(own)
    except FileNotFoundError:
        raise data_error(f"{path}: no such file") from None
    except (OSError, DecodeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise data_error(f"{path}: not a whole ONNX file: {error}") from None


def read_values(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first of what `read_graph` does.

    Raises:
        PeError: see `read_graph`.
    """
    return read_graph(path)[0]


def _array(path: Path, tensor: Any) -> np.ndarray[Any, Any]:
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise data_error(f"{path}: '{tensor.name}' lies in another file", "save the model in one file")
    found = np.array(numpy_helper.to_array(tensor))
    narrow = tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
    return found.astype(np.float32) if narrow else found


def _takers(nodes: Iterable[Any]) -> dict[str, list[tuple[Any, int]]]:
    """Return the nodes that take a value, and as which input."""
    found: dict[str, list[tuple[Any, int]]] = {}
    for node in nodes:
        for index, name in enumerate(node.input):
            found.setdefault(name, []).append((node, index))
    return found


def _readings(name: str, taken: Mapping[str, Sequence[tuple[Any, int]]], steps: int) -> Iterator[tuple[str, str]]:
    """Yield kind and axes of a value for each node that takes it; an empty kind for one that is not known."""
    for node, index in taken.get(name, ()) if steps else ():
        facts = {a.name: a for a in node.attribute}
        if node.op_type in _SAME_AXES and index == 0:
            yield from _readings(node.output[0], taken, steps - 1)
        elif node.op_type == "Transpose":
            order = list(facts["perm"].ints) if "perm" in facts else None
            for kind, axes in _readings(node.output[0], taken, steps - 1):
                places = order if order is not None else list(range(len(axes)))[::-1]
                if axes and sorted(places) == list(range(len(axes))):
                    yield kind, "".join(axes[places.index(i)] for i in range(len(axes)))
                else:
                    yield "", ""
        elif node.op_type in _ELEMENTWISE:
            yield "elementwise", ""
        else:
            kind, axes = _WEIGHTS.get((node.op_type, index), ("", ""))
            flip = facts.get("transB" if index else "transA") if node.op_type == "Gemm" else None
            yield kind, axes[::-1] if flip is not None and flip.i else axes


def _with_scales(nodes: Iterable[Any], arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return whole numbers that a node multiplies with scales as the floats that they stand for."""
    for node in nodes:
        known = [arrays.get(name) for name in node.input]
        if node.op_type != "DequantizeLinear" or len(known) < 2 or known[0] is None or known[1] is None or known[0].dtype.kind not in "iu":
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        scale, zero = known[1], known[2] if len(known) > 2 and known[2] is not None else np.zeros(1, known[0].dtype)
        if scale.ndim > 1 or zero.ndim > 1 or not -known[0].ndim <= axis < max(1, known[0].ndim):
            continue  # scales of blocks
        shape = [-1 if i == axis % max(1, known[0].ndim) else 1 for i in range(known[0].ndim)] if scale.size > 1 else []
        whole = known[0].astype(np.float32) - (zero.astype(np.float32).reshape(shape) if zero.size > 1 else float(zero.reshape(-1)[0]))
        arrays[node.input[0]] = whole * (scale.astype(np.float32).reshape(shape) if shape else np.float32(scale.reshape(-1)[0]))
    return arrays
