"""Weight decay, with and without the original's suffix."""

from __future__ import annotations

from pe_cli.optim import regularizer as core
from pe_cli.optim.regularizer import Regularizer
from pe_cli.paddle.errors import raising


@raising
class L1Decay(core.L1Decay):
    """The core's."""


@raising
class L2Decay(core.L2Decay):
    """The core's."""


L1DecayRegularizer = L1Decay
L2DecayRegularizer = L2Decay
WeightDecayRegularizer = Regularizer

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer", "WeightDecayRegularizer"]
