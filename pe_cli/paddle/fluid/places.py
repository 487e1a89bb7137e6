"""Places by their original names, and which of them there are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.core.errors import ExitCode
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import Place
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError


@dataclass(frozen=True)
class CPUPlace:
    """The CPU."""


@dataclass(frozen=True)
class CUDAPinnedPlace:
    """The CPU, with memory that a GPU can reach: feeds may be said to lie there."""


@dataclass(frozen=True)
class CUDAPlace:
    """A GPU.

    Args:
        device_id: from 0.
    """

    device_id: int = 0

    def get_device_id(self) -> int:
        """Return the index."""
        return self.device_id


#: What `set_device` chose; without it executors take a GPU where there is one.
_CHOSEN: list[CPUPlace | CUDAPlace] = []


def default_place() -> CPUPlace | CUDAPlace:
    """Return where an executor runs that is given no place: what `set_device` chose, else a GPU where there is one, else the CPU."""
    if _CHOSEN:
        return _CHOSEN[0]
    return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()


def set_device(device: str) -> CPUPlace | CUDAPlace:
    """Choose where executors run that are given no place.

    Args:
        device: cpu, gpu, or gpu:N with N from 0.

    Returns:
        Its place.

    Raises:
        FluidValueError: another text; a ValueError.
        EnforceNotMet: a GPU that is not there; a RuntimeError.
    """
    kind, _, index = str(device).lower().partition(":")
    if kind == "cpu" and not index:
        place: CPUPlace | CUDAPlace = CPUPlace()
    elif kind == "gpu" and (not index or index.isdigit()):
        place = CUDAPlace(int(index or 0))
        core_places([place])
    else:
        raise FluidValueError(f"set_device: device is {device!r}", hint="cpu, gpu or gpu:0; there are no other devices")
    _CHOSEN[:] = [place]
    return place


def get_device() -> str:
    """Return where executors run that are given no place: cpu, or gpu:N."""
    place = default_place()
    return f"gpu:{place.device_id}" if isinstance(place, CUDAPlace) else "cpu"


def is_compiled_with_xpu() -> bool:
    """No: there are no devices of this kind."""
    return False


def get_cudnn_version() -> None:
    """Return None: kernels for GPUs are made here, cuDNN is not used."""


def is_compiled_with_cuda() -> bool:
    """Return whether a CUDA device can be used."""
    from pe_cli.devices.cuda import cuda_count

    return cuda_count()[0] > 0


def cuda_device_count() -> int:
    """Return the number of CUDA devices."""
    from pe_cli.devices.cuda import cuda_count

    return cuda_count()[0]


def cpu_num() -> int:
    """Return the number of CPU devices: `CPU_NUM`, or 1 where it is not set, as the later documents say.

    Raises:
        FluidValueError: CPU_NUM is no number of at least 1; a ValueError.
    """
    text = os.environ.get("CPU_NUM")
    if text is None:
        # Written down, so that programs which this one starts use as many devices.
        os.environ["CPU_NUM"] = "1"
        return 1
    if not text.strip().isdigit() or int(text) < 1:
        raise FluidValueError(f"CPU_NUM is {text!r}", hint="set it to a number of at least 1, or unset it")
    return int(text)


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return as many CPU devices as asked for, or as `CPU_NUM` says."""
    return [CPUPlace()] * (cpu_num() if device_count is None else device_count)


def cuda_places(device_ids: Sequence[int] | int | None = None) -> list[CUDAPlace]:
    """Return CUDA devices: the given ones, those of FLAGS_selected_gpus, or all.

    Raises:
        EnforceNotMet: there is none; a RuntimeError.
        FluidValueError: FLAGS_selected_gpus has no numbers; a ValueError.
    """
    there = cuda_device_count()
    if not there:
        raise EnforceNotMet("there is no CUDA device", hint="use cpu_places()", code=ExitCode.DEVICE)
    if device_ids is None:
        chosen = os.environ.get("FLAGS_selected_gpus")  # noqa: SIM112 (its name)
        if chosen and not all(i.strip().isdigit() for i in chosen.split(",")):
            raise FluidValueError(f"FLAGS_selected_gpus is {chosen!r}", hint="numbers of GPUs with commas between them, 0,1 for example")
        device_ids = [int(i) for i in chosen.split(",")] if chosen else range(there)
    elif isinstance(device_ids, int):
        device_ids = [device_ids]
    return [CUDAPlace(i) for i in device_ids]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """Return pinned places, as many as CPU devices."""
    return [CUDAPinnedPlace()] * (cpu_num() if device_count is None else device_count)


def core_places(places: Sequence[Any]) -> tuple[Place, ...]:
    """Return the core's places; the CPU's are numbered.

    Raises:
        FluidTypeError: something that is no place; a TypeError.
        EnforceNotMet: a CUDA device that is not there; a RuntimeError.
    """
    out = []
    for i, place in enumerate(places):
        if isinstance(place, CUDAPlace):
            there = cuda_device_count()
            if place.device_id >= there:
                hint = "use CPUPlace(), or run where a GPU is"
                text = f"CUDAPlace({place.device_id}): there are {there} CUDA devices"
                raise EnforceNotMet(text, hint=hint, code=ExitCode.DEVICE)
            out.append(Place("cuda", place.device_id))
        elif isinstance(place, (CPUPlace, CUDAPinnedPlace)):
            # The CPU's devices are threads of one machine: the number tells them apart.
            out.append(Place("cpu", i))
        else:
            raise FluidTypeError(f"{place!r} is no place", hint="CPUPlace() or CUDAPlace(0)")
    return tuple(out)


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Accept the wish to place ops: on one kind of device all ops run where the executor runs.

    Raises:
        FluidValueError: another name than cpu, gpu or None; a ValueError.
    """
    if device is not None and device.split(":")[0] not in ("cpu", "gpu"):
        raise FluidValueError(f"device_guard: device is {device!r}", hint="cpu, gpu or None")
    yield
