"""Which devices a run uses, and where that number comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

from pe_cli.config.sections import MAX_DEVICES, ExecutorSection
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.types import Place
from pe_cli.devices.cuda import cuda_count
from pe_cli.execute.executor import usable_cores


def place_of_devices(executor: ExecutorSection) -> Span | None:
    """Return the place in a config that a missing device is blamed on: the number asked for, else the kind."""
    return executor.at_of("place" if executor.devices == "auto" else "devices")


def resolve_places(
    kind: str,
    devices: int | Literal["auto"],
    at: Span | None = None,
    useful: Callable[[int], int] | None = None,
) -> tuple[tuple[Place, ...], str]:
    """Return the places of a run and a sentence on them.

    Args:
        kind: cpu or cuda.
        devices: a number, or auto: on the CPU `CPU_NUM` where set, else as many of the cores that this process may use as are
            useful; on CUDA all that are visible.
        at: place in the config, for errors.
        useful: of a number of cores, how many are worth using; default: all.

    Raises:
        PeError: CPU_NUM is no positive number (exit code 2), or there are fewer CUDA devices (exit code 5).
    """
    if kind == "cuda":
        there, why_not = cuda_count()
        if there == 0:
            raise PeError(
                f"place: cuda, but {why_not}", at=at, code=ExitCode.DEVICE, hint="use place: cpu, or run where a GPU is"
            )
        wanted = there if devices == "auto" else devices
        if wanted > there:
            raise PeError(f"{wanted} CUDA devices wanted, {there} visible", at=at, code=ExitCode.DEVICE)
        return tuple(Place("cuda", i) for i in range(wanted)), f"{wanted} cuda"
    if devices != "auto":
        return tuple(Place("cpu", i) for i in range(devices)), f"{devices} cpu (executor.devices)"
    text = os.environ.get("CPU_NUM")
    if text is not None:
        if not text.strip().isdigit() or not 1 <= int(text) <= MAX_DEVICES:
            hint = f"a number from 1 to {MAX_DEVICES}, or unset it"
            raise PeError(f"the environment variable CPU_NUM is {text!r}", hint=hint)
        return tuple(Place("cpu", i) for i in range(int(text))), f"{int(text)} cpu (CPU_NUM)"
    cores = usable_cores()
    n = cores if useful is None or cores == 1 else useful(cores)
    why = "cores of this process" if n == cores else f"of {cores} cores: a step is too short for more"
    return tuple(Place("cpu", i) for i in range(n)), f"{n} cpu ({why})"
