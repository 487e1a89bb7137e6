"""The optimizers: names, arguments and defaults are fluid's. What they compute stands at the ops that they append."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Sequence
from importlib import import_module

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared, least, part
from pe_cli.optim.optimizer import Optimizer, Rate, State
from pe_cli.optim.regularizer import Regularizer
from pe_cli.optim.wrappers import OptimizerWrapper


class SGD(Optimizer):
    """Stochastic gradient descent; op `sgd`. Arguments of `Optimizer`."""

    op = "sgd"


class Momentum(Declared):
    """Descent along a decaying sum of gradients; op `momentum`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        use_nesterov: look one step ahead.
    """

    op = "momentum"
    keeps = (State("Velocity", "velocity"),)

    learning_rate: Rate
    momentum: float = part(attr="mu")
    use_nesterov: bool = False
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class LarsMomentum(Declared):
    """Momentum with a rate for each parameter by its length; op `lars_momentum`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        lars_coeff: trust in a layer's own scale, no unit.
        lars_weight_decay: pull towards 0, no unit.
    """

    op = "lars_momentum"
    decay_attr = "lars_weight_decay"
    keeps = (State("Velocity", "velocity"),)

    learning_rate: Rate
    momentum: float = part(attr="mu")
    lars_coeff: float = 0.001
    lars_weight_decay: float = 0.0005
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class Adagrad(Declared):
    """A rate for each element by its sum of squared gradients; op `adagrad`.

    Args:
        epsilon: keeps the quotient finite, unit of the gradient.
        initial_accumulator_value: of the sum, at least 0.

    Raises:
        PeError: initial_accumulator_value is below 0.
    """

    op = "adagrad"
    keeps = (State("Moment", "moment", "initial_accumulator_value"),)

    learning_rate: Rate
    epsilon: float = least(default=1e-6)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None
    initial_accumulator_value: float = 0.0

    def _begin(self) -> None:
        """Check the first value of the sum."""
        if not self.initial_accumulator_value >= 0:
            raise PeError(f"Adagrad: initial_accumulator_value must be >= 0, got {self.initial_accumulator_value}")


class DecayedAdagrad(Declared):
    """Adagrad that forgets; op `decayed_adagrad`.

    Args:
        decay: part of the moment that stays each step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
    """

    op = "decayed_adagrad"
    keeps = (State("Moment", "moment"),)

    learning_rate: Rate
    decay: float = part(default=0.95)
    epsilon: float = least(default=1e-6)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class RMSProp(Declared):
    """A rate for each element by its mean squared gradient; op `rmsprop`.

    Args:
        rho: part of the mean square that stays each step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the squared gradient.
        momentum: part of the last step that is repeated, in [0, 1).
        centered: divide by the deviation instead of the root of the mean square.
    """

    op = "rmsprop"
    keeps = (State("Moment", "momentum"), State("MeanSquare", "mean_square"))

    learning_rate: Rate
    rho: float = part(default=0.95, attr="decay")
    epsilon: float = least(default=1e-6)
    momentum: float = part(default=0.0)
    centered: bool = False
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def states(self) -> Sequence[State]:
        """Return the last step, the mean square and, when centered, the mean gradient."""
        return [*super().states(), *([State("MeanGrad", "mean_grad")] if self.centered else [])]


class Adadelta(Declared):
    """Steps in the parameter's own unit; op `adadelta`.

    Args:
        learning_rate: without effect, as in fluid: the formula has none.
        epsilon: keeps the quotient finite, unit of the squared gradient.
        rho: part of the averages that stays each step, in [0, 1).
    """

    op = "adadelta"
    keeps = (State("AvgSquaredGrad", "_avg_squared_grad"), State("AvgSquaredUpdate", "_avg_squared_update"))

    learning_rate: Rate = 1.0
    epsilon: float = least(default=1e-6)
    rho: float = part(default=0.95)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    @property
    def takes_rate(self) -> bool:
        """No."""
        return False


class Ftrl(Declared):
    """Follow the regularized leader; op `ftrl`.

    Args:
        l1: weight of sum |parameter|, at least 0.
        l2: weight of sum parameter^2, at least 0.
        lr_power: of the sum of squares in the rate, at most 0.

    Raises:
        PeError: l1 or l2 is below 0, or lr_power is above 0.
    """

    op = "ftrl"
    keeps = (
        State("SquaredAccumulator", "squared", out="SquaredAccumOut"),
        State("LinearAccumulator", "linear", out="LinearAccumOut"),
    )

    learning_rate: Rate
    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = -0.5
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def _begin(self) -> None:
        """Check the signs of the weights and of the power."""
        if not (self.l1 >= 0 and self.l2 >= 0 and self.lr_power <= 0):
            raise PeError(f"Ftrl needs l1 >= 0, l2 >= 0 and lr_power <= 0, got {self.l1}, {self.l2} and {self.lr_power}")


#: What optimizers are made of, and none of them.
_BASES = (Optimizer, Declared, OptimizerWrapper)


def _discovered() -> list[type[Optimizer]]:
    """Import every module of this folder and return the optimizers that they define, this one's first."""
    package = import_module("pe_cli.optim")
    names = [__name__, *sorted(f"{package.__name__}.{info.name}" for info in pkgutil.iter_modules(package.__path__))]
    # In the order of modules and of classes in them, which is the order of the reference pages.
    found = [value for name in names for value in vars(import_module(name)).values() if inspect.isclass(value)]
    return [kind for kind in dict.fromkeys(found) if issubclass(kind, Optimizer) and kind not in _BASES]


#: Optimizers by the type that a config names, with and without the suffix Optimizer of fluid's names; keyword arguments only.
OPTIMIZERS: dict[str, type[Optimizer]] = {
    made.__name__ + suffix: made for suffix in ("", "Optimizer") for made in _discovered()
}
