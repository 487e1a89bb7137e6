"""regularizer: weight decay by 2.x's arguments."""

from __future__ import annotations

from pe_cli.paddle.fluid import regularizer as fluid
from pe_cli.paddle.reference_names import missing


class L1Decay(fluid.L1Decay):
    """Pull every parameter towards 0 by the same step.

    Args:
        coeff: of the sum of the sizes of all elements.
    """

    def __init__(self, coeff: float = 0.0) -> None:
        super().__init__(coeff)


class L2Decay(fluid.L2Decay):
    """Pull every parameter towards 0 by a share of it.

    Args:
        coeff: of half of the sum of the squares of all elements.
    """

    def __init__(self, coeff: float = 0.0) -> None:
        super().__init__(coeff)


__all__ = ["L1Decay", "L2Decay"]
__getattr__ = missing("paddle.regularizer", lambda: vars(fluid))
