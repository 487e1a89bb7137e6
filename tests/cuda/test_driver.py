"""What `pe_cli.devices.cuda_driver` asks of the driver's library, said to a library that runs the kernels on this CPU."""

from __future__ import annotations

import dataclasses
import gc
from functools import partial
from threading import Thread

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.devices import cuda_driver, cuda_driver_library
from pe_cli.devices.cuda_driver import CudaDriver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_memory import CudaMemory
from pe_cli.kernels.cuda.compiler import ptx
from pe_cli.kernels.cuda.language import build, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import Library
from tests.rotation import on_its_day


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
    driver.write(memory[2].address, np.ones(1, dtype))
    assert memory[2].read(0, TensorType((2,), dtype))[0] == 1


def test_a_graph_does_what_was_captured_with_what_its_host_memory_holds_by_then(library: Library):
    driver = CudaDriver(library)
    given, found = driver.pinned(2), driver.pinned(4)
    assert [given.tolist(), found.tolist()] == [[0] * 2, [0] * 4]
    place, numbers, out = (Extent(driver.allocate(n), n) for n in (32, 32, 32))
    driver.write(place.address, np.arange(8, dtype=np.float32))
    driver.write(numbers.address, np.array([3, 2, 1, 0]))
    args = [place, numbers, out, 4, 1.0]
    launch = driver.launcher(build(scaled, "float32", "float32"), (1,), (4,), args)
    steps = [partial(driver.send, numbers.address, given), launch, partial(driver.fetch, out.address, found)]
    run = driver.captured(steps, [[], [0], [1]])
    assert not found.any()
    for first in (1, 5):
        given[:] = first, 0
        run()
        driver.wait()
        assert found.view(np.float32)[:4].tolist() == [first, 0, 1, 0]
    assert library.calls["cuLaunchKernel"] == 1
    del run, steps, launch, found, given
    assert (library.held, library.calls["cuGraphExecDestroy"], library.calls["cuGraphDestroy"]) == ({}, 1, 1)


def test_what_is_captured_waits_for_what_it_names_and_for_nothing_else(library: Library):
    driver = CudaDriver(library)
    given, found = [driver.pinned(1) for _ in range(3)], driver.pinned(1)
    place = driver.allocate(8)
    for i, one in enumerate(given):
        one[0] = i + 1
    steps = [*(partial(driver.send, place, one) for one in given), partial(driver.fetch, place, found)]
    for waits, last in (([[], [0], [1], [2]], 3), ([[], [], [], [0, 1, 2]], 1), ([[], [0], [], [1, 2]], 2)):
        driver.captured(steps, waits)()
        driver.wait()
        assert found[0] == last, waits


def test_what_waits_for_a_library_waits_for_all_that_it_leaves(library: Library):
    """Two copies that do not wait for one another, as a library may have done on streams of its own."""
    driver = CudaDriver(library)
    given, found = [driver.pinned(1) for _ in range(2)], driver.pinned(2)
    place = driver.allocate(16)
    given[0][0], given[1][0] = 3, 4

    def forked() -> None:
        before, ends = driver.captured_last(), []
        for i, one in enumerate(given):
            driver.captured_after(before)
            driver.send(place + 8 * i, one)
            ends += driver.captured_last()
        driver.captured_after(ends)

    driver.captured([forked, partial(driver.fetch, place, found)], [[], [0]])()
    driver.wait()
    assert found.tolist() == [3, 4]


@on_its_day(0, of=3)
def test_another_thread_may_launch_and_give_back(library: Library):
    driver = CudaDriver(library)
    place, table = driver.allocate(64), driver.allocate(64)
    driver.zero(table, 64)
    args = [Extent(place, 64), Extent(table, 64), Extent(place, 64), 1, 1.0]
    launch = driver.launcher(build(scaled, "float32", "float32"), (1,), (1,), args)
    held = [driver.pinned(4), driver.captured([launch], [()])]
    assert len(library.held) == 1
    failed: list[BaseException] = []

    def work() -> None:
        try:
            launch()
            driver.wait()
        except PeError as error:
            failed.append(error)
        held.clear()
        gc.collect()

    for _ in range(2):
        thread = Thread(target=work)
        thread.start()
        thread.join()
    assert failed == []
    assert (library.held, library.calls["cuGraphExecDestroy"]) == ({}, 1)


def test_what_must_not_be_captured_says_so_and_the_next_capture_is_none_the_worse(library: Library):
    driver = CudaDriver(library)
    with pytest.raises(PeError, match="cuStreamSynchronize: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        driver.captured([driver.wait], [()])
    given, place = driver.pinned(1), driver.allocate(8)
    given[0] = 5
    driver.captured([lambda: driver.send(place, given)], [()])()
    found = np.zeros(1, np.int64)
    driver.read(place, found)
    assert found[0] == 5


def test_memory_is_zero_and_given_back(library: Library):
    driver = CudaDriver(library)
    held = CudaMemory(driver, 1 << 19)
    assert not held.read(0, TensorType((1 << 17,), "float32")).any()
    del held
    CudaMemory(driver, 1 << 20)


def test_too_little_memory_says_what_to_do(library: Library):
    with pytest.raises(PeError, match="cannot allocate 2 MiB on the CUDA device, which has 1 of 1 MiB free: CUDA_ERROR_OUT") as caught:
        CudaMemory(CudaDriver(library), 1 << 21)
    assert (caught.value.code, caught.value.hint) == (ExitCode.DEVICE, "use a smaller batch_size")


def test_too_little_memory_of_the_host_says_what_to_do(library: Library):
    driver = CudaDriver(library)
    library.failing["cuMemAllocHost_v2"] = 2
    said = "cannot allocate 4 MiB of the host's memory for copies to and from the CUDA device: CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(PeError, match=said) as caught:
        driver.pinned(1 << 19)
    assert (caught.value.code, caught.value.hint) == (ExitCode.DEVICE, "use a smaller batch_size")


def test_a_stream_that_is_busy_is_not_done(library: Library):
    driver = CudaDriver(library)
    library.busy = 2
    assert [driver.is_done() for _ in range(3)] == [False, False, True]


FAILING = ["cuStreamSynchronize", "cuModuleLoadData", "cuLaunchKernel", "cuGraphInstantiateWithFlags", "cuGraphLaunch"]


@pytest.mark.parametrize("name", FAILING)
def test_a_device_that_fails_is_named_with_the_code_of_devices(library: Library, name: str):
    driver = CudaDriver(library)
    built = build(scaled, "float32", "float32")
    place = Extent(driver.allocate(64), 64)
    driver.zero(place.address, 64)
    other = Extent(driver.allocate(64), 64)
    library.failing[name] = 719

    def run() -> None:
        driver.captured([driver.launcher(built, (1,), (1,), [place, place, other, 1, 1.0])], [()])()
        driver.wait()

    with pytest.raises(PeError, match=r"the CUDA device failed: .*CUDA_ERROR_LAUNCH_FAILED") as caught:
        run()
    assert caught.value.code == ExitCode.DEVICE


def test_without_the_library_there_is_no_device(monkeypatch):
    monkeypatch.setattr(cuda_driver_library, "LIBRARY", "libno-such-driver.so.1")
    cuda_driver_library.library.cache_clear()
    try:
        assert (cuda_driver_library.library()[0], cuda_driver.device_count()) == (None, 0)
        assert cuda_driver.why_none() == "there is no CUDA driver: libno-such-driver.so.1 is not found"
    finally:
        cuda_driver_library.library.cache_clear()


def test_compiled_kernels_are_kept_and_known_by_capability(monkeypatch, tmp_path):
    needs_compiler()
    monkeypatch.setattr("pe_cli.kernels.compiler.cache.folder", lambda: tmp_path)
    built = dataclasses.replace(build(scaled, "float32", "float32"))
    texts = [ptx.__wrapped__(built, capability) for capability in ((9, 0), (8, 0))]
    assert [f".target sm_{n}" in text for n, text in zip((90, 80), texts, strict=True)] == [True, True]
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr("pe_cli.kernels.cuda.compiler._compiled", None)
    assert ptx.__wrapped__(built, (9, 0)) == texts[0]
