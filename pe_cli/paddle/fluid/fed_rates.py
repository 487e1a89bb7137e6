"""Learning rates that Python computes between steps and feeds, as schedulers of 2.x do."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.optim.schedule import Schedule
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Program, Variable


class LRScheduler:
    """A learning rate that `step` changes; base of schedulers, which define `get_lr`.

    An optimizer that is given one has its rate in a variable that the startup program sets to `last_lr`; `step` writes later ones
    into the scope that is global then.

    Args:
        learning_rate: the first one.
        last_epoch: how many steps were made before, less one.
        verbose: print every new rate.

    Attributes:
        base_lr: the first rate.
        last_lr: the newest rate.
        last_epoch: steps so far.

    Raises:
        FluidTypeError: the rate is no number; a TypeError.
        FluidValueError: the rate is below 0; a ValueError.
    """

    def __init__(self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        self._begin(learning_rate, last_epoch, verbose)
        self.step()

    def _begin(self, learning_rate: float, last_epoch: int, verbose: bool) -> None:
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, (int, float)):
            raise FluidTypeError(f"learning_rate is {learning_rate!r}", hint="a number")
        if learning_rate < 0:
            raise FluidValueError(f"learning_rate is {learning_rate}", hint="a number from 0 on")
        self.base_lr = self.last_lr = float(learning_rate)
        self.last_epoch, self.verbose = last_epoch, verbose
        # Variables of all programs that an optimizer with this scheduler was appended to, by name: training and fine-tuning may share one.
        self._rates: list[tuple[str, str]] = []

    def __call__(self) -> float:
        """Return the newest rate."""
        return self.last_lr

    def get_lr(self) -> float:
        """Return the rate of step `last_epoch`.

        Raises:
            NotThereYet: a subclass does not define it; a NotImplementedError.
        """
        raise NotThereYet(f"{type(self).__name__} does not define get_lr", hint="define it, as a function of self.last_epoch")

    def step(self, epoch: int | None = None) -> None:
        """Go on by a step, or to a certain one; the next run of a program has its rate."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._take(self.get_lr())

    def _take(self, rate: float) -> None:
        """Make a rate the newest one, wherever optimizers have it."""
        self.last_lr = rate
        if self.verbose:
            print(f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to {rate}.")  # noqa: T201 - asked for
        scope = global_scope()
        for name, dtype in self._rates:
            held = scope.find_var(name)
            # A scope in which the startup program has not run yet has nothing to change: its first value is `last_lr` then.
            if held is not None and held.get_tensor()._is_initialized():
                held.get_tensor().set(np.array([rate], dtype))

    def state_dict(self) -> dict[str, Any]:
        """Return what `set_state_dict` goes on from: numbers, and lists of these."""
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and isinstance(v, (int, float, str, list, tuple, type(None)))}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` has returned; names that it has not keep their values."""
        # Names of another version of the scheduler are left out instead of becoming attributes.
        for name in self.state_dict().keys() & state_dict.keys():
            setattr(self, name, state_dict[name])
        self._take(self.last_lr)

    set_dict = set_state_dict


@dataclass(frozen=True, eq=False)
class Fed(Schedule):
    """What optimizers of the core take for a scheduler.

    Args:
        scheduler: whose rate it is.
    """

    scheduler: LRScheduler

    def append(
        self, main: Program | None = None, startup: Program | None = None, dtype: str = "float32", counter: Variable | None = None
    ) -> Variable:
        """Return a variable of the rate, which the startup program sets; arguments are those of `Schedule.append`."""
        assert main is not None
        assert startup is not None
        facts = {"persistable": True, "stop_gradient": True}
        made = main.global_block().create_var(main.unique_own("learning_rate"), TensorType((1,), dtype), **facts)
        Constant(self.scheduler.last_lr)(made, startup.global_block())
        self.scheduler._rates.append((made.name, dtype))
        return made
