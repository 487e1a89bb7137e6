"""Checks of arguments that layers of scripts make before they append an op."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import FluidTypeError
from pe_cli.paddle.fluid.framework import Variable, as_dtype
from pe_cli.program import ir


def convert_dtype(dtype: Any) -> str:
    """Return the name of an element type.

    Raises:
        FluidTypeError: there is none; a TypeError.
    """
    name = as_dtype(dtype)
    if name not in ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"):
        raise FluidTypeError(f"{dtype!r:.60} is no element type", hint="float32, float64, int32, int64, bool or uint8, for example")
    return name


def check_type(input: Any, input_name: str, expected_type: Any, op_name: str, extra_message: str = "") -> None:
    """Check that an argument has one of some types.

    Raises:
        FluidTypeError: it has another; a TypeError.
    """
    wanted = expected_type if isinstance(expected_type, tuple) else (expected_type,)
    # Scripts name fluid's class; its base, the core's, passes too.
    known = tuple(ir.Variable if kind is Variable else type(None) if kind is None else kind for kind in wanted)
    if not isinstance(input, known):
        names = " or ".join(kind.__name__ for kind in known)
        raise FluidTypeError(f"{op_name}: '{input_name}' must be a {names}, got {type(input).__name__}. {extra_message}".rstrip(". "))


def check_dtype(input_dtype: Any, input_name: str, expected_dtype: Any, op_name: str, extra_message: str = "") -> None:
    """Check that an element type is one of some.

    Raises:
        FluidTypeError: it is another; a TypeError.
    """
    wanted = expected_dtype if isinstance(expected_dtype, (list, tuple, set)) else [expected_dtype]
    if convert_dtype(input_dtype) not in wanted:
        said = f"{op_name}: the element type of '{input_name}' must be {' or '.join(sorted(wanted))}, got {convert_dtype(input_dtype)}"
        raise FluidTypeError(f"{said}. {extra_message}".rstrip(". "), hint="cast it")


def check_variable_and_dtype(input: Any, input_name: str, expected_dtype: Any, op_name: str, extra_message: str = "") -> None:
    """Check that an argument is a variable of one of some element types.

    Raises:
        FluidTypeError: it is not; a TypeError.
    """
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


__all__ = ["check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]
