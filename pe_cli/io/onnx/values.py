"""The arrays that an ONNX file holds: its initializers by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io.regular import read_regular
from pe_cli.io.tensors import data_error

#: Bytes of a file; protobuf itself reads no more than 2 GiB.
MOST_BYTES = 2**31 - 1


def read_values(path: Path) -> dict[str, np.ndarray]:
    """Read the initializers of an ONNX file; what lies in files beside it is refused.

    Returns:
        name -> array.

    Raises:
        PeError: DATA; the file is missing, too large or damaged, or names other files. USAGE; the package onnx is not installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from onnx import numpy_helper
    except ImportError:
        raise PeError("ONNX files need the package onnx", hint="pip install 'pe-cli[onnx]'") from None
    try:
        if path.stat().st_size > MOST_BYTES:
            raise data_error(f"{path}: more than {MOST_BYTES} bytes")
        graph = onnx.ModelProto.FromString(read_regular(path)).graph
        found = {}
        for tensor in graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise data_error(f"{path}: '{tensor.name}' lies in another file", "save the model in one file")
            found[tensor.name] = np.array(numpy_helper.to_array(tensor))
    except FileNotFoundError:
        raise data_error(f"{path}: no such file") from None
    except (OSError, DecodeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise data_error(f"{path}: not a whole ONNX file: {error}") from None
    return found
