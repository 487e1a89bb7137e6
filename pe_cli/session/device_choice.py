"""Chooses the devices and threads of a run, and says why."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pe_cli.config.sections.executor import MAX_DEVICES, ExecutorSection
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import memory, usable_cores
from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.protocol import device
from pe_cli.execute.plan.thread_layout import Layout


@dataclass(frozen=True)
class Resources:
    """What a run uses.

    Args:
        places: devices.
        threads: of all devices; 0 where the strategy says, or one per device.
        text: a sentence on them.
    """

    places: tuple[Place, ...]
    threads: int
    text: str

    def execution(self, strategy: ExecutionStrategy) -> ExecutionStrategy:
        """Return a strategy with these threads, where it names none itself."""
        return strategy if strategy.num_threads or not self.threads else replace(strategy, num_threads=self.threads)


def place_of_devices(executor: ExecutorSection) -> Span | None:
    """Return the place in a config that a missing device is blamed on: the number asked for, else the kind."""
    return executor.at_of("place" if executor.devices == "auto" else "devices")


def libraries_of(kind: str, wanted: str) -> frozenset[str]:
    """Return the libraries that may take the place of our kernels on a kind of device: NVIDIA's, and none on the host.

    Args:
        kind: of the device.
        wanted: `executor.libraries`.
    """
    if device(kind).is_host:
        return frozenset()
    from pe_cli.devices.cuda_libraries.loaded_libraries import names

    return names(wanted)


def resolve_places(
    kind: str,
    devices: int | Literal["auto"],
    at: Span | None = None,
    best: Callable[[int], Layout] | None = None,
) -> Resources:
    """Return the devices and threads of a run.

    Args:
        kind: cpu or cuda.
        devices: a number, or auto: on the CPU `CPU_NUM` where set, else what is best for the cores that this process may use; on CUDA
            all that can be used together, see `cuda_device_group.together`.
        at: place in the config, for errors.
        best: of a number of cores, how a step shares them; default: a device each.

    Raises:
        PeError: CPU_NUM is no positive number (exit code 2), there are fewer CUDA devices, or they cannot be used together (exit code 5).
    """
    if kind == "cuda":
        return _cuda(devices, at)
    if devices != "auto":
        return Resources(_cpus(devices), 0, f"{devices} cpu (executor.devices)")
    # What fluid's scripts set counts before our own guess.
    text = os.environ.get("CPU_NUM")
    if text is not None:
        if not text.strip().isdigit() or not 1 <= int(text) <= MAX_DEVICES:
            hint = f"a number from 1 to {MAX_DEVICES}, or unset it"
            raise PeError(f"the environment variable CPU_NUM is {text!r}", hint=hint)
        return Resources(_cpus(int(text)), 0, f"{int(text)} cpu (CPU_NUM)")
    cores = usable_cores()
    # On one core there is nothing to choose.
    layout = Layout(cores, cores) if best is None or cores == 1 else best(cores)
    if layout.threads > layout.devices:
        return Resources(_cpus(1), layout.threads, f"1 cpu (its ops are shared by {layout.threads} of {cores} cores)")
    n = layout.devices
    why = "cores of this process" if n == cores else f"of {cores} cores: a step is too short for more"
    return Resources(_cpus(n), 0, f"{n} cpu ({why})")


def _cuda(devices: int | Literal["auto"], at: Span | None) -> Resources:
    from pe_cli.devices.cuda import cuda_count
    from pe_cli.devices.cuda_device_group import together

    there, why_not = cuda_count()
    if there == 0:
        raise PeError(f"place: cuda, but {why_not}", at=at, code=ExitCode.DEVICE, hint="use place: cpu, or run where a GPU is")
    wanted = there if devices == "auto" else devices
    if wanted > there:
        hint = f"set executor.devices: {there}"
        raise PeError(f"{wanted} CUDA devices wanted, {there} visible", at=at, hint=hint, code=ExitCode.DEVICE)
    # Devices of one run are used together: cards that cannot reach each other's memory are found out now.
    count, why_not = together(wanted)
    if count < wanted and devices != "auto":
        said = f"{wanted} CUDA devices wanted, but {why_not}"
        raise PeError(said, at=at, hint=f"set executor.devices: {count}", code=ExitCode.DEVICE)
    return Resources(tuple(Place("cuda", i) for i in range(count)), 0, f"{count} cuda{f' ({why_not})' if count < wanted else ''}")


def check_room(nbytes: int) -> None:
    """Refuse what is larger than the memory of this machine: the system would end the process, or another one, in the middle of it.

    Args:
        nbytes: that CPU devices will need, and what other devices copy from and to.

    Raises:
        PeError: DEVICE; it is more than there is.
    """
    there = memory()
    if nbytes > there:
        raise PeError(
            f"the training needs {nbytes / 2**30:,.1f} GiB of memory, and there are {there / 2**30:,.1f} GiB",
            hint="make the model or batch_size smaller; train.recompute keeps less of a step, an optimizer without moments less beside it",
            code=ExitCode.DEVICE,
        )


def _cpus(count: int) -> tuple[Place, ...]:
    return tuple(Place("cpu", i) for i in range(count))
