"""Loads the NVIDIA libraries that are installed, and creates a device's handles and timers."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.cuda_driver_protocol import Driver, Handles
from pe_cli.devices.cuda_libraries.protocol import Libraries, Library, NotTaken
from pe_cli.kernels.cuda.library_calls import CUBLAS, CUDNN, NCCL

#: Oldest version of each, as its function counts them; its module here, and how the version is taken apart.
KNOWN = {CUBLAS: (130000, "cublaslt"), CUDNN: (90800, "cudnn"), NCCL: (22000, "nccl")}
HINT = "pip install 'pe-cli[cuda-libraries]'"
_POINTER = ctypes.c_void_p


@dataclass(frozen=True)
class Installed:
    """A library that is installed.

    Args:
        version: as it is written.
        library: its functions.
    """

    version: str
    library: Any


@functools.cache
def installed() -> dict[str, Installed]:
    """Return the libraries that are installed here, by name; no device is needed."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return {}
    found = {}
    for name, (least, module) in KNOWN.items():
        try:
            loaded = ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
        except (DynamicLibNotFoundError, OSError):
            continue
        number, said = importlib.import_module(f"pe_cli.devices.cuda_libraries.{module}").version_of(loaded)
        if number >= least:
            found[name] = Installed(said, loaded)
    return found


def names(wanted: str) -> frozenset[str]:
    """Return the libraries that lowerings for CUDA may offer calls to.

    Args:
        wanted: `executor.libraries`.
    """
    return frozenset(installed()) if wanted == "auto" else frozenset()


def told(wanted: str) -> str:
    """Return what a run has of libraries, for people."""
    if wanted == "none":
        return "none, as executor.libraries says"
    return ", ".join(f"{name} {each.version}" for name, each in installed().items()) or f"none is installed: {HINT}"


def of(driver: Driver, wanted: Iterable[str]) -> Libraries | None:
    """Return libraries of a device, those that are there; None where there are none.

    Args:
        driver: of the device.
        wanted: their names: to open one takes time and memory of the device.
    """
    device: Any = driver
    handles = driver.handles()
    if handles is None:
        return None
    each = {name: library for name in sorted(wanted) if (library := _opened(device, name))}
    return Libraries(handles.card, each, _clock(device)) if each else None


@functools.cache
def _opened(driver: Any, name: str) -> Library | None:
    handles: Handles = driver.handles()
    if name not in installed():
        return None
    handles.enter()
    module = importlib.import_module(f"pe_cli.devices.cuda_libraries.{KNOWN[name][1]}")
    # NCCL has nothing for one device alone.
    if module.ON_DEVICE is None:
        return None
    found = installed()[name]
    try:
        made: Library = module.ON_DEVICE(found.library, found.version, handles.stream, handles.enter)
    except NotTaken:  # it has no code for this device
        return None
    return made


@functools.cache
def _clock(driver: Any) -> Clock:
    return Clock(driver.handles())


class Clock:
    """Measures what is enqueued on a stream by two events; see `Libraries.seconds`.

    Args:
        handles: of the device.
    """

    def __init__(self, handles: Handles) -> None:
        self._driver, self._stream, self._enter = handles.library, handles.stream, handles.enter
        self._events = [_POINTER(), _POINTER()]
        self._enter()
        for event in self._events:
            self._do("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))

    def _do(self, name: str, *args: Any) -> None:
        result = getattr(self._driver, name)(*args)
        if result:
            raise PeError(f"the CUDA device failed: {name}: error {result}", code=ExitCode.DEVICE)

    def __call__(self, run: Callable[[], None]) -> float:
        """Return how long the device takes for something."""
        self._enter()
        begin, end = self._events
        self._do("cuEventRecord", begin, self._stream)
        run()
        self._do("cuEventRecord", end, self._stream)
        self._do("cuEventSynchronize", end)
        found = ctypes.c_float()
        self._do("cuEventElapsedTime_v2", ctypes.byref(found), begin, end)
        # The driver counts milliseconds.
        return found.value / 1e3
