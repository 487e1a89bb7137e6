"""Flags and versions that scripts ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidTypeError, FluidValueError

#: The version of the original whose behaviour this follows.
VERSION = "1.8.5"
#: Milliseconds that a trainer or parameter server may be silent.
DEADLINE = "FLAGS_rpc_deadline"
_FLAGS: dict[str, Any] = {
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_check_nan_inf": False,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_cudnn_deterministic": True,
    "FLAGS_cpu_deterministic": True,
    "FLAGS_benchmark": False,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_use_mkldnn": False,
    DEADLINE: 180000,
}


def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """Return the values of flags.

    Raises:
        FluidValueError: there is no such flag; a ValueError.
    """
    return {name: _FLAGS[_known(name)] for name in ([flags] if isinstance(flags, str) else flags)}


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags.

    Raises:
        FluidTypeError: no dict; a TypeError.
        FluidValueError: there is no such flag; a ValueError.
    """
    if not isinstance(flags, Mapping):
        raise FluidTypeError(f"set_flags takes a dict, got {type(flags).__name__}")
    for name, value in flags.items():
        _FLAGS[_known(name)] = value
        # Processes that this one starts read their flags from the environment.
        os.environ[name] = str(value)


def deadline() -> float:
    """Return for how many seconds a trainer or parameter server may be silent: FLAGS_rpc_deadline, of the environment too, in milliseconds.

    Raises:
        FluidValueError: it is no positive number; a ValueError.
    """
    given = os.environ.get(DEADLINE, _FLAGS[DEADLINE])
    try:
        found = float(given) / 1000
    except (TypeError, ValueError):
        found = 0.0
    if not 0 < found < 1e6:
        raise FluidValueError(f"FLAGS_rpc_deadline must be a positive number of milliseconds, got {given!r}")
    return found


def _known(name: str) -> str:
    if name not in _FLAGS:
        raise FluidValueError(f"there is no flag '{name}'", hint=did_you_mean(name, _FLAGS))
    return name


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Check that the original's version that this follows is in a range.

    Raises:
        FluidTypeError: no text; a TypeError.
        FluidValueError: not three or four numbers, or out of the range; a ValueError.
    """
    low, here = _numbers(min_version), _numbers(VERSION)
    high = _numbers(max_version) if max_version is not None else None
    if here < low or (high is not None and here > high):
        wanted = f"{min_version} or newer" if max_version is None else f"{min_version} to {max_version}"
        raise FluidValueError(f"PaddlePaddle {wanted} is required, this follows {VERSION}")


def _numbers(text: str) -> tuple[int, ...]:
    if not isinstance(text, str):
        raise FluidTypeError(f"a version is a text, got {text!r}")
    parts = text.split(".")
    if not 1 <= len(parts) <= 4 or not all(p.isdigit() for p in parts):
        raise FluidValueError(f"'{text}' is no version", hint="1.8.5")
    return (*map(int, parts), *([0] * (4 - len(parts))))
