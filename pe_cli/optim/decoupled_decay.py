"""Optimizers with decoupled weight decay; their updates are documented at the ops that they append."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared, decay, least, number, part
from pe_cli.optim.optimizer import Rate, State
from pe_cli.optim.regularizer import Regularizer


class SGDW(Declared):
    """Descent, and a decay apart from it; op `sgdw`.

    Args:
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "sgdw"
    # Unlike the others of this file it has no default: a rate for plain descent depends on the model.
    decay_attr = "weight_decay"

    learning_rate: Rate
    weight_decay: float = decay(default=0.01)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class MomentumW(Declared):
    """Momentum, and a decay apart from it; op `momentumw`.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        use_nesterov: look one step ahead.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "momentumw"
    decay_attr = "weight_decay"
    keeps = (State("Velocity", "velocity"),)

    learning_rate: Rate
    momentum: float = part(attr="mu")
    use_nesterov: bool = False
    weight_decay: float = decay(default=0.01)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class AdamW(Declared):
    """Adam, and a decay apart from the gradient; op `adamw`. Numbers and defaults are those of torch.optim.AdamW.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "adamw"
    decay_attr = "weight_decay"
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
    weight_decay: float = decay(default=0.01)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class Lion(Declared):
    """Steps of one length in every element; op `lion`. A good learning rate is 3 to 10 times smaller than that of AdamW.

    Args:
        beta1: part of the moment in the direction, in [0, 1).
        beta2: decay of the moment per step, in [0, 1).
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "lion"
    decay_attr = "weight_decay"
    keeps = (State("Moment", "moment"),)

    learning_rate: Rate = 0.0001
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.99)
    weight_decay: float = decay(default=0.0)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None


class NAdam(Declared):
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
    decay_attr = "weight_decay"
    keeps = (
        State("Moment1", "moment1"),
        State("Moment2", "moment2"),
        State("Count", "step_count", single=True),
        State("Product", "momentum_product", 1.0, single=True),
    )

    learning_rate: Rate = 0.002
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.999)
    epsilon: float = least(default=1e-8)
    weight_decay: float = decay(default=0.0)
    momentum_decay: float = number(default=0.004)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def _begin(self) -> None:
        """Check the decay of the momentum."""
        if not self.momentum_decay >= 0:
            raise PeError(f"NAdam: momentum_decay must be >= 0, got {self.momentum_decay}")


class RAdam(Declared):
    """Adam whose first steps are rectified; op `radam`. Numbers and defaults are those of torch.optim.RAdam.

    Args:
        beta1: decay of the first moment per step, in [0, 1).
        beta2: decay of the second moment per step, in [0, 1).
        epsilon: keeps the quotient finite, unit of the gradient.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
    """

    op = "radam"
    decay_attr = "weight_decay"
    keeps = (State("Moment1", "moment1"), State("Moment2", "moment2"), State("Count", "step_count", single=True))

    learning_rate: Rate = 0.001
    beta1: float = part(default=0.9)
    beta2: float = part(default=0.999)
    epsilon: float = least(default=1e-8)
    weight_decay: float = decay(default=0.0)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None
