"""paddle.save and paddle.load: arrays by name in a file, as safetensors; nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.io import atomic
from pe_cli.io.tensors import read_safetensors, write_safetensors
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.program.ir import Variable


def save(obj: Any, path: str, protocol: int = 2) -> None:
    """Write arrays, tensors and numbers by name.

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
    """Read what `save` wrote: name -> array.

    Raises:
        FluidTypeError: further arguments; a TypeError.
        FluidValueError: there is no such file, or it is no whole safetensors file; a ValueError.
    """
    if configs:
        raise FluidTypeError(f"load takes no {', '.join(configs)}", hint="leave it out: arrays are given")
    with raised_as(FluidValueError):
        return read_safetensors(Path(path))
