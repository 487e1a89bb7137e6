"""load: the value of a variable that a step reads from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers.py_func import py_func
from pe_cli.paddle.fluid.saved_values import read_values
from pe_cli.program.ir import Variable


def load(out: Variable, file_path: Any, load_as_fp16: bool | None = None) -> None:
    """Read a variable's value from a file in every step.

    Args:
        out: gets the value; one without a shape takes that of the file, and [1] where there is no such file yet.
        file_path: a file with one tensor, as `fluid.io.save_vars` writes it without a filename, or of safetensors.
        load_as_fp16: not there: kernels compute in float32 and float64 only.

    Raises:
        FluidTypeError: out is no variable; a TypeError.
        NotThereYet: load_as_fp16.
        EnforceNotMet: in a step: the file cannot be read, or its tensor is of another type than out.
    """
    if not isinstance(out, Variable):
        raise FluidTypeError(f"load: out is a variable, got {out!r:.60}")
    if load_as_fp16:
        raise NotThereYet("load: load_as_fp16 is not there yet", hint="leave it out, and cast what is loaded")
    path = Path(file_path)
    if getattr(out, "undefined", False):
        out.type = TensorType(_one(path).shape if path.is_file() else (1,), out.dtype)
        out.undefined = False  # type: ignore[attr-defined]

    def read() -> Any:
        return _one(path)

    # py_func names the function in its messages.
    read.__name__ = f"reading {path}"
    py_func(read, None, out)


def _one(path: Path) -> np.ndarray[Any, Any]:
    """Return the only tensor of a file.

    Raises:
        FluidValueError: it holds another number of tensors.
    """
    found = read_values(path, [path.name])
    if len(found) != 1:
        raise FluidValueError(f"{path} holds {len(found)} tensors", hint="fluid.io.load_vars reads several")
    return next(iter(found.values()))


__all__ = ["load"]
