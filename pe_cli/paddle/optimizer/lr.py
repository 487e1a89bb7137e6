"""optimizer.lr: learning rates that `step` changes, each by the number of steps so far."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError
from pe_cli.paddle.fluid.fed_rates import LRScheduler
from pe_cli.paddle.optimizer.lr_cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR, check, whole
from pe_cli.paddle.reference_names import missing


def _function(value: Any) -> Callable[[int], float]:
    if not callable(value):
        raise FluidTypeError(f"lr_lambda is {value!r}", hint="a function of the number of steps")
    return value  # type: ignore[no-any-return]


class NoamDecay(LRScheduler):
    """Rate x d_model**-0.5 x min(step**-0.5, step x warmup_steps**-1.5): it rises evenly, then falls (Vaswani et al. 2017)."""

    def __init__(
        self, d_model: int, warmup_steps: int, learning_rate: float = 1.0, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check(d_model > 0, f"d_model is {d_model}, not above 0")
        self.d_model, self.warmup_steps = d_model, warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        # Step 0 has no power of -0.5; the warmup, which is 0 there, decides.
        falling = self.last_epoch**-0.5 if self.last_epoch else 1.0
        return float(self.base_lr * self.d_model**-0.5 * min(falling, self.warmup_steps**-1.5 * self.last_epoch))


class PiecewiseDecay(LRScheduler):
    """The first of values before the first boundary, the next before the next one, and the last behind all."""

    def __init__(self, boundaries: Sequence[int], values: Sequence[float], last_epoch: int = -1, verbose: bool = False) -> None:
        check(bool(boundaries), "boundaries are empty")
        check(len(values) > len(boundaries), f"{len(boundaries)} boundaries need a value more than that, got {len(values)}")
        self.boundaries, self.values = boundaries, values
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        passed = next((i for i, boundary in enumerate(self.boundaries) if self.last_epoch < boundary), len(self.values) - 1)
        return self.values[passed]


class NaturalExpDecay(LRScheduler):
    """Rate x exp(-gamma x step)."""

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        check(gamma > 0, f"gamma is {gamma}, not above 0")
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """Rate / (1 + gamma x step)."""

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class ExponentialDecay(LRScheduler):
    """Rate x gamma**step."""

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        check(0 < gamma < 1, f"gamma is {gamma}, not between 0 and 1")
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr * self.gamma**self.last_epoch


class PolynomialDecay(LRScheduler):
    """From the rate to end_lr within decay_steps, as the power of what is left; with cycle the way grows once more where it ends."""

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(power > 0, f"power is {power}, not above 0")
        self.decay_steps, self.end_lr, self.power, self.cycle = whole(decay_steps, "decay_steps"), end_lr, power, cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        # With cycle, the way is stretched to the next whole number of decay_steps.
        times = max(1, math.ceil(self.last_epoch / self.decay_steps)) if self.cycle else 1
        step = self.last_epoch if self.cycle else min(self.last_epoch, self.decay_steps)
        return float((self.base_lr - self.end_lr) * (1 - step / (self.decay_steps * times)) ** self.power + self.end_lr)


class LinearWarmup(LRScheduler):
    """From start_lr to end_lr evenly within warmup_steps, then a rate, or what a scheduler has from there on.

    Raises:
        FluidTypeError: the rate is neither a number nor a scheduler; a TypeError.
    """

    def __init__(
        self, learning_rate: Any, warmup_steps: int, start_lr: float, end_lr: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        if not isinstance(learning_rate, (int, float, LRScheduler)):
            raise FluidTypeError(f"learning_rate is {learning_rate!r}", hint="a number or a scheduler")
        check(end_lr > start_lr, f"end_lr is {end_lr}, not above start_lr, {start_lr}")
        self.learning_rate, self.warmup_steps = learning_rate, whole(warmup_steps, "warmup_steps")
        self.start_lr, self.end_lr = start_lr, end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        if self.last_epoch < self.warmup_steps:
            return (self.end_lr - self.start_lr) * self.last_epoch / self.warmup_steps + self.start_lr
        if isinstance(self.learning_rate, LRScheduler):
            # The inner scheduler counts from the end of the warmup, as in the original.
            self.learning_rate.step(self.last_epoch - self.warmup_steps)
            return self.learning_rate()
        return float(self.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """Return what `set_state_dict` goes on from, that of an inner scheduler under `LinearWarmup_LR`."""
        inner = {"LinearWarmup_LR": self.learning_rate.state_dict()} if isinstance(self.learning_rate, LRScheduler) else {}
        return super().state_dict() | inner

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` has returned."""
        told = dict(state_dict)
        inner = told.pop("LinearWarmup_LR", None)
        if inner is not None and isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.set_state_dict(inner)
        super().set_state_dict(told)


class MultiStepDecay(LRScheduler):
    """Rate x gamma for every milestone that is reached.

    Raises:
        FluidTypeError: milestones are no list; a TypeError.
    """

    def __init__(
        self, learning_rate: float, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        if not isinstance(milestones, (list, tuple)):
            raise FluidTypeError(f"milestones are {milestones!r}", hint="a list of numbers of steps")
        check(all(a < b for a, b in itertools.pairwise(milestones)), "milestones do not rise")
        check(gamma < 1, f"gamma is {gamma}, not below 1")
        self.milestones, self.gamma = milestones, gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return float(self.base_lr * self.gamma ** sum(self.last_epoch >= milestone for milestone in self.milestones))


class StepDecay(LRScheduler):
    """Rate x gamma after every step_size steps."""

    def __init__(self, learning_rate: float, step_size: int, gamma: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        check(gamma < 1, f"gamma is {gamma}, not below 1")
        self.step_size, self.gamma = whole(step_size, "step_size"), gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr * self.gamma ** (self.last_epoch // self.step_size)


class LambdaDecay(LRScheduler):
    """Rate x lr_lambda(step)."""

    def __init__(self, learning_rate: float, lr_lambda: Callable[[int], float], last_epoch: int = -1, verbose: bool = False) -> None:
        self.lr_lambda = _function(lr_lambda)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr * self.lr_lambda(self.last_epoch)


class MultiplicativeDecay(LambdaDecay):
    """Rate x lr_lambda(1) x ... x lr_lambda(step)."""

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.base_lr * math.prod(self.lr_lambda(step) for step in range(1, self.last_epoch + 1))


class CosineAnnealingDecay(LRScheduler):
    """From the rate to eta_min within T_max steps along half a wave, and back (Loshchilov and Hutter 2016).

    Raises:
        FluidTypeError: eta_min is no number; a TypeError.
    """

    def __init__(self, learning_rate: float, T_max: int, eta_min: float = 0, last_epoch: int = -1, verbose: bool = False) -> None:
        if not isinstance(eta_min, (int, float)):
            raise FluidTypeError(f"eta_min is {eta_min!r}", hint="a number")
        self.T_max, self.eta_min = whole(T_max, "T_max"), float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        return self.eta_min + (self.base_lr - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2


class LinearLR(LRScheduler):
    """Rate x start_factor to rate x end_factor, evenly within total_steps."""

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(0 < start_factor <= 1, f"start_factor is {start_factor}, not above 0 and at most 1")
        check(0 <= end_factor <= 1, f"end_factor is {end_factor}, not from 0 to 1")
        check(total_steps > 0, f"total_steps is {total_steps}, not above 0")
        self.total_steps, self.start_factor, self.end_factor = total_steps, start_factor, end_factor
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        share = min(self.last_epoch, self.total_steps) / self.total_steps
        return self.base_lr * (self.start_factor + (self.end_factor - self.start_factor) * share)


class ReduceOnPlateau(LRScheduler):
    """Rate x factor whenever a measure, which `step` is given, has not become better for more than patience steps."""

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode, self.threshold_mode = mode.lower(), threshold_mode.lower()
        check(self.mode in ("min", "max"), f"mode is {mode!r}, neither min nor max")
        check(self.threshold_mode in ("rel", "abs"), f"threshold_mode is {threshold_mode!r}, neither rel nor abs")
        check(factor < 1, f"factor is {factor}, not below 1")
        self.factor, self.patience, self.threshold, self.cooldown = factor, patience, threshold, cooldown
        self.min_lr, self.epsilon = min_lr, epsilon
        self.cooldown_counter = self.num_bad_epochs = 0
        self.best: float | None = None
        self._begin(learning_rate, 0, verbose)

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Go on by a step, and lower the rate where the measure asks for it.

        Args:
            metrics: one number.
            epoch: number of the step; default: the next one.

        Raises:
            FluidTypeError: it is no number; a TypeError.
            FluidValueError: there are several; a ValueError.
        """
        if not isinstance(metrics, (int, float, np.number, np.ndarray)):
            raise FluidTypeError(f"metrics is {metrics!r}", hint="a number")
        check(np.size(metrics) == 1, f"metrics has {np.size(metrics)} numbers, not one")
        found = float(np.asarray(metrics).item())
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            return
        better = self.best is None or self._is_better(found, self.best)
        self.best, self.num_bad_epochs = (found, 0) if better else (self.best, self.num_bad_epochs + 1)
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            lower = max(self.last_lr * self.factor, self.min_lr)
            # Steps smaller than epsilon are not worth a new rate: the original skips them.
            if self.last_lr - lower > self.epsilon:
                self._take(lower)

    def _is_better(self, found: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        asked = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return sign * found < sign * best - asked


__all__ = [
    "CosineAnnealingDecay", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialDecay", "InverseTimeDecay", "LRScheduler", "LambdaDecay",
    "LinearLR", "LinearWarmup", "MultiStepDecay", "MultiplicativeDecay", "NaturalExpDecay", "NoamDecay", "OneCycleLR", "PiecewiseDecay",
    "PolynomialDecay", "ReduceOnPlateau", "StepDecay",
]  # fmt: skip
__getattr__ = missing("paddle.optimizer.lr", lambda: globals())
