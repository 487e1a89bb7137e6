"""Pooling that no layer does, tap by tap: windows with dilations, their p-norms, and the places of the largest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.fold import bounded
from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.forms.places import whole
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, Size, Unimportable, Value, product

#: Taps of a window that are taken one by one.
MOST_TAPS = 256
#: Pixels of a block whose places are computed one by one.
_MOST_PIXELS = 4096


@dataclass(frozen=True)
class Windows:
    """Where windows lie.

    Args:
        sizes: of the axes that are pooled.
        taps, strides, dilations: of each.
        before, after: paddings.
        outs: windows along each.
    """

    sizes: list[int]
    taps: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    outs: list[int]

    def offsets(self) -> list[tuple[int, ...]]:
        """Return the taps of a window, row by row."""
        return list(itertools.product(*(range(n) for n in self.taps)))

    def places(self, axis: int, tap: int) -> Array:
        """Return where a tap of each window lies along an axis, from the first place without padding."""
        return np.asarray(np.arange(self.outs[axis]) * self.strides[axis] - self.before[axis] + tap * self.dilations[axis])

    def inside(self, offset: Sequence[int], padded: bool = False) -> Array:
        """Tell for each window whether a tap lies in the image, or in its padding."""
        found = np.ones(self.outs, bool)
        for axis, tap in enumerate(offset):
            at = self.places(axis, tap)
            low, high = (-self.before[axis], self.sizes[axis] + self.after[axis]) if padded else (0, self.sizes[axis])
            shape = [-1 if a == axis else 1 for a in range(len(self.outs))]
            found &= ((at >= low) & (at < high)).reshape(shape)
        return found


def window(node: Node, filter: Sequence[int], sizes: Sequence[Size]) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and paddings of a node: before each axis, then after each.

    Raises:
        Unimportable: the padding depends on a size that is not known.
    """
    axes = len(filter)
    strides, dilations = node.ints("strides", None, [1] * axes) or [], node.ints("dilations", None, [1] * axes) or []
    auto = node.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * (2 * axes)
        for i, (size, taps, stride, dilation) in enumerate(zip(sizes, filter, strides, dilations, strict=True)):
            if not isinstance(size, int):
                raise Unimportable(f"auto_pad {auto} of a size that is not known")
            reach = dilation * (taps - 1) + 1
            total = max(0, (-(-size // stride) - 1) * stride + reach - size)
            small = total // 2
            pads[i], pads[axes + i] = (small, total - small) if auto == "SAME_UPPER" else (total - small, small)
        return strides, dilations, pads
    return strides, dilations, (node.ints("pads", None, [0] * (2 * axes)) or []) if auto == "NOTSET" else [0] * (2 * axes)


def windows(node: Node, x: Value, taps: list[int]) -> Windows:
    """Return where the windows of a node lie.

    Raises:
        Unimportable: sizes are not known, or a window has too many taps.
    """
    sizes = [size for size in x.dims[2:] if isinstance(size, int)]
    if len(sizes) != len(taps) or math.prod(taps) > MOST_TAPS:
        raise Unimportable(f"windows {taps} over sizes that are not known, or of more than {MOST_TAPS} taps")
    strides, dilations, pads = window(node, taps, x.dims[2:])
    before, after = pads[: len(taps)], pads[len(taps) :]
    outs = []
    for size, n, stride, dilation, a, b in zip(sizes, taps, strides, dilations, before, after, strict=True):
        room = size + a + b - dilation * (n - 1) - 1
        count = -(-room // stride) + 1 if node.attr("ceil_mode", 0) else room // stride + 1
        # A last window that would begin in the padding behind is left out, as PyTorch does.
        if node.attr("ceil_mode", 0) and (count - 1) * stride >= size + a:
            count -= 1
        outs.append(count)
    bounded([*outs, math.prod(taps)], "its windows")
    return Windows(sizes, taps, strides, dilations, before, after, outs)


def taken(node: Node, x: Value, at: Windows, outside: float) -> list[Value]:
    """Return each tap of all windows, with a number where it lies outside of the image."""
    axes = len(at.sizes)
    # The image is padded as far as windows reach, which is less than the file's padding where strides leave a rest.
    first = [max(0, -int(at.places(a, 0)[0])) for a in range(axes)]
    last = [max(0, int(at.places(a, n - 1)[-1]) - size + 1) for a, (n, size) in enumerate(zip(at.taps, at.sizes, strict=True))]
    wide: list[Size] = [*x.dims[:2], *(f + size + e for f, size, e in zip(first, at.sizes, last, strict=True))]
    padded = x
    if any(first + last):
        sides = [0, 0, 0, 0, *(side for both in zip(first, last, strict=True) for side in both)]
        padded = node.mid("pad", "padded", x=x, paddings=sides, pad_value=outside, dims=wide)
    found = []
    for number, offset in enumerate(at.offsets()):
        starts = [int(at.places(a, tap)[0]) + first[a] for a, tap in enumerate(offset)]
        ends = [start + (n - 1) * stride + 1 for start, n, stride in zip(starts, at.outs, at.strides, strict=True)]
        args = {"axes": list(range(2, 2 + axes)), "starts": starts, "ends": ends, "strides": at.strides}
        found.append(node.mid("strided_slice", f"tap_{number}", input=padded, dims=[*x.dims[:2], *at.outs], **args))
    return found


def joined(node: Node, type: str, parts: Sequence[Value], hint: str) -> Value:
    """Join variables of one shape by a layer of two, pair by pair."""
    # As a tree rather than a chain: a sum of many taps then rounds log2(taps) times on its way, not taps times.
    made = list(parts)
    while len(made) > 1:
        pairs = [made[i : i + 2] for i in range(0, len(made), 2)]
        made = [p[0] if len(p) == 1 else node.mid(type, hint, x=p[0], y=p[1], dims=p[0].dims) for p in pairs]
    return made[0]


def tap_by_tap(node: Node, x: Value, taps: list[int]) -> list[Value | None]:
    """Pool by the largest or the mean of windows.

    Raises:
        Unimportable: see `windows`.
    """
    at = windows(node, x, taps)
    dims = [*x.dims[:2], *at.outs]
    if node.op == "MaxPool":
        # The lowest number loses against every pixel; the layer pad takes no -inf.
        found = taken(node, x, at, -float(np.finfo(x.dtype).max))
        return [node.out("assign", input=joined(node, "elementwise_max", found, "larger"), dims=dims), _argmax(node, x, at, found)]
    total = joined(node, "elementwise_add", taken(node, x, at, 0.0), "sum")
    padded = bool(node.attr("count_include_pad", 0))
    # How many pixels each window has is known now: the mean is the sum times a table of shares, which is one number where all windows have
    # the same.
    counts = np.sum([at.inside(offset, padded) for offset in at.offsets()], 0)
    shares = np.asarray(1 / np.maximum(counts, 1), x.dtype)[None, None]
    factor = node.emitter.variable(Value(x.dtype, constant=shares), f"{node.key}_shares")
    if shares.size == 1:
        return [node.out("scale", x=total, scale=float(shares.reshape(-1)[0]), dims=dims)]
    return [node.out("elementwise_mul", x=total, y=factor, dims=dims)]


def _argmax(node: Node, x: Value, at: Windows, found: Sequence[Value]) -> Value | None:
    """Return where the largest lie, counted through the whole input; None where nobody reads it.

    Raises:
        Unimportable: sizes are not known.
    """
    if not node.wants(1):
        return None
    if not all(isinstance(size, int) for size in x.dims[:2]):
        raise Unimportable("the places of the largest are read, and the batch is not known: --fixed keeps its size")
    batch, channels = (int(str(size)) for size in x.dims[:2])
    order = int(node.attr("storage_order", 0))
    factors = [math.prod(at.sizes[:a]) if order else math.prod(at.sizes[a + 1 :]) for a in range(len(at.sizes))]
    dims = [batch, channels, *at.outs]
    rows = [node.reshaped(one, [*dims, 1], "tap_row") for one in found]
    # The tap of the largest, by argmax over all taps, is looked up in a table that says where each tap of each window lies.
    every = node.mid("concat", "taps", input=rows, axis=len(dims), dims=[*dims, len(rows)])
    which = node.mid("argmax", "which", x=every, axis=len(dims), dims=dims)
    tables = np.zeros(bounded([len(rows), *dims], "its table of places"), np.int64)
    planes = np.arange(batch * channels).reshape(batch, channels, *([1] * len(at.sizes))) * math.prod(at.sizes)
    for number, offset in enumerate(at.offsets()):
        tables[number] = planes
        for axis, tap in enumerate(offset):
            shape = [-1 if a == axis else 1 for a in range(len(at.sizes))]
            tables[number] += (at.places(axis, tap) * factors[axis]).reshape(shape)
    table = node.emitter.variable(Value("int64", constant=tables), f"{node.key}_table")
    places = node.reshaped(which, [1, *dims], "which_row")
    chosen = node.mid("take_along_axis", "places", x=table, indices=places, axis=0, dims=[1, *dims])
    return node.reshaped(chosen, dims, "of_input")


@form("LpPool")
def lp_pool(node: Node) -> Value:
    x, p = floats(node), float(node.attr("p", 2))
    at = windows(node, x, node.ints("kernel_shape") or [])
    dims = [*x.dims[:2], *at.outs]
    size = node.mid("abs", "size", x=x, dims=x.dims)
    raised = node.mid("pow", "raised", x=size, factor=p, dims=x.dims)
    total = joined(node, "elementwise_add", taken(node, raised, at, 0.0), "sum")
    return node.out("pow", x=total, factor=1 / p, dims=dims)


@form("MaxUnpool")
def max_unpool(node: Node) -> Value:
    x, places, taps = floats(node), whole(node, 1), node.ints("kernel_shape") or []
    strides, pads = node.ints("strides", None, [1] * len(taps)) or [], node.ints("pads", None, [0] * (2 * len(taps))) or []
    if not all(isinstance(size, int) for size in x.dims):
        raise Unimportable("sizes are not known: --fixed keeps those of the file")
    sizes = [int(str(size)) for size in x.dims]
    outs = [(n - 1) * s - pads[i] - pads[len(taps) + i] + t for i, (n, s, t) in enumerate(zip(sizes[2:], strides, taps, strict=True))]
    outs = [*sizes[:2], *outs]
    count = math.prod(bounded(outs, "what it makes"))
    zeros = node.mid("fill_constant", "zeros", shape=[count], dtype=x.dtype, value=0.0)
    flat, index = (node.reshaped(v, [product(v.dims)], hint) for v, hint in ((x, "flat"), (places, "places")))
    made = node.mid("put_along_axis", "put", x=zeros, indices=index, values=flat, axis=0, dims=[count])
    wanted = [int(v) for v in node.const(2, "the shape")] if node.has(2) else outs
    if wanted == outs:
        return node.reshaped(made, outs)
    more = [new - old for new, old in zip(wanted, outs, strict=True)]
    if min(more) < 0:
        raise Unimportable(f"it is to be {wanted}, and makes {outs}")
    sides = [side for m in more for side in (0, m)]
    return node.out("pad", x=node.reshaped(made, outs, "put_in_place"), paddings=sides, pad_value=0.0, dims=wanted)


@form("Col2Im")
def col2im(node: Node) -> Value:
    """Add the columns of blocks up where they were cut from an image.

    Raises:
        Unimportable: the columns do not fit.
    """
    x, image, block = node.var(0), [int(v) for v in node.const(1, "the image")], [int(v) for v in node.const(2, "the block")]
    axes = len(image)
    strides, dilations = node.ints("strides", None, [1] * axes) or [], node.ints("dilations", None, [1] * axes) or []
    pads = node.ints("pads", None, [0] * (2 * axes)) or []
    reach = [dilation * (b - 1) + 1 for dilation, b in zip(dilations, block, strict=True)]
    outs = [(n + pads[i] + pads[axes + i] - reach[i]) // strides[i] + 1 for i, n in enumerate(image)]
    at = Windows(image, block, strides, dilations, pads[:axes], pads[axes:], outs)
    taps, spots = math.prod(block), math.prod(outs)
    bounded([taps, spots], "its blocks")
    if taps > _MOST_PIXELS:
        raise Unimportable(f"blocks {block} of more than {_MOST_PIXELS} pixels")
    width, size = x.dims[1], math.prod(bounded(image, "its image"))
    if x.dtype not in FLOATS or not isinstance(width, int) or width % taps or x.dims[2] != spots:
        # Places outside of the image are an extra row behind it, which is cut off again: the layer has no place that is ignored.
        raise Unimportable(f"columns {[str(d) for d in x.dims]} do not fit {spots} blocks of {block}")
    index = np.full((taps, *outs), size, np.int64)
    for number, offset in enumerate(at.offsets()):
        place = np.zeros(outs, np.int64)
        for a, tap in enumerate(offset):
            place += (at.places(a, tap) * math.prod(image[a + 1 :])).reshape([-1 if b == a else 1 for b in range(axes)])
        index[number] = np.where(at.inside(offset), place, size)
    channels = width // taps
    rows = node.reshaped(x, [x.dims[0], channels, taps * spots], "columns")
    turned = node.mid("transpose", "turned", x=rows, perm=[2, 0, 1], dims=[taps * spots, x.dims[0], channels])
    zeros = node.mid("fill_constant_batch_size_like", "zeros", input=turned, shape=[size + 1, -1, channels], dtype=x.dtype, value=0.0,
                     input_dim_idx=1, output_dim_idx=1, dims=[size + 1, x.dims[0], channels])  # fmt: skip
    places = node.emitter.variable(Value("int64", constant=index.reshape(-1, 1)), f"{node.key}_places")
    added = node.mid("scatter_nd_add", "added", ref=zeros, index=places, updates=turned, dims=zeros.dims)
    kept = node.mid("slice", "image", input=added, axes=[0], starts=[0], ends=[size], dims=[size, x.dims[0], channels])
    back = node.mid("transpose", "back", x=kept, perm=[1, 2, 0], dims=[x.dims[0], channels, size])
    return node.reshaped(back, [x.dims[0], channels, *image])
