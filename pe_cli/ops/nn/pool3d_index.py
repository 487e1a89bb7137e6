"""max_pool3d_with_index: the largest value of each window of a volume, and where it is."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.nn.pool import _apart
from pe_cli.ops.nn.pool3d import begin, end, geometry, pooled


@kernel
def largest_places(x: Ptr, y: Ptr, where: PtrI32, g: PtrI64, n: Int):
    """y = the first largest value of each window of n volumes, where = its place in the volume; a NaN in a window wins."""
    for v in range(n):
        D, H, W, OD, OH, OW = g[0], g[1], g[2], g[3], g[4], g[5]
        for o in range(OD * OH * OW):
            i, j, k = o // (OH * OW), o // OW % OH, o % OW
            a, b = begin(g, 0, i), end(g, 0, i)
            c, d = begin(g, 1, j), end(g, 1, j)
            e, f = begin(g, 2, k), end(g, 2, k)
            # Begins with the window's first element, so that a window of minus infinities has a place too.
            found = (a * H + c) * W + e
            best = x[v * D * H * W + found]
            for r in range(a, b):
                for s in range(c, d):
                    for t in range(e, f):
                        p = (r * H + s) * W + t
                        value = x[v * D * H * W + p]
                        # "Not at most" is true for a NaN, which then stays: the best is no longer equal to itself.
                        if best == best and not value <= best:
                            best = value
                            found = p
            y[v * OD * OH * OW + o] = best
            where[v * OD * OH * OW + o] = found


@kernel
def largest_places_back(dy: Ptr, where: PtrI32, dx: Ptr, n: Int, inside: Int, places: Int):
    """dx = the sums of the gradients of the windows that an element was the largest of."""
    # Windows may overlap: a volume is one thread's, which adds in the order of windows.
    for v in range(n):
        for q in range(v * inside, (v + 1) * inside):
            dx[q] = T(0)
        for o in range(v * places, (v + 1) * places):
            dx[v * inside + where[o]] += dy[o]


@op(
    "max_pool3d_with_index",
    inputs="X",
    outputs="Out Mask",
    differentiable="X",
    attrs={
        "ksize": Attr([1, 1, 1], "depth, height and width of a window; with adaptive, of the output"),
        "strides": Attr([1, 1, 1], "positions from one window to the next"),
        "paddings": Attr([0, 0, 0], "positions on each side, or six: in front and behind, above and below, left and right"),
        "global_pooling": Attr(False, "one window over the whole volume"),
        "ceil_mode": Attr(False, "round the number of windows up instead of down"),
        "adaptive": Attr(False, "windows cover the volume for an output of ksize"),
    },
    samples=[
        Sample({"X": (2, 2, 4, 5, 4)}, {"ksize": [2, 2, 2], "strides": [2, 1, 2], "paddings": [1, 0, 1]}, "windows"),
        Sample({"X": (2, 3, 5, 4, 7)}, {"ksize": [2, 3, 3], "adaptive": True}, "adaptive"),
        Sample({"X": (2, 3, 1, 2, 3)}, {"global_pooling": True}, "global"),
        Sample({"X": (0, 3, 4, 4, 4)}, {"strides": [2, 2, 2]}, "an empty batch"),
    ],
    kinks=_apart,
)
def max_pool3d_with_index(
    x: TensorType,
    *,
    ksize: list[int],
    strides: list[int],
    paddings: list[int],
    global_pooling: bool,
    ceil_mode: bool,
    adaptive: bool,
) -> tuple[TensorType, TensorType]:
    """Replace each window of a volume by its largest value, and tell where that is.

    Args:
        X: [batch, channels, depth, height, width] float32 or float64.

    Returns:
        Out: as of pool3d.
        Mask: int32, shape of Out: (d * height + h) * width + w of the first largest value, in X without padding.

    Raises:
        PeError: as of pool3d.

    Source:
        fluid.layers.adaptive_pool3d with require_index.
    """
    out = pooled(
        "max_pool3d_with_index", x, ksize, strides, paddings, global_pooling=global_pooling, ceil_mode=ceil_mode, adaptive=adaptive
    )
    return out, TensorType(out.shape, "int32")


@max_pool3d_with_index.lower("cpu")
def max_pool3d_with_index_cpu(o: Lowering) -> None:
    """Volume by volume."""
    x, y = o.input("X"), o.output("Out")
    if y.size:
        o.call(largest_places, x, y, o.output("Mask"), *geometry(o, x, y))


@max_pool3d_with_index.grad(uses="Mask").lower("cpu")
def max_pool3d_with_index_grad_cpu(o: Lowering) -> None:
    """Each window's gradient goes to the place of its largest value."""
    dy, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        volumes = dx.shape[0] * dx.shape[1]
        o.call(largest_places_back, dy, o.input("Mask"), dx, volumes, dx.size // volumes, dy.size // volumes)


# --- what stands at given places: the gradient of the gradient of a pool of the largest values ---------------------------


# Places come from the forward op, which wrote them inside the volume.
@kernel
def values_there(x: Ptr, where: PtrI32, y: Ptr, n: Int, inside: Int, places: Int):
    """y = the elements of n volumes at places in them."""
    for v in range(n):
        for o in range(v * places, (v + 1) * places):
            y[o] = x[v * inside + where[o]]


def _places(rng):
    return rng.integers(0, 24, (2, 3, 2, 1, 2)).astype("int32")


@op(
    "values_at_places",
    inputs="X Mask",
    differentiable="X",
    samples=[
        Sample({"X": (2, 3, 2, 3, 4), "Mask": _places}, name="volumes"),
        Sample({"X": (0, 3, 2, 3, 4), "Mask": lambda rng: _places(rng)[:0]}, name="an empty batch"),
    ],
)
def values_at_places(x: TensorType, mask: TensorType) -> TensorType:
    """Take elements of volumes by their places.

    Out[i, c, o] = X[i, c, Mask[i, c, o]], with the volume as one axis

    Args:
        X: [batch, channels, depth, height, width] float32 or float64.
        Mask: int32 [batch, channels, ...], places as `max_pool3d_with_index` tells them.

    Returns:
        Out: element type of X, shape of Mask.

    Raises:
        PeError: ranks that do not fit, or places that are not int32.

    Source:
        What the gradient of a pool of the largest values does, the other way round.
    """
    if len(x.shape) != 5 or len(mask.shape) != 5 or mask.dtype != "int32":
        raise PeError(f"values_at_places needs volumes of rank 5 and int32 places of rank 5, got {x} and {mask}")
    return x.with_shape(*mask.shape)


@values_at_places.lower("cpu")
def values_at_places_cpu(o: Lowering) -> None:
    """Volume by volume."""
    x, y = o.input("X"), o.output("Out")
    if y.size:
        volumes = x.shape[0] * x.shape[1]
        o.call(values_there, x, o.input("Mask"), y, volumes, x.size // volumes, y.size // volumes)


@values_at_places.grad(uses="Mask X").lower("cpu")
def values_at_places_grad_cpu(o: Lowering) -> None:
    """Every place gets the sum of the gradients of what was taken there."""
    dy, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        volumes = dx.shape[0] * dx.shape[1]
        o.call(largest_places_back, dy, o.input("Mask"), dx, volumes, dx.size // volumes, dy.size // volumes)


deal(largest_places, largest_places_back, values_there)
also_on_cuda(max_pool3d_with_index, values_at_places)
