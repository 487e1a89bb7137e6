"""Recurrent layers over a known number of steps: StaticRNN, cells and rnn, written out step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.layers.helper import LayerHelper
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.program.ir import Operator, Variable


class StaticRNN:
    """Repeats the layers of its block for every step of its inputs, whose first axis is time.

    The block is built once for the first step; its operators are appended again for every later one, with the variables
    of that step in place of the first one's.
    """

    def __init__(self, name: str | None = None) -> None:
        self._inputs: list[tuple[Variable, Variable]] = []
        self._memories: dict[str, str] = {}
        self._outputs: list[Variable] = []
        self._steps: int | None = None
        self._begin = 0
        self._parts: list[list[str]] = []
        self._block: Any = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Build one step inside.

        Raises:
            FluidValueError: nothing is stepped through.
        """
        self._block = default_main_program().global_block()
        self._begin = len(self._block.ops)
        yield
        if self._steps is None:
            raise FluidValueError("a StaticRNN needs a step_input")
        self._write_out()

    def step_input(self, x: Variable) -> Variable:
        """Return one step of [time, batch, ...].

        Raises:
            FluidValueError: the number of steps is not known, or not that of other inputs.
        """
        if x.shape[0] < 1:
            raise FluidValueError(f"a StaticRNN needs a known number of steps, got {x}")
        if self._steps not in (None, x.shape[0]):
            raise FluidValueError(f"inputs of one StaticRNN have {self._steps} and {x.shape[0]} steps")
        self._steps = x.shape[0]
        first: Variable = self._cut(x, 0)
        self._inputs.append((x, first))
        return first

    def _cut(self, x: Variable, step: int) -> Any:
        found = call("slice", x, [0], [step], [step + 1])
        return call("squeeze", found, [0])

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Return a variable that keeps a value from step to step; it starts as init, or as init_value.

        Raises:
            FluidValueError: neither init nor shape and batch_ref are given.
        """
        if init is None:
            if shape is None or batch_ref is None:
                raise FluidValueError("a memory needs init, or shape and batch_ref")
            axis = 0 if any(batch_ref is first for _, first in self._inputs) else ref_batch_dim_idx
            sizes = [1 if s == -1 else s for s in shape]
            made: Variable = fill_constant_batch_size_like(
                batch_ref, sizes, "float32", init_value, axis, init_batch_dim_idx
            )
        else:
            made = call("scale", init)
        self._memories[made.name] = made.name
        return made

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Say what a memory holds in the next step.

        Raises:
            FluidValueError: it is no memory of this one.
        """
        if mem.name not in self._memories:
            raise FluidValueError(f"'{mem.name}' is no memory of this StaticRNN")
        self._memories[mem.name] = var.name

    def step_output(self, o: Variable) -> None:
        """Collect a variable of every step."""
        self._outputs.append(o)

    def output(self, *outputs: Variable) -> None:
        """Collect variables of every step."""
        self._outputs += outputs

    def __call__(self) -> Any:
        if not self._outputs:
            raise EnforceNotMet("this StaticRNN has no step_output")
        found = [call("stack", [self._block.var(n) for n in names], 0) for names in self._parts]
        return found[0] if len(found) == 1 else found

    def _write_out(self) -> None:
        assert self._steps is not None
        body: list[Operator] = list(self._block.ops[self._begin :])
        starts = {first.name for _, first in self._inputs} | set(self._memories)
        body = [op for op in body if not starts & set(op.output_names()) and not self._prepares(op, body, starts)]
        self._parts = [[o.name] for o in self._outputs]
        now = {name: name for name in (n for op in body for n in op.output_names())}
        for step in range(1, self._steps):
            before, now = now, {}
            for x, first in self._inputs:
                now[first.name] = self._cut(x, step).name
            for memory, source in self._memories.items():
                now[memory] = before.get(source, source)
            for op in body:
                self._repeat(op, now)
            for names, o in zip(self._parts, self._outputs, strict=True):
                names.append(now.get(o.name, o.name))

    def _prepares(self, op: Operator, body: list[Operator], starts: set[str]) -> bool:
        """Return whether an op only makes a step input or a memory's first value."""
        readers = [other for other in body if set(op.output_names()) & set(other.input_names())]
        return bool(readers) and all(starts & set(r.output_names()) or self._prepares(r, body, starts) for r in readers)

    def _repeat(self, op: Operator, now: dict[str, str]) -> None:
        block = self._block
        kept = {n for n in op.output_names() if block.vars[n].persistable}
        for name in op.output_names():
            now[name] = name if name in kept else block.program.unique(name)
        renamed = [
            {s: [now.get(n, n) for n in names] for s, names in slots.items()} for slots in (op.inputs, op.outputs)
        ]
        block.append_op(op.type, renamed[0], renamed[1], op.attrs)


class RNNCell:
    """One step of a recurrent network: `cell(inputs, states) -> outputs, new states`."""

    hidden_size: int

    def call(self, inputs: Variable, states: Any) -> tuple[Variable, Any]:
        """Append one step."""
        raise NotImplementedError

    def __call__(self, inputs: Variable, states: Any) -> tuple[Variable, Any]:
        return self.call(inputs, states)

    @property
    def state_shape(self) -> Any:
        """Sizes of the states without the batch axis."""
        return [self.hidden_size]

    def get_initial_states(
        self,
        batch_ref: Variable,
        shape: Any = None,
        dtype: str = "float32",
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Return states of one value for the batch of a variable."""

        def one(sizes: Any) -> Any:
            return fill_constant_batch_size_like(batch_ref, [1, *sizes], dtype, init_value, batch_dim_idx)

        sizes = self.state_shape if shape is None else shape
        return [one(s) for s in sizes] if isinstance(sizes[0], (list, tuple)) else one(sizes)


class GRUCell(RNNCell):
    """h' = u h + (1 - u) tanh(W [r h, x] + b), with gates r, u = sigmoid(W [x, h] + b).

    Args:
        hidden_size: width of h.
        param_attr, bias_attr: of the weights; made at the first step and shared by all.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: str = "float32",
        name: str = "GRUCell",
    ) -> None:
        self.hidden_size = hidden_size
        self._facts = param_attr, bias_attr, dtype, name
        self._gate = gate_activation or (lambda v: call("sigmoid", v))
        self._act = activation or (lambda v: call("tanh", v))
        self._weights: Any = None

    def _made(self, width: int) -> Any:
        if self._weights is None:
            param, bias, dtype, name = self._facts
            default_main_program()
            helper = LayerHelper("gru_cell", default_main_program().unique(name))
            size = self.hidden_size
            self._weights = tuple(
                (
                    helper.parameter(param, [width + size, columns], dtype),
                    helper.parameter(bias, [columns], dtype, is_bias=True),
                )
                for columns in (2 * size, size)
            )
        return self._weights

    def call(self, inputs: Variable, states: Any) -> tuple[Variable, Any]:
        """Append one step."""
        gates, candidate = self._made(inputs.shape[-1])
        both = self._gate(_linear([inputs, states], *gates))
        reset, update = call("split", both, 2, 1)
        fresh = self._act(_linear([inputs, call("elementwise_mul", reset, states)], *candidate))
        kept = call("elementwise_mul", update, call("elementwise_sub", states, fresh))
        new = call("elementwise_add", kept, fresh)
        return new, new


def _linear(parts: list[Any], weight: Variable, bias: Variable) -> Any:
    return call("elementwise_add", call("matmul", call("concat", parts, 1), weight), bias)


class LSTMCell(RNNCell):
    """c' = c sigmoid(f + forget_bias) + sigmoid(i) tanh(j), h' = sigmoid(o) tanh(c'), i, j, f, o = W [x, h] + b."""

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
        name: str = "LSTMCell",
    ) -> None:
        self.hidden_size = hidden_size
        self._facts = param_attr, bias_attr, dtype, name
        self._gate = gate_activation or (lambda v: call("sigmoid", v))
        self._act = activation or (lambda v: call("tanh", v))
        self._forget = forget_bias
        self._weights: Any = None

    @property
    def state_shape(self) -> Any:
        """Sizes of h and c without the batch axis."""
        return [[self.hidden_size], [self.hidden_size]]

    def call(self, inputs: Variable, states: Any) -> tuple[Variable, Any]:
        """Append one step."""
        hidden, cell = states
        if self._weights is None:
            param, bias, dtype, name = self._facts
            helper = LayerHelper("lstm_cell", default_main_program().unique(name))
            rows = inputs.shape[-1] + self.hidden_size
            weight = helper.parameter(param, [rows, 4 * self.hidden_size], dtype)
            self._weights = weight, helper.parameter(bias, [4 * self.hidden_size], dtype, is_bias=True)
        i, j, f, o = call("split", _linear([inputs, hidden], *self._weights), 4, 1)
        kept = call("elementwise_mul", cell, self._gate(call("scale", f, 1.0, self._forget)))
        new_cell = call("elementwise_add", kept, call("elementwise_mul", self._gate(i), self._act(j)))
        new_hidden = call("elementwise_mul", self._gate(o), self._act(new_cell))
        return new_hidden, [new_hidden, new_cell]


def rnn(
    cell: RNNCell,
    inputs: Variable,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **given: Any,
) -> tuple[Any, Any]:
    """Repeat a cell over the steps of [batch, time, ...], or [time, batch, ...] with time_major.

    Returns:
        Outputs of all steps, and the last states.

    Raises:
        FluidValueError: the number of steps is not known, or sequence_length is given; a ValueError.
    """
    axis = 0 if time_major else 1
    steps = inputs.shape[axis]
    if steps < 1 or sequence_length is not None:
        raise FluidValueError(f"rnn needs a known number of steps without sequence_length, got {inputs}")
    states = initial_states
    if states is None:
        states = cell.get_initial_states(inputs, batch_dim_idx=1 if time_major else 0)
    outputs = []
    for t in reversed(range(steps)) if is_reverse else range(steps):
        part = call("squeeze", call("slice", inputs, [axis], [t], [t + 1]), [axis])
        out, states = cell(part, states, **given)
        outputs.append(out)
    ordered = outputs[::-1] if is_reverse else outputs
    return call("stack", ordered, axis), states


__all__ = ["GRUCell", "LSTMCell", "RNNCell", "StaticRNN", "rnn"]
