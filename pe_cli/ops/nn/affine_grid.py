"""affine_grid: where each pixel of an image comes from under an affine map."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes


@helper
def _place(i, n):
    """Return point i of n from -1 to 1; the centre of one alone."""
    # The outermost points are the centres of the outermost pixels, as align_corners does; in doubles, since float32 would move points of
    # wide images.
    return T(2.0 * i / (n - 1) - 1.0) if n > 1 else T(0)


@kernel
def map_places(theta: Ptr, out: Ptr, images: Int, height: Int, width: Int):
    """out[image, row, column, :] = theta[image] (x, y, 1)."""
    for image in range(images):
        for k in range(2):
            # Loops over the two coordinates outside, so that a thread of CUDA keeps three numbers of the map and reads no table.
            a, b, c = theta[6 * image + 3 * k], theta[6 * image + 3 * k + 1], theta[6 * image + 3 * k + 2]
            for row in range(height):
                at = (image * height + row) * width
                line = b * _place(row, height) + c
                for column in range(width):
                    out[2 * (at + column) + k] = a * _place(column, width) + line


@kernel
def map_places_back(g: Ptr, dtheta: Ptr, images: Int, height: Int, width: Int):
    """dtheta[image] = sum over pixels of g (x, y, 1)."""
    for image in range(images):
        for k in range(2):
            # Sums of all pixels of an image are in float64: in float32 the last pixels of a large image would change nothing.
            a = 0.0
            b = 0.0
            c = 0.0
            for row in range(height):
                at = (image * height + row) * width
                y = _place(row, height)
                for column in range(width):
                    v = g[2 * (at + column) + k]
                    a += v * _place(column, width)
                    b += v * y
                    c += v
            dtheta[6 * image + 3 * k] = T(a)
            dtheta[6 * image + 3 * k + 1] = T(b)
            dtheta[6 * image + 3 * k + 2] = T(c)


@op(
    "affine_grid",
    inputs="Theta OutputShape?",
    outputs="Output",
    attrs={"output_shape": Attr([1, 1, 1, 1], "[batch, channels, height, width] of the image; the batch is Theta's")},
    differentiable="Theta",
    traits=[FedSizes({"OutputShape": "output_shape"})],
    samples=[
        Sample({"Theta": (2, 2, 3)}, {"output_shape": [2, 3, 4, 5]}, "an image"),
        Sample({"Theta": (1, 2, 3)}, {"output_shape": [1, 1, 1, 1]}, "one pixel"),
        Sample({"Theta": (0, 2, 3)}, {"output_shape": [0, 1, 2, 2]}, "an empty batch"),
    ],
)
def affine_grid(theta: TensorType, shape: TensorType | None, *, output_shape: list[int]) -> TensorType:
    """Compute the place that every pixel of an output image is taken from.

    Output[n, h, w] = Theta[n] (x, y, 1), with x = 2 w / (width - 1) - 1 and y = 2 h / (height - 1) - 1; 0 where there is one pixel.

    Args:
        Theta: [batch, 2, 3] float32 or float64; places from -1 to 1.
        OutputShape: [4] integers, instead of the attribute: only known in the step.

    Returns:
        Output: [batch, height, width, 2] element type of Theta: x and y.

    Raises:
        PeError: Theta of another shape, or an image without pixels.

    Source:
        fluid.layers.affine_grid; Jaderberg et al. 2015, "Spatial Transformer Networks", eq. 1.
    """
    if theta.shape[1:] != (2, 3):
        raise PeError(f"affine_grid needs Theta [batch, 2, 3], got {theta}")
    if len(output_shape) != 4 or any(s < 1 and (s != -1 or shape is None) for s in output_shape[2:]):
        raise PeError(f"affine_grid needs output_shape [batch, channels, height, width], got {output_shape}")
    return theta.with_shape(theta.shape[0], *output_shape[2:], 2)


@affine_grid.lower("cpu")
def affine_grid_cpu(o: Lowering) -> None:
    """One pass over the places."""
    out = o.output("Output")
    o.call(map_places, o.input("Theta"), out, *out.shape[:3])


@affine_grid.grad(uses="Theta").lower("cpu")
def affine_grid_grad_cpu(o: Lowering) -> None:
    """Six sums per image."""
    g = o.input("Output@GRAD")
    if o.has("Theta@GRAD"):
        o.call(map_places_back, g, o.output("Theta@GRAD"), *g.shape[:3])


deal(map_places, map_places_back)
also_on_cuda(affine_grid)
