"""Kernel calls before any address exists: buffers of known type, and what a call's arguments may be."""

from __future__ import annotations

from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType


@dataclass(frozen=True, eq=False)
class Buffer:
    """A variable on one device, or scratch memory of one op.

    Args:
        name: the variable's name; `scratch` for scratch.
        type: shape and element type, all sizes known.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.type.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size


@dataclass(frozen=True)
class Offset:
    """A place inside a buffer, in elements from its start; usable wherever a buffer is an argument."""

    buffer: Buffer
    elements: int


@dataclass(frozen=True)
class Stretch:
    """Elements from a place in a buffer on, which may go on in the buffers that lie behind it; for arguments of calls on CUDA.

    Args:
        buffer: in which it begins.
        elements: from the buffer's start.
        count: how many there are.
    """

    buffer: Buffer
    elements: int
    count: int


@dataclass(frozen=True)
class Place:
    """A place inside a buffer that moves on from round to round of the loops around a call; usable wherever a buffer is an argument.

    Args:
        buffer: of the task that the call belongs to.
        nbytes: from its start, in the first round of every loop.
        strides: bytes that it moves on with every round of each loop, the outermost first; loops left out do not move it.
    """

    buffer: Buffer
    nbytes: int = 0
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """Addresses of several buffers as an int64 array; for a kernel's PtrI64 parameter that takes a list."""

    buffers: tuple[Buffer | Offset | Place, ...]


@dataclass(frozen=True, eq=False)
class Nested:
    """Calls that another call makes, again and again or not at all; for a kernel's PtrI64 parameter, see `pe_cli.kernels.cpu.loop_calls`.

    Args:
        calls: in order; their arguments are places in buffers of the task that the outermost call belongs to.
        labels: for error reports, a number for each call, from 1.
        depth: how many loops there are around them but their own.
    """

    calls: tuple[Call, ...]
    labels: tuple[int, ...]
    depth: int


@dataclass(frozen=True)
class Numbers:
    """Integers in memory, for a kernel's PtrI64 parameter (shapes, strides, offsets)."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class Tickets:
    """Words in memory that are 0 when a kernel begins, and that it leaves so; for a PtrI64 parameter of a CUDA kernel, see `block_sums`."""

    count: int


@dataclass(frozen=True)
class Call:
    """One kernel call: arguments are buffers, places in buffers, integers and floats, in the kernel's order.

    Args:
        kernel: of the kernel language; a `CudaKernel` on CUDA.
        args: in the order of its parameters.
        dtype: element type T.
        second: element type U.
        part: neighbouring calls with numbers may run at the same time, those of one number in order; None waits for all
            calls before, and all after wait for it.
        output: slot of the only output that it is for; see `Lowering.only`.
    """

    kernel: Any
    args: tuple[Any, ...]
    dtype: str
    second: str
    part: int | None = None
    output: str | None = None


def buffers_of(arg: Any) -> list[Buffer]:
    """Return the buffers that an argument of a call names."""
    if isinstance(arg, Table):
        return [b for row in arg.buffers for b in buffers_of(row)]
    if isinstance(arg, Nested):
        return list(dict.fromkeys(b for call in arg.calls for inner in call.args for b in buffers_of(inner)))
    if isinstance(arg, (Offset, Place, Stretch)):
        return [arg.buffer]
    return [arg] if isinstance(arg, Buffer) else []


class _Word:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


#: Arguments that the plan fills in: the error report of the op, and the counter of steps (int64 pointer).
STATUS: Any = _Word("status")
STEP: Any = _Word("step")
