"""Optimizers by both moments of the gradient: names, arguments and defaults are fluid's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.optim.clip import GradientClip
from pe_cli.optim.optimizer import Optimizer, Rate, State
from pe_cli.optim.regularizer import Regularizer


class _Betas(Optimizer):
    """Two decays and an epsilon."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(beta1=beta1, beta2=beta2)
        self.check_epsilon(epsilon)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def attrs(self) -> Mapping[str, Any]:
        """Return the three numbers."""
        return {"beta1": float(self.beta1), "beta2": float(self.beta2), "epsilon": float(self.epsilon)}


class Adam(_Betas):
    """Mean gradient over the root of the mean square; op `adam`.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        lazy_mode: a row-sparse gradient leaves the rows that it has not, and their moments, as they are.
    """

    op = "adam"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, grad_clip, name)
        self.lazy_mode = bool(lazy_mode)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `adam`."""
        return {**super().attrs(), "lazy_mode": self.lazy_mode}

    def states(self) -> Sequence[State]:
        """Return both moments and the powers of the decays."""
        return (
            State("Moment1", "moment1"),
            State("Moment2", "moment2"),
            State("Beta1Pow", "beta1_pow_acc", float(self.beta1), single=True),
            State("Beta2Pow", "beta2_pow_acc", float(self.beta2), single=True),
        )


class Adamax(_Betas):
    """Adam with a decaying maximum; op `adamax`. Arguments of `Adam`."""

    op = "adamax"

    def states(self) -> Sequence[State]:
        """Return the moment, the maximum and the power of the first decay."""
        return (
            State("Moment", "moment"),
            State("InfNorm", "inf_norm"),
            State("Beta1Pow", "beta1_pow_acc", float(self.beta1), single=True),
        )


class Lamb(_Betas):
    """Adam's direction, as long as the parameter; op `lamb`.

    Args:
        lamb_weight_decay: pull towards 0, no unit.
        beta1, beta2, epsilon: as for `Adam`.
    """

    op = "lamb"
    decay_attr = "weight_decay"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, grad_clip, name)
        self.lamb_weight_decay = lamb_weight_decay

    def states(self) -> Sequence[State]:
        """Return both moments."""
        return State("Moment1", "moment1"), State("Moment2", "moment2")

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `lamb`."""
        return {**super().attrs(), "weight_decay": float(self.lamb_weight_decay)}
