"""The real cuDNN without a card: told the properties of one, it makes plans, writes them as text and reads them again.

Usage: python -m tests.cuda.libraries.cudnn_plans FOLDER. A stand-in for the driver is compiled there by `cc`, of functions that do nothing.
Prints the number of plans of each call that the installed version knows. The exit code is 2 where something is not installed.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_libraries import cudnn, loaded_libraries
from pe_cli.devices.cuda_libraries.cudnn_descriptors import CHAR, DESCRIPTOR, Attribute, Descriptor
from pe_cli.devices.cuda_libraries.protocol import declare
from pe_cli.kernels.cuda.library_calls import CUDNN, Attention, Convolution

#: cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t of a device's properties, and where they are told.
PROPERTIES, TEXT, OF_QUESTION, OF_PLAN = 38, 2702, 204, 407
#: As cuDNN writes those of an H100.
H100: dict[str, Any] = {
    "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0x2330, "isTccDriver": 0,
    "multiProcessorCount": 132, "warpSize": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxBlockSize": [1024, 1024, 64],
    "maxGridSize": [2**31 - 1, 65535, 65535], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "oversizedSharedMemoryPerBlock": 0, "totalGlobalMem": 85 << 30, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
    "memoryBusWidth": 5120, "l2CacheSize": 50 << 20, "supportCoopLaunch": 1,
}  # fmt: skip
#: What cuDNN looks for in the driver's library, by what it does: nothing, or it writes a number, some handle or a text.
NOTHING = (
    "cuModuleUnload", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled", "cuLaunchKernel", "cuLaunchKernelEx", "cuLibraryUnload",
    "cuLaunchCooperativeKernel", "cuKernelSetAttribute", "cuKernelGetAttribute", "cuOccupancyMaxPotentialClusterSize", "cuCtxGetLimit",
    "cuCtxPushCurrent", "cuLinkAddData", "cuLinkComplete", "cuLinkDestroy", "cuStreamGetCtx", "cuLinkCreate",
)  # fmt: skip
NUMBERS = {"cuDriverGetVersion": 13000, "cuDeviceGetCount": 1, "cuDeviceGet": 0}
HANDLES = (
    "cuModuleGetFunction", "cuModuleLoadData", "cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetKernel", "cuKernelGetFunction",
    "cuCtxGetCurrent", "cuCtxPopCurrent",
)  # fmt: skip
CALLS = (
    Convolution("values", 8, (28, 28, 64), (28, 28, 64), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, BFLOAT16, "bf16"),
    Attention("values", 2, 4, 100, 100, 64, 64, (768, 768, 768), (), True, 0.125),
    Attention("values", 2, 4, 64, 96, 32, 64, (128, 128, 256), (2, 1, 1, 96), True, 0.125),
    Attention("back", 2, 4, 100, 100, 64, 64, (768, 768, 768), (1, 4, 100, 100), True, 0.125, deterministic=False),
)


#: The first version that computes attention, as docs/how-to/cuda.md tells.
ATTENDS = 92100


class Told(cudnn.Cudnn):
    """cuDNN on a device that it is told of.

    Args:
        library: its functions.
        facts: of the device.
    """

    def __init__(self, library: Any, facts: dict[str, Any]) -> None:
        declare(library, cudnn.FUNCTIONS)
        self._library, self._enter = library, lambda: None
        told = Descriptor(library, PROPERTIES, (TEXT, CHAR, json.dumps(facts).encode()))
        self._of_graph: list[Attribute] = []
        self._of_question, self._of_plan = [(OF_QUESTION, DESCRIPTOR, [told])], [(OF_PLAN, DESCRIPTOR, [told])]
        self._handle = ctypes.c_void_p()


def stand_in(folder: Path) -> Path:
    """Compile a library of the driver's name, and return where it is."""
    source, made = folder / "driver.c", folder / "libcuda.so.1"
    lines = ["int cuInit(unsigned flags) { return 100; }"]
    lines += [f"int {name}(int code, const char **text) {{ *text = \"\"; return 0; }}" for name in ("cuGetErrorString", "cuGetErrorName")]
    lines += [f"int {name}(int *made) {{ *made = {value}; return 0; }}" for name, value in NUMBERS.items()]
    lines += [f"int {name}() {{ return 0; }}" for name in NOTHING]
    lines += [f"int {name}(void **made) {{ *made = (void *)1; return 0; }}" for name in HANDLES]
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["cc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{made.name}", "-o", made, source], check=True)
    return made


def plans(library: Any) -> Iterator[tuple[str, int]]:
    """Yield calls, and how many plans each has that are read again."""
    attends = cudnn.version_of(library)[0] >= ATTENDS
    for what in (call for call in CALLS if attends or isinstance(call, Convolution)):
        count = 3 if isinstance(what, Convolution) else {"values": 5, "back": 9}[what.direction] + bool(what.mask)
        places = [Extent(0x7F00_0000_0000 + (i << 30), 1 << 26) for i in range(count + 1)]
        told = Told(library, H100)
        found = told.algorithms(what, places)
        for each in found:
            told.ready(what, each, places)
        yield what.title, len(found)


def main(folder: Path) -> int:
    """Print what there is; see above."""
    if not shutil.which("cc"):
        sys.stdout.write("no C compiler\n")
        return 2
    ctypes.CDLL(str(stand_in(folder)), mode=ctypes.RTLD_GLOBAL)
    loaded_libraries.KNOWN.pop("nccl", None)
    installed = loaded_libraries.installed()
    if CUDNN not in installed:
        sys.stdout.write("no cuDNN\n")
        return 2
    for title, count in plans(installed[CUDNN].library):
        sys.stdout.write(f"{title} {count}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
