"""The optimizers: names, arguments and defaults are fluid's. What they compute stands at the ops that they append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.optimizer import Optimizer, Rate, State
from pe_cli.optim.regularizer import Regularizer


def _check_part(optimizer: Optimizer, **values: float) -> None:
    """Check numbers that say which part of something stays.

    Raises:
        PeError: one is outside [0, 1).
    """
    for name, value in values.items():
        if not 0 <= value < 1:
            raise PeError(f"{type(optimizer).__name__}: {name} must be in [0, 1), got {value}")


def _check_epsilon(optimizer: Optimizer, epsilon: float) -> None:
    if not epsilon >= 0:
        raise PeError(f"{type(optimizer).__name__}: epsilon must be >= 0, got {epsilon}")


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
        _check_part(self, momentum=momentum)
        self.momentum, self.use_nesterov = momentum, use_nesterov

    def states(self) -> Sequence[State]:
        """Return the velocity."""
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
        _check_part(self, momentum=momentum)
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
        _check_epsilon(self, epsilon)
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
        _check_part(self, decay=decay)
        _check_epsilon(self, epsilon)
        self.decay, self.epsilon = decay, epsilon

    def states(self) -> Sequence[State]:
        """Return the moment."""
        return (State("Moment", "moment"),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `decayed_adagrad`."""
        return {"decay": float(self.decay), "epsilon": float(self.epsilon)}


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
        _check_part(self, beta1=beta1, beta2=beta2)
        _check_epsilon(self, epsilon)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def attrs(self) -> Mapping[str, Any]:
        """Return the three numbers."""
        return {"beta1": float(self.beta1), "beta2": float(self.beta2), "epsilon": float(self.epsilon)}


class Adam(_Betas):
    """Mean gradient over the root of the mean square; op `adam`.

    Args:
        beta1: decay of the first moment a step, in [0, 1).
        beta2: decay of the second moment a step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
    """

    op = "adam"

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
        _check_part(self, rho=rho, momentum=momentum)
        _check_epsilon(self, epsilon)
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
        _check_part(self, rho=rho)
        _check_epsilon(self, epsilon)
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


#: Optimizers by the type that a config names, with and without fluid's suffix; keyword arguments only.
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    made.__name__ + suffix: made
    for suffix in ("", "Optimizer")
    for made in (SGD, Momentum, LarsMomentum, Adagrad, DecayedAdagrad, Adam, Adamax, Lamb, RMSProp, Adadelta)
}
