"""Communication of a CUDA step with other processes: NCCL calls, or host functions on copies of device memory.

A function of the host is a launch like others, and may be captured: copies to pinned memory, the function, on a thread of the driver's, and
copies back. Kernels that need nothing of it go on meanwhile. A driver may call such functions one after the other, while one waits for
another process: as all exchanges come in one order, the same in all processes, what it waits for has begun here, and is begun there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver_protocol import Driver, Extent
from pe_cli.devices.cuda_launch_integers import WORD, words_of
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.devices.cuda_libraries.nccl import across
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cpu.python_calls import MirroredKernel
from pe_cli.kernels.cuda.library_calls import NCCL, AcrossKernel

Array = np.ndarray[Any, Any]


class Exchanges:
    """Those of a step.

    Args:
        driver: of the step's devices.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._mirrors: dict[Extent, Array] = {}
        self._reports: list[Array] = []

    def across(self, call: Call, places: Sequence[Extent], home: int) -> Callable[[], None]:
        """Return what does a call of NCCL on a device.

        Args:
            call: of an `AcrossKernel`.
            places: of its arguments.
            home: number of the device.

        Raises:
            PeError: NCCL does not start, or another process is lost (exit code 5 or 6); of what is returned: it failed.
        """
        kernel: AcrossKernel = call.kernel
        device = self._driver.at(home)
        alone: Any = device.alone()
        parts = []
        for number, low, high, root in kernel.parts:
            kind = call.args[number].buffer.type
            size = kind.numpy.itemsize
            parts.append((places[number].address + low * size, (high - low) * size, kind.dtype, root))
        return device.turned(across(loaded_libraries.installed()[NCCL].library, alone, kernel.peers).ready(kernel.what, parts))

    def mirrored(self, call: Call, report: Extent, places: Sequence[Extent], home: int) -> Callable[[], None]:
        """Return what does a call of the host's in its turn.

        Args:
            call: of a `MirroredKernel`.
            report: of the call, on the device.
            places: of its arguments.
            home: number of the device that has all of them.

        Raises:
            PeError: the host has not that much memory (exit code 5); of what is returned: the device failed.
        """
        kernel: MirroredKernel = call.kernel
        device = self._driver.at(home)
        alone = device.alone()
        mirrors = [self._mirror(alone, place) for place in places]
        said = alone.pinned(report.nbytes // WORD)
        self._reports.append(said)
        record = np.array([said.ctypes.data], np.int64)
        entry = kernel.entry([mirror.ctypes.data for mirror in mirrors])

        def cut(number: int, low: int, high: int) -> tuple[int, Array]:
            size = kernel.outputs[number].numpy.itemsize
            return places[number].address + low * size, mirrors[number][low * size : high * size]

        takes, gives = ([cut(*part) for part in parts if part[1] < part[2]] for parts in (kernel.takes, kernel.gives))

        def run() -> None:
            for address, mirror in takes:
                alone.fetch(address, mirror)
            alone.ask(entry, record)
            for address, mirror in gives:
                alone.send(address, mirror)
            alone.send(report.address, said)

        return device.turned(run)

    def _mirror(self, alone: Driver, place: Extent) -> Array:
        """Return the copy of a place, [bytes] uint8."""
        if place not in self._mirrors:
            self._mirrors[place] = alone.pinned(words_of(place.nbytes)).view(np.uint8)
        return self._mirrors[place]

    def forget(self) -> None:
        """Take back what functions have reported, when all that was launched is done."""
        for said in self._reports:
            said[:] = 0
