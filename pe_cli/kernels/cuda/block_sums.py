"""Sums that several blocks of a CUDA kernel share: the last block to finish its part adds up all parts within the same launch.

Which block comes last differs from run to run; what is added, and in which order, does not. A block tells that it is done by taking a
ticket of its sum, a word that is 0 before the launch and again behind it. Many parts are added in steps of NEAR neighbours, so that no
block has many to add.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda.language import cuda, cuda_intrinsic
from pe_cli.kernels.cuda.tensor_cores import global_four, put_global_four
from pe_cli.kernels.language import helper

#: Parts that one block adds up at a time, and how far a shift divides by that.
NEAR: Any = 16
SHIFT: Any = 4
#: Numbers that a thread may have on their way while it adds.
HELD = 64
FOUR = 4


@cuda_intrinsic("int64", "int64*", "int64")
def claim(env: Any, args: list[Any]) -> Any:
    """Write a number to a place that holds 0, and return what it held: of several threads, one is given 0."""
    zero = args[1].type(0)
    return env.builder.extract_value(env.builder.cmpxchg(args[0], zero, args[1], "monotonic"), 0)


@cuda_intrinsic("int64", "int64*", "int64")
def take_ticket(env: Any, args: list[Any]) -> Any:
    """Add 1 to a word, and return what it was before."""
    from llvmlite import ir

    return env.builder.atomic_rmw("add", env.builder.gep(args[0], [args[1]]), ir.IntType(64)(1), "monotonic")


@helper
def is_last(tickets, at, count, told, me):
    """Return whether this block is the last of so many to come here; it sees what all of them have written before.

    All threads of the block come. tickets: words, of which number `at` is 0 at first, and again when the last block has been here; told:
    an int64 of shared memory; me: number of the thread.
    """
    cuda.syncthreads()
    if me == 0:
        cuda.threadfence()
        # The barrier and the fence before publish what all threads of the block wrote; the fence behind lets the last block see it all.
        before = take_ticket(tickets, at)
        cuda.threadfence()
        if before == count - 1:
            tickets[at] = 0
        told[0] = before
    cuda.syncthreads()
    return told[0] == count - 1


def tickets_of(splits: int) -> int:
    """Return how many tickets a sum of so many parts takes."""
    count, found = splits, 0
    while count > 1:
        count = -(-count // NEAR)
        found += count
    return found


#: What the text of `joined` needs to know.
MEANINGS: dict[str, Any] = {
    "is_last": is_last, "global_four": global_four, "put_global_four": put_global_four, "NEAR": NEAR, "SHIFT": SHIFT, "WORD": np.int64,
}  # fmt: skip


def joined(sums: list[str], threads: int, tile: str, tiles: str) -> list[str]:
    """Return the text that adds up what all splits have in their sums, and sets `done` in the block that has the result in its own.

    The kernel has parts: Ptr, for every split and tile an element for each sum of each thread; tickets: PtrI64, `tickets_each` for every
    tile, which is `tickets_of(splits)`; me, split and splits.

    Args:
        sums: names of a thread's sums, a multiple of four of them.
        threads: of a block.
        tile: number of the block's tile.
        tiles: how many there are.
    """
    size = len(sums) * threads
    fours = [sums[i : i + FOUR] for i in range(0, len(sums), FOUR)]
    together = max(1, HELD // len(sums))

    def added(count: int) -> list[str]:
        places = [(u, f) for u in range(count) for f in range(len(fours))]
        loads = [
            f"{', '.join(f'p{u}_{f}_{e}' for e in range(FOUR))} = global_four(parts, spot + {u} * hop + {f * FOUR * threads})"
            for u, f in places
        ]
        return [*loads, *(f"{name} += p{u}_{f}_{e}" for u, f in places for e, name in enumerate(fours[f])), f"spot += {count} * hop"]

    puts = [f"put_global_four(parts, spot + {f * FOUR * threads}, {', '.join(four)})" for f, four in enumerate(fours)]
    return [
        "done = True",
        "if splits > 1:",
        f"    hop, index, count, desk = {tiles} * {size}, split, splits, {tile} * tickets_each",
        "    while done and count > 1:",
        "        first = (index >> SHIFT) << SHIFT",
        f"        spot = index * hop + {tile} * {size} + {FOUR} * me",
        *[f"        {line}" for line in puts],
        "        members = min(NEAR, count - first)",
        "        done = is_last(tickets, desk + (index >> SHIFT), members, told, me)",
        "        if done:",
        *[f"            {name} = T(0)" for name in sums],
        f"            spot = first * hop + {tile} * {size} + {FOUR} * me",
        *([f"            while members >= {together}:", *[f"                {line}" for line in added(together)],
           f"                members -= {together}"] if together > 1 else []),
        "            while members > 0:",
        *[f"                {line}" for line in added(1)],
        "                members -= 1",
        "            index, count = index >> SHIFT, (count + NEAR - 1) >> SHIFT",
        "            desk += count",
        "            hop *= NEAR",
    ]  # fmt: skip
