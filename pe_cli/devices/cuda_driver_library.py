"""CUDA's driver library: the functions that `pe` calls, what their results mean, and why the library can't be used."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
#: Version of CUDA that a driver must have, in its own counting: kernels are compiled by CUDA 13, whose minor versions fit one another.
LEAST_VERSION = 13000
#: Results of the driver that mean something to a caller.
SUCCESS, OUT_OF_MEMORY, NO_DEVICE, NOT_READY = 0, 2, 100, 600
NO_DEVICE_TEXT = "no CUDA device is visible"
WORD = ctypes.c_uint64
NUMBER = ctypes.c_uint
POINTER = ctypes.c_void_p
#: Function of the library -> types of its arguments; each returns a result.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (NUMBER,),
    "cuDriverGetVersion": (POINTER,),
    "cuGetErrorName": (ctypes.c_int, POINTER),
    "cuDeviceGetCount": (POINTER,),
    "cuDeviceGet": (POINTER, ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (POINTER, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (POINTER, ctypes.c_int),
    "cuCtxSetCurrent": (POINTER,),
    "cuMemGetInfo_v2": (POINTER, POINTER),
    "cuMemAlloc_v2": (POINTER, ctypes.c_size_t),
    "cuMemFree_v2": (WORD,),
    "cuMemsetD8Async": (WORD, ctypes.c_ubyte, ctypes.c_size_t, POINTER),
    "cuMemcpyHtoDAsync_v2": (WORD, POINTER, ctypes.c_size_t, POINTER),
    "cuMemcpyDtoHAsync_v2": (POINTER, WORD, ctypes.c_size_t, POINTER),
    "cuMemcpyDtoDAsync_v2": (WORD, WORD, ctypes.c_size_t, POINTER),
    "cuDeviceCanAccessPeer": (POINTER, ctypes.c_int, ctypes.c_int),
    "cuCtxEnablePeerAccess": (POINTER, NUMBER),
    "cuEventCreate": (POINTER, NUMBER),
    "cuEventRecord": (POINTER, POINTER),
    "cuEventSynchronize": (POINTER,),
    "cuStreamWaitEvent": (POINTER, POINTER, NUMBER),
    "cuMemAllocHost_v2": (POINTER, ctypes.c_size_t),
    "cuMemFreeHost": (POINTER,),
    "cuStreamCreate": (POINTER, NUMBER),
    "cuStreamQuery": (POINTER,),
    "cuStreamSynchronize": (POINTER,),
    "cuModuleLoadData": (POINTER, POINTER),
    "cuModuleGetFunction": (POINTER, POINTER, ctypes.c_char_p),
    "cuStreamBeginCapture_v2": (POINTER, ctypes.c_int),
    "cuStreamGetCaptureInfo_v3": (POINTER,) * 7,
    "cuStreamUpdateCaptureDependencies_v2": (POINTER, POINTER, POINTER, ctypes.c_size_t, NUMBER),
    "cuStreamEndCapture": (POINTER, POINTER),
    "cuGraphInstantiateWithFlags": (POINTER, POINTER, ctypes.c_ulonglong),
    "cuGraphDestroy": (POINTER,),
    "cuGraphExecDestroy": (POINTER,),
    "cuGraphLaunch": (POINTER, POINTER),
    "cuLaunchHostFunc": (POINTER, POINTER, POINTER),
    "cuLaunchKernel": (POINTER, *[NUMBER] * 7, POINTER, POINTER, POINTER),
}


def error_name(library: Any, result: int) -> str:
    """Return the driver's name of a result, such as CUDA_ERROR_LAUNCH_FAILED."""
    name = ctypes.c_char_p()
    if library.cuGetErrorName(result, ctypes.byref(name)) != SUCCESS or not name.value:
        return f"error {result}"
    return name.value.decode(errors="replace")


@functools.cache
def library() -> tuple[Any, str]:
    """Return the driver's library, initialised, and why it can't be used: None and a reason, or the library and nothing."""
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError:
        return None, f"there is no CUDA driver: {LIBRARY} is not found"
    return prepared(found)


def prepared(found: Any) -> tuple[Any, str]:
    """Return what `library` does, for a library that has been loaded."""
    version, needed = ctypes.c_int(), _version(LEAST_VERSION)
    for name, kinds in FUNCTIONS.items():
        if not hasattr(found, name):
            return None, f"the CUDA driver is too old, it has no {name}: update it to one of CUDA {needed} or later"
        # Undeclared, addresses would be passed as C's int, and be cut to 32 bits.
        getattr(found, name).argtypes = kinds
    if found.cuDriverGetVersion(ctypes.byref(version)) == SUCCESS and version.value < LEAST_VERSION:
        return None, f"the CUDA driver is one of CUDA {_version(version.value)}, too old: update it to one of CUDA {needed} or later"
    result = found.cuInit(0)
    if result in (SUCCESS, NO_DEVICE):
        return (found, "") if result == SUCCESS else (None, NO_DEVICE_TEXT)
    return None, f"the CUDA driver cannot be used: cuInit: {error_name(found, result)}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def count_of(library: Any) -> int:
    """Return the number of devices that a library sees."""
    count = ctypes.c_int()
    return count.value if library.cuDeviceGetCount(ctypes.byref(count)) == SUCCESS else 0
