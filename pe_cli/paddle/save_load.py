"""paddle.save and paddle.load: arrays by name in a file of the original's form, or as safetensors; nothing in a file is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.io import atomic
from pe_cli.io.fluid import pickled_arrays
from pe_cli.io.tensors import read_safetensors, write_safetensors
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.saved_values import read_values, write_bytes
from pe_cli.program.ir import Variable

#: Endings of the original's files.
_ENDINGS = (".pdparams", ".pdopt")


def save(obj: Any, path: str, protocol: int = 2) -> None:
    """Write arrays, tensors and numbers by name.

    Arrays alone are written as the original's files where the ending is `.pdparams` or `.pdopt`, and all else as safetensors.

    Args:
        obj: name -> array, LoDTensor or number; a mapping inside it has its names behind the outer one's and a dot.
        path: of the file, whose folder is made.
        protocol: without effect: nothing is pickled.

    Raises:
        FluidTypeError: obj is no mapping, or holds something else, such as a variable of a program; a TypeError.
        FluidValueError: two things have one name; a ValueError.
    """
    del protocol
    if not isinstance(obj, Mapping):
        raise FluidTypeError(f"save takes names and arrays, not {type(obj).__name__}", hint="static.save writes programs")
    arrays = _flat(obj, "")
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # The original's files have no numbers and no arrays without axes.
    if file.suffix in _ENDINGS and arrays.keys() == obj.keys() and all(np.ndim(value) for value in arrays.values()):
        write_bytes(file, pickled_arrays.write(arrays))
        return
    with raised_as(FluidValueError), atomic.temporary(file) as part:
        write_safetensors(part, arrays)


def _flat(obj: Mapping[Any, Any], before: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in obj.items():
        inner = _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": _array(f"{before}{name}", value)}
        if not found.keys().isdisjoint(inner):
            raise FluidValueError(f"save: two things are called '{next(iter(found.keys() & inner))}'", hint="rename one of them")
        found |= inner
    return found


def _array(name: str, value: Any) -> Any:
    array = None if isinstance(value, Variable) else np.asarray(value)
    if array is None or array.dtype.kind not in "fiub":
        hint = "fetch it, or take it from the scope" if array is None else "arrays and numbers"
        raise FluidTypeError(f"save: '{name}' is {type(value).__name__}, which is no array", hint=hint)
    return array


def load(path: str, **configs: Any) -> dict[str, Any]:
    """Read what `save` or the original wrote: name -> array.

    Raises:
        FluidTypeError: further arguments; a TypeError.
        FluidValueError: there is no such file, or it is not whole; a ValueError.
    """
    if configs:
        raise FluidTypeError(f"load takes no {', '.join(configs)}", hint="leave it out: arrays are given")
    file = Path(path)
    with raised_as(FluidValueError):
        if file.suffix in _ENDINGS and not _is_safetensors(file):
            return dict(read_values(file))
        return read_safetensors(file)


def _is_safetensors(file: Path) -> bool:
    """Whether a file begins with the length of a header, and with a header that is JSON."""
    if not file.is_file():
        return True  # whose reader says that there is none
    with file.open("rb") as opened:
        return opened.read(9)[8:] == b"{"
