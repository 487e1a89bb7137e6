"""Weight decay, with and without the original's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.optim import regularizer as core
from pe_cli.optim.regularizer import Regularizer
from pe_cli.paddle.errors import FluidValueError, raised_as, raising


@raising
class L1Decay(core.L1Decay):
    """The core's."""


@raising
class L2Decay(core.L2Decay):
    """The core's."""


L1DecayRegularizer = L1Decay
L2DecayRegularizer = L2Decay
WeightDecayRegularizer = Regularizer


@raised_as(FluidValueError)
def append_regularization_ops(parameters_and_grads: Sequence[Any], regularization: Regularizer | None = None) -> list[Any]:
    """Append the weight decay of parameters to their gradients.

    Args:
        parameters_and_grads: (parameter, gradient); pairs whose gradient is None are left as they are.
        regularization: of parameters without their own.

    Returns:
        (parameter, gradient) with the decay in it.
    """
    # Parameters without a gradient keep their place in the result, with None.
    pairs = [(p, g) for p, g in parameters_and_grads if g is not None]
    decayed = {p.name: g for p, g in core.regularize(pairs, regularization, [g for _, g in pairs])}
    return [(p, decayed.get(p.name)) for p, _ in parameters_and_grads]


__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer", "WeightDecayRegularizer", "append_regularization_ops"]
