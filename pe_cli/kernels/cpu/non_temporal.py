"""Non-temporal stores and prefetching: for data that will not be read soon, and for data that the processor cannot predict.

A store brings its line into the cache first, and takes it from there to memory later. One that goes past the caches does neither: of arrays
larger than the caches it takes half of the time, if whole lines are written one after the other.
"""

from __future__ import annotations

import platform
from typing import Any

from pe_cli.kernels.language import SIZE, address, helper, intrinsic, pointer

#: Bytes that memory gives and takes at once.
LINE = 64
#: Bytes of an array from which on it is written past the caches: it would drive out of them what it leaves room for.
FAR = 12 << 20
#: Elements of a block up to which bringing it near before it is needed pays: larger ones drive out what is there.
TOUCHED = 64 * 1024
#: Rows of a table that are on their way from memory while one is used.
AHEAD = 16
#: Most elements of a row that are asked for.
BEGINNING = 64
#: Elements from what is computed with to what is asked for, where computing takes so long that the processor itself reads too little ahead.
DISTANCE = 1024


def store_non_temporal(env: Any, value: Any, at: Any, builder: Any = None) -> None:
    """Emit a store of a vector past the caches, to an address that is a multiple of its bytes; `fence_non_temporal` has to follow.

    Args:
        env: as for `lang.Intrinsic`.
        value: the vector.
        at: a pointer to vectors.
        builder: where to emit it, if not at env's.
    """
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    # LLVM makes a non-temporal store (movnt on x86) of a store with this metadata, if it is aligned to the vector's size
    b = builder or env.builder
    done = b.store(value, at, align=DTYPES[env.dtype] * value.type.count)
    done.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


@intrinsic("void", "int64", "int64")
def _store_line(env: Any, args: list[Any]) -> Any:
    """Copy the line at an address to another, past the caches."""
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    b, size = env.builder, DTYPES[env.dtype]
    vector = ir.VectorType(env.element, env.lanes)
    source, target = (b.inttoptr(at, vector.as_pointer()) for at in args)
    for i in range(LINE // (size * env.lanes)):
        step = [ir.Constant(ir.IntType(64), i)]
        store_non_temporal(env, b.load(b.gep(source, step), align=size), b.gep(target, step))


@intrinsic("void")
def fence_non_temporal(env: Any, args: list[Any]) -> Any:
    """Wait until stores past the caches are seen by other threads."""
    from llvmlite import ir

    del args
    # non-temporal stores are exempt from x86's order of stores: only sfence puts them before what other threads read next
    if platform.machine() in {"x86_64", "AMD64"}:
        env.builder.call(env.function("llvm.x86.sse.sfence", ir.VoidType(), []), [])
    else:
        env.builder.fence("release")


def ask(env: Any, at: Any, builder: Any = None, *, level: int = 1) -> None:
    """Emit a request for the line at a pointer to bytes, which need not be a valid one.

    Args:
        env: as for `lang.Intrinsic`.
        at: the pointer.
        builder: where to emit it, if not at env's.
        level: the cache to bring it into.
    """
    from llvmlite import ir

    i32 = ir.IntType(32)
    fn = env.function("llvm.prefetch.p0", ir.VoidType(), [at.type, i32, i32, i32])
    read, near, data = (ir.Constant(i32, n) for n in (0, 4 - level, 1))
    (builder or env.builder).call(fn, [at, read, near, data])


@intrinsic("void", "int64")
def prefetch(env: Any, args: list[Any]) -> Any:
    """Ask for the line at an address, which need not be valid; into the second cache, which waits for more lines at once."""
    from llvmlite import ir

    ask(env, env.builder.inttoptr(args[0], ir.IntType(8).as_pointer()), level=2)


@intrinsic("void", "int64")
def _touch_line(env: Any, args: list[Any]) -> Any:
    """Read four bytes at an address, and do nothing with them."""
    from llvmlite import ir

    at = env.builder.inttoptr(args[0], ir.IntType(32).as_pointer())
    env.builder.load_atomic(at, "monotonic", 4)  # any other load would be left out


@helper
def touch(x, step, rows, columns):
    """Bring [rows, columns] of a matrix into the caches in one run of addresses: nothing comes faster. x: address; step: elements."""
    for i in range(rows):
        for byte in range(0, SIZE * columns, LINE):
            _touch_line(x + SIZE * i * step + byte)


@helper
def is_non_temporal(at, step, count):
    """Return whether to write rows of so many elements in all past the caches; they begin at an address, and every step elements on."""
    # Only whole lines: of one that is written in part the rest has to be read from memory first.
    return SIZE * count >= FAR and at % LINE == 0 and SIZE * step % LINE == 0


@helper
def store_row(source, target, count):
    """Copy a row past the caches, of as many elements as whole lines have; addresses, the target's a multiple of a line."""
    for byte in range(0, SIZE * count, LINE):
        _store_line(source + byte, target + byte)


@helper
def store_run(source, target, count):
    """Copy elements past the caches, but those in lines at the ends that are not whole; addresses."""
    # a line that is written in part would be read from memory first, so both ends go through the cache
    head = min(count, (LINE - target % LINE) % LINE // SIZE)
    tail = head + (count - head) // (LINE // SIZE) * (LINE // SIZE)
    x, y = pointer(source), pointer(target)
    for i in range(head):
        y[i] = x[i]
    store_row(source + SIZE * head, target + SIZE * head, tail - head)
    for i in range(tail, count):
        y[i] = x[i]


@helper
def prefetch_row(x, row, width):
    """Ask for the beginning of a row of a table; the processor itself goes on with longer ones. Rows below 0 do no harm."""
    first = address(x) + SIZE * row * width
    for byte in range(0, SIZE * min(width, BEGINNING), LINE):
        prefetch(first + byte)


@helper
def is_large(count):
    """Return whether so many elements in all are read from memory, and not from a cache."""
    return SIZE * count >= FAR


@helper
def prefetch_run(x, at, count):
    """Ask for count elements of x from at on. What lies behind its end does no harm."""
    first = address(x) + SIZE * at
    for byte in range(0, SIZE * count, LINE):
        prefetch(first + byte)
