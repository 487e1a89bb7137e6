"""Matrix products on CUDA by tensor cores: factors are rounded to tf32 or bf16 on their way there, sums and C stay float32.

A tile of a factor lies in shared memory as the factor does in memory, so that it is copied by 16 bytes at a time, and no thread waits
for that: the next tile is on its way while one is multiplied. A warp computes a part of the tile of C by products of [16, 8], whose
fragments the PTX ISA lays out.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from pe_cli.kernels import cuda_wide
from pe_cli.kernels.cuda import CudaKernel
from pe_cli.kernels.cuda_wide import shared_room
from pe_cli.kernels.lang import helper
from pe_cli.ops.math.product_tiles_cuda import FOUR, Tile, framed, indented, made, put_one

#: From the largest; high and wide are those of a warp.
TILES = (Tile("128", 128, 128, 16, 64, 32, (2, 4)), Tile("64", 64, 64, 16, 32, 32, (2, 2)))
#: Elements that a line of a tile is longer than the tile, where its lines are terms, and where they are rows: no two lanes meet in a bank.
PAD_DEPTH, PAD_ROWS = 4, 8
#: Rows and columns of a product of a warp, and the terms that it adds.
ROWS, COLUMNS = 16, 8
DEPTHS = {"tf32": 8, "bf16": 16}


@helper
def put_two(c, at, s0, s1, e0, e1, alpha, adds, cut, left):
    """Write as many of two neighbours of C as there are."""
    if left > 0:
        put_one(c, at, s0, e0, alpha, adds, cut)
    if left > 1:
        put_one(c, at + 1, s1, e1, alpha, adds, cut)


class _Factor:
    """The text for a factor's tiles in shared memory.

    Args:
        tile: sizes.
        name: a or b.
        across: whether neighbours in memory are rows, and not terms.
        begins: elements of shared memory before it.
    """

    def __init__(self, tile: Tile, name: str, across: bool, begins: int) -> None:
        self.name, self.across, self.begins = name, across, begins
        self.rows, self.first, self.all = (tile.rows, "top", "m") if name == "a" else (tile.columns, "side", "n")
        self.depth = tile.depth
        self.line = self.rows + PAD_ROWS if across else self.depth + PAD_DEPTH
        self.size = self.line * (self.depth if across else self.rows)
        self.per_line = (self.rows if across else self.depth) // FOUR
        self.hop = tile.threads // self.per_line
        self.fours = self.rows * self.depth // FOUR // tile.threads
        #: Elements from a row to the next, and from a term to the next.
        self.row, self.term = (1, self.line) if across else (self.line, 1)

    def begin(self) -> list[str]:
        """Return lines that set where its first four is, and where it goes."""
        x = self.name
        along, lines = f"me % {self.per_line} * {FOUR}", f"me // {self.per_line}"
        r, d = (along, lines) if self.across else (lines, along)
        out = [f"r_{x}, d_{x} = {r}, {d}", f"wide_{x} = is_wide({x}, at_{x} + low, ld{x})"]
        to = f"room + SIZE * ({self.begins} + me // {self.per_line} * {self.line} + me % {self.per_line} * {FOUR})"
        rows, terms = f"{self.all} - {self.first} - r_{x}", f"high - low - d_{x}"
        where = f"(low + d_{x}) * ld{x} + {self.first} + r_{x}" if self.across else f"({self.first} + r_{x}) * ld{x} + low + d_{x}"
        return [*out, f"to_{x}, now_{x} = {to}, at_{x} + {where}", f"x_{x}, y_{x} = {f'{rows}, {terms}' if self.across else f'{terms}, {rows}'}"]

    def copy(self, half: str) -> list[str]:
        """Return lines that begin to copy the next tile to a half of shared memory."""
        x, quick, slow = self.name, [], []
        for v in range(self.fours):
            there = f"there = min(max(x_{x} if y_{x} > {v * self.hop} else 0, 0), {FOUR})"
            to, start = f"to_{x} + {half} + SIZE * {v * self.hop * self.line}", f"now_{x} + {v * self.hop} * ld{x}"
            quick += [there, f"copy_four({to}, {x}, {start}, there)"]
            slow += [there, *[f"copy_one({to} + SIZE * {e}, {x}, {start} + {e}, 1 if there > {e} else 0)" for e in range(FOUR)]]
        moved = f"y_{x} -= {self.depth}" if self.across else f"x_{x} -= {self.depth}"
        step = f"{self.depth} * ld{x}" if self.across else str(self.depth)
        return [f"if wide_{x}:", *indented(quick), "else:", *indented(slow), f"now_{x} += {step}", moved]

    def place(self, row: int, term: int) -> str:
        """Return where an element is, from that of the lane on."""
        return f"shared_one(in_{self.name} + SIZE * {row * self.row + term * self.term})"

    def word(self, kind: str, row: int, term: int) -> str:
        """Return a register of a fragment."""
        if kind == "tf32":
            return f"tf32_of({self.place(row, term)})"
        return f"bf16_of({self.place(row, term)}, {self.place(row, term + 1)})"


@functools.cache
def kernel_of(tile: Tile, kind: str, ta: int, tb: int) -> CudaKernel:
    """Return the kernel of a tile, tf32 or bf16, for factors as they are stored."""
    deep, pack = DEPTHS[kind], DEPTHS[kind] // 8
    a = _Factor(tile, "a", bool(ta), 0)
    b = _Factor(tile, "b", not tb, a.size)
    half, factors = a.size + b.size, (a, b)
    high, wide = tile.high // ROWS, tile.wide // COLUMNS
    head = [
        "lane, warp = me % 32, me // 32",
        "line, member = lane // 4, lane % 4",
        f"row, column = warp // {tile.warps[1]} * {tile.high} + line, warp % {tile.warps[1]} * {tile.wide}",
        "room = room_of()",
        f"from_a = room + SIZE * (row * {a.row} + member * {pack * a.term})",
        f"from_b = room + SIZE * ({a.size} + (column + line) * {b.row} + member * {pack * b.term})",
        "scale = T(alpha)",
    ]
    multiply = ["in_a, in_b = from_a + half, from_b + half"]
    for i in range(high):
        multiply += [f"a{i}_{r} = {a.word(kind, ROWS * i + r % 2 * 8, r // 2 * 4 * pack)}" for r in range(4)]
    for j in range(wide):
        multiply += [f"b{r} = {b.word(kind, COLUMNS * j, r * 4 * pack)}" for r in range(2)]
        for i in range(high):
            four = ", ".join(f"s{i}_{j}_{e}" for e in range(4))
            multiply.append(f"{four} = mma_of({', '.join(f'a{i}_{r}' for r in range(4))}, b0, b1, {four})")
    moved = f"in_a, in_b = in_a + SIZE * {deep * a.term}, in_b + SIZE * {deep * b.term}"
    multiply = [multiply[0], f"for _ in range({tile.depth // deep}):", *indented([*multiply[1:], moved])]
    product = [
        *[text for f in factors for text in f.begin()],
        *[text for f in factors for text in f.copy("0")],
        "commit_copies()",
        "half, left = 0, high - low",
        "while left > 0:",
        f"    if left > {tile.depth}:",
        *[f"        {text}" for f in factors for text in f.copy(f"(SIZE * {half} - half)")],
        "    commit_copies()",
        "    wait_but_one()",
        "    cuda.syncthreads()",
        *indented(multiply),
        "    cuda.syncthreads()",
        f"    half = SIZE * {half} - half",
        f"    left -= {tile.depth}",
    ]
    end = ["right = side + column + 2 * member"]
    end += [f"e{j}_{e} = bias_of(bias, end, right + {COLUMNS * j + e}, n)" for j in range(wide) for e in range(2)]
    for i in range(high):
        for low in range(2):
            down = ROWS * i + 8 * low
            end.append(f"if top + row + {down} < m:")
            end.append(f"    there = at + (top + row + {down}) * n + right")
            for j in range(wide):
                pair = f"s{i}_{j}_{2 * low}, s{i}_{j}_{2 * low + 1}, e{j}_0, e{j}_1"
                end.append(f"    put_two(c, there + {COLUMNS * j}, {pair}, scale, adds, end > 1, n - right - {COLUMNS * j})")
    sums = [f"s{i}_{j}_{e}" for i in range(high) for j in range(wide) for e in range(4)]
    named = replace(tile, name=f"products_{kind}_{tile.name}_{'nt'[ta]}{'nt'[tb]}")
    names = ("copy_four", "copy_one", "commit_copies", "tf32_of", "bf16_of")
    more = {name: getattr(cuda_wide, name) for name in names}
    return made(
        named, framed(named, sums, head, product, end), room_of=shared_room(2 * half), put_two=put_two,
        mma_of=getattr(cuda_wide, f"mma_{kind}"), wait_but_one=cuda_wide.wait_copies(1), **more,
    )  # fmt: skip
