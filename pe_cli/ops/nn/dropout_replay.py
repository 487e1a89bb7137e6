"""dropout_again: what dropout gave, once more, from the values and the mask that it kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import GRADIENT, not_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import InPlace, Narrow, RowWise
from pe_cli.ops.nn.dropout import UPSCALE, drop_back, dropout, kept_scale


def _mask(*shape: int) -> Callable[[np.random.Generator], NDArray[np.uint8]]:
    return lambda rng: rng.integers(0, 2, shape, np.uint8)


@op(
    "dropout_again",
    inputs="X Mask",
    attrs=dropout.attrs,
    differentiable="",
    traits=[InPlace({"Out": "X"}), Narrow(), RowWise()],
    samples=[
        Sample({"X": (4, 7), "Mask": _mask(4, 7)}, name="a half", grad=False, keep=("Mask",)),
        Sample(
            {"X": (3, 5), "Mask": _mask(3, 5)},
            {"dropout_prob": 0.3, "dropout_implementation": UPSCALE},
            "three tenths, rescaled",
            grad=False,
            keep=("Mask",),
        ),
        Sample({"X": (0, 5), "Mask": _mask(0, 5)}, name="empty batch", grad=False, keep=("Mask",)),
    ],
)
def dropout_again(
    x: TensorType, mask: TensorType, *, dropout_prob: float, is_test: bool, seed: int, dropout_implementation: str
) -> TensorType:
    """Drop the values that a dropout dropped before; no random number is drawn.

    Out = X where Mask, else 0; with upscale_in_train divided by (1 - dropout_prob).

    Args:
        X: [batch, ...] float32 or float64, what dropout read.
        Mask: shape of X, uint8; 1 where a value was kept.
        dropout_prob: of the dropout; the other attributes are its, too.

    Returns:
        Out: type of X.

    Raises:
        PeError: the mask has another shape.

    Source:
        own: a dropout of a segment that is computed again in the backward pass.
    """
    del dropout_prob, is_test, seed, dropout_implementation
    if mask.shape != x.shape:
        raise PeError(f"dropout_again needs a mask for {x}, got {mask}")
    return x


@dropout_again.lower("cpu")
def dropout_again_cpu(o: Lowering) -> None:
    """The kernel of dropout's gradient: the same product with the same mask."""
    # Recomputing a segment needs the very values that the forward pass had. Drawing them again would need the step's number and the op's
    # place in the random stream; the mask is there anyway, for the gradient.
    x, out = o.input("X"), o.output("Out")
    o.call(drop_back, x, o.input("Mask"), out, product(x.shape), kept_scale(o.attrs))


also_on_cuda(dropout_again)
not_in_onnx(GRADIENT, "dropout_again")
