"""Functions of 2.1 to 2.6 about element types, modes and random states, and the names of what works in place."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.dynamic_mode import ENABLED, no_grad
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype, default_main_program

#: What `x.dtype` is here: its name.
dtype = str


@dataclass(frozen=True)
class finfo:
    """What a type of floats can hold.

    Args:
        dtype: float16, float32 or float64.

    Raises:
        FluidTypeError: another type; a TypeError.
    """

    dtype: Any

    def __post_init__(self) -> None:
        kind = as_dtype(self.dtype)
        if kind not in ("float16", "float32", "float64"):
            raise FluidTypeError(f"finfo: {kind} has no floats", hint="iinfo")
        found = np.finfo(kind)
        names = ("bits", "min", "max", "eps", "resolution", "smallest_normal", "tiny")
        # Past the guard of a frozen class.
        self.__dict__.update({name: int(found.bits) if name == "bits" else float(getattr(found, name)) for name in names}, dtype=kind)


@dataclass(frozen=True)
class iinfo:
    """What a type of whole numbers can hold.

    Args:
        dtype: uint8, int8, int16, int32 or int64.

    Raises:
        FluidTypeError: another type; a TypeError.
    """

    dtype: Any

    def __post_init__(self) -> None:
        kind = as_dtype(self.dtype)
        if np.dtype(kind).kind not in "iu":
            raise FluidTypeError(f"iinfo: {kind} has no whole numbers", hint="finfo")
        found = np.iinfo(kind)
        self.__dict__.update(bits=int(found.bits), min=int(found.min), max=int(found.max), dtype=kind)


def is_floating_point(x: Any) -> bool:
    """Tell whether a tensor has floats."""
    return x.dtype in ("float16", "float32", "float64")


def is_integer(x: Any) -> bool:
    """Tell whether a tensor has whole numbers."""
    return x.dtype in ("uint8", "int8", "int16", "int32", "int64")


def is_complex(x: Any) -> bool:
    """No: no element type is complex."""
    return False


# --- modes -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def enable_grad() -> Iterator[None]:
    """Let gradients flow through what is computed inside, also within `no_grad`; also a decorator, `@enable_grad()`."""
    block = default_main_program().global_block()
    before = set(block.vars)
    yield
    ENABLED.update(name for name in block.vars if name not in before)


def set_grad_enabled(mode: bool) -> Any:
    """Return `enable_grad()`, or `no_grad()`, for a `with` statement."""
    return enable_grad() if mode else no_grad()


def is_grad_enabled() -> bool:
    """No, as in the static mode of the original: what has gradients is known when they are asked for."""
    return False


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sci_mode: bool | None = None,
    linewidth: int | None = None,
) -> None:
    """Do nothing but look at types: a run returns arrays, which NumPy prints, here and in the static mode of the original.

    Raises:
        FluidTypeError: something is no number, or no truth value; a TypeError.
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    wrong = [name for name, value in given.items() if value is not None and not isinstance(value, int)]
    if wrong or (sci_mode is not None and not isinstance(sci_mode, bool)):
        raise FluidTypeError(f"set_printoptions: {', '.join(wrong or ['sci_mode'])}", hint="whole numbers, and a truth value for sci_mode")


def disable_signal_handler() -> None:
    """Do nothing: there is no handler of signals."""


def get_rng_state(device: Any = None) -> list[Any]:
    """Return the states of random generators: none, as random numbers depend on the seed and the step alone."""
    return []


def set_rng_state(state_list: Sequence[Any], device: Any = None) -> None:
    """Set the states of random generators, of which there are none.

    Raises:
        FluidValueError: there are states; a ValueError.
    """
    if len(state_list):
        raise FluidValueError(f"set_rng_state: {len(state_list)} states for 0 generators", hint="call paddle.seed")


# --- in place ----------------------------------------------------------------------------------------------------------

#: Functions of which 2.6 has another one with `_` behind its name; in static mode that returns a new tensor, too.
IN_PLACE = (
    "abs acos addmm atan bitwise_and bitwise_not bitwise_or bitwise_xor cast cos cumprod cumsum digamma divide equal erf expm1 "
    "floor_divide floor_mod frac gcd greater_equal greater_than hypot i0 index_add index_fill index_put lcm ldexp less_equal less_than "
    "lgamma log log10 log2 logical_and logical_not logical_or logit masked_fill mod multigammaln multiply nan_to_num neg polygamma pow "
    "remainder renorm sin sinh square t tan transpose tril triu trunc where"
)

def in_place(there: Mapping[str, Any], names: str = IN_PLACE) -> dict[str, Callable[..., Any]]:
    """Return the functions with `_` behind their names.

    Args:
        there: functions by name.
        names: of which.
    """
    return {f"{name}_": _returning(name, there[name]) for name in names.split()}


def _returning(name: str, function: Any) -> Callable[..., Any]:
    def made(*args: Any, **given: Any) -> Any:
        return function(*args, **given)

    made.__name__ = made.__qualname__ = f"{name}_"
    made.__doc__ = f"Return `{name}`: in a program a tensor is not changed in place."
    # Looked at where somebody asks for the arguments.
    made.__wrapped__ = function  # type: ignore[attr-defined]
    return made


def normal_(x: Any, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> Any:
    """Draw normal numbers at every step, in the shape and element type of x."""
    return layers.scale(_drawn(x, "gaussian_random", mean=0.0, std=1.0), float(std), float(mean))


def cauchy_(x: Any, loc: float = 0, scale: float = 1, name: str | None = None) -> Any:
    """Draw numbers of Cauchy's distribution at every step, in the shape and element type of x."""
    turned = layers.scale(_drawn(x, "uniform_random", min=0.0, max=1.0), math.pi, -math.pi / 2)
    return layers.scale(layers.tan(turned), float(scale), float(loc))


def geometric_(x: Any, probs: float, name: str | None = None) -> Any:
    """Draw ln u / ln(1 - probs) at every step, of numbers u from 0 to 1, in the shape and element type of x.

    Raises:
        FluidValueError: probs is not between 0 and 1; a ValueError.
    """
    if not 0 < probs < 1:
        raise FluidValueError(f"geometric_: probs is {probs}", hint="a number between 0 and 1")
    above = layers.scale(_drawn(x, "uniform_random", min=0.0, max=1.0), -1.0, 1.0)
    return layers.scale(layers.log(above), 1.0 / math.log1p(-probs))


def _drawn(x: Any, kind: str, **given: float) -> Any:
    from pe_cli.paddle.v2_composed_functions import _like

    return _like(x, kind, **given)


def functions() -> dict[str, Any]:
    """Return every name of this module that 2.x has at its top level."""
    own = (
        cauchy_, disable_signal_handler, enable_grad, finfo, geometric_, get_rng_state, iinfo, is_complex, is_floating_point,
        is_grad_enabled, is_integer, normal_, set_grad_enabled, set_printoptions, set_rng_state,
    )  # fmt: skip
    return {"dtype": dtype, **{f.__name__: f for f in own}}
