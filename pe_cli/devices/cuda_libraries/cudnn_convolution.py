"""Convolutions as operations of cuDNN's graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.devices.cuda_libraries.cudnn_descriptors import (
    DATA_TYPE,
    DESCRIPTOR,
    DOUBLE,
    FLOAT,
    LONG,
    MODE,
    TYPES,
    Descriptor,
    tensor,
)
from pe_cli.kernels.cuda.library_calls import Convolution

#: cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t of convolutions.
CONVOLUTION = 1
COMPUTE, CONVOLUTION_MODE, DILATIONS, STRIDES, AFTER, BEFORE, AXES = 100, 101, 102, 103, 104, 105, 106
#: Direction -> its descriptor, and the attributes for alpha, beta, the convolution, and its images, filters and outputs.
OPERATIONS = {
    "values": (10, 700, 701, 702, (704, 703, 705)),
    "images_back": (12, 706, 707, 708, (710, 709, 711)),
    "filters_back": (11, 712, 713, 714, (716, 715, 717)),
}
CROSS_CORRELATION = 1


def operation_of(library: Any, what: Convolution, places: Sequence[int]) -> Descriptor:
    """Return the operation of a convolution.

    Args:
        library: the library.
        what: the convolution.
        places: addresses of images, filters and outputs, which are 1, 2 and 3 to the graph.

    Raises:
        NotTaken: the library says no.
    """
    (h, w, c), (oh, ow, oc) = what.image, what.out
    per = c // what.groups
    sizes = ((what.n, c, h, w), (oc, per, *what.taps), (what.n, oc, oh, ow))
    tensors = [
        tensor(library, what.dtype, i + 1, size, _last(size), at) for i, (size, at) in enumerate(zip(sizes, places, strict=True))
    ]
    how = Descriptor(
        library, CONVOLUTION, (COMPUTE, DATA_TYPE, [TYPES["float64" if what.dtype == "float64" else "float32"]]),
        (CONVOLUTION_MODE, MODE, [CROSS_CORRELATION]), (AXES, LONG, [2]), (DILATIONS, LONG, what.dilations), (STRIDES, LONG, what.strides),
        (BEFORE, LONG, what.before), (AFTER, LONG, what.after),
    )  # fmt: skip
    kind, alpha, beta, convolution, names = OPERATIONS[what.direction]
    number = DOUBLE if what.dtype == "float64" else FLOAT
    factors = (alpha, number, [1.0]), (beta, number, [0.0])
    named = [(name, DESCRIPTOR, [each]) for name, each in zip(names, tensors, strict=True)]
    return Descriptor(library, kind, (convolution, DESCRIPTOR, [how]), *named, *factors)


def _last(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of a tensor whose sizes are those of NCHW, and whose channels lie last."""
    _, c, h, w = sizes
    return h * w * c, 1, w * c, c


def numbers_of(what: Convolution) -> dict[int, Any]:
    """Return the numbers that it reads from the host: none."""
    del what
    return {}
