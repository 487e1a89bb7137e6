"""Dpsgd: differentially private gradient descent; its update is documented at the op."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared
from pe_cli.optim.optimizer import Rate
from pe_cli.optim.regularizer import Regularizer


class Dpsgd(Declared):
    """Descent along a shortened gradient with noise; op `dpsgd`.

    Args:
        clip: longest gradient of a parameter, above 0.
        batch_size: what the noise is divided by, above 0: samples.
        sigma: standard deviation of the noise before that, at least 0.

    Raises:
        PeError: clip or batch_size is not above 0, or sigma is below 0.
    """

    op = "dpsgd"

    learning_rate: Rate = 0.001
    clip: float = 0.9
    batch_size: float = 0.999
    sigma: float = 1e-8
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def _begin(self) -> None:
        """Check the signs of the numbers."""
        if not (self.clip > 0 and self.batch_size > 0 and self.sigma >= 0):
            got = f"{self.clip}, {self.batch_size} and {self.sigma}"
            raise PeError(f"Dpsgd needs clip > 0, batch_size > 0 and sigma >= 0, got {got}")
