"""A content hash of a kernel: of its code, and of all code and constants that it reaches."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import sys
import types
from typing import Any

from pe_cli.core.lazy_dataclass import OF_FIELDS
from pe_cli.core.types import FLOATS
from pe_cli.kernels.language import Helper, Intrinsic, Kernel, PerType, Routine, Shared

#: Begins what stands for a routine or shared kernel in the texts that are hashed.
ROUTINE = "routine "


@functools.cache
def _code(code: types.CodeType) -> tuple[str, ...]:
    """Return what a function's code says; many kernels reach the same helpers."""
    out = [code.co_code.hex(), repr(code.co_names) + repr(code.co_varnames) + repr(code.co_freevars)]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            out += _code(const)
        elif isinstance(const, frozenset):
            # The order of a set of strings changes with the hash seed of the process.
            out.append(repr(sorted(map(repr, const))))
        else:
            out.append(repr(const))
    return tuple(out)


@functools.cache
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code has, in order."""
    inner = (_names(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(sorted({*code.co_names, *itertools.chain.from_iterable(inner)}))


def _function(fn: types.FunctionType, dtype: str, out: list[str], seen: set[int]) -> None:
    if id(fn) in seen:
        return
    # Functions may reach each other in a circle.
    seen.add(id(fn))
    out += _code(fn.__code__)
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    reached = [(name, fn.__globals__[name]) for name in _names(fn.__code__) if name in fn.__globals__]
    for name, value in [*zip(fn.__code__.co_freevars, cells, strict=True), *reached]:
        out.append(name)
        _value(value, dtype, out, seen)


def _value(value: Any, dtype: str, out: list[str], seen: set[int]) -> None:  # noqa: C901, PLR0912 - one case per kind of global
    if isinstance(value, Helper):
        chosen = value.of(dtype)
        out += [name for name in ("inline", "apart", "exact") if getattr(chosen, name)]
        if chosen.fn is not None:
            _function(chosen.fn, dtype, out, seen)
    elif isinstance(value, Intrinsic):
        out.append(repr((value.name, value.returns, value.args)))
        if isinstance(value.emit, types.FunctionType):
            _function(value.emit, dtype, out, seen)
    elif isinstance(value, (Routine, Shared)):
        called: Kernel = value
        out.append(ROUTINE + called.name)
        _function(called.fn, dtype, out, seen)
    elif isinstance(value, PerType):
        out.append(f"{value.name}={value.value(dtype)!r}")
    elif isinstance(value, types.FunctionType):
        _function(value, dtype, out, seen)
    elif isinstance(value, type) and value.__module__.startswith("pe_cli."):
        for base in value.__bases__:
            _value(base, dtype, out, seen)
        for name, member in sorted(vars(value).items()):
            out.append(name)
            # A constructor that is compiled when it is first called says what the fields say, which are there before.
            if isinstance(member, types.FunctionType) and not getattr(member, OF_FIELDS, False):
                _function(member, dtype, out, seen)
        if dataclasses.is_dataclass(value):
            out += [field.name for field in dataclasses.fields(value)]
    # The name is enough: the translator decides what functions of Python's and of modules mean, and `environment` covers its text.
    elif isinstance(value, (types.ModuleType, type)) or callable(value):
        out.append(getattr(value, "__name__", ""))
    elif isinstance(value, (int, float, str, bool, bytes, tuple, list, dict, type(None))):
        out.append(repr(value))


def digest(kernel: Kernel, dtype: str, second: str, environment: str) -> str:
    """Return 32 hexadecimal digits that change when the kernel's machine code might.

    Args:
        kernel: whose function, helpers, intrinsics and constants count.
        dtype: element type T.
        second: element type U.
        environment: versions and processor, from the compiler.
    """
    out = [
        environment,
        sys.version,
        kernel.name,
        repr(kernel.params),
        dtype,
        second,
        str(kernel.exact),
        str(kernel.apart),
    ]
    return hashlib.sha256("\0".join([*out, *_reached(kernel, dtype)]).encode()).hexdigest()[:32]


def reached(fn: types.FunctionType, dtype: str) -> list[str]:
    """Return what the code of a function says, and that of all that it reaches."""
    out: list[str] = []
    _function(fn, dtype, out, set())
    return out


@functools.cache
def routines(kernel: Kernel, dtype: str) -> tuple[str, ...]:
    """Return the names of the routines and shared kernels that a kernel calls, or that these call."""
    if dtype not in FLOATS:
        return ()
    return tuple(text.removeprefix(ROUTINE) for text in dict.fromkeys(_reached(kernel, dtype)) if text.startswith(ROUTINE))


def extent(kernel: Kernel, dtype: str) -> int:
    """Return how much code a kernel reaches, which tells roughly how long it takes to compile; no unit."""
    return sum(map(len, _reached(kernel, dtype)))


@functools.cache
def _reached(kernel: Kernel, dtype: str) -> tuple[str, ...]:
    return tuple(reached(kernel.fn, dtype))
