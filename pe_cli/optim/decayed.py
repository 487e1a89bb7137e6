"""Optimizers with decoupled weight decay; their updates are documented at the ops that they append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.optimizer import Optimizer, Rate, State
from pe_cli.optim.regularizer import Regularizer


class SGDW(Optimizer):
    """Descent, and a decay apart from it; op `sgdw`.

    Args:
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "sgdw"
    decay_attr = "weight_decay"

    def __init__(
        self,
        learning_rate: Rate,
        weight_decay: float = 0.01,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_decay(weight_decay)
        self.weight_decay = weight_decay

    def attrs(self) -> Mapping[str, Any]:
        """Return the attribute of `sgdw`."""
        return {"weight_decay": float(self.weight_decay)}


class MomentumW(Optimizer):
    """Momentum, and a decay apart from it; op `momentumw`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        use_nesterov: look one step ahead.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "momentumw"
    decay_attr = "weight_decay"

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        use_nesterov: bool = False,
        weight_decay: float = 0.01,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(momentum=momentum)
        self.check_decay(weight_decay)
        self.momentum, self.use_nesterov, self.weight_decay = momentum, use_nesterov, weight_decay

    def states(self) -> Sequence[State]:
        """Return the velocity."""
        return (State("Velocity", "velocity"),)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `momentumw`."""
        return {"mu": float(self.momentum), "use_nesterov": self.use_nesterov, "weight_decay": float(self.weight_decay)}


class _Decayed(Optimizer):
    """Two decays of moments, and that of the parameter."""

    decay_attr = "weight_decay"

    def __init__(
        self,
        learning_rate: Rate,
        beta1: float,
        beta2: float,
        weight_decay: float,
        regularization: Regularizer | None,
        grad_clip: GradientClip | None,
        name: str | None,
    ) -> None:
        super().__init__(learning_rate, regularization, grad_clip, name)
        self.check_part(beta1=beta1, beta2=beta2)
        self.check_decay(weight_decay)
        self.beta1, self.beta2, self.weight_decay = beta1, beta2, weight_decay

    def attrs(self) -> Mapping[str, Any]:
        """Return the three numbers."""
        return {"beta1": float(self.beta1), "beta2": float(self.beta2), "weight_decay": float(self.weight_decay)}


class AdamW(_Decayed):
    """Adam, and a decay apart from the gradient; op `adamw`. Numbers and defaults are those of torch.optim.AdamW.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "adamw"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, weight_decay, regularization, grad_clip, name)
        self.check_epsilon(epsilon)
        self.epsilon = epsilon

    def states(self) -> Sequence[State]:
        """Return both moments and the powers of the decays."""
        return (
            State("Moment1", "moment1"),
            State("Moment2", "moment2"),
            State("Beta1Pow", "beta1_pow_acc", float(self.beta1), single=True),
            State("Beta2Pow", "beta2_pow_acc", float(self.beta2), single=True),
        )

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `adamw`."""
        return {**super().attrs(), "epsilon": float(self.epsilon)}


class Lion(_Decayed):
    """Steps of one length in every element; op `lion`. A good learning rate is 3 to 10 times smaller than that of AdamW.

    Args:
        beta1: part of the moment in the direction, in [0, 1).
        beta2: decay of the moment per step, in [0, 1).
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "lion"

    def __init__(
        self,
        learning_rate: Rate = 0.0001,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 0.0,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, weight_decay, regularization, grad_clip, name)

    def states(self) -> Sequence[State]:
        """Return the moment."""
        return (State("Moment", "moment"),)


class NAdam(_Decayed):
    """Adam with Nesterov's momentum; op `nadam`. Numbers and defaults are those of torch.optim.NAdam.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
        momentum_decay: how fast the momentum of a step grows to beta1, at least 0, no unit.

    Raises:
        PeError: momentum_decay is below 0.
    """

    op = "nadam"

    def __init__(
        self,
        learning_rate: Rate = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, weight_decay, regularization, grad_clip, name)
        self.check_epsilon(epsilon)
        if not momentum_decay >= 0:
            raise PeError(f"NAdam: momentum_decay must be >= 0, got {momentum_decay}")
        self.epsilon, self.momentum_decay = epsilon, momentum_decay

    def states(self) -> Sequence[State]:
        """Return both moments, the number of steps and the product of their momenta."""
        return (
            State("Moment1", "moment1"),
            State("Moment2", "moment2"),
            State("Count", "step_count", single=True),
            State("Product", "momentum_product", 1.0, single=True),
        )

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `nadam`."""
        return {**super().attrs(), "epsilon": float(self.epsilon), "momentum_decay": float(self.momentum_decay)}


class RAdam(_Decayed):
    """Adam whose first steps are rectified; op `radam`. Numbers and defaults are those of torch.optim.RAdam.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "radam"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        regularization: Regularizer | None = None,
        grad_clip: GradientClip | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, weight_decay, regularization, grad_clip, name)
        self.check_epsilon(epsilon)
        self.epsilon = epsilon

    def states(self) -> Sequence[State]:
        """Return both moments and the number of steps."""
        return State("Moment1", "moment1"), State("Moment2", "moment2"), State("Count", "step_count", single=True)

    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of `radam`."""
        return {**super().attrs(), "epsilon": float(self.epsilon)}
