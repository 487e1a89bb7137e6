"""What only two GPUs can tell: whether and how fast they reach one another, what sums over them take, and how much faster a training is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.cuda_sums import parts_of, summing
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_device_group import joined, together
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_kernel_launches import shape_of
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cuda.language import build
from pe_cli.kernels.cuda.library_calls import NCCL, SumKernel

#: Devices that are used.
COUNT = 2
#: Ways of summing -> `executor.libraries`.
WAYS = {"kernels": "none", "nccl": "auto"}


def measured_cards(sizes: Sequence[int], times: int, name: str, train: Callable[[str, int, str], dict[str, Any]]) -> Any:
    """Return what the JSON says of two cards; a sentence where there are no two.

    Args:
        sizes: elements of sums that are timed.
        times: how often.
        name: workload that is trained.
        train: workload, devices and `executor.libraries` -> milliseconds of a step, or an error.
    """
    there = cuda_driver.device_count()
    usable, why = together(min(there, COUNT))
    if usable < COUNT:
        return why or f"{there} CUDA device: two are needed"
    ways = {way: libraries for way, libraries in WAYS.items() if way != "nccl" or NCCL in loaded_libraries.installed()}
    found: dict[str, Any] = {"copy_GB_s": copy_speed(max(sizes), times), "sums_ms": {}}
    for size in sizes:
        found["sums_ms"][size] = {way: sum_seconds(size, times, way) * 1e3 for way in ways}
    found["alone"] = train(name, 1, "none")
    for way, libraries in ways.items():
        found[way] = row = train(name, COUNT, libraries)
        if "ms_per_step" in row and "ms_per_step" in found["alone"]:
            row["times_faster"] = found["alone"]["ms_per_step"]["median"] / row["ms_per_step"]["median"]
    return found


def copy_speed(elements: int, times: int) -> float:
    """Return the gigabytes a second of copies from one card to the other."""
    first, second = (cuda_driver.driver_of(i) for i in range(COUNT))
    size = 4 * elements
    here, there = first.allocate(size), second.allocate(size)
    one: Any = first
    one.copy(here, there, size)
    one.wait()
    begin = time.perf_counter()
    for _ in range(times):
        one.copy(here, there, size)
    first.wait()
    seconds = (time.perf_counter() - begin) / times
    first.free(here)
    second.free(there)
    return size / seconds / 1e9


def sum_seconds(elements: int, times: int, way: str) -> float:
    """Return the seconds of a sum over both cards that both get, captured as it is in a step."""
    group: Any = joined(range(COUNT))
    members = [group.at(home) for home in range(COUNT)]
    places = [Extent(member.allocate(4 * elements), 4 * elements) for member in members]
    for member, place in zip(members, places, strict=True):
        member.write(place.address, np.ones(elements, np.float32))
    kernel = summing(COUNT, tuple(range(COUNT)), COUNT)
    if way == "nccl":
        own = Call(kernel, (*places, *places, elements), "float32", "float32")
        launches = [group.summing(SumKernel(("Ptr",) * COUNT, None, own), places, "float32")]
    else:
        launches = []
        for home, (low, high) in enumerate(parts_of(elements, COUNT)):
            mine = [Extent(place.address + 4 * low, 4 * (high - low)) for place in places]
            args = (*mine, *mine, high - low)
            grid, block = shape_of(Call(kernel, args, "float32", "float32"))
            launches.append(members[home].launcher(build(kernel, "float32", "float32"), grid, block, args))
    run = group.captured(launches, [()] * len(launches))
    run()
    group.wait()
    check = np.zeros(elements, np.float32)
    members[1].read(places[1].address, check)
    assert (check == COUNT).all(), "a sum of ones"
    begin = time.perf_counter()
    for _ in range(times):
        run()
    group.wait()
    seconds = (time.perf_counter() - begin) / times
    for member, place in zip(members, places, strict=True):
        member.free(place.address)
    return seconds
