"""after: hands a variable on once others are computed. Recomputation uses it to wait until the backward pass has come so far."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import View


@op(
    "after",
    inputs="X After*",
    differentiable="",
    traits=[View({"Out": "X"})],
    samples=[
        Sample({"X": (2, 3), "After": [(4,), (1, 2)]}, name="two variables to wait for", grad=False),
        Sample({"X": (0, 3), "After": [(4,)]}, name="empty batch", grad=False),
    ],
)
def after(x: TensorType, others: list[TensorType]) -> TensorType:
    """Hand a variable on once others are there, too.

    Both names stand for the same memory. Whoever reads Out waits for X and for every variable of After, whose values do not matter.

    Args:
        X: any.
        After: variables to wait for, any.

    Returns:
        Out: X.

    Source:
        own: what recomputation in the backward pass begins with.
    """
    del others
    return x
