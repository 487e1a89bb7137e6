"""The optimizers: names, arguments and defaults are fluid's. What they compute stands at the ops that they append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.optim.adafactor import Adafactor
from pe_cli.optim.around import GradientCentralization
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.decayed import SGDW, AdamW, Lion, MomentumW, NAdam, RAdam
from pe_cli.optim.lookahead import Lookahead
from pe_cli.optim.moments import Adam, Adamax, Lamb
from pe_cli.optim.muon import Muon
from pe_cli.optim.optimizer import Optimizer, Rate, State
from pe_cli.optim.private import Dpsgd
from pe_cli.optim.regularizer import Regularizer
from pe_cli.optim.sharpness import SAM


class SGD(Optimizer):
    """Stochastic gradient descent; op `sgd`. Arguments of `Optimizer`."""

    op = "sgd"


class Momentum(Optimizer):
    """Descent along a decaying sum of gradients; op `momentum`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        use_nesterov: look one step ahead.
    """

    op = "momentum"

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        use_nesterov: bool = False,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(momentum=momentum)
        self.momentum, self.use_nesterov = momentum, use_nesterov

    def states(self) -> Sequence[State]:
        """Return the one state of a parameter, its velocity."""
        return (State("Velocity", "velocity"),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `momentum`."""
        return {"mu": float(self.momentum), "use_nesterov": self.use_nesterov}


class LarsMomentum(Optimizer):
    """Momentum with a rate for each parameter by its length; op `lars_momentum`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        lars_coeff: trust in a layer's own scale, no unit.
        lars_weight_decay: pull towards 0, no unit.
    """

    op = "lars_momentum"
    decay_attr = "lars_weight_decay"

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(momentum=momentum)
        self.momentum, self.lars_coeff, self.lars_weight_decay = momentum, lars_coeff, lars_weight_decay

    def states(self) -> Sequence[State]:
        """Return the velocity."""
        return (State("Velocity", "velocity"),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `lars_momentum`."""
        return {
            "mu": float(self.momentum),
            "lars_coeff": float(self.lars_coeff),
            "lars_weight_decay": float(self.lars_weight_decay),
        }


class Adagrad(Optimizer):
    """A rate for each element by its sum of squared gradients; op `adagrad`.

    Args:
        epsilon: keeps the quotient finite, unit of the gradient.
        initial_accumulator_value: of the sum, at least 0.

    Raises:
        PeError: initial_accumulator_value is below 0.
    """

    op = "adagrad"

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_epsilon(epsilon)
        if not initial_accumulator_value >= 0:
            raise PeError(f"Adagrad: initial_accumulator_value must be >= 0, got {initial_accumulator_value}")
        self.epsilon, self.initial_accumulator_value = epsilon, initial_accumulator_value

    def states(self) -> Sequence[State]:
        """Return the sum of squares."""
        return (State("Moment", "moment", float(self.initial_accumulator_value)),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `adagrad`."""
        return {"epsilon": float(self.epsilon)}


class DecayedAdagrad(Optimizer):
    """Adagrad that forgets; op `decayed_adagrad`.

    Args:
        decay: part of the moment that stays each step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
    """

    op = "decayed_adagrad"

    def __init__(
        self,
        learning_rate: Rate,
        decay: float = 0.95,
        epsilon: float = 1e-6,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(decay=decay)
        self.check_epsilon(epsilon)
        self.decay, self.epsilon = decay, epsilon

    def states(self) -> Sequence[State]:
        """Return the moment."""
        return (State("Moment", "moment"),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `decayed_adagrad`."""
        return {"decay": float(self.decay), "epsilon": float(self.epsilon)}


class RMSProp(Optimizer):
    """A rate for each element by its mean squared gradient; op `rmsprop`.

    Args:
        rho: part of the mean square that stays each step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the squared gradient.
        momentum: part of the last step that is repeated, in [0, 1).
        centered: divide by the deviation instead of the root of the mean square.
    """

    op = "rmsprop"

    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(rho=rho, momentum=momentum)
        self.check_epsilon(epsilon)
        self.rho, self.epsilon, self.momentum, self.centered = rho, epsilon, momentum, centered

    def states(self) -> Sequence[State]:
        """Return the mean square, the last step and, when centered, the mean gradient."""
        mean = (State("MeanGrad", "mean_grad"),) if self.centered else ()
        return (State("Moment", "momentum"), State("MeanSquare", "mean_square"), *mean)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `rmsprop`."""
        return {
            "decay": float(self.rho),
            "epsilon": float(self.epsilon),
            "momentum": float(self.momentum),
            "centered": self.centered,
        }


class Adadelta(Optimizer):
    """Steps in the parameter's own unit; op `adadelta`.

    Args:
        learning_rate: without effect, as in fluid: the formula has none.
        epsilon: keeps the quotient finite, unit of the squared gradient.
        rho: part of the averages that stays each step, in [0, 1).
    """

    op = "adadelta"

    def __init__(
        self,
        learning_rate: Rate = 1.0,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(rho=rho)
        self.check_epsilon(epsilon)
        self.epsilon, self.rho = epsilon, rho

    @property
    def takes_rate(self) -> bool:
        """No."""
        return False

    def states(self) -> Sequence[State]:
        """Return the averages of squared gradients and squared steps."""
        return State("AvgSquaredGrad", "_avg_squared_grad"), State("AvgSquaredUpdate", "_avg_squared_update")

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `adadelta`."""
        return {"rho": float(self.rho), "epsilon": float(self.epsilon)}


class Ftrl(Optimizer):
    """Follow the regularized leader; op `ftrl`.

    Args:
        l1: weight of sum |parameter|, at least 0.
        l2: weight of sum parameter^2, at least 0.
        lr_power: of the sum of squares in the rate, at most 0.

    Raises:
        PeError: l1 or l2 is below 0, or lr_power is above 0.
    """

    op = "ftrl"

    def __init__(
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        if not (l1 >= 0 and l2 >= 0 and lr_power <= 0):
            raise PeError(f"Ftrl needs l1 >= 0, l2 >= 0 and lr_power <= 0, got {l1}, {l2} and {lr_power}")
        self.l1, self.l2, self.lr_power = l1, l2, lr_power

    def states(self) -> Sequence[State]:
        """Return the sums of squares and of gradients."""
        return (
            State("SquaredAccumulator", "squared", out="SquaredAccumOut"),
            State("LinearAccumulator", "linear", out="LinearAccumOut"),
        )

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `ftrl`."""
        return {"l1": float(self.l1), "l2": float(self.l2), "lr_power": float(self.lr_power)}


#: Optimizers by the type that a config names, with and without the suffix Optimizer of fluid's names; keyword arguments only.
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    made.__name__ + suffix: made
    for suffix in ("", "Optimizer")
    for made in (
        *(SGD, Momentum, LarsMomentum, Adagrad, DecayedAdagrad, Adam, Adamax, Lamb, RMSProp, Adadelta, Ftrl, Dpsgd),
        *(AdamW, SGDW, MomentumW, Lion, NAdam, RAdam, Adafactor, Muon, Lookahead, SAM, GradientCentralization),
    )
}
