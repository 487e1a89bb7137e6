"""Programs and their values as bytes: what is kept without the folders of `save_inference_model`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io import atomic
from pe_cli.io.tensors import read_safetensors, write_safetensors
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import Program, adopt
from pe_cli.paddle.fluid.saved_values import set_values
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.program import ir
from pe_cli.program.prune import prune
from pe_cli.program.serialize import from_dict, to_dict
from pe_cli.program.verify import verify


def _variables(name: str, given: Any) -> list[Any]:
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for v in found:
        if not isinstance(v, ir.Variable):
            raise FluidTypeError(f"{name} takes variables, got {v!r:.60}")
    if not found:
        raise FluidValueError(f"{name}: there is no variable", hint="give at least one")
    return found


def normalize_program(program: Any, feed_vars: Any, fetch_vars: Any) -> Any:
    """Return what of a program computes some variables of others, for evaluation.

    Args:
        program: not changed.
        feed_vars: variable or list of variables that are fed.
        fetch_vars: variable or list of variables to compute.

    Raises:
        FluidTypeError: no program, or no variables; a TypeError.
        FluidValueError: they need a feed that is not among feed_vars; a ValueError.
    """
    if not isinstance(program, ir.Program):
        raise FluidTypeError(f"normalize_program takes a Program, got {type(program).__name__}")
    feeds = [v.name for v in _variables("normalize_program: feed_vars", feed_vars)]
    fetches = [v.name for v in _variables("normalize_program: fetch_vars", fetch_vars)]
    with raised_as(FluidValueError):
        needed = adopt(prune(program.clone(for_test=True), fetches))
    block = needed.global_block()
    missing = [v.name for v in block.vars.values() if v.is_data and v.name not in feeds]
    if missing:
        raise FluidValueError(f"what is fetched needs {', '.join(missing)}", hint="put it among feed_vars")
    for name in feeds:
        if name not in block.vars:
            source = program.global_block().var(name)
            block.create_var(name, source.type, is_data=True, stop_gradient=True)
    return needed


def serialize_program(feed_vars: Any, fetch_vars: Any, program: Any = None) -> bytes:
    """Return what computes variables of others as bytes, without values.

    Args:
        feed_vars: variable or list of variables that are fed.
        fetch_vars: variable or list of variables to compute.
        program: default: that of the variables.
    """
    fetches = _variables("serialize_program: fetch_vars", fetch_vars)
    needed = normalize_program(program or fetches[0].block.program, feed_vars, fetches)
    return json.dumps(to_dict(needed)).encode()


def deserialize_program(data: bytes) -> Program:
    """Return the program that `serialize_program` wrote.

    Raises:
        FluidValueError: the bytes are none; a ValueError.
    """
    try:
        program = adopt(from_dict(json.loads(data)))
        verify(program, read=True)
    except (ValueError, KeyError, TypeError, RecursionError, PeError) as error:
        raise FluidValueError(f"the bytes are no program: {error}") from None
    return program


def serialize_persistables(feed_vars: Any, fetch_vars: Any, executor: Any, program: Any = None) -> bytes:
    """Return the values that a serialized program needs, as the bytes of a safetensors file.

    Args:
        feed_vars: variable or list of variables that are fed.
        fetch_vars: variable or list of variables to compute.
        executor: without effect: values are taken from the global scope.
        program: default: that of the variables.

    Raises:
        FluidValueError: a variable without a value; a ValueError.
    """
    fetches = _variables("serialize_persistables: fetch_vars", fetch_vars)
    needed = normalize_program(program or fetches[0].block.program, feed_vars, fetches)
    scope = global_scope().root()
    arrays = {v.name: scope.read(v.name) for v in needed.list_vars() if v.persistable and not v.is_data}
    with tempfile.TemporaryDirectory() as folder, raised_as(FluidValueError):
        path = Path(folder) / "values"
        write_safetensors(path, arrays)
        return path.read_bytes()


def deserialize_persistables(program: Any, data: bytes, executor: Any) -> None:
    """Write the values that `serialize_persistables` returned into the global scope.

    Args:
        program: says which variables, and their types.
        data: bytes.
        executor: without effect.

    Raises:
        FluidValueError: the bytes are no values, or do not fit the program; a ValueError.
    """
    with tempfile.TemporaryDirectory() as folder, raised_as(FluidValueError):
        path = Path(folder) / "values"
        path.write_bytes(data)
        found: Mapping[str, np.ndarray[Any, Any]] = read_safetensors(path)
    set_values([v for v in program.list_vars() if v.persistable and not v.is_data], found)


def save_to_file(path: str, content: bytes) -> None:
    """Write bytes to a file; its folder is made where it is not there.

    Raises:
        FluidTypeError: no bytes; a TypeError.
    """
    if not isinstance(content, bytes):
        raise FluidTypeError(f"save_to_file takes bytes, got {type(content).__name__}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with raised_as(FluidValueError), atomic.temporary(target) as part:
        part.write_bytes(content)


def load_from_file(path: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        FluidValueError: there is no such file; a ValueError.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FluidValueError(f"{path} cannot be read: {error.strerror}") from None


class InputSpec:
    """Shape, element type and name of what a network is fed.

    Args:
        shape: sizes; None or -1 for one that is not known.
        dtype: element type.
        name: of the feed.
    """

    def __init__(self, shape: Sequence[int | None], dtype: Any = "float32", name: str | None = None) -> None:
        from pe_cli.paddle.fluid.framework import as_dtype, as_sizes

        self.shape, self.dtype, self.name = as_sizes(shape), as_dtype(dtype), name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> InputSpec:
        """Return the description of a variable."""
        return cls(tensor.shape, tensor.dtype, name or tensor.name)

    @classmethod
    def from_numpy(cls, ndarray: np.ndarray[Any, Any], name: str | None = None) -> InputSpec:
        """Return the description of an array."""
        return cls(ndarray.shape, str(ndarray.dtype), name)

    def batch(self, batch_size: int) -> InputSpec:
        """Put a batch axis before the shape, in place, and return the description.

        Raises:
            FluidTypeError: the size is no whole number; a TypeError.
        """
        if not isinstance(batch_size, (int, np.integer)):
            raise FluidTypeError(f"batch_size must be a whole number, got {batch_size!r}")
        self.shape = (int(batch_size), *self.shape)
        return self

    def unbatch(self) -> InputSpec:
        """Take the first axis off, in place, and return the description.

        Raises:
            FluidValueError: there is none; a ValueError.
        """
        if not self.shape:
            raise FluidValueError("unbatch: the shape has no axis")
        self.shape = self.shape[1:]
        return self

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.shape), self.dtype, self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"InputSpec(shape={tuple(self.shape)}, dtype={self.dtype}, name={self.name})"


__all__ = [
    "InputSpec", "deserialize_persistables", "deserialize_program", "load_from_file", "normalize_program", "save_to_file",
    "serialize_persistables", "serialize_program",
]  # fmt: skip
