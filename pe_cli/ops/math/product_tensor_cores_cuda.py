"""Matrix products on CUDA by tensor cores: factors are rounded to tf32 or bf16 on their way there, sums and C stay float32.

A tile of a factor lies in shared memory as the factor does in memory, so that it is copied by 16 bytes at a time, and no thread waits
for that: the next tile is on its way while one is multiplied. A warp computes a part of the tile of C by products of [16, 8], whose
fragments the PTX ISA lays out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from pe_cli.kernels.cuda import tensor_cores
from pe_cli.kernels.cuda.language import CudaKernel
from pe_cli.kernels.cuda.tensor_cores import shared_room
from pe_cli.kernels.language import helper
from pe_cli.ops.math.product_tiles_cuda import FOUR, Tile, framed, indented, made, put_one

#: From the largest; high and wide are those of a warp.
TILES = (Tile("128", 128, 128, 16, 64, 32, (2, 4), 2), Tile("64", 64, 64, 16, 32, 32, (2, 2)))
#: Elements that a line of a tile is longer than the tile, where its lines are terms, and where they are rows: no two lanes meet in a bank.
PAD_DEPTH, PAD_ROWS = 4, 8
#: Rows and columns of a product of a warp, and the terms that it adds.
ROWS, COLUMNS = 16, 8
ROUNDED = ", ".join(f"tf32_of(w{e})" for e in range(FOUR))
DEPTHS = {"tf32": 8, "bf16": 16}


@helper
def put_two(c, at, s0, s1, e0, e1, alpha, adds, cut, left):
    """Write as many of two neighbours of C as there are."""
    if left > 0:
        put_one(c, at, s0, e0, alpha, adds, cut)
    if left > 1:
        put_one(c, at + 1, s1, e1, alpha, adds, cut)


class Factor:
    """The text for a factor's tiles in shared memory, whatever their elements are.

    Args:
        tile: sizes.
        name: a or b.
        across: whether neighbours in memory are rows, and not terms.
        begins: where it begins in shared memory.
        together: elements of an access.
        pad: elements that a line is longer than the tile.

    Attributes:
        line: elements from line to line.
        size: elements of the tile.
    """

    def __init__(self, tile: Tile, name: str, across: bool, begins: int, together: int, pad: int) -> None:
        self.name, self.across, self.begins, self.depth, self.together = name, across, begins, tile.depth, together
        self.rows, self.first, self.all = (tile.rows, "top", "m") if name == "a" else (tile.columns, "side", "n")
        along, lines = (self.rows, self.depth) if across else (self.depth, self.rows)
        self.line = along + pad
        self.size = self.line * lines
        self.per_line = along // together
        self.hop = tile.threads // self.per_line
        self.pieces = along * lines // together // tile.threads

    def begin(self) -> list[str]:
        """Return lines that set where its first access is, and where it goes."""
        x = self.name
        along, lines = f"me % {self.per_line} * {self.together}", f"me // {self.per_line}"
        r, d = (along, lines) if self.across else (lines, along)
        rows, terms = f"int32(min({self.all} - {self.first} - r_{x}, {self.rows}))", f"int32(high - low - d_{x})"
        where = f"(low + d_{x}) * ld{x} + {self.first} + r_{x}" if self.across else f"({self.first} + r_{x}) * ld{x} + low + d_{x}"
        return [
            f"r_{x}, d_{x} = {r}, {d}",
            f"wide_{x} = {self.is_wide()}",
            f"to_{x} = {self.target()}",
            f"now_{x} = at_{x} + {where}",
            f"x_{x}, y_{x} = {f'{rows}, {terms}' if self.across else f'{terms}, {rows}'}",
        ]

    def copy(self, half: str) -> list[str]:
        """Return lines that begin to copy the next tile to a half of shared memory."""
        x, quick, slow = self.name, [], []
        for v in range(self.pieces):
            to, start = f"to_{x} + {half} + {self.bytes_of(v * self.hop * self.line)}", f"now_{x} + {v * self.hop} * ld{x}"
            quick += self.quick(to, start, v * self.hop)
            slow += self.slow(to, start, v * self.hop)
        left = "y" if self.across else "x"
        step = f"{self.depth} * ld{x}" if self.across else str(self.depth)
        moved = f"{left}_{x} = int32({left}_{x} - {self.depth})"
        return [f"if wide_{x}:", *indented(quick), "else:", *indented(slow), f"now_{x} += {step}", moved]

    def is_wide(self) -> str:
        """Return the text for whether all lines can be copied by whole accesses."""
        raise NotImplementedError

    def target(self) -> str:
        """Return the text for where the first access goes."""
        raise NotImplementedError

    def bytes_of(self, elements: int) -> str:
        """Return the text for the bytes of so many elements."""
        raise NotImplementedError

    def quick(self, to: str, start: str, down: int) -> list[str]:
        """Return lines that copy by a whole access, so many lines below the first."""
        raise NotImplementedError

    def slow(self, to: str, start: str, down: int) -> list[str]:
        """Return lines that copy element by element."""
        raise NotImplementedError


def streamed(factors: Sequence[Factor], depth: int, half: str, multiply: list[str], before: list[str]) -> list[str]:
    """Return the lines of a sum, tile by tile: the next tiles are on their way while some are multiplied.

    Args:
        factors: both.
        depth: terms of a tile.
        half: text for the bytes of both factors' tiles.
        multiply: lines that multiply.
        before: lines for what this thread has copied itself.
    """
    # Shared memory has two halves: while one is multiplied, the next tiles are copied to the other. A group of copies is committed in every
    # round, an empty one in the last, so that to wait for all groups but one is always to wait for the tiles that are multiplied now. The
    # first barrier makes what other threads copied visible; the second one keeps them from copying into a half that is still read.
    return [
        *[text for f in factors for text in f.begin()],
        *[text for f in factors for text in f.copy("0")],
        "commit_copies()",
        "half, left = int32(0), int32(high - low)",
        "while left > 0:",
        f"    if left > {depth}:",
        *[f"        {text}" for f in factors for text in f.copy(f"({half} - half)")],
        "    commit_copies()",
        "    wait_but_one()",
        *indented(before),
        "    cuda.syncthreads()",
        *indented(multiply),
        "    cuda.syncthreads()",
        f"    half = int32({half} - half)",
        f"    left = int32(left - {depth})",
    ]


def written(high: int, wide: int, right: Sequence[str], more: str = "") -> list[str]:
    """Return the lines that write a warp's sums.

    Args:
        high, wide: products of [16, 8] down and across.
        right: names whose sum is the first column.
        more: last arguments of `put_two`.
    """
    begin, left = " + ".join(right), " - ".join(right)
    end = [f"e{j}_{e} = bias_of(bias, end, {begin} + {COLUMNS * j + e}, n)" for j in range(wide) for e in range(2)]
    for i in range(high):
        for low in range(2):
            down = ROWS * i + 8 * low
            end.append(f"if top + row + {down} < m:")
            end.append(f"    there = at + (top + row + {down}) * n + {begin}")
            for j in range(wide):
                pair = f"s{i}_{j}_{2 * low}, s{i}_{j}_{2 * low + 1}, e{j}_0, e{j}_1"
                end.append(f"    put_two(c, there + {COLUMNS * j}, {pair}, scale, adds, end > 1, n - {left} - {COLUMNS * j}{more})")
    return end


class _Factor(Factor):
    """The text for a factor of float32, whose places in shared memory are counted in elements."""

    def __init__(self, tile: Tile, name: str, across: bool, begins: int) -> None:
        super().__init__(tile, name, across, begins, FOUR, PAD_ROWS if across else PAD_DEPTH)
        #: Elements from a row to the next, and from a term to the next.
        self.row, self.term = (1, self.line) if across else (self.line, 1)

    def is_wide(self) -> str:
        return f"is_wide({self.name}, at_{self.name} + low, ld{self.name})"

    def target(self) -> str:
        return f"room + SIZE * ({self.begins} + me // {self.per_line} * {self.line} + me % {self.per_line} * {FOUR})"

    def bytes_of(self, elements: int) -> str:
        return f"SIZE * {elements}"

    def quick(self, to: str, start: str, down: int) -> list[str]:
        return [self._there(down), f"copy_four({to}, {self.name}, {start}, there)"]

    def slow(self, to: str, start: str, down: int) -> list[str]:
        ones = [f"copy_one({to} + SIZE * {e}, {self.name}, {start} + {e}, 1 if there > {e} else 0)" for e in range(FOUR)]
        return [self._there(down), *ones]

    def _there(self, down: int) -> str:
        return f"there = min(max(x_{self.name} if y_{self.name} > {down} else 0, 0), {FOUR})"

    def round(self) -> list[str]:
        """Return lines that round to tf32 what this thread has copied of a tile."""
        where = [f"to_{self.name} + half + SIZE * {v * self.hop * self.line}" for v in range(self.pieces)]
        return [text for at in where for text in (f"w0, w1, w2, w3 = shared_four({at})", f"put_shared_four({at}, {ROUNDED})")]

    def place(self, row: int, term: int) -> str:
        """Return where an element is, from that of the lane on."""
        return f"shared_one(in_{self.name} + SIZE * {row * self.row + term * self.term})"

    def word(self, kind: str, row: int, term: int) -> str:
        """Return a register of a fragment."""
        if kind == "tf32":
            return f"shared_word(in_{self.name} + SIZE * {row * self.row + term * self.term})"
        return f"bf16_of({self.place(row, term)}, {self.place(row, term + 1)})"


@functools.cache
def kernel_of(tile: Tile, kind: str, ta: int, tb: int) -> CudaKernel:
    """Return the kernel of a tile, tf32 or bf16, for factors as they are stored."""
    deep, pack = DEPTHS[kind], DEPTHS[kind] // 8
    a = _Factor(tile, "a", bool(ta), 0)
    b = _Factor(tile, "b", not tb, a.size)
    half, factors = a.size + b.size, (a, b)
    high, wide = tile.high // ROWS, tile.wide // COLUMNS
    place = [
        "lane, warp = me % 32, me // 32",
        "line, member = lane // 4, lane % 4",
        f"row, column = warp // {tile.warps[1]} * {tile.high} + line, warp % {tile.warps[1]} * {tile.wide}",
    ]
    head = [
        *place,
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
    end = [*place, "right = side + column + 2 * member", *written(high, wide, ["right"])]
    before = [text for f in factors for text in (f.round() if kind == "tf32" else ())]
    product = streamed(factors, tile.depth, f"SIZE * {half}", multiply, before)
    sums = [f"s{i}_{j}_{e}" for i in range(high) for j in range(wide) for e in range(4)]
    named = replace(tile, name=f"products_{kind}_{tile.name}_{'nt'[ta]}{'nt'[tb]}")
    names = ("copy_four", "copy_one", "commit_copies", "tf32_of", "bf16_of", "shared_word")
    more = {name: getattr(tensor_cores, name) for name in names}
    return made(
        named, framed(named, sums, head, product, end), room_of=shared_room(2 * half), put_two=put_two,
        mma_of=getattr(tensor_cores, f"mma_{kind}"), wait_but_one=tensor_cores.wait_copies(1), **more,
    )  # fmt: skip
