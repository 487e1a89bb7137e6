"""Functions of the dynamic mode that a static graph can offer: values, gradients, and random states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.backward import gradients
from pe_cli.paddle.fluid.framework import as_dtype, default_main_program
from pe_cli.program.ir import Parameter, Variable

#: Names of variables that were made where gradients were enabled again.
ENABLED: set[str] = set()


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Let no gradient flow through what is computed inside; also a decorator, `@no_grad()`.

    Parameters that are made inside stay trainable: what is computed of them outside has gradients.
    """
    block = default_main_program().global_block()
    before = set(block.vars)
    yield
    for name, made in block.vars.items():
        # A parameter that is made inside stays trainable, as in the original.
        if name not in before and name not in ENABLED and not isinstance(made, Parameter):
            made.stop_gradient = True


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
) -> list[Any]:
    """Append the gradients of outputs by inputs; `static.gradients` with the arguments of the dynamic mode.

    Args:
        outputs: variable or list of variables.
        inputs: variable or list of variables.
        grad_outputs: gradients of the outputs; None, or None in a list, stands for ones.
        retain_graph: without effect: a static graph is always kept.
        create_graph: must be False: gradients of gradients are not there.
        only_inputs: must be True, as in the original.
        allow_unused: return None for inputs that outputs do not depend on, instead of an error.
        no_grad_vars: variables that gradients do not flow through.

    Returns:
        A gradient for every input.

    Raises:
        FluidValueError: an input that outputs do not depend on; a ValueError.
        NotThereYet: create_graph is True, or only_inputs is False.
    """
    if create_graph or not only_inputs:
        raise NotThereYet("grad: create_graph=True and only_inputs=False are not there", hint="leave them out")
    wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    found: list[Any] = list(gradients(outputs, wanted, grad_outputs, no_grad_vars))
    unused = [v.name for v, g in zip(wanted, found, strict=True) if g is None]
    if unused and not allow_unused:
        raise FluidValueError(f"grad: the outputs do not depend on {', '.join(unused)}", hint="allow_unused=True returns None for these")
    return found


def to_tensor(data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True) -> Any:
    """Return a variable with given values, which are a part of the program.

    Args:
        data: number, list, array, or a variable, which is copied.
        dtype: default: that of the data; of Python's floats, the default type of floats.
        place: must be None: a program runs where its executor says.
        stop_gradient: gradients do not flow to it.

    Raises:
        FluidTypeError: data has no numbers; a TypeError.
        NotThereYet: place is given.
    """
    from pe_cli.paddle.v2_composed_functions import get_default_dtype

    if place is not None:
        raise NotThereYet("to_tensor: place is not there", hint="leave it out: the executor's place holds for the whole program")
    if isinstance(data, Variable):
        made = layers.assign(data if dtype is None else layers.cast(data, as_dtype(dtype)))
    else:
        values = np.asarray(data)
        if values.dtype.kind not in "biuf":
            raise FluidTypeError(f"to_tensor: data has elements of type {values.dtype}", hint="numbers, or nested lists of equal lengths")
        plain = not isinstance(data, (np.ndarray, np.generic))
        # Python's numbers take the default type, as 2.x does; arrays keep theirs.
        kind = get_default_dtype() if plain and values.dtype.kind == "f" else str(values.dtype)
        made = layers.assign(values.astype(as_dtype(kind if dtype is None else dtype)))
    made.stop_gradient = stop_gradient
    return made


def get_cuda_rng_state() -> list[Any]:
    """Return the states of the generators of GPUs: none, as random numbers depend on the seed and the step alone."""
    return []


def set_cuda_rng_state(state_list: Sequence[Any]) -> None:
    """Set the states of the generators of GPUs, of which there are none.

    Raises:
        FluidValueError: there are states; a ValueError.
    """
    if len(state_list):
        raise FluidValueError(
            f"set_cuda_rng_state: {len(state_list)} states for 0 generators", hint="call paddle.seed"
        )


__all__ = ["get_cuda_rng_state", "grad", "no_grad", "set_cuda_rng_state", "to_tensor"]
