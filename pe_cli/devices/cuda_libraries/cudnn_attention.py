"""Attention and its gradients as operations of cuDNN's graphs: one operation, in which a graph of its own changes the scores.

That graph adds the mask, and hides what comes after a query. Numbers of the arguments in a graph begin with 1; the scale and what hidden
scores become are read from the host.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_libraries.cudnn_descriptors import (
    BOOLEAN,
    BY_VALUE,
    DATA_TYPE,
    DESCRIPTOR,
    LONG,
    POINTWISE,
    TYPES,
    VIRTUAL,
    Attribute,
    Descriptor,
    graph_of,
    tensor,
)  # fmt: skip
from pe_cli.kernels.cuda.library_calls import Attention

#: cudnnBackendDescriptorType_t: of an elementwise operation, as it is and in a graph, of what hides keys, and of a softmax.
ELEMENTWISE, ELEMENTWISE_OPERATION, BAND, SOFTMAX = 0, 13, 44, 45
#: Direction -> its descriptor, and the attributes of its tensors: q, k, v, out, (level,) gradients of out, q, k, v; for scale and scores.
OPERATIONS: dict[str, tuple[int, tuple[int, ...], int, tuple[int, int, int]]] = {
    "values": (41, (2800, 2801, 2802, 2803), 2805, (2811, 2812, 2813)),
    "back": (43, (2851, 2852, 2853, 2854, 2855, 2862, 2859, 2860, 2861), 2856, (2867, 2868, 2869)),
}
#: cudnnBackendAttributeName_t: of elementwise operations, of what hides keys, and of a softmax.
MODE, PRECISION, HOW, X, B, Y = 0, 1, 750, 751, 752, 753
BAND_X, BAND_B, BAND_Y, COMPARISON = 3000, 3005, 3006, 3007
SOFTMAX_X, SOFTMAX_Y, SOFTMAX_LEVEL, VALUES_SOFTMAX = 3100, 3101, 3102, 2814
#: cudnnPointwiseMode_t.
ADD, NO_LESS = 0, 303
#: Numbers of tensors: what is read from the host; scores as products, with the mask, and with what is hidden; the softmax's.
SCALE, HIDDEN, PRODUCTS, MASKED, SEEN, BEFORE, AFTER = 101, 102, 201, 202, 203, 204, 205


def numbers_of(what: Attention) -> dict[int, Any]:
    """Return the numbers that it reads from the host."""
    scale = {SCALE: ctypes.c_float(what.scale)}
    return scale | {HIDDEN: ctypes.c_float(-math.inf)} if what.causal else scale


def operation_of(library: Any, what: Attention, places: Sequence[int]) -> Descriptor:
    """Return the operation of attention or its gradients.

    Args:
        library: the library.
        what: the attention.
        places: addresses of its arguments.

    Raises:
        NotTaken: the library says no.
    """
    kind, names, scale, scores = OPERATIONS[what.direction]
    tensors = [tensor(library, dtype, i + 1, sizes, steps, places[i]) for i, (dtype, sizes, steps) in enumerate(_arguments(what))]
    mask = tensors.pop(3) if what.mask else None
    attributes = [(scale, DESCRIPTOR, [_number(library, SCALE)])]
    if what.direction == "values":
        level = tensors.pop()
        softmax = Descriptor(
            library, SOFTMAX, (SOFTMAX_X, DESCRIPTOR, [_scores(library, what, BEFORE)]), (SOFTMAX_LEVEL, DESCRIPTOR, [level]),
            (SOFTMAX_Y, DESCRIPTOR, [_scores(library, what, AFTER)]),
        )  # fmt: skip
        attributes.append((VALUES_SOFTMAX, DESCRIPTOR, [softmax]))
    attributes += [(name, DESCRIPTOR, [each]) for name, each in zip(names, tensors, strict=True)]
    return Descriptor(library, kind, *attributes, *_changed(library, what, mask, scores))


def _arguments(what: Attention) -> list[tuple[str, Sequence[int], Sequence[int]]]:
    """Return element type, sizes and steps of each argument but the workspace."""
    heads, queries, keys, width, wide = what.heads, what.queries, what.keys, what.width, what.wide
    out = heads * wide
    q, k, v, o = (
        (BFLOAT16, (what.batch, heads, rows, size), (rows * line, size, line, 1))
        for rows, size, line in zip((queries, keys, keys, queries), (width, width, wide, wide), (*what.lines, out), strict=True)
    )
    level = ("float32", (what.batch, heads, queries, 1), (heads * queries, queries, 1, 1))
    mask = [("float32", what.mask, _packed(what.mask))] if what.mask else []
    return [q, k, v, *mask, o, level, *((o, q, k, v) if what.direction == "back" else ())]


def _changed(library: Any, what: Attention, mask: Descriptor | None, names: tuple[int, int, int]) -> list[Attribute]:
    """Return attributes for the graph that changes scores; none where it would be empty."""
    if mask is None and not what.causal:
        return []
    last = _scores(library, what, PRODUCTS)
    graph, first, end = names
    operations, at = [], PRODUCTS
    if mask is not None:
        at, made = MASKED, _scores(library, what, MASKED)
        how = Descriptor(library, ELEMENTWISE, (MODE, POINTWISE, [ADD]), (PRECISION, DATA_TYPE, [TYPES["float32"]]))
        args = (HOW, DESCRIPTOR, [how]), (X, DESCRIPTOR, [last]), (B, DESCRIPTOR, [mask]), (Y, DESCRIPTOR, [made])
        operations.append(Descriptor(library, ELEMENTWISE_OPERATION, *args))
        last = made
    if what.causal:
        at, made = SEEN, _scores(library, what, SEEN)
        hidden = _number(library, HIDDEN)
        band = (BAND_X, DESCRIPTOR, [last]), (BAND_B, DESCRIPTOR, [hidden]), (BAND_Y, DESCRIPTOR, [made])
        operations.append(Descriptor(library, BAND, *band, (COMPARISON, POINTWISE, [NO_LESS])))
    return [(graph, DESCRIPTOR, [graph_of(library, operations)]), (first, LONG, [PRODUCTS]), (end, LONG, [at])]


def _scores(library: Any, what: Attention, uid: int) -> Descriptor:
    """Return scores, which are never in memory."""
    sizes = what.batch, what.heads, what.queries, what.keys
    return tensor(library, "float32", uid, sizes, _packed(sizes), 0, (VIRTUAL, BOOLEAN, [True]))


def _number(library: Any, uid: int) -> Descriptor:
    """Return a number of the host's."""
    return tensor(library, "float32", uid, (1, 1, 1, 1), (1, 1, 1, 1), ctypes.sizeof(ctypes.c_float), (BY_VALUE, BOOLEAN, [True]))


def _packed(sizes: Sequence[int]) -> list[int]:
    """Return the steps of a tensor whose rows lie one behind the other."""
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
