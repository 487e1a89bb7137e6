"""The three calls of a convolution: of images, back to images, and of images with results; transposed ones make them in another order."""

from __future__ import annotations

import math

from pe_cli.kernels.cpu.conv import conv_backward_data_scratch
from pe_cli.ops.define.lowering import Buffer, Offset
from pe_cli.ops.nn.conv_kernels import (
    backward_data,
    backward_data_depthwise,
    backward_data_pointwise,
    backward_data_winograd,
    backward_weight,
    backward_weight_depthwise,
    backward_weight_pointwise,
    backward_weight_winograd,
    forward,
    forward_depthwise,
    forward_pointwise,
    forward_winograd,
)
from pe_cli.ops.nn.conv_lowering import Images


def convolve(images: Images, source: Buffer, w: Buffer, y: Buffer, *, first: int = 0) -> None:
    """Append y = convolution of images with filters.

    Args:
        images: sizes.
        source: the images, see `Images.source`.
        w: filters.
        y: the results, in the order of their variable.
        first: number of the first part.
    """
    o, target = images.o, images.target(y)
    chosen = images.kernel(forward, forward_depthwise, forward_pointwise, forward_winograd)
    # A piece is what one thread computes, be it images, rows or channels; no two write to the same results.
    for piece in images.pieces():
        at_x, at_w, at_y = Offset(source, piece.x), Offset(w, piece.w), Offset(target, piece.y)
        o.call(chosen, at_x, at_w, at_y, images.filter_scratch(w), piece.geometry, piece.images, part=first + piece.number)
    images.outward(target, y)


def spread(images: Images, upstream: Buffer, w: Buffer, x: Buffer, *, acc: int = 0, first: int = 0) -> None:
    """Append x = every result spread over the images by the filters, which is the gradient of the images.

    Args:
        images: sizes.
        upstream: results or their gradient, with channels last.
        w: filters.
        x: what becomes of the images, in the order of its variable.
        acc: 1 to add to x, where that lies with channels last.
        first: number of the first part.
    """
    o, target = images.o, images.target(x)
    sizes = (images.image[2], images.out[2], *w.shape[2:], o.attrs["groups"])
    extra = 0 if images.depthwise or images.pointwise or images.winograd else conv_backward_data_scratch(*sizes)
    # What is picked is what they spread over; it becomes images afterwards.
    made = o.scratch(images.n * math.prod(images.seen), x.dtype) if images.picks else target
    chosen = images.kernel(backward_data, backward_data_depthwise, backward_data_pointwise, backward_data_winograd)
    for piece in images.pieces(back=True):
        at_y, at_w, at_x = Offset(upstream, piece.y), Offset(w, piece.w), Offset(made, piece.x)
        scratch = (images.filter_scratch(w), o.scratch(extra, w.dtype))
        o.call(chosen, at_y, at_w, at_x, *scratch, piece.geometry, piece.images, acc, part=first + piece.number)
    if images.picks:
        images.unpick(made, target)
    images.outward(target, x)


def correlate(images: Images, source: Buffer, upstream: Buffer, w: Buffer, dw: Buffer) -> None:
    """Append dw = products of images and results for every tap, which is the gradient of the filters.

    Args:
        images: sizes.
        source: the images, see `Images.source`.
        upstream: results or their gradient, with channels last.
        w: the filters.
        dw: their gradient.
    """
    o, scratch = images.o, None if images.pointwise else images.filter_scratch(w)  # a product's parts need one each
    chosen = images.kernel(backward_weight, backward_weight_depthwise, backward_weight_pointwise, backward_weight_winograd)
    # A part has some rows of the filters, or some filters of 1x1, and sums over all images: no sums of threads have to be added, so no bit
    # depends on their number.
    for number, rows in enumerate(images.rows()):
        own = scratch or images.filter_scratch(w)
        o.call(chosen, source, upstream, dw, own, images.geometry, images.n, *rows, part=number)
