"""What `pe_cli.devices.cuda_driver` asks of the driver's library, said to a library that runs the kernels on this CPU."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda import CudaMemory
from pe_cli.devices.cuda_driver import CudaDriver, Extent
from pe_cli.kernels.cuda import Built, build, cuda_kernel
from pe_cli.kernels.cuda_compiler import cubin, entry_of, ptx
from pe_cli.kernels.lang import Int, Ptr, PtrI64, Real, T
from tests.cuda.ptx.device import PtxDriver, needs_compiler
from tests.cuda.ptx.machine import Piece, Program

CONTEXT, STREAM, DEVICE = 0x1000, 0x2000, 0


class Library:
    """The functions of libcuda.so.1 that are asked for, with C's meaning: results are numbers, places are written through pointers.

    Args:
        kernels: what may be loaded.
        memory: bytes of the device.
    """

    def __init__(self, kernels: list[Built], memory: int = 1 << 20) -> None:
        self._device = PtxDriver()
        self._kernels = {entry_of(k, (9, 0)): k for k in kernels}
        self._free = memory
        self._sizes: dict[int, int] = {}
        self._images: list[bytes] = []
        self._functions: list[tuple[Built, Program]] = []
        self.current: int | None = None
        self.failing: dict[str, int] = {}
        self.busy = 0

    def __getattribute__(self, name: str) -> Any:
        failing = object.__getattribute__(self, "__dict__").get("failing", {})
        return (lambda *_: failing[name]) if name in failing else object.__getattribute__(self, name)

    def cuGetErrorName(self, result: int, name: Any) -> int:
        names = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 719: b"CUDA_ERROR_LAUNCH_FAILED"}
        name._obj.value = names.get(result)
        return 0 if result in names else 1

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = {75: 9, 76: 0}[which]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current = context.value
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        stream._obj.value = STREAM
        return 0

    def cuMemAlloc_v2(self, address: Any, nbytes: int) -> int:
        assert self.current == CONTEXT
        if nbytes > self._free:
            return 2
        address._obj.value = self._device.allocate(nbytes)
        self._sizes[address._obj.value] = nbytes
        self._free -= nbytes
        return 0

    def cuMemFree_v2(self, address: int) -> int:
        self._device.free(address)
        self._free += self._sizes.pop(address)
        return 0

    def cuMemsetD8_v2(self, address: int, value: int, nbytes: int) -> int:
        ctypes.memset(address, value, nbytes)
        return 0

    def cuMemcpyHtoD_v2(self, address: int, host: int, nbytes: int) -> int:
        ctypes.memmove(address, host, nbytes)
        return 0

    def cuMemcpyDtoH_v2(self, host: int, address: int, nbytes: int) -> int:
        ctypes.memmove(host, address, nbytes)
        return 0

    def cuMemcpyHtoDAsync_v2(self, address: int, host: int, nbytes: int, stream: Any) -> int:
        assert stream.value == STREAM
        return self.cuMemcpyHtoD_v2(address, host, nbytes)

    def cuStreamQuery(self, stream: Any) -> int:
        self.busy -= 1
        return 600 if self.busy >= 0 else 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        assert stream.value == STREAM
        return 0

    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        self._images.append(image.raw)
        module._obj.value = len(self._images)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        built = self._kernels[name.decode()]
        assert self._images[module.value - 1] == cubin(built, (9, 0)).image
        self._functions.append((built, Program(ptx(built, (9, 0)))))
        function._obj.value = len(self._functions)
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, params, extra = rest
        assert (shared, stream.value, extra) == (0, STREAM, None)
        built, program = self._functions[function.value - 1]
        count = len(built.kernel.params)
        places = (ctypes.c_uint64 * count).from_address(params)
        words = np.array([ctypes.c_uint64.from_address(place).value for place in places], np.uint64)
        pieces = [Piece(address, nbytes) for address, nbytes in self._sizes.items()]
        program.launch(words, pieces, (gx, gy, gz), (bx, by, bz))
        return 0


@cuda_kernel
def scaled(x: Ptr, table: PtrI64, out: Ptr, n: Int, by: Real):
    for i in range(n):
        out[i] = x[table[i]] * T(by)


@pytest.fixture
def library() -> Library:
    needs_compiler()
    return Library([build(scaled, "float32", "float32"), build(scaled, "float64", "float32")])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_is_loaded_once_and_given_its_arguments(library: Library, dtype: str):
    driver = CudaDriver(library)
    assert driver.capability == (9, 0)
    built = build(scaled, dtype, "float32")
    x, table = np.arange(300).astype(dtype), np.arange(300)[::-1].copy()
    memory = [CudaMemory(driver, a.nbytes) for a in (x, table, x)]
    for held, value in zip(memory, (x, table), strict=False):
        driver.write(held.address, value)
    args = [*(Extent(m.address, m.nbytes) for m in memory), 300, 0.5]
    assert not driver.has(built)
    launch = driver.launcher(built, (2,), (256,), args)
    assert driver.has(built)
    driver.launcher(built, (1,), (256,), args)
    launch()
    driver.wait()
    np.testing.assert_array_equal(memory[2].read(0, TensorType((300,), dtype)), x[::-1] * 0.5)
    driver.send(memory[2].address, np.ones(1, dtype))
    assert memory[2].read(0, TensorType((2,), dtype))[0] == 1


def test_memory_is_zero_and_given_back(library: Library):
    driver = CudaDriver(library)
    held = CudaMemory(driver, 1 << 19)
    assert not held.read(0, TensorType((1 << 17,), "float32")).any()
    del held
    CudaMemory(driver, 1 << 20)


def test_too_little_memory_says_what_to_do(library: Library):
    with pytest.raises(PeError, match="cannot allocate 2 MiB on the CUDA device: CUDA_ERROR_OUT_OF_MEMORY") as caught:
        CudaMemory(CudaDriver(library), 1 << 21)
    assert (caught.value.code, caught.value.hint) == (ExitCode.DEVICE, "use a smaller batch_size")


def test_a_stream_that_is_busy_is_not_done(library: Library):
    driver = CudaDriver(library)
    library.busy = 2
    assert [driver.is_done() for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("name", ["cuStreamSynchronize", "cuModuleLoadData", "cuLaunchKernel"])
def test_a_device_that_fails_is_named_with_the_code_of_devices(library: Library, name: str):
    driver = CudaDriver(library)
    library.failing[name] = 719
    built = build(scaled, "float32", "float32")
    place = Extent(driver.allocate(64), 64)
    driver.zero(place.address, 64)
    other = Extent(driver.allocate(64), 64)

    def run() -> None:
        driver.launcher(built, (1,), (1,), [place, place, other, 1, 1.0])()
        driver.wait()

    with pytest.raises(PeError, match=r"the CUDA device failed: .*CUDA_ERROR_LAUNCH_FAILED") as caught:
        run()
    assert caught.value.code == ExitCode.DEVICE


def test_without_the_library_there_is_no_device(monkeypatch):
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libno-such-driver.so.1")
    cuda_driver.library.cache_clear()
    try:
        assert (cuda_driver.library(), cuda_driver.device_count()) == (None, 0)
    finally:
        cuda_driver.library.cache_clear()


def test_compiled_kernels_are_kept_and_known_by_capability(monkeypatch, tmp_path):
    needs_compiler()
    monkeypatch.setattr("pe_cli.kernels.cache.folder", lambda: tmp_path)
    built = dataclasses.replace(build(scaled, "float32", "float32"))
    texts = [ptx.__wrapped__(built, capability) for capability in ((9, 0), (8, 0))]
    assert [f".target sm_{n}" in text for n, text in zip((90, 80), texts, strict=True)] == [True, True]
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr("pe_cli.kernels.cuda_compiler._compiled", None)
    assert ptx.__wrapped__(built, (9, 0)) == texts[0]
