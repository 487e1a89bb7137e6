"""Matrix products on CUDA by multiply-adds: a block computes a tile of C from tiles of both factors, two of which lie in shared memory.

While a tile is multiplied, the next one is on its way: it is read into registers before, and written to the other half of shared memory
behind. A tile of a factor lies there as [depth, LINE]. A thread has 4, or 8, rows and columns of the tile in registers; its text is made
here, because only what has a name of its own lies in one.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cuda import block_sums, tensor_cores
from pe_cli.kernels.cuda.language import CudaKernel, cuda, cuda_kernel
from pe_cli.kernels.cuda.tensor_cores import (
    global_four,
    is_wide,
    put_global_four,
    put_shared_four,
    put_shared_one,
    shared_four,
    shared_room,
)
from pe_cli.kernels.language import SIZE, T, helper

#: Lanes of a warp lie in 4 rows and 8 columns; each has 4 neighbours.
LANE_ROWS, LANE_COLUMNS, FOUR = 4, 8, 4
#: Elements that a line of a tile is longer than its rows: those that threads write one below the other lie in different banks.
PAD = 4
PARAMS = (
    "ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Ptr, lda: Int, b: Ptr, ldb: Int, c: Ptr, alpha: Real, adds: Int, "
    "bias: Ptr, end: Int, table: PtrI64, groups: Int, chunk: Int, splits: Int, parts: Ptr, tickets: PtrI64, tickets_each: Int"
)


@dataclass(frozen=True)
class Tile:
    """What a block computes, and how.

    Args:
        name: of its kernel.
        rows, columns: of the tile of C.
        depth: terms of a sum that a step adds.
        high, wide: rows and columns of a thread, or of a warp where it uses tensor cores.
        warps: along rows, and along columns.
        resident: see `CudaKernel`.
    """

    name: str
    rows: int
    columns: int
    depth: int
    high: int
    wide: int
    warps: tuple[int, int]
    resident: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * math.prod(self.warps)


#: Terms that stand one after the other in the text of the innermost loop.
UNROLLED = 4
#: From the largest; float64 has no registers for the first.
TILES = (
    Tile("products_128", 128, 128, 8, 8, 8, (4, 2)),
    Tile("products_64", 64, 64, 16, 8, 4, (2, 2)),
    Tile("products_32", 32, 32, 16, 4, 4, (2, 1)),
)


@helper
def ended(old, total, extra, alpha, adds, cut):
    """Return an element of C: what it was plus the sum, or alpha times the sum plus its bias, cut off below 0 where asked."""
    value = alpha * total + extra
    if cut and value < T(0):
        value = T(0)
    return old + total if adds else value


@helper
def bias_of(bias, end, column, n):
    """Return the bias of a column, 0 where there is none; end: 0 without a bias, 1 with it, 2 for a cut at 0 too."""
    return bias[column] if end > 0 and column < n else T(0)


@helper
def put_one(c, at, total, extra, alpha, adds, cut):
    """Write an element of C, see `ended`."""
    c[at] = ended(c[at] if adds else T(0), total, extra, alpha, adds, cut)


@helper
def put_four(c, at, s0, s1, s2, s3, e0, e1, e2, e3, alpha, adds, cut, left, wide):
    """Write as many of four neighbours of C as there are."""
    if left >= 4 and wide and not adds:
        o0, o1 = ended(s0, s0, e0, alpha, adds, cut), ended(s1, s1, e1, alpha, adds, cut)
        o2, o3 = ended(s2, s2, e2, alpha, adds, cut), ended(s3, s3, e3, alpha, adds, cut)
        put_global_four(c, at, o0, o1, o2, o3)
        return
    if left > 0:
        put_one(c, at, s0, e0, alpha, adds, cut)
    if left > 1:
        put_one(c, at + 1, s1, e1, alpha, adds, cut)
    if left > 2:
        put_one(c, at + 2, s2, e2, alpha, adds, cut)
    if left > 3:
        put_one(c, at + 3, s3, e3, alpha, adds, cut)


def made(tile: Tile, lines: list[str], **more: Any) -> CudaKernel:
    """Return a kernel whose text is the body's lines."""
    text = f"from __future__ import annotations\n\n\ndef {tile.name}({PARAMS}):\n" + "\n".join("    " + line for line in lines) + "\n"
    space: dict[str, Any] = {
        "cuda": cuda, "T": T, "SIZE": SIZE, "put_four": put_four, "int32": np.int32, "bias_of": bias_of,
        "global_four": global_four, "is_wide": is_wide,
        "put_shared_four": put_shared_four, "put_shared_one": put_shared_one, "shared_four": shared_four, "__name__": __name__,
        "shared_one": tensor_cores.shared_one, "thread_again": tensor_cores.thread_again, **block_sums.MEANINGS, **more,
    }  # fmt: skip
    exec(compile(text, f"<{tile.name}>", "exec"), space)  # our own text
    rows, columns = f"(m + {tile.rows - 1}) // {tile.rows}", f"(n + {tile.columns - 1}) // {tile.columns}"
    threads = (f"{rows} * {tile.threads}", columns, "groups * splits")
    kernel: CudaKernel = cuda_kernel(
        space[tile.name], text=text, block=(tile.threads, 1, 1), threads=threads, name=f"{__name__}:{tile.name}", resident=tile.resident
    )
    return kernel


def indented(lines: list[str], by: int = 1) -> list[str]:
    """Return lines, further to the right."""
    return ["    " * by + line for line in lines]


def framed(tile: Tile, sums: list[str], head: list[str], product: list[str], end: list[str]) -> list[str]:
    """Return the text around a tile: for every tile of C that the block has, its sums over all products of one place.

    Args:
        tile: its sizes.
        sums: their names.
        head: lines that set what never changes.
        product: that add a product to the sums, from term low to high of factors that begin at at_a and at_b.
        end: that write the sums, the rest of C being at index at; of several blocks that share a tile, one does.
    """
    tops, sides = f"((m + {tile.rows - 1}) // {tile.rows})", f"((n + {tile.columns - 1}) // {tile.columns})"
    number = f"((group * {sides} + side // {tile.columns}) * {tops} + int(cuda.blockIdx.x))"
    # A block finds group and share by subtraction, as there are few of them and an integer division costs as much as a dozen steps. Where
    # the share has no terms left, the loop over products begins at its end.
    return [
        "me = int(cuda.threadIdx.x)",
        "told = cuda.shared.array(1, WORD)",
        *head,
        f"top = int32(int(cuda.blockIdx.x) * {tile.rows})",
        "z = int32(cuda.blockIdx.z)",
        "while z < groups * splits:",
        "    group, low, split = z, int32(0), int32(0)",
        "    while group >= groups:",
        "        group, low, split = int32(group - groups), int32(low + chunk), int32(split + 1)",
        "    high = int32(min(k, low + chunk))",
        f"    side = int32(int(cuda.blockIdx.y) * {tile.columns})",
        "    while side < n:",
        *[f"        {name} = T(0)" for name in sums],
        "        q = int32(table[group] if high > low else table[group + 1])",
        "        while q < table[group + 1]:",
        "            at_a, at_b = table[groups + 1 + 2 * q], table[groups + 2 + 2 * q]",
        *indented(product, 3),
        "            q = int32(q + 1)",
        "        me = thread_again()",  # what is made of it need not stay in registers while a tile is multiplied
        *indented(block_sums.joined(sums, tile.threads, number, f"(groups * {sides} * {tops})"), 2),
        "        if done:",
        "            at = group * m * n",
        *indented(end, 3),
        f"        side = int32(side + int(cuda.gridDim.y) * {tile.columns})",
        "    z = int32(z + int(cuda.gridDim.z))",
    ]


@functools.cache
def kernel_of(tile: Tile) -> CudaKernel:
    """Return the kernel of a tile."""
    line = {"a": tile.rows + PAD, "b": tile.columns + PAD}
    size = {x: tile.depth * line[x] for x in "ab"}
    half = sum(size.values())
    head = [
        "lane, warp = me % 32, me // 32",
        f"row = warp // {tile.warps[1]} * {LANE_ROWS * tile.high} + lane // {LANE_COLUMNS} * {FOUR}",
        f"column = warp % {tile.warps[1]} * {LANE_COLUMNS * tile.wide} + lane % {LANE_COLUMNS} * {FOUR}",
        "room = room_of()",
        "from_a, from_b = room + SIZE * row, room + SIZE * (column + " + str(size["a"]) + ")",
        "scale = T(alpha)",
        "wide_c = is_wide(c, 0, n)",
    ]
    factors = [
        _Factor(tile, "a", "ta", "top", "m", tile.rows, line["a"], 0),
        _Factor(tile, "b", "not tb", "side", "n", tile.columns, line["b"], size["a"]),
    ]
    # a step: fetch the next tiles, multiply these, put the next ones
    far = {x: f"SIZE * {line[x] * UNROLLED}" for x in "ab"}
    multiply = [
        f"in_a, in_b, stop = int32(from_a + half), int32(from_b + half), int32(from_a + half + SIZE * {size['a']})",
        "while in_a < stop:",
    ]
    for step, (x, count) in itertools.product(range(UNROLLED), (("a", tile.high), ("b", tile.wide))):
        for g in range(count // FOUR):
            names = ", ".join(f"{x}{FOUR * g + e}" for e in range(FOUR))
            apart = (LANE_ROWS if x == "a" else LANE_COLUMNS) * FOUR * g
            multiply.append(f"    {names} = shared_four(in_{x} + SIZE * {line[x] * step + apart})")
        for i in range(tile.high if x == "b" else 0):
            multiply += [f"    s{i}_{j} += a{i} * b{j}" for j in range(tile.wide)]
    multiply.append(f"    in_a, in_b = int32(in_a + {far['a']}), int32(in_b + {far['b']})")
    product = [
        *[text for f in factors for text in f.begin()],
        *[text for f in factors for text in f.fetch()],
        *[text for f in factors for text in f.put("0")],
        "cuda.syncthreads()",
        "half, left = int32(0), int32(high - low)",
        "while left > 0:",
        f"    if left > {tile.depth}:",
        *[f"        {text}" for f in factors for text in f.fetch()],
        *indented(multiply),
        f"    half = int32(SIZE * {half} - half)",
        f"    if left > {tile.depth}:",
        *[f"        {text}" for f in factors for text in f.put("half")],
        "    cuda.syncthreads()",
        f"    left = int32(left - {tile.depth})",
    ]
    end = [
        f"e{j} = bias_of(bias, end, side + column + {j % FOUR + LANE_COLUMNS * FOUR * (j // FOUR)}, n)" for j in range(tile.wide)
    ]
    for i in range(tile.high):
        down = i % FOUR + LANE_ROWS * FOUR * (i // FOUR)
        end.append(f"if top + row + {down} < m:")
        for g in range(tile.wide // FOUR):
            right = LANE_COLUMNS * FOUR * g
            four = ", ".join(f"{x}{FOUR * g + e}" for x in (f"s{i}_", "e") for e in range(FOUR))
            place = f"at + (top + row + {down}) * n + side + column + {right}"
            end.append(f"    put_four(c, {place}, {four}, scale, adds, end > 1, n - side - column - {right}, wide_c)")
    sums = [f"s{i}_{j}" for i in range(tile.high) for j in range(tile.wide)]
    return made(tile, framed(tile, sums, head, product, end), room_of=shared_room(2 * half))


@dataclass(frozen=True)
class _Factor:
    """The text that brings tiles of a factor to shared memory.

    A thread brings some fours of a tile. Where neighbours in memory are rows (across), it reads four rows, and else four terms; what
    there is beyond the ends of the factor is 0. Two numbers say how many of the four there are, `x` if `y` is above 0.

    Args:
        tile: its sizes.
        name: a or b.
        across: condition for neighbours in memory being rows.
        first: the tile's first row, of all rows.
        all: number of rows.
        rows: of the tile.
        line: elements of a line of it in shared memory.
        begins: elements before it.
    """

    tile: Tile
    name: str
    across: str
    first: str
    all: str
    rows: int
    line: int
    begins: int

    @property
    def fours(self) -> int:
        """Fours that each thread brings."""
        return self.rows * self.tile.depth // FOUR // self.tile.threads

    def begin(self) -> list[str]:
        """Return lines that set where each four is in memory, and where it goes."""
        x, deep, count = self.name, self.tile.depth, self.tile.threads
        return [
            f"over_{x} = {self.across}",
            f"wide_{x} = is_wide({x}, at_{x} + low, ld{x})",
            f"if over_{x}:",
            f"    r, d = me % {self.rows // FOUR} * {FOUR}, me // {self.rows // FOUR}",
            f"    now_{x} = at_{x} + (low + d) * ld{x} + {self.first} + r",
            f"    x_{x}, y_{x} = int32(min({self.all} - {self.first} - r, {self.rows})), int32(high - low - d)",
            f"    step_{x}, less_x_{x}, less_y_{x}, hop_{x} = {deep} * ld{x}, 0, {deep}, {count // (self.rows // FOUR)}",
            f"    to_{x}, far_{x} = room + SIZE * ({self.begins} + d * {self.line} + r), SIZE * {count // (self.rows // FOUR) * self.line}",
            "else:",
            f"    r, d = me // {deep // FOUR}, me % {deep // FOUR} * {FOUR}",
            f"    now_{x} = at_{x} + ({self.first} + r) * ld{x} + low + d",
            f"    x_{x}, y_{x} = int32(high - low - d), int32(min({self.all} - {self.first} - r, {self.rows}))",
            f"    step_{x}, less_x_{x}, less_y_{x}, hop_{x} = {deep}, {deep}, 0, {count // (deep // FOUR)}",
            f"    to_{x}, far_{x} = room + SIZE * ({self.begins} + d * {self.line} + r), SIZE * {count // (deep // FOUR)}",
        ]

    def fetch(self) -> list[str]:
        """Return lines that read the next tile into registers."""
        x, out = self.name, []
        for v in range(self.fours):
            names = [f"f{x}{v}{e}" for e in range(FOUR)]
            out += [
                f"there = x_{x} if y_{x} > {v} * hop_{x} else 0",
                f"here = now_{x} + {v} * hop_{x} * ld{x}",
                f"if there >= {FOUR} and wide_{x}:",
                f"    {', '.join(names)} = global_four({x}, here)",
                "else:",
                f"    {' = '.join(names)} = T(0)",
                *[text for e, name in enumerate(names) for text in (f"    if there > {e}:", f"        {name} = {x}[here + {e}]")],
            ]
        return [*out, f"now_{x} += step_{x}", f"x_{x}, y_{x} = int32(x_{x} - less_x_{x}), int32(y_{x} - less_y_{x})"]

    def put(self, half: str) -> list[str]:
        """Return lines that write it to a half of shared memory."""
        x, out = self.name, [f"if over_{self.name}:"]
        for v in range(self.fours):
            out.append(f"    put_shared_four(to_{x} + {v} * far_{x} + {half}, {', '.join(f'f{x}{v}{e}' for e in range(FOUR))})")
        out.append("else:")
        for v in range(self.fours):
            out += [
                f"    put_shared_one(to_{x} + {v} * far_{x} + {half} + SIZE * {e * self.line}, f{x}{v}{e})" for e in range(FOUR)
            ]
        return out
