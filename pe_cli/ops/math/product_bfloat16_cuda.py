"""Matrix products on CUDA of factors that are bfloat16 in memory, by tensor cores: sums are float32, and C is float32 or bfloat16.

A tile of a factor lies in shared memory as the factor does in memory; the next one is on its way, 16 bytes at a time, while one is
multiplied. `ldmatrix` gives lanes their fragments, and turns over those of a factor that lies the other way round.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from pe_cli.kernels.cuda import bfloat16_tensor_cores, tensor_cores
from pe_cli.kernels.cuda.bfloat16_pointers import BYTES
from pe_cli.kernels.cuda.bfloat16_tensor_cores import half_room
from pe_cli.kernels.cuda.language import CudaKernel
from pe_cli.kernels.language import helper
from pe_cli.ops.math.product_tensor_cores_cuda import COLUMNS, ROWS, Factor, streamed, written
from pe_cli.ops.math.product_tiles_cuda import Tile, ended, framed, indented, made, put_one

#: From the largest; high and wide are those of a warp.
TILES = (Tile("128", 128, 128, 32, 64, 32, (2, 4), 2), Tile("64", 64, 64, 32, 32, 32, (2, 2), 4))
#: Elements of an access, and those that a line of a tile is longer: no two of eight rows meet in a bank.
EIGHT = 8
#: Terms of a product of a warp.
TERMS = 16


@helper
def put_two(c, at, s0, s1, e0, e1, alpha, adds, cut, left, even):
    """Write as many of two neighbours of C as there are; even: two of them are one access."""
    if left > 1 and even:
        o0, o1 = global_two(c, at) if adds else (s0, s1)
        put_global_two(c, at, ended(o0, s0, e0, alpha, adds, cut), ended(o1, s1, e1, alpha, adds, cut))
        return
    if left > 0:
        put_one(c, at, s0, e0, alpha, adds, cut)
    if left > 1:
        put_one(c, at + 1, s1, e1, alpha, adds, cut)


global_two, put_global_two = bfloat16_tensor_cores.global_two, bfloat16_tensor_cores.put_global_two


class _Factor(Factor):
    """The text for a factor of bfloat16, whose places in shared memory are counted in bytes."""

    def __init__(self, tile: Tile, name: str, across: bool, begins: int) -> None:
        super().__init__(tile, name, across, begins, EIGHT, EIGHT)
        #: Bytes from line to line, and of the tile.
        self.pitch, self.nbytes = BYTES * self.line, BYTES * self.size

    def is_wide(self) -> str:
        x, run = self.name, self.all if self.across else "(high - low)"
        return f"is_eight({x}, at_{x} + low, ld{x}) and {run} % {EIGHT} == 0"

    def target(self) -> str:
        return f"room + ({self.begins} + me // {self.per_line} * {self.pitch} + me % {self.per_line} * {BYTES * EIGHT})"

    def bytes_of(self, elements: int) -> str:
        return str(BYTES * elements)

    def quick(self, to: str, start: str, down: int) -> list[str]:
        x = self.name
        return [f"copy_eight({to}, {x}, {start}, 1 if y_{x} > {down} and x_{x} > 0 else 0)"]

    def slow(self, to: str, start: str, down: int) -> list[str]:
        x = self.name
        there = f"there = x_{x} if y_{x} > {down} else 0"
        return [there, f"for e in range({EIGHT}):", f"    copy_half({to} + 2 * e, {x}, {start} + e, there > e)"]

    def place(self, row: int, term: int) -> str:
        """Return the text of where a row of a term is, in bytes from that of the lane on."""
        return str(2 * row + self.pitch * term if self.across else self.pitch * row + 2 * term)

    def lane(self, second_is_term: bool) -> tuple[str, str]:
        """Return row and term at which this lane's row of four matrices of [8, 8] begins.

        Args:
            second_is_term: the second matrix has the terms behind those of the first, and the third the rows; else the other way round.
        """
        near, far = "lane // 8 % 2 * 8", "lane // 16 * 8"
        row, term = (far, near) if second_is_term else (near, far)
        return (row, f"lane % 8 + {term}") if self.across else (f"lane % 8 + {row}", term)


@functools.cache
def kernel_of(tile: Tile, ta: int, tb: int) -> CudaKernel:
    """Return the kernel of a tile, for factors as they are stored."""
    a = _Factor(tile, "a", bool(ta), 0)
    b = _Factor(tile, "b", not tb, a.nbytes)
    half, factors = a.nbytes + b.nbytes, (a, b)
    high, wide = tile.high // ROWS, tile.wide // COLUMNS
    (row_a, term_a), (row_b, term_b) = a.lane(False), b.lane(True)
    unit = {x.name: (2, x.pitch) if x.across else (x.pitch, 2) for x in factors}
    place = [
        "lane, warp = me % 32, me // 32",
        f"row, column = warp // {tile.warps[1]} * {tile.high}, warp % {tile.warps[1]} * {tile.wide}",
    ]
    head = [
        *place,
        "room = room_of()",
        f"from_a = room + ((row + {row_a}) * {unit['a'][0]} + ({term_a}) * {unit['a'][1]})",
        f"from_b = room + ({a.nbytes} + (column + {row_b}) * {unit['b'][0]} + ({term_b}) * {unit['b'][1]})",
        "scale = T(alpha)",
        "even = is_even(c, 0, n)",
    ]
    multiply = []
    for i in range(high):
        taken = f"{'turned_' if a.across else ''}fragments(in_a + {a.place(ROWS * i, 0)})"
        multiply.append(f"{', '.join(f'a{i}_{r}' for r in range(4))} = {taken}")
    for j in range(0, wide, 2):
        taken = f"{'turned_' if b.across else ''}fragments(in_b + {b.place(COLUMNS * j, 0)})"
        multiply.append(f"b{j}_0, b{j}_1, b{j + 1}_0, b{j + 1}_1 = {taken}")
    for i in range(high):
        for j in range(wide):
            four = ", ".join(f"s{i}_{j}_{e}" for e in range(4))
            multiply.append(f"{four} = mma_bf16({', '.join(f'a{i}_{r}' for r in range(4))}, b{j}_0, b{j}_1, {four})")
    moved = f"in_a, in_b = in_a + {a.place(0, TERMS)}, in_b + {b.place(0, TERMS)}"
    multiply = ["in_a, in_b = from_a + half, from_b + half", f"for _ in range({tile.depth // TERMS}):", *indented([*multiply, moved])]
    product = streamed(factors, tile.depth, str(half), multiply, [])
    end = [*place, "row, column = row + lane // 4, column + 2 * (lane % 4)", *written(high, wide, ["side", "column"], ", even")]
    sums = [f"s{i}_{j}_{e}" for i in range(high) for j in range(wide) for e in range(4)]
    named = replace(tile, name=f"products_halves_{tile.name}_{'nt'[ta]}{'nt'[tb]}")
    halves = ("is_eight", "copy_eight", "copy_half", "fragments", "turned_fragments", "is_even")
    more = {name: getattr(bfloat16_tensor_cores, name) for name in halves}
    return made(
        named, framed(named, sums, head, product, end), room_of=half_room(2 * half), put_two=put_two, mma_bf16=tensor_cores.mma_bf16,
        commit_copies=tensor_cores.commit_copies, wait_but_one=tensor_cores.wait_copies(1), **more,
    )  # fmt: skip
