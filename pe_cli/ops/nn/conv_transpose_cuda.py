"""conv2d_transpose on CUDA: the three directions of the convolution that it is the gradient of."""

from __future__ import annotations

from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.nn.conv_cuda import Sizes, append_filters_back, append_images_back, append_values
from pe_cli.ops.nn.conv_lowering import Images
from pe_cli.ops.nn.conv_transpose import conv2d_transpose


@conv2d_transpose.lower("cuda")
def conv2d_transpose_cuda(o: Lowering) -> None:
    """The gradient of the images of the convolution from the output to the input."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    # Seen as a convolution, the transposed one goes from its output y to its input x: the roles are exchanged here and nowhere below.
    images = Images(o, y, w, x)
    target = images.target(y)
    append_images_back(o, images.inward(x), w, target, Sizes.of(o, images))
    images.outward(target, y)


@conv2d_transpose.grad_op.lower("cuda")  # type: ignore[union-attr]
def conv2d_transpose_grad_cuda(o: Lowering) -> None:
    """That convolution's gradient of the filters, with images and results exchanged, and the convolution itself."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, dy, w, x)
    source, s = images.inward(dy), Sizes.of(o, images)
    if o.has("Filter@GRAD"):
        append_filters_back(o, source, images.inward(x), o.output("Filter@GRAD"), s)
    if o.has("Input@GRAD"):
        dx = o.output("Input@GRAD")
        target = images.target(dx)
        append_values(o, source, w, target, s)
        images.outward(target, dx)
