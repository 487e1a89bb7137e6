"""Convolutions on CUDA as products of matrices that are never in memory: blocks compute tiles of the result, step by step.

A block has two tiles of DEPTH terms in shared memory, twice: while its threads multiply one pair, each of them a square of the result in
registers, the next is on its way from memory. The kernels are written for a few sizes of tiles, as text: every sum of a thread has a name,
so that it lies in a register. Indices of pixels are found once for a block; a step adds a number that all threads share.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pe_cli.kernels.cuda import block_sums
from pe_cli.kernels.cuda.language import CudaKernel, cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.vector_access import load_four, store_four
from pe_cli.kernels.language import Int, Ptr, PtrI64, T
from pe_cli.ops.nn.conv_tensor_cores_cuda import HalfTile
from pe_cli.ops.nn.conv_tile_cuda import Tile, four, indented, share, through

#: Threads that a multiprocessor shall have room for: of 65,536 registers, each has 128. Those that gather single elements for tensor cores
#: have 168: with fewer they spill, on some cards, and beside other kernels in a launch on all.
THREADS, SINGLE = 512, 384
#: Numbers of a class of pixels in the table of `convolve`.
FACTS: Any = 10
#: Without a sign, one comparison tells both ends of a range.
_U32: Any = np.uint32
_I32: Any = np.int32

#: What the texts of kernels see.
_SPACE: dict[str, Any] = {
    "__name__": __name__, "cuda": cuda, "quotient": quotient, "through": through, "share": share, "four": four,
    "load_four": load_four, "store_four": store_four, "T": T, "Int": Int, "Ptr": Ptr, "PtrI64": PtrI64, "_U32": _U32, "_I32": _I32,
    **block_sums.MEANINGS,
}  # fmt: skip


def _made(name: str, parameters: str, body: list[str], tile: Tile, threads: tuple[str, ...], resident: int = THREADS) -> CudaKernel:
    text = "\n".join([f"def {name}({parameters}):", *indented(body), ""])
    space = {**_SPACE, **tile.space()}
    exec(text, space)  # our own text: nothing in it comes from outside
    made: CudaKernel = cuda_kernel(
        space[name], text=text, block=(tile.threads, 1, 1), threads=threads, name=f"{__name__}:{name}",
        resident=resident // tile.threads,
    )  # fmt: skip
    return made


# --- values, and the gradient of images -------------------------------------------------------------------------------

#: Parameters of `convolve`, which computes, for all channels o of what is made and pixels of a class,
#:     y[image, place_y i + f8, place_x j + f9, o] = then(sum over taps (r, s) and channels c of
#:         x[image, step_y i + f6 + tap_y r, step_x j + f7 + tap_x s, c] w[tap, o, c])
#: x, y: channels last, with `channels` and `outs` from pixel to pixel, of which a group sees `per` and makes `each`.
#: base, bias, then: see `finished`; table: FACTS numbers of a class: rows and columns of pixels, of taps, the first tap (f4, f5), f6 to f9.
#: w: element ((f4 + skip_y r) taps_row + f5 + skip_x s) w_tap + o w_out + c w_in + group w_group.
#: splits, parts, tickets, tickets_each: of the sum, see `block_sums.joined`; rows: most pixels of a class.
#: together: every four channels of x, and of y, lie at a multiple of 16 bytes: bits 1 and 2.
CONVOLVE = (
    "x: Ptr, w: Ptr, y: Ptr, base: Ptr, bias: Ptr, table: PtrI64, n: Int, high: Int, wide: Int, channels: Int, per: Int, out_high: Int, "
    "out_wide: Int, outs: Int, each: Int, groups: Int, classes: Int, splits: Int, w_tap: Int, w_out: Int, w_in: Int, w_group: Int, "
    "taps_row: Int, step_y: Int, step_x: Int, tap_y: Int, tap_x: Int, skip_y: Int, skip_x: Int, place_y: Int, place_x: Int, then: Int, "
    "rows: Int, together: Int, parts: Ptr, tickets: PtrI64, tickets_each: Int"
)


@functools.cache
def convolve(tile: Tile, flat: bool) -> CudaKernel:
    """Return a kernel of `CONVOLVE`.

    Args:
        tile: of pixels and channels.
        flat: a step has as many terms of all channels and taps, for images of few channels; else channels of one tap, four by four.
    """
    depth = tile.depth
    quads = depth // 4  # that a row of a step has
    across = tile.threads // (depth if flat else quads)
    passes = tile.rows // across
    columns = [f"me // {depth} + {i * (tile.threads // depth)}" for i in range(tile.columns * depth // tile.threads)]
    body = [
        *tile.begin(),
        "z = int(cuda.blockIdx.z)",
        "group = quotient(z, splits)",
        "split = z - group * splits",
        "f = group",
        "group = quotient(f, classes)",
        f"f = _I32((f - group * classes) * {FACTS})",
        "down, across = table[f], table[f + 1]",
        "taps_y, taps_x = _I32(table[f + 2]), _I32(table[f + 3])",
        "first_y, first_x = _I32(table[f + 4]), _I32(table[f + 5])",
        "pixels = n * down * across",
        f"top, side = int(cuda.blockIdx.x) * {tile.rows}, int(cuda.blockIdx.y) * {tile.columns}",
        "if top >= pixels:",
        "    return",
        f"part, term = me % {depth if flat else quads}, me % {depth}",
    ]
    for i in range(passes):
        body += [
            f"pixel = top + me // {depth if flat else quads} + {i * across}",
            "line = quotient(pixel, across)",
            "image = quotient(line, down)",
            f"row{i} = _I32((line - image * down) * step_y + table[f + 6] if pixel < pixels else -(1 << 30))",
            f"column{i} = _I32((pixel - line * across) * step_x + table[f + 7])",
            f"at{i} = _I32(((image * high + row{i}) * wide + column{i}) * channels + group * per" + (")" if flat else " + 4 * part)"),
        ]
    body += [f"w{i} = _I32(group * w_group + (side + {place}) * w_out)" for i, place in enumerate(columns)]
    body.append("taps = taps_y * taps_x")
    body.append(f"total = (taps * per + {depth - 1}) // {depth}" if flat else f"total = taps * ((per + {depth - 1}) // {depth})")
    body.append("begin, end = _I32(share(total, split, splits)), _I32(share(total, split + 1, splits))")
    if flat:
        load = [
            f"k = step * {depth} + term",
            "c = quotient(k, taps)",
            "r = quotient(k - c * taps, taps_x)",
            "s = k - c * taps - r * taps_x",
        ]
    else:
        body += [
            "c = quotient(begin, max(1, taps))",
            "r = _I32(quotient(begin - c * taps, max(1, taps_x)))",
            "s = _I32(begin - c * taps - r * taps_x)",
            f"c = _I32(c * {depth})",
        ]
        load = []
    load += [
        "ry, sx = _I32(r * tap_y), _I32(s * tap_x)",
        "shift = _I32((ry * wide + sx) * channels + c)",
        f"there = {'c < per' if flat else 'c + 4 * part < per'}",
    ]
    for i in range(passes):
        fits = f"there and _U32(row{i} + ry) < _U32(high) and _U32(column{i} + sx) < _U32(wide)"
        if flat:
            load.append(f"a{i} = x[at{i} + shift] if {fits} else T(0)")
        else:
            names = ", ".join(f"a{i}{q}" for q in range(4))
            load.append(f"{names} = four(x, at{i} + shift, per - c - 4 * part if {fits} else 0, together & 1)")
    channel = "c" if flat else "(c + term)"
    load += [
        f"tap = _I32(((first_y + r * skip_y) * taps_row + first_x + s * skip_x) * w_tap + {channel} * w_in)",
        f"there = {channel} < per",
        *(f"b{i} = w[w{i} + tap] if there and side + {place} < each else T(0)" for i, place in enumerate(columns)),
    ]
    if not flat:
        load += ["s = _I32(s + 1)", "if s == taps_x:", "    s = _I32(0)", "    r = _I32(r + 1)"]
        load += ["    if r == taps_y:", "        r = _I32(0)", f"        c = _I32(c + {depth})"]
    keep = []
    for i in range(passes):
        row = f"me // {depth if flat else quads} + {i * across}"
        if flat:
            keep += tile.put("left", row, "term", [f"a{i}"])
        else:
            keep += tile.put("left", row, "4 * part", [f"a{i}{q}" for q in range(4)], "term")
    for i, place in enumerate(columns):
        keep += tile.put("right", place, "term", [f"b{i}"])
    body += [*tile.steps(load, keep), *tile.joined()]
    body += [f"o = side + {tile.column}", "down, across = table[f], table[f + 1]", "pixels = n * down * across"]
    for row, runs in tile.results():
        body += [
            f"pixel = top + {row}",
            "if pixel < pixels:",
            "    to = pixel",
            "    if classes > 1:",
            "        line = quotient(pixel, across)",
            "        image = quotient(line, down)",
            "        i = (line - image * down) * place_y + table[f + 8]",
            "        j = (pixel - line * across) * place_x + table[f + 9]",
            "        to = (image * out_high + i) * out_wide + j",
            "    to = to * outs + group * each + o",
            *(f"    put(y, base, bias, to + {at}, group * each + o + {at}, {', '.join(names)}, each - o - {at}, then, together & 2)"
              for at, names in runs),
        ]
    threads = (
        f"(rows + {tile.rows - 1}) // {tile.rows} * {tile.threads}",
        f"(each + {tile.columns - 1}) // {tile.columns}",
        "groups * classes * splits",
    )
    resident = SINGLE if flat and isinstance(tile, HalfTile) else THREADS
    return _made(f"convolve_{'flat_' if flat else ''}{tile.name}", CONVOLVE, body, tile, threads, resident)


# --- the gradient of filters ------------------------------------------------------------------------------------------

#: Parameters of `filters_back`, which computes dw[o, c, tap] = sum over pixels of dy[pixel, o] x[pixel + tap, c].
#: splits, parts, tickets, tickets_each: of the sum, see `block_sums.joined`; by_... and shift_...: `divisor` of the columns and rows of dy;
#: together: bit 1, every four channels of dy lie at a multiple of 16 bytes, bit 2, those of x.
FILTERS_BACK = (
    "x: Ptr, dy: Ptr, dw: Ptr, n: Int, high: Int, wide: Int, channels: Int, per: Int, out_high: Int, out_wide: Int, outs: Int, each: Int, "
    "groups: Int, splits: Int, taps_y: Int, taps_x: Int, step_y: Int, step_x: Int, tap_y: Int, tap_x: Int, pad_y: Int, pad_x: Int, "
    "by_wide: Int, shift_wide: Int, by_high: Int, shift_high: Int, together: Int, "
    "parts: Ptr, tickets: PtrI64, tickets_each: Int"
)


@functools.cache
def filters_back(tile: Tile, flat: bool) -> CudaKernel:  # noqa: C901, PLR0912 - one branch per part of the text
    """Return a kernel of `FILTERS_BACK`.

    Args:
        tile: of filters, and of taps and channels.
        flat: taps and channels lie in the filters' order, one by one, for images of few channels; else in fours of channels of a tap.
    """
    depth = tile.depth
    quads = tile.rows // 4
    deep = tile.threads // quads
    body = [
        *tile.begin(),
        "z = int(cuda.blockIdx.z)",
        "group = quotient(z, splits)",
        "split = z - group * splits",
        "taps = taps_y * taps_x",
        "pixels, terms = n * out_high * out_wide, taps * per",
        f"top, side = int(cuda.blockIdx.x) * {tile.rows}, int(cuda.blockIdx.y) * {tile.columns}",
        f"total = (pixels + {depth - 1}) // {depth}",
        "begin, end = _I32(share(total, split, splits)), _I32(share(total, split + 1, splits))",
        f"o = top + me % {quads} * 4",
    ]
    if flat:
        places = [f"me // {depth} + {i * (tile.threads // depth)}" for i in range(tile.columns * depth // tile.threads)]
        rows = [f"me % {depth}"]
    else:
        quads_x = tile.columns // 4
        places = [f"me % {quads_x} * 4"]
        rows = [f"me // {quads_x} + {i * (tile.threads // quads_x)}" for i in range(depth * quads_x // tile.threads)]
    for i, place in enumerate(places):
        body.append(f"e = side + {place}")
        body += (
            ["c = quotient(e, taps)", "tap = e - c * taps"] if flat else ["tap = quotient(e, per)", "c = e - tap * per"]
        )
        body += [
            "r = quotient(tap, taps_x)",
            f"row{i} = _I32(r * tap_y - pad_y if e < terms else -(1 << 30))",
            f"column{i} = _I32((tap - r * taps_x) * tap_x - pad_x)",
            f"at{i} = _I32(((r * tap_y - pad_y) * wide + column{i}) * channels + group * per + c)",
        ]
    load = []
    for i in range(-(-depth // deep)):
        names = ", ".join(f"a{i}{q}" for q in range(4))
        load += [
            f"pixel = step * {depth} + me // {quads} + {i * deep}",
            f"{names} = four(dy, pixel * outs + group * each + o, each - o if pixel < pixels else 0, together & 1)",
        ]
    for k, row in enumerate(rows):
        load += [
            f"pixel = step * {depth} + {row}",
            "line = through(pixel, by_wide, shift_wide)",
            "image = through(line, by_high, shift_high)",
            "i, j = (line - image * out_high) * step_y, (pixel - line * out_wide) * step_x",
            "at = ((image * high + i) * wide + j) * channels",
        ]
        for q in range(len(places)):
            fits = f"pixel < pixels and _U32(row{q} + i) < _U32(high) and _U32(column{q} + j) < _U32(wide)"
            if flat:
                load.append(f"b{q} = x[at{q} + at] if {fits} else T(0)")
            else:
                load.append(f"{', '.join(f'b{k}{v}' for v in range(4))} = four(x, at0 + at, 4 if {fits} else 0, together & 2)")
    keep = []
    for i in range(-(-depth // deep)):
        keep += tile.put("left", f"me % {quads} * 4", f"(me // {quads} + {i * deep})", [f"a{i}{q}" for q in range(4)], "row")
    if flat:
        for q, place in enumerate(places):
            keep += tile.put("right", place, rows[0], [f"b{q}"])
    else:
        for k, row in enumerate(rows):
            keep += tile.put("right", places[0], f"({row})", [f"b{k}{v}" for v in range(4)], "row")
    body += [*tile.steps(load, keep), *tile.joined()]
    body += [f"e = side + {tile.column}", "left_over = terms - e"]
    for at, _ in tile.results()[0][1]:
        if flat:
            body += [f"first{at}, apart = e + {at}, 1"]
        else:
            body += [f"tap = quotient(e + {at}, per)", f"first{at}, apart = (e + {at} - tap * per) * taps + tap, taps"]
    for row, runs in tile.results():
        body.append(f"o = top + {row}")
        for at, own in runs:
            body.append(f"to = (group * each + o) * terms + first{at}")
            for j, name in enumerate(own):
                body.append(f"if o < each and left_over > {at + j}:\n        dw[to + {j} * apart] = {name}")
    threads = (
        f"(each + {tile.rows - 1}) // {tile.rows} * {tile.threads}",
        f"(taps_y * taps_x * per + {tile.columns - 1}) // {tile.columns}",
        "groups * splits",
    )
    return _made(f"filters_back_{'flat_' if flat else ''}{tile.name}", FILTERS_BACK, body, tile, threads)
