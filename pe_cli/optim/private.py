"""Dpsgd: differentially private gradient descent; its update is documented at the op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.optimizer import Optimizer, Rate
from pe_cli.optim.regularizer import Regularizer


class Dpsgd(Optimizer):
    """Descent along a shortened gradient with noise; op `dpsgd`.

    Args:
        clip: longest gradient of a parameter, above 0.
        batch_size: what the noise is divided by, above 0: samples.
        sigma: standard deviation of the noise before that, at least 0.

    Raises:
        PeError: clip or batch_size is not above 0, or sigma is below 0.
    """

    op = "dpsgd"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        if not (clip > 0 and batch_size > 0 and sigma >= 0):
            raise PeError(f"Dpsgd needs clip > 0, batch_size > 0 and sigma >= 0, got {clip}, {batch_size} and {sigma}")
        self.clip, self.batch_size, self.sigma = clip, batch_size, sigma

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `dpsgd`."""
        return {"clip": float(self.clip), "batch_size": float(self.batch_size), "sigma": float(self.sigma)}
