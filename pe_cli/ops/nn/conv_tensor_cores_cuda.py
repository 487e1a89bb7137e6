"""Tiles of convolutions for tensor cores: images and filters are bfloat16 in memory and in shared memory, sums are float32.

What gathers the tiles is the text of `conv_tiles_cuda`; here is how they lie in shared memory, and how warps multiply them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cuda import bfloat16_tensor_cores, tensor_cores
from pe_cli.kernels.cuda.bfloat16_tensor_cores import half_room, put_global_two
from pe_cli.kernels.language import helper
from pe_cli.ops.nn.conv_tile_cuda import Tile, finished

#: Rows, columns and terms of a product of a warp.
ROWS, COLUMNS, TERMS = 16, 8, 16
#: Elements that a line of a tile is longer: no two of eight rows meet in a bank.
PAD = 8


@helper
def put_two(y, base, bias, at, o, s0, s1, left, then, together):
    """Write as many of two neighbours as are left, of channel o and the next."""
    if then and left > 0:
        s0 = finished(s0, base, bias, at, o, then)
    if then and left > 1:
        s1 = finished(s1, base, bias, at + 1, o + 1, then)
    if together and left > 1:
        put_global_two(y, at, s0, s1)
        return
    if left > 0:
        y[at] = s0
    if left > 1:
        y[at + 1] = s1


@dataclass(frozen=True)
class HalfTile(Tile):
    """A block's part of a result that warps compute by tensor cores.

    Args:
        turned: in shared memory neighbours are rows of a tile, as for the gradient of filters, and not terms.
    """

    turned: bool = False
    column: ClassVar[str] = "own_column"

    @property
    def warps(self) -> tuple[int, int]:
        """How many warps there are along rows and along columns."""
        # Rows are dealt first: a warp's part is then at least 32 rows high, and fragments of the right side are shared by more products.
        count = self.threads // 32
        down = min(count, max(1, self.rows // 32))
        return down, count // down

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a warp."""
        down, across = self.warps
        return self.rows // down, self.columns // across

    @property
    def name(self) -> str:
        return f"halves_{self.rows}x{self.columns}x{self.depth}"

    # The layout of results that the mma instruction defines: each thread has two neighbours of a row, and two more eight rows below.
    def results(self) -> list[tuple[str, list[tuple[int, list[str]]]]]:
        high, wide = self.part
        return [
            (
                f"own_row + {ROWS * i + 8 * low}",
                [(COLUMNS * j, [f"s{i}_{j}_{2 * low}", f"s{i}_{j}_{2 * low + 1}"]) for j in range(wide // COLUMNS)],
            )
            for i in range(high // ROWS)
            for low in range(2)
        ]

    def _line(self, side: str) -> int:
        """Return the bytes from line to line of a tile."""
        return 2 * ((self.columns if side == "right" else self.rows) + PAD) if self.turned else 2 * (self.depth + PAD)

    def _size(self, side: str) -> int:
        lines = self.depth if self.turned else self.columns if side == "right" else self.rows
        return self._line(side) * lines

    def _begin(self, side: str) -> int:
        """Return the bytes before the first of two tiles."""
        # Two tiles of each side: one is multiplied while the next is loaded.
        return 2 * self._size("left") if side == "right" else 0

    def _place(self, side: str, row: str, term: str) -> str:
        line = self._line(side)
        return f"({row}) * 2 + ({term}) * {line}" if self.turned else f"({row}) * {line} + ({term}) * 2"

    def place(self) -> list[str]:
        high, wide = self.part
        # ldmatrix takes row addresses from the lanes in groups of eight, one group for each 8x8 part of the fragment.
        near, far, eighth = "lane // 8 % 2 * 8", "lane // 16 * 8", "lane % 8"
        a = (near, f"{eighth} + {far}") if self.turned else (f"{eighth} + {near}", far)
        b = (far, f"{eighth} + {near}") if self.turned else (f"{eighth} + {far}", near)
        return [
            "room = room_of()",
            "lane, warp = me % 32, me // 32",
            f"row, column = warp // {self.warps[1]} * {high}, warp % {self.warps[1]} * {wide}",
            f"from_a = room + {self._place('left', f'row + {a[0]}', a[1])}",
            f"from_b = room + {self._begin('right')} + {self._place('right', f'column + {b[0]}', b[1])}",
            "own_row, own_column = row + lane // 4, column + 2 * (lane % 4)",
        ]

    def put(self, side: str, row: str, term: str, names: list[str], along: str = "") -> list[str]:
        at = f"room + {self._begin(side)} + now * {self._size(side)} + {self._place(side, row, term)}"
        return [f"{'put_shared_halves' if along else 'put_shared_half'}({at}, {', '.join(names)})"]

    def space(self) -> dict[str, Any]:
        names = ("put_shared_half", "put_shared_halves", "fragments", "turned_fragments")
        found = {name: getattr(bfloat16_tensor_cores, name) for name in names}
        room = half_room(2 * (self._size("left") + self._size("right")))
        return {**found, "room_of": room, "mma_bf16": tensor_cores.mma_bf16, "put": put_two}

    def multiply(self) -> list[str]:
        high, wide = self.part
        name = "turned_fragments" if self.turned else "fragments"
        out = []
        for i in range(high // ROWS):
            out.append(f"{', '.join(f'a{i}_{r}' for r in range(4))} = {name}(in_a + {self._place('left', str(ROWS * i), '0')})")
        # Two columns of fragments come with one load of four registers, hence the step of 2.
        for j in range(0, wide // COLUMNS, 2):
            out.append(f"b{j}_0, b{j}_1, b{j + 1}_0, b{j + 1}_1 = {name}(in_b + {self._place('right', str(COLUMNS * j), '0')})")
        for i in range(high // ROWS):
            for j in range(wide // COLUMNS):
                four = ", ".join(f"s{i}_{j}_{e}" for e in range(4))
                out.append(f"{four} = mma_bf16({', '.join(f'a{i}_{r}' for r in range(4))}, b{j}_0, b{j}_1, {four})")
        moved = [f"in_{x} += {self._place(side, '0', str(TERMS))}" for x, side in (("a", "left"), ("b", "right"))]
        return [
            f"in_a, in_b = from_a + was * {self._size('left')}, from_b + was * {self._size('right')}",
            f"for k in range({self.depth // TERMS}):",
            *(f"    {line}" for line in [*out, *moved]),
        ]
