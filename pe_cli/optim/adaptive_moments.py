"""Optimizers by both moments of the gradient: names, arguments and defaults are fluid's."""

from __future__ import annotations

from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared, least, number, part
from pe_cli.optim.optimizer import Rate, State
from pe_cli.optim.regularizer import Regularizer


class Adam(Declared):
    """Mean gradient over the root of the mean square; op `adam`.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        lazy_mode: a row-sparse gradient leaves the rows that it has not, and their moments, as they are.
    """

    op = "adam"
    keeps = (
        State("Moment1", "moment1"),
        State("Moment2", "moment2"),
        State("Beta1Pow", "beta1_pow_acc", "beta1", single=True),
        State("Beta2Pow", "beta2_pow_acc", "beta2", single=True),
    )

    learning_rate: Rate = 0.001
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.999)
    epsilon: float = least(default=1e-8)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None
    lazy_mode: bool = False

    def _begin(self) -> None:
        """Take any value for the switch that is true or false."""
        # Scripts of fluid pass 0 and 1.
        self.lazy_mode = bool(self.lazy_mode)


class Adamax(Declared):
    """Adam with a decaying maximum; op `adamax`. Arguments of `Adam`."""

    op = "adamax"
    keeps = (
        State("Moment", "moment"),
        State("InfNorm", "inf_norm"),
        State("Beta1Pow", "beta1_pow_acc", "beta1", single=True),
    )

    learning_rate: Rate = 0.001
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.999)
    epsilon: float = least(default=1e-8)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class Lamb(Declared):
    """Adam's direction, as long as the parameter; op `lamb`.

    Args:
        lamb_weight_decay: pull towards 0, no unit.
        beta1, beta2, epsilon: as for `Adam`.
    """

    op = "lamb"
    decay_attr = "weight_decay"
    keeps = (State("Moment1", "moment1"), State("Moment2", "moment2"))

    learning_rate: Rate = 0.001
    lamb_weight_decay: float = number(default=0.01, attr="weight_decay")
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.999)
    epsilon: float = least(default=1e-6)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None
