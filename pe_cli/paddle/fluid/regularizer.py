"""Weight decay, with and without the original's suffix."""

from __future__ import annotations

from pe_cli.optim.regularizer import L1Decay, L2Decay, Regularizer

L1DecayRegularizer = L1Decay
L2DecayRegularizer = L2Decay
WeightDecayRegularizer = Regularizer

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer", "WeightDecayRegularizer"]
