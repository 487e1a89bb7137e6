"""A tile of a convolution on CUDA: its part of the result, its factors in shared memory, and what ends a sum."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cuda import block_sums
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.vector_access import load_four, shared_tile, store_four
from pe_cli.kernels.language import T, helper

#: Terms of a tile.
DEPTH: Any = 16
#: Terms that are multiplied from one look at the counter to the next.
TOGETHER = 8
#: Without a sign, one comparison tells both ends of a range.
_U32: Any = np.uint32
_U64: Any = np.uint64


@helper
def through(a, by, shift):
    """Return a // d for 0 <= a < 2**31; by and shift are of `divisor(d)`."""
    return int((_U64(_U32(a)) * _U64(_U32(by))) >> _U64(shift))


@helper
def share(total, part, parts):
    """Return where a part of a total begins; all but the last are alike, to one."""
    each = quotient(total, parts)
    return each * part + min(part, total - each * parts)


def divisor(d: int) -> tuple[int, int]:
    """Return what `through` multiplies and shifts by to divide by d, from 1 to 2**31 - 1."""
    bits = (d - 1).bit_length()
    return -(-(1 << (31 + bits)) // d), 31 + bits


@helper
def four(x, at, left, together):
    """Return four neighbours, and 0 beyond the `left` that there are; together: they lie at a multiple of 16 bytes, all or none."""
    if together:
        if left > 0:
            return load_four(x, at)
        return T(0), T(0), T(0), T(0)
    return (
        x[at] if left > 0 else T(0),
        x[at + 1] if left > 1 else T(0),
        x[at + 2] if left > 2 else T(0),
        x[at + 3] if left > 3 else T(0),
    )


@helper
def finished(value, base, bias, at, o, then):
    """Return a sum with what comes behind it, bits of `then`: 1, an element of base is added; 2, a channel's bias; 4, relu cuts."""
    if then & 1:
        value = base[at] + value
    if then & 2:
        value += bias[o]
    if then & 4 and value <= T(0):
        value = T(0)
    return value


@helper
def put_four(y, base, bias, at, o, s0, s1, s2, s3, left, then, together):  # noqa: C901 - four of everything
    """Write as many of four neighbours as are left, of channel o and the next."""
    if then and left > 0:
        s0 = finished(s0, base, bias, at, o, then)
    if then and left > 1:
        s1 = finished(s1, base, bias, at + 1, o + 1, then)
    if then and left > 2:
        s2 = finished(s2, base, bias, at + 2, o + 2, then)
    if then and left > 3:
        s3 = finished(s3, base, bias, at + 3, o + 3, then)
    if together:
        if left > 0:
            store_four(y, at, s0, s1, s2, s3)
        return
    if left > 0:
        y[at] = s0
    if left > 1:
        y[at + 1] = s1
    if left > 2:
        y[at + 2] = s2
    if left > 3:
        y[at + 3] = s3


def indented(lines: list[str]) -> list[str]:
    """Return lines, further to the right."""
    return [f"    {line}" for line in lines]


@dataclass(frozen=True)
class Tile:
    """How large a block's part of the result is.

    Args:
        rows, columns: of the part.
        high, wide: of what one thread has of it; wide is 4, high 4 or 8.
    """

    rows: int
    columns: int
    high: int
    wide: int = 4
    #: Terms of a step.
    depth: int = DEPTH
    #: What a thread's columns begin with, and how its sums lie from there: of each run, the first column and their names.
    column: ClassVar[str] = "tx * 4"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.high * (self.columns // self.wide)

    @property
    def name(self) -> str:
        """How the names of its kernels end."""
        return f"{self.rows}x{self.columns}"

    @cached_property
    def lines(self) -> tuple[int, int]:
        """Elements from term to term of both tiles: threads that fill them write to different banks."""
        return self.rows + 4, self.columns + 4

    def results(self) -> list[tuple[str, list[tuple[int, list[str]]]]]:
        """Return a thread's rows of the part, and for each the runs of its sums: the first column, from `column` on, and their names."""
        return [(f"ty * {self.high} + {i}", [(0, [f"s{i}{j}" for j in range(self.wide)])]) for i in range(self.high)]

    @property
    def sums(self) -> list[str]:
        """The names of a thread's sums, a multiple of four."""
        return [name for _, runs in self.results() for _, names in runs for name in names]

    def begin(self) -> list[str]:
        """Return the first statements of a kernel: shared memory, the thread's place, and its sums."""
        return [
            "told = cuda.shared.array(1, WORD)",
            "me = int(cuda.threadIdx.x)",
            *self.place(),
            *(f"{' = '.join(name for _, names in runs for name in names)} = T(0)" for _, runs in self.results()),
        ]

    def place(self) -> list[str]:
        """Return the statements that set where the tiles lie, and which of their rows and columns are the thread's."""
        across = self.columns // self.wide
        return ["left, right = left_tile(), right_tile()", f"ty, tx = me // {across}, me % {across}"]

    def put(self, side: str, row: str, term: str, names: list[str], along: str = "") -> list[str]:
        """Return the statements that keep numbers in the tiles number `now`: one, or four neighbours along `row` or `term`.

        Args:
            side: left or right.
            row, term: of the first; of the right tile, rows are the columns of the part.
            names: of the numbers.
            along: row or term.
        """
        line = self.lines[side == "right"]
        if along == "row":
            return [f"store_four({side}, (now * {self.depth} + {term}) * {line} + {row}, {', '.join(names)})"]
        places = [f"{term} + {q}" if along else term for q in range(len(names))]
        return [f"{side}[(now * {self.depth} + {at}) * {line} + {row}] = {name}" for at, name in zip(places, names, strict=True)]

    def space(self) -> dict[str, Any]:
        """Return what only the texts of this kind of tile see."""
        left, right = (2 * self.depth * line for line in self.lines)
        return {"left_tile": shared_tile("left_tile", left), "right_tile": shared_tile("right_tile", right), "put": put_four}

    def joined(self) -> list[str]:
        """Return the statements that leave the sums of all splits in one block, see `block_sums.joined`."""
        across = "int(cuda.gridDim.x), int(cuda.gridDim.y), int(cuda.blockIdx.x), int(cuda.blockIdx.y)"
        return [
            f"columns, rows_of, here, below = {across}",
            "own = (quotient(int(cuda.blockIdx.z), splits) * rows_of + below) * columns + here",
            *block_sums.joined(self.sums, self.threads, "own", "(quotient(int(cuda.gridDim.z), splits) * rows_of * columns)"),
            "if not done:",
            "    return",
        ]

    def multiply(self) -> list[str]:
        """Return the statements that add the products of the pair of tiles number `was`."""
        left, right = self.lines
        out: list[str] = []
        for k in range(TOGETHER):
            for i in range(0, self.high, 4):
                out.append(f"{', '.join(f'x{i + v}' for v in range(4))} = load_four(left, lo + {k * left + i})")
            out.append(f"{', '.join(f'y{v}' for v in range(4))} = load_four(right, ro + {k * right})")
            out += [f"s{i}{j} += x{i} * y{j}" for i in range(self.high) for j in range(4)]
        return [
            f"lo = _I32(was * {DEPTH * left} + ty * {self.high})",
            f"ro = _I32(was * {DEPTH * right} + tx * {self.wide})",
            f"stop = _I32(lo + {DEPTH * left})",
            "while lo < stop:",
            *indented([*out, f"lo, ro = _I32(lo + {TOGETHER * left}), _I32(ro + {TOGETHER * right})"]),
        ]

    def steps(self, load: list[str], keep: list[str]) -> list[str]:
        """Return the loop over the steps from begin to end: what loads a step's numbers, and what keeps them in the tiles number `now`."""
        return [
            "step, now = begin, _I32(0)",
            "while True:",
            *indented(["if step < end:", *indented(load), "if step > begin:", *indented(["was = 1 - now", *self.multiply()])]),
            *indented(["if step >= end:", "    break"]),
            *indented([*keep, "cuda.syncthreads()", "now = _I32(1 - now)", "step = _I32(step + 1)"]),
        ]
