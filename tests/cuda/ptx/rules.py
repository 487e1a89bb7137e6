"""What CUDA's driver refuses, by the results of its header, and what a launch may be."""

from __future__ import annotations

import math
import re

from pe_cli.kernels.cuda.compiler import Cubin

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, TOO_MUCH, ENABLED = 1, 2, 201, 400, 600, 701, 704
UNSUPPORTED, INVALIDATED, UNJOINED, ISOLATION, CAPTURED_EVENT = 900, 901, 904, 905, 907
NAMES = {
    INVALID_VALUE: "INVALID_VALUE", OUT_OF_MEMORY: "OUT_OF_MEMORY", 46: "DEVICE_UNAVAILABLE", INVALID_CONTEXT: "INVALID_CONTEXT",
    INVALID_HANDLE: "INVALID_HANDLE", 700: "ILLEGAL_ADDRESS", TOO_MUCH: "LAUNCH_OUT_OF_RESOURCES", 719: "LAUNCH_FAILED",
    UNSUPPORTED: "STREAM_CAPTURE_UNSUPPORTED", INVALIDATED: "STREAM_CAPTURE_INVALIDATED", UNJOINED: "STREAM_CAPTURE_UNJOINED",
    ISOLATION: "STREAM_CAPTURE_ISOLATION", CAPTURED_EVENT: "CAPTURED_EVENT",
}  # fmt: skip
#: Most blocks and threads along each axis, threads of a block, bytes of arguments, and bytes of shared memory that a kernel declares.
BLOCKS, THREADS, MOST_THREADS, ARGUMENTS, SHARED = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 4096, 48 << 10
#: Registers of a multiprocessor, those that a warp is given at a time, and warps that a block is given at a time.
REGISTERS, GIVEN, WARPS = 65536, 256, 4
LANES, WORD = 32, 8


class Refused(Exception):
    """What a function of the driver returns instead of success."""

    def __init__(self, result: int) -> None:
        super().__init__(NAMES.get(result, str(result)))
        self.result = result


def up(number: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-number // step) * step


def refused(made: Cubin, text: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: int) -> tuple[int, str]:
    """Return what a driver says of a launch, and why; 0 where it launches.

    Args:
        made: the kernel's machine code.
        text: its PTX.
        grid, block: blocks, and threads of a block, along each axis.
        arguments: how many words it is given.
    """
    grid, block, threads = (*grid, 1, 1)[:3], (*block, 1, 1)[:3], math.prod(block)
    if not all(1 <= n <= most for n, most in zip((*grid, *block), (*BLOCKS, *THREADS), strict=True)) or threads > MOST_THREADS:
        return INVALID_VALUE, f"{grid} blocks of {block} threads"
    if arguments * WORD > ARGUMENTS or made.usage.shared > SHARED:
        return INVALID_VALUE, f"{arguments} arguments, {made.usage.shared} bytes of shared memory"
    bound = re.search(r"\.maxntid ([\d, ]+)", text)
    if bound and threads > math.prod(map(int, bound[1].split(","))):
        return INVALID_VALUE, f"{threads} threads of {bound[0]}"
    warps = up(up(threads, LANES) // LANES, WARPS)
    if warps * up(made.usage.registers * LANES, GIVEN) > REGISTERS:
        return TOO_MUCH, f"{threads} threads of {made.usage.registers} registers"
    return 0, ""
