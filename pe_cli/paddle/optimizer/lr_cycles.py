"""Learning rates that rise and fall again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.fed_rates import LRScheduler


def check(right: bool, text: str) -> None:
    """Raise a text where something is not right.

    Raises:
        FluidValueError: it is not; a ValueError.
    """
    if not right:
        raise FluidValueError(text)


def whole(value: Any, name: str) -> int:
    """Return a whole number above 0.

    Raises:
        FluidTypeError: it is none; a TypeError.
        FluidValueError: it is 0 or below; a ValueError.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise FluidTypeError(f"{name} is {value!r}", hint="a whole number")
    check(value > 0, f"{name} is {value}, not above 0")
    return value


class OneCycleLR(LRScheduler):
    """Up to the largest rate and down (Smith and Topin 2017), along half waves or lines; three_phase goes back to the first between."""

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(0 <= phase_pct <= 1, f"phase_pct is {phase_pct}, not from 0 to 1")
        check(anneal_strategy in ("cos", "linear"), f"anneal_strategy is {anneal_strategy!r}, neither cos nor linear")
        check(not three_phase or phase_pct < 0.5, f"three phases need a phase_pct below 0.5, got {phase_pct}")
        self.total_steps, self.max_lr, self.min_lr = whole(total_steps, "total_steps"), max_learning_rate, end_learning_rate
        first, up = max_learning_rate / float(divide_factor), float(phase_pct * total_steps)
        self._cosine = anneal_strategy == "cos"
        places = [0.0, up - 1, *([2 * up - 2] if three_phase else []), total_steps - 1.0]
        self._way = list(zip(places, [first, max_learning_rate, *([first] if three_phase else []), end_learning_rate], strict=True))
        super().__init__(first, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`.

        Raises:
            FluidValueError: there are no more steps; a ValueError.
        """
        check(self.last_epoch <= self.total_steps, f"step {self.last_epoch} of {self.total_steps}")
        (begin, first), (end, last) = next(
            pair for pair in itertools.pairwise(self._way) if self.last_epoch <= pair[1][0] or pair[1] is self._way[-1]
        )
        share = (self.last_epoch - begin) / (end - begin)
        return last + (first - last) * (1 + math.cos(math.pi * share)) / 2 if self._cosine else first + (last - first) * share


class CyclicLR(LRScheduler):
    """Between two rates along lines, up and down (Smith 2015); heights shrink by mode: triangular, triangular2 or exp_range."""

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(mode in ("triangular", "triangular2", "exp_range"), f"mode is {mode!r}, not triangular, triangular2 or exp_range")
        check(scale_mode in ("cycle", "iterations"), f"scale_mode is {scale_mode!r}, neither cycle nor iterations")
        up = whole(step_size_up, "step_size_up")
        self.cycle_size = up + (up if step_size_down is None else whole(step_size_down, "step_size_down"))
        self.step_up_pct, self.max_lr = up / self.cycle_size, float(max_learning_rate)
        self.amplitude = self.max_lr - base_learning_rate
        heights: dict[str, tuple[Callable[[float], float], str]] = {
            "triangular": (lambda cycle: 1.0, "cycle"),
            "triangular2": (lambda cycle: 0.5 ** (cycle - 1), "cycle"),
            "exp_range": (lambda step: exp_gamma**step, "iterations"),
        }
        self._height, self.scale_mode = (scale_fn, scale_mode) if scale_fn is not None else heights[mode]
        super().__init__(base_learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        cycle = 1 + self.last_epoch // self.cycle_size
        share = 1.0 + self.last_epoch / self.cycle_size - cycle
        up = share <= self.step_up_pct
        height = share / self.step_up_pct if up else (1 - share) / (1 - self.step_up_pct)
        return self.base_lr + self.amplitude * height * self._height(cycle if self.scale_mode == "cycle" else self.last_epoch)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half waves from the rate to eta_min: the first of T_0 steps, each later one T_mult times as long (Loshchilov and Hutter 2016)."""

    def __init__(
        self, learning_rate: float, T_0: int, T_mult: int = 1, eta_min: float = 0, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.T_0, self.T_mult, self.eta_min = whole(T_0, "T_0"), whole(T_mult, "T_mult"), eta_min
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`."""
        begin, size = 0, self.T_0
        if self.T_mult == 1:
            begin = self.last_epoch - self.last_epoch % size
        while begin + size <= self.last_epoch:
            begin, size = begin + size, size * self.T_mult
        return self.eta_min + (self.base_lr - self.eta_min) * (1 + math.cos(math.pi * (self.last_epoch - begin) / size)) / 2
