"""Turns kernel calls into CUDA launches, and says with which blocks."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import computed
from pe_cli.devices.cuda_libraries.measured_choice import Chosen
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cpu.python_calls import MirroredKernel
from pe_cli.kernels.cuda.bfloat16_pointers import halves_of
from pe_cli.kernels.cuda.language import MOST_ITERATIONS, Built, build, calls_on_cuda
from pe_cli.kernels.cuda.library_calls import AcrossKernel, SumKernel

#: Threads of a block, and most blocks of a grid, where the kernel does not say.
BLOCK, GRID = 256, 2048
#: Kinds of calls that are no kernel of ours: a library or the driver enqueues them.
NO_KERNELS = (Chosen, SumKernel, AcrossKernel, MirroredKernel)
#: Most blocks along x, y and z.
AXIS_BLOCKS = (2**31 - 1, 65535, 65535)


def built_of(call: Call) -> Built:
    """Return the kernel of a call for its element types; of `forms`."""
    halves = halves_of(call)
    assert halves is not None, f"{call.kernel} takes no bfloat16"
    return build(call.kernel, computed(call.dtype), computed(call.second), halves)


def calls_of(calls: Sequence[Call]) -> list[Call]:
    """Return the launches that calls become: those that have something to do."""
    found = [made for call in calls for made in ([call] if isinstance(call.kernel, NO_KERNELS) else calls_on_cuda(call))]
    return [call for call in found if isinstance(call.kernel, NO_KERNELS) or 0 not in shape_of(call)[0]]


def shape_of(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return blocks and threads of a block; no blocks where nothing is to do.

    Raises:
        PeError: more is to do than a kernel counts (exit code 5).
    """
    built = built_of(call)
    wanted = built.wanted(call.args)
    if wanted is None:
        return (GRID,), built.block or (BLOCK,)
    if max(wanted) > MOST_ITERATIONS:
        raise PeError(f"{call.kernel}: {max(wanted):,} elements are too many for a CUDA device", code=ExitCode.DEVICE)
    if built.block:
        blocks = [-(-n // b) for n, b in zip(wanted, built.block, strict=True)]
        return tuple(min(n, limit) for n, limit in zip(blocks, AXIS_BLOCKS, strict=False)), built.block
    return (min(GRID, -(-wanted[0] // BLOCK)),), (min(BLOCK, max(wanted[0], 1)),)
