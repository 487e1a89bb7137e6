"""Matrix products on CUDA of factors that are bfloat16 in memory, by tensor cores: sums are float32, and C is float32 or bfloat16.

A tile of a factor lies in shared memory as the factor does in memory; the next one is on its way, 16 bytes at a time, while one is
multiplied. `ldmatrix` gives lanes their fragments, and turns over those of a factor that lies the other way round.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from pe_cli.kernels import cuda_halves, cuda_wide
from pe_cli.kernels.cuda import CudaKernel
from pe_cli.kernels.cuda_halves import half_room
from pe_cli.kernels.lang import helper
from pe_cli.ops.math.product_cores_cuda import COLUMNS, ROWS
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


global_two, put_global_two = cuda_halves.global_two, cuda_halves.put_global_two


class _Factor:
    """The text for a factor's tiles in shared memory.

    Args:
        tile: sizes.
        name: a or b.
        across: whether neighbours in memory are rows, and not terms.
        begins: bytes of shared memory before it.
    """

    def __init__(self, tile: Tile, name: str, across: bool, begins: int) -> None:
        self.name, self.across, self.begins, self.depth = name, across, begins, tile.depth
        self.rows, self.first, self.all = (tile.rows, "top", "m") if name == "a" else (tile.columns, "side", "n")
        along, lines = (self.rows, self.depth) if across else (self.depth, self.rows)
        #: Bytes from line to line, and of the tile.
        self.line = 2 * (along + EIGHT)
        self.size = self.line * lines
        self.per_line = along // EIGHT
        self.hop = tile.threads // self.per_line
        self.eights = along * lines // EIGHT // tile.threads

    def begin(self) -> list[str]:
        """Return lines that set where its first eight is, and where it goes."""
        x = self.name
        along, lines = f"me % {self.per_line} * {EIGHT}", f"me // {self.per_line}"
        r, d = (along, lines) if self.across else (lines, along)
        run = self.all if self.across else "(high - low)"
        rows, terms = f"int32(min({self.all} - {self.first} - r_{x}, {self.rows}))", f"int32(high - low - d_{x})"
        where = f"(low + d_{x}) * ld{x} + {self.first} + r_{x}" if self.across else f"({self.first} + r_{x}) * ld{x} + low + d_{x}"
        return [
            f"r_{x}, d_{x} = {r}, {d}",
            f"wide_{x} = is_eight({x}, at_{x} + low, ld{x}) and {run} % {EIGHT} == 0",
            f"to_{x} = room + ({self.begins} + me // {self.per_line} * {self.line} + me % {self.per_line} * {2 * EIGHT})",
            f"now_{x} = at_{x} + {where}",
            f"x_{x}, y_{x} = {f'{rows}, {terms}' if self.across else f'{terms}, {rows}'}",
        ]

    def copy(self, half: str) -> list[str]:
        """Return lines that begin to copy the next tile to a half of shared memory."""
        x, quick, slow = self.name, [], []
        for v in range(self.eights):
            there = f"there = x_{x} if y_{x} > {v * self.hop} else 0"
            to, start = f"to_{x} + {half} + {v * self.hop * self.line}", f"now_{x} + {v * self.hop} * ld{x}"
            quick += [f"copy_eight({to}, {x}, {start}, 1 if y_{x} > {v * self.hop} and x_{x} > 0 else 0)"]
            slow += [there, f"for e in range({EIGHT}):", f"    copy_half({to} + 2 * e, {x}, {start} + e, there > e)"]
        left = "y" if self.across else "x"
        step = f"{self.depth} * ld{x}" if self.across else str(self.depth)
        moved = f"{left}_{x} = int32({left}_{x} - {self.depth})"
        return [f"if wide_{x}:", *indented(quick), "else:", *indented(slow), f"now_{x} += {step}", moved]

    def place(self, row: int, term: int) -> str:
        """Return the text of where a row of a term is, in bytes from that of the lane on."""
        return str(2 * row + self.line * term if self.across else self.line * row + 2 * term)

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
    b = _Factor(tile, "b", not tb, a.size)
    half, factors = a.size + b.size, (a, b)
    high, wide = tile.high // ROWS, tile.wide // COLUMNS
    (row_a, term_a), (row_b, term_b) = a.lane(False), b.lane(True)
    unit = {x.name: (2, x.line) if x.across else (x.line, 2) for x in factors}
    head = [
        "lane, warp = me % 32, me // 32",
        f"row, column = warp // {tile.warps[1]} * {tile.high}, warp % {tile.warps[1]} * {tile.wide}",
        "room = room_of()",
        f"from_a = room + ((row + {row_a}) * {unit['a'][0]} + ({term_a}) * {unit['a'][1]})",
        f"from_b = room + ({a.size} + (column + {row_b}) * {unit['b'][0]} + ({term_b}) * {unit['b'][1]})",
        "row, column = row + lane // 4, column + 2 * (lane % 4)",
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
    product = [
        *[text for f in factors for text in f.begin()],
        *[text for f in factors for text in f.copy("0")],
        "commit_copies()",
        "half, left = int32(0), int32(high - low)",
        "while left > 0:",
        f"    if left > {tile.depth}:",
        *[f"        {text}" for f in factors for text in f.copy(f"({half} - half)")],
        "    commit_copies()",
        "    wait_but_one()",
        "    cuda.syncthreads()",
        *indented(multiply),
        "    cuda.syncthreads()",
        f"    half = int32({half} - half)",
        f"    left = int32(left - {tile.depth})",
    ]
    end = [f"e{j}_{e} = bias_of(bias, end, side + column + {COLUMNS * j + e}, n)" for j in range(wide) for e in range(2)]
    for i in range(high):
        for low in range(2):
            down = ROWS * i + 8 * low
            end.append(f"if top + row + {down} < m:")
            end.append(f"    there = at + (top + row + {down}) * n + side + column")
            for j in range(wide):
                pair = f"s{i}_{j}_{2 * low}, s{i}_{j}_{2 * low + 1}, e{j}_0, e{j}_1"
                left = f"n - side - column - {COLUMNS * j}"
                end.append(f"    put_two(c, there + {COLUMNS * j}, {pair}, scale, adds, end > 1, {left}, even)")
    sums = [f"s{i}_{j}_{e}" for i in range(high) for j in range(wide) for e in range(4)]
    named = replace(tile, name=f"products_halves_{tile.name}_{'nt'[ta]}{'nt'[tb]}")
    halves = ("is_eight", "copy_eight", "copy_half", "fragments", "turned_fragments", "is_even")
    more = {name: getattr(cuda_halves, name) for name in halves}
    return made(
        named, framed(named, sums, head, product, end), room_of=half_room(2 * half), put_two=put_two, mma_bf16=cuda_wide.mma_bf16,
        commit_copies=cuda_wide.commit_copies, wait_but_one=cuda_wide.wait_copies(1), **more,
    )  # fmt: skip
