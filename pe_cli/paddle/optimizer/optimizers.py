"""Optimizers of 2.x: fluid's by the arguments, their order, and the rules of 2.x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError
from pe_cli.paddle.fluid import optimizer as fluid
from pe_cli.paddle.fluid.fed_rates import Fed, LRScheduler
from pe_cli.paddle.fluid.places import CPUPlace
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.program.ir import Operator, Program, Variable

#: Arguments in 2.x's order.
_ORDERS = {
    "SGD": "learning_rate parameters weight_decay grad_clip multi_precision name",
    "Momentum": "learning_rate momentum parameters use_nesterov weight_decay grad_clip multi_precision rescale_grad use_multi_tensor name",
    "Adagrad": "learning_rate epsilon parameters weight_decay grad_clip name initial_accumulator_value",
    "Adam": "learning_rate beta1 beta2 epsilon parameters weight_decay grad_clip lazy_mode multi_precision use_multi_tensor name",
    "AdamW": (
        "learning_rate beta1 beta2 epsilon parameters weight_decay lr_ratio apply_decay_param_fun grad_clip lazy_mode multi_precision name"
    ),
    "Adamax": "learning_rate beta1 beta2 epsilon parameters weight_decay grad_clip name",
    "Lamb": (
        "learning_rate lamb_weight_decay beta1 beta2 epsilon parameters grad_clip exclude_from_weight_decay_fn multi_precision"
        " always_adapt name"
    ),
    "RMSProp": "learning_rate rho epsilon momentum centered parameters weight_decay grad_clip name",
    "Adadelta": "learning_rate epsilon rho parameters weight_decay grad_clip name",
}
#: Defaults of 2.x where fluid's optimizer has none, or another one.
_DEFAULTS = {"SGD": {"learning_rate": 0.001}, "Momentum": {"learning_rate": 0.001, "momentum": 0.9}, "Adadelta": {"learning_rate": 0.001}}
#: Arguments that change no number, and the value at which others need nothing done.
_WITHOUT_EFFECT = ("multi_precision", "use_multi_tensor")
_ONLY: Mapping[str, Any] = {"lr_ratio": None, "always_adapt": False, "rescale_grad": 1.0}


class _Later:
    """What 2.x's optimizers do otherwise than fluid's."""

    _order: tuple[str, ...] = ()
    _decayed: Callable[[str], bool] | None = None

    def __init__(self, *args: Any, **given: Any) -> None:
        kind = type(self).__name__
        if len(args) > len(self._order):
            raise FluidTypeError(f"{kind} takes {len(self._order)} arguments at most, got {len(args)}")
        twice = [name for name in self._order[: len(args)] if name in given]
        if twice:
            raise FluidTypeError(f"{kind} got '{twice[0]}' twice")
        given = {**_DEFAULTS.get(kind, {}), **dict(zip(self._order, args, strict=False)), **given}
        for name in _WITHOUT_EFFECT:
            given.pop(name, None)
        for name, only in _ONLY.items():
            if given.pop(name, only) != only:
                raise FluidTypeError(f"{kind} takes no {name}", hint="leave it out")
        if kind == "AdamW":
            self._decayed = given.pop("apply_decay_param_fun", None)
            given.pop("lazy_mode", None)
        super().__init__(**given)

    @property
    def _learning_rate(self) -> Any:
        """The scheduler, or the number; scripts look at it."""
        given = self.learning_rate
        return given.scheduler if isinstance(given, Fed) else given

    def get_lr(self) -> float:
        """Return the learning rate of the next step."""
        rate = self._learning_rate
        return float(rate.last_lr if isinstance(rate, LRScheduler) else rate)

    def set_lr(self, value: float) -> None:
        """Set the learning rate of the steps to come, in the current scope, too.

        Raises:
            FluidTypeError: value is no number; a TypeError.
            EnforceNotMet: a scheduler says the rate; a RuntimeError.
        """
        if not isinstance(value, (int, float)):
            raise FluidTypeError(f"set_lr takes a number, got {type(value).__name__}")
        if isinstance(self._learning_rate, LRScheduler):
            raise EnforceNotMet("set_lr: a scheduler says the rate", hint="call the scheduler's step, or give the optimizer a number")
        self.learning_rate = float(value)
        for variable in self._rates.values():  # type: ignore[attr-defined]
            held = global_scope().find_var(variable.name)
            if held is not None and variable.persistable:
                held.get_tensor().set(np.full(1, value, variable.dtype), CPUPlace())

    def decay_of(self, parameter: Any) -> float:
        """Return the coefficient of a parameter's decay; 0 where `apply_decay_param_fun` says so of its name."""
        if self._decayed is not None and not self._decayed(parameter.name):
            return 0.0
        return float(super().decay_of(parameter))  # type: ignore[misc]

    def minimize(
        self, loss: Variable, startup_program: Program | None = None, parameters: Any = None, no_grad_set: Any = None
    ) -> tuple[list[Operator], list[tuple[Any, Variable]]]:
        """Append everything that makes the loss smaller, once a step.

        Args:
            loss: one number.
            startup_program: gets first values; default: the default startup program.
            parameters: parameters or names; default: the constructor's, or all trainable ones.
            no_grad_set: variables or names that gradients do not flow through.
        """
        return super().minimize(loss, startup_program, parameters, no_grad_set)  # type: ignore[misc,no-any-return]


def later_optimizers() -> dict[str, Any]:
    """Return the classes by their names."""
    made = {}
    for name, order in _ORDERS.items():
        base = getattr(fluid, name)
        facts = {"__doc__": base.__doc__, "__module__": __name__, "_order": tuple(order.split())}
        if name == "Adadelta":
            facts["takes_rate"] = True  # since 2.6; the formula has none before
        made[name] = type(name, (_Later, base), facts)
    return made
