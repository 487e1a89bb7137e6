"""extend_with_decoupled_weight_decay: an optimizer's class, with decay of the parameters apart from the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.optim.optimizer import Optimizer
from pe_cli.paddle.errors import FluidTypeError
from pe_cli.paddle.fluid.framework import default_startup_program, program_guard
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Operator, Program, Role, Variable


class DecoupledWeightDecay:
    """What such an optimizer does beside its update: before it, param = param - coeff param, with param of before the step.

    Args:
        coeff: a float, or a variable [1] of the parameters' element type; no unit.
        apply_decay_param_fun: name of a parameter -> whether it decays; None for all.
        given: the optimizer's own arguments, by name.

    Raises:
        FluidTypeError: coeff is something else; a TypeError.
    """

    def __init__(self, coeff: Any = 0.0, apply_decay_param_fun: Callable[[str], bool] | None = None, **given: Any) -> None:
        if not isinstance(coeff, (float, Variable)):
            raise FluidTypeError(f"weight_decay must be a float or a variable, not {type(coeff).__name__}")
        self._coeff, self._decays = coeff, apply_decay_param_fun
        super().__init__(**given)

    def minimize(
        self, loss: Variable, startup_program: Program | None = None, parameter_list: Any = None, no_grad_set: Any = None
    ) -> tuple[list[Operator], Any]:
        """Append the decay and the update; arguments and results of the optimizer that is extended."""
        base: Any = self
        startup = startup_program or default_startup_program()
        with program_guard(loss.block.program, startup):
            pairs = base.backward(loss, startup_program=startup, parameter_list=parameter_list, no_grad_set=no_grad_set)
            for parameter, gradient in pairs:
                # Only a float is compared: `==` of a variable appends an op.
                if self._coeff == 0.0 if isinstance(self._coeff, float) else False:
                    break
                if self._decays is None or self._decays(parameter.name):
                    self._decay(parameter, gradient)
            return base.apply_gradients(pairs, startup), pairs

    def _decay(self, parameter: Any, gradient: Variable) -> None:
        program = parameter.block.program
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]), program.name_scope("weight decay"):
            if isinstance(self._coeff, float):
                # One op instead of the original's two: p (1 - c) may differ from p - c p in the last bit.
                left = call("scale", parameter, 1.0 - self._coeff)
            else:
                if self._coeff.dtype != parameter.dtype:
                    raise FluidTypeError(f"weight_decay is {self._coeff.type}, and '{parameter.name}' is {parameter.type}")
                left = call("elementwise_sub", parameter, call("elementwise_mul", parameter, self._coeff))
            parameter.block.append_op("assign", {"X": left}, {"Out": parameter})


def extend_with_decoupled_weight_decay(base_optimizer: type[Any]) -> type[Any]:
    """Return an optimizer's class with `weight_decay` and `apply_decay_param_fun` before its own arguments, which go by name.

    Raises:
        FluidTypeError: it is no class of an optimizer; a TypeError.

    Source:
        Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise FluidTypeError(f"extend_with_decoupled_weight_decay takes the class of an optimizer, not {base_optimizer!r:.60}")

    def begin(self: Any, weight_decay: Any, apply_decay_param_fun: Callable[[str], bool] | None = None, **given: Any) -> None:
        DecoupledWeightDecay.__init__(self, weight_decay, apply_decay_param_fun, **given)

    facts = {"__init__": begin, "__doc__": f"{base_optimizer.__name__} with decay apart from the gradients; see DecoupledWeightDecay."}
    return type(f"{base_optimizer.__name__}WithDecoupledWeightDecay", (DecoupledWeightDecay, base_optimizer), facts)


__all__ = ["extend_with_decoupled_weight_decay"]
