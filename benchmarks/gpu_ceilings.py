"""What one GPU reaches at most: copies, launches, graphs of launches, and a product of our own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_kernel_launches import shape_of
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cuda.language import build, cuda_kernel
from pe_cli.kernels.language import Int, Ptr
from pe_cli.ops.define.registry import discover

#: Bytes that one read and one write of a float32 move.
MOVED = 8
#: Launches of a graph.
LAUNCHES = 100


@cuda_kernel
def copied(x: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = x[i]


def measured_ceilings(n: int, k: int, launches: int, *, times: int, rounds: int) -> dict[str, float]:
    """Return what copies, launches, graphs and a product of our own reach.

    Args:
        n: elements of a copy.
        k: side of the matrices of a product.
        launches: that are timed.
        times: of a copy and of a product.
        rounds: of a graph.
    """
    discover()
    from pe_cli.ops.math.product_tiles_cuda import TILES, kernel_of

    driver = cuda_driver.only_driver()
    size = 4 * max(n, k * k)
    places = [Extent(driver.allocate(size), size) for _ in range(3)]
    table = Extent(driver.allocate(32), 32)
    host = driver.pinned(-(-n // 2)).view(np.float32)[:n]
    for place in places:
        driver.zero(place.address, size)
    driver.write(table.address, np.array([0, 1, 0, 0]))

    def launch_of(kernel: Any, *args: Any) -> Any:
        grid, block = shape_of(Call(kernel, args, "float32", "float32"))
        return driver.launcher(build(kernel, "float32", "float32"), grid, block, args)

    def seconds(kernel: Any, *args: Any, times: int) -> float:
        launch = launch_of(kernel, *args)
        launch()
        driver.wait()
        begin = time.perf_counter()
        for _ in range(times):
            launch()
        driver.wait()
        return (time.perf_counter() - begin) / times

    product = (0, 0, k, k, k, places[0], k, places[1], k, places[2], 1.0, 0, places[2], 0, table, 1, k, 1, places[2], table, 0)
    begin = time.perf_counter()
    driver.send(places[0].address, host)
    driver.wait()
    upload = time.perf_counter() - begin
    graph, host_only = replayed(driver, launch_of(copied, places[0], places[1], 1), rounds)
    found = {
        "copy_GB_s": n * MOVED / seconds(copied, places[0], places[1], n, times=times) / 1e9,
        "launch_us": seconds(copied, places[0], places[1], 1, times=launches) * 1e6,
        "replayed_launch_us": graph / LAUNCHES * 1e6,
        "replay_host_us": host_only * 1e6,
        "upload_GB_s": host.nbytes / upload / 1e9,
        "product_TFLOP_s": 2 * k**3 / seconds(kernel_of(TILES[0]), *product, times=times) / 1e12,
    }
    for place in (*places, table):
        driver.free(place.address)
    return found


def replayed(driver: Any, launch: Any, rounds: int) -> tuple[float, float]:
    """Return the seconds of a graph of `LAUNCHES`, one behind the other, and those of it that the host is busy."""
    run = driver.captured([launch] * LAUNCHES, [[], *([i] for i in range(LAUNCHES - 1))])
    run()
    driver.wait()
    host = 0.0
    begin = time.perf_counter()
    for _ in range(rounds):
        now = time.perf_counter()
        run()
        host += time.perf_counter() - now
        driver.wait()
    return (time.perf_counter() - begin) / rounds, host / rounds
