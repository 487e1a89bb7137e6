"""Lowers ops whose values are stored as bfloat16: they compute in float32, and what they write is rounded once.

On CPUs kernels that reach their arrays element by element (`Kernel.scalar`) are compiled for bfloat16 where all that they touch is of
that type: they convert as they load and store. On CUDA every kernel is, for those of its arrays that are bfloat16 (`bfloat16_pointers`).
For all others the op's bfloat16 inputs are made float32 before it, in memory that lives during the op alone, and its results are rounded
after it. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.calls import Buffer, Call, Offset, buffers_of
from pe_cli.kernels.cuda.bfloat16_pointers import halves_of
from pe_cli.kernels.cuda.language import CudaKernel, calls_on_cuda
from pe_cli.kernels.cuda.library_calls import LibraryKernel
from pe_cli.kernels.language import POINTERS, Kernel
from pe_cli.ops.define.copy_kernels import convert
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.tile_products import with_tiles
from pe_cli.ops.define.traits import Pointwise, SameNumbers
from pe_cli.ops.define.work_parts import thread_parts

Slots = Mapping[str, Sequence[Buffer]]


def lower_rounded(low: Lowering, lowering: Callable[[Lowering], None]) -> None:
    """Lower an op as `lowering` does, whether or not some of its variables are bfloat16.

    Args:
        low: of the op; gets the calls.
        lowering: of its definition, for the kind of device.
    """
    read, written = _rounded(low.input_buffers), _rounded(low.output_buffers)
    if not (read or written):
        lowering(low)
        return
    if low.place == "cuda" or low.op.has(Pointwise) or low.op.has(SameNumbers):
        # Whether all calls convert by themselves shows once they are there: they are made, and thrown away if one does not.
        tried = replace(low, calls=[], scratch_buffers=[])
        lowering(tried)
        if all(_converts(call, low.place) for call in tried.calls):
            low.calls, low.scratch_buffers = tried.calls, tried.scratch_buffers
            return
    seen = {b: Buffer("scratch", b.type.computed) for b in dict.fromkeys((*read, *written))}
    ins, outs = _seen(low.input_buffers, seen), _seen(low.output_buffers, seen)
    inner = replace(low, calls=[], scratch_buffers=[], input_buffers=ins, output_buffers=outs)
    lowering(inner)
    # Of a buffer that the op writes, too, the float32 copy alone has the latest numbers.
    only_read = {seen[b]: b for b in read if b not in written} if low.place == "cpu" else {}
    chosen = [with_tiles(call, only_read) for call in inner.calls]
    calls = [replace(call, output=None) for call, _ in chosen]  # the outputs share what is made float32
    # A call that reads factors as they are stored needs no copy of them: what no call touches is neither made nor kept.
    touched = {b for call in calls for arg in call.args for b in buffers_of(arg)}
    low.scratch_buffers = [b for b in (*seen.values(), *inner.scratch_buffers) if b in touched]
    low.scratch_buffers += [b for _, scratch in chosen for b in scratch]
    for b in read:
        if seen[b] in touched:
            _convert(low, b, seen[b])
    # Threads share the conversions: no call of the op begins before all that it reads is there.
    low.wait()
    low.calls += calls
    low.wait()
    for b in written:
        _convert(low, seen[b], b)


def _rounded(slots: Slots) -> list[Buffer]:
    """Return the buffers of bfloat16, each once."""
    return list(dict.fromkeys(b for row in slots.values() for b in row if b is not None and b.dtype == BFLOAT16))


def _seen(slots: Slots, seen: Mapping[Buffer, Buffer]) -> dict[str, list[Buffer]]:
    return {slot: [seen.get(b, b) for b in row] for slot, row in slots.items()}


def _converts(call: Call, place: str) -> bool:
    """Whether a call converts as it loads and stores; on CPUs where all that it touches as T is bfloat16, one element at a time."""
    kernel = call.kernel
    if isinstance(kernel, LibraryKernel):
        return all(_converts(each, place) for each in kernel.calls)
    if place == "cuda":
        return isinstance(kernel, (Kernel, CudaKernel)) and all(halves_of(each) is not None for each in calls_on_cuda(call))
    if not isinstance(kernel, Kernel) or not kernel.scalar:
        return False
    fixed = {"T": call.dtype, "U": call.second}
    pairs = [(POINTERS[kind], b) for kind, arg in zip(kernel.params, call.args, strict=True) if kind in POINTERS for b in buffers_of(arg)]
    return all(b.dtype == fixed.get(kind, kind) for kind, b in pairs)


def _convert(low: Lowering, x: Buffer, out: Buffer) -> None:
    for part, begin, end in thread_parts(x.size, low.threads, x.type.nbytes + out.type.nbytes):
        low.call(convert, Offset(x, begin), Offset(out, begin), end - begin, dtype=out.dtype, second=x.dtype, part=part)
