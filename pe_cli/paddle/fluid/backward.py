"""append_backward and gradients."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.program import backward as core
from pe_cli.program.ir import Variable


def _names(given: Any) -> set[str] | None:
    return None if given is None else {v.name if isinstance(v, Variable) else v for v in given}


@raised_as(FluidValueError)
def append_backward(
    loss: Variable,
    parameter_list: Any = None,
    no_grad_set: Any = None,
    callbacks: Any = None,
    checkpoints: Any = None,
) -> list[tuple[Any, Variable]]:
    """Append gradient ops.

    Args:
        loss: one number.
        parameter_list: parameters or names; default: all trainable ones.
        no_grad_set: variables or names that gradients do not flow through.
        callbacks: functions of a block and a dict that are called for every gradient op; the dict has it as `__current_op_desc__`.
        checkpoints: without effect: activations are kept.

    Returns:
        (parameter, gradient) pairs; empty where every parameter is left out. What is fed, and has no stop_gradient, has its gradient as
        `<name>@GRAD`.

    Raises:
        FluidValueError: the loss is not one number, or no gradient can be made of it; a ValueError.
    """
    block, before = loss.block, len(loss.block.ops)
    found = _appended(loss, _names(parameter_list), _names(no_grad_set) or set())
    # Callbacks see every op that was appended, in order, after all are there; the original calls them between.
    for op in block.ops[before:] if callbacks else ():
        for each in callbacks:
            each(block=block, context={"__current_op_desc__": op})
    return found


def _appended(loss: Variable, wanted: set[str] | None, stop: set[str]) -> list[tuple[Any, Variable]]:
    block = loss.block
    trained = [p.name for p in block.parameters() if p.trainable and not p.stop_gradient and (wanted is None or p.name in wanted)]
    chosen = [name for name in trained if name not in stop]
    # A feed whose gradient a script asks for counts as a root of gradients, like a parameter.
    fed = [v for v in block.vars.values() if v.is_data and not v.stop_gradient and v.dtype in FLOATS]
    if not chosen and (trained or fed):
        # No parameter is trained, but gradients of feeds are wanted: adversarial examples, for instance.
        if fed:
            core.gradients([loss], fed, None, stop)
        return []
    return list(core.append_backward(loss, chosen, stop, [v.name for v in fed]))


@raised_as(FluidValueError)
def gradients(targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None) -> list[Any]:
    """Append the ops that compute the gradients of targets with respect to inputs; None where there is no dependence.

    Raises:
        FluidValueError: there is no way back through an op; a ValueError.
    """
    given = [None if g is None else g for g in _list(target_gradients)] if target_gradients is not None else None
    return core.gradients(_list(targets), _list(inputs), given, _names(no_grad_set))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


calc_gradient = gradients

__all__ = ["append_backward", "calc_gradient", "gradients"]
