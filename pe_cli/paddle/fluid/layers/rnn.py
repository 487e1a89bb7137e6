"""Recurrent layers: StaticRNN, cells, and rnn, which repeats a cell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pe_cli.layers.control.loops import Scan, scan
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import EnforceNotMet, FluidValueError, raised_as
from pe_cli.paddle.fluid.constant_sizes import OPEN
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import less_equal
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.paddle.fluid.layers.utils import flatten, like
from pe_cli.program.ir import Variable


class StaticRNN:
    """Repeats the layers of its block for every step of its inputs, whose first axis is time."""

    def __init__(self, name: str | None = None) -> None:
        self._loop: Scan | None = None
        self._steps: int | None = None
        self._found: list[Variable] | None = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Build one step inside.

        Raises:
            FluidValueError: nothing is stepped through.
        """
        self._loop = Scan(default_main_program().global_block())
        OPEN.append(self._loop.outline)
        try:
            yield
        finally:
            OPEN.pop()
        if self._steps is None:
            raise FluidValueError("a StaticRNN needs a step_input")
        with raised_as(FluidValueError):
            self._found, _ = self._loop.close()

    @property
    def _now(self) -> Scan:
        if self._loop is None or self._found is not None:
            raise FluidValueError("a StaticRNN is written inside its step", hint="with rnn.step(): ...")
        return self._loop

    def step_input(self, x: Variable) -> Variable:
        """Return one step of [time, batch, ...].

        Raises:
            FluidValueError: its number of steps is not that of other inputs.
        """
        if not x.shape or x.shape[0] == 0:
            raise FluidValueError(f"a StaticRNN goes through the first axis of its inputs, got {x}")
        if self._steps not in (None, -1, x.shape[0]) and x.shape[0] != -1:
            raise FluidValueError(f"inputs of one StaticRNN have {self._steps} and {x.shape[0]} steps")
        self._steps = x.shape[0]
        return self._now.input(x)

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
        loop = self._now
        if init is not None:
            return loop.state(init)
        if shape is None or batch_ref is None:
            raise FluidValueError("a memory needs init, or shape and batch_ref")
        # A -1 stands for the batch, which the op fills in; any size does until then.
        sizes = [1 if s == -1 else s for s in shape]
        whole = loop.source(batch_ref)  # of one step of an input: the batch axis stands behind that of time
        ref, axis = (batch_ref, ref_batch_dim_idx) if whole is None else (whole, 1)
        start: Variable = loop.outline.outside(
            lambda: fill_constant_batch_size_like(ref, sizes, "float32", init_value, axis, init_batch_dim_idx)
        )
        return loop.state(start)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Say what a memory holds in the next step.

        Raises:
            FluidValueError: it is no memory of this one.
        """
        with raised_as(FluidValueError):
            self._now.update(mem, var)

    def step_output(self, o: Variable) -> None:
        """Collect a variable of every step."""
        self._now.output(o)

    def output(self, *outputs: Variable) -> None:
        """Collect variables of every step."""
        for o in outputs:
            self.step_output(o)

    def __call__(self) -> Any:
        if not self._found:
            raise EnforceNotMet("this StaticRNN has no step_output")
        return self._found[0] if len(self._found) == 1 else self._found


class RNNCell:
    """One step of a recurrent network: `cell(inputs, states) -> outputs, new states`."""

    hidden_size: int

    def call(self, inputs: Any, states: Any, **given: Any) -> tuple[Any, Any]:
        """Append one step; `given` is what `rnn` and decoders pass on.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no call: define it")

    def __call__(self, inputs: Any, states: Any, **given: Any) -> tuple[Any, Any]:
        return self.call(inputs, states, **given)

    @property
    def state_shape(self) -> Any:
        """Sizes of a state without the batch axis, or a structure of such sizes."""
        return [self.hidden_size]

    @property
    def state_dtype(self) -> Any:
        """Element type of all states, or one for each in the structure of `state_shape`."""
        return "float32"

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Return states of one value for the batch of a variable.

        Args:
            batch_ref: a variable, or a structure whose first variable says how large the batch is.
            shape: sizes, or a structure of sizes; default: `state_shape`. A first size of -1 stands for the batch.
            dtype: one, or a structure of them; default: `state_dtype`.
            init_value: of every element.
            batch_dim_idx: axis of the batch in batch_ref.
        """
        ref = flatten(batch_ref)[0]
        kinds = self.state_dtype if dtype is None else dtype

        def filled(sizes: Any, kind: Any) -> Any:
            if isinstance(sizes, int):
                sizes = [sizes]
            if all(isinstance(size, int) for size in sizes) and not isinstance(sizes, dict):
                whole = list(sizes) if sizes and sizes[0] == -1 else [-1, *sizes]
                return fill_constant_batch_size_like(ref, [1, *whole[1:]], kind, init_value, batch_dim_idx)
            if isinstance(sizes, dict):
                return {key: filled(sizes[key], kind[key] if isinstance(kind, dict) else kind) for key in sorted(sizes)}
            each = list(kind) if isinstance(kind, (list, tuple)) else [kind] * len(sizes)
            return [filled(s, k) for s, k in zip(sizes, each, strict=True)]

        return filled(self.state_shape if shape is None else shape, kinds)


def _gone(weights: Any) -> bool:
    """Return whether weights were taken back with the attempt to write a loop in which they were made."""
    first = flatten(weights)[0]
    return first.block.vars.get(first.name) is not first


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
        # Weights are made once, at the first step, when the width of the inputs is known; later steps share them.
        if self._weights is None or _gone(self._weights):
            param, bias, dtype, name = self._facts
            helper = LayerHelper("gru_cell", default_main_program().unique(f"{name}/BasicGRUUnit"))
            size = self.hidden_size
            weights = [helper.parameter(param, [width + size, columns], dtype) for columns in (2 * size, size)]
            biases = [helper.parameter(bias, [columns], dtype, is_bias=True) for columns in (2 * size, size)]
            self._weights = tuple(zip(weights, biases, strict=True))
        return self._weights

    def call(self, inputs: Variable, states: Any, **given: Any) -> tuple[Variable, Any]:
        """Append one step."""
        gates, candidate = self._made(inputs.shape[-1])
        both = self._gate(_linear([inputs, states], *gates))
        reset, update = call("split", both, 2, 1)
        fresh = self._act(_linear([inputs, call("elementwise_mul", reset, states)], *candidate))
        # u h + (1 - u) fresh with one multiplication.
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
        self._gate, self._act = gate_activation, activation
        self._forget = forget_bias
        self._weights: Any = None

    @property
    def state_shape(self) -> Any:
        """Sizes of h and c without the batch axis."""
        return [[self.hidden_size], [self.hidden_size]]

    def call(self, inputs: Variable, states: Any, **given: Any) -> tuple[Variable, Any]:
        """Append one step."""
        hidden, cell = states
        if self._weights is None or _gone(self._weights):
            param, bias, dtype, name = self._facts
            helper = LayerHelper("lstm_cell", default_main_program().unique(f"{name}/BasicLSTMUnit"))
            rows = inputs.shape[-1] + self.hidden_size
            weight = helper.parameter(param, [rows, 4 * self.hidden_size], dtype)
            self._weights = weight, helper.parameter(bias, [4 * self.hidden_size], dtype, is_bias=True)
        gates = _linear([inputs, hidden], *self._weights)
        if self._gate is None and self._act is None:
            # The fused op has the usual functions; others are written out below.
            # The op calls g what is j here: the candidate.
            facts = {"forget_bias": self._forget, "order": "igfo"}
            new_cell, new_hidden, _ = LayerHelper("lstm_cell").op("lstm_unit", {"X": gates, "C_prev": cell}, facts, ("C", "H", "Gates"))
            return new_hidden, [new_hidden, new_cell]
        gate, act = (f or (lambda v, name=name: call(name, v)) for f, name in ((self._gate, "sigmoid"), (self._act, "tanh")))
        i, j, f, o = call("split", gates, 4, 1)
        kept = call("elementwise_mul", cell, gate(call("scale", f, 1.0, self._forget)))
        new_cell = call("elementwise_add", kept, call("elementwise_mul", gate(i), act(j)))
        new_hidden = call("elementwise_mul", gate(o), act(new_cell))
        return new_hidden, [new_hidden, new_cell]


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **given: Any,
) -> tuple[Any, Any]:
    """Repeat a cell over the steps of [batch, time, ...], or [time, batch, ...] with time_major.

    Args:
        cell: one step.
        inputs: a variable, or a structure of lists of them.
        initial_states: a variable or a structure; zeros by default.
        sequence_length: [batch]: steps of each sample; its states stay what they are after that.
        time_major: the first axis is time.
        is_reverse: the last step first.
        given: passed on to the cell.

    Returns:
        Outputs of all steps, and the last states.
    """
    first = flatten(inputs)[0]
    states = cell.get_initial_states(first, batch_dim_idx=1 if time_major else 0) if initial_states is None else initial_states
    rows = [x if time_major else _swapped(x) for x in flatten(inputs)]
    masks = []
    # A mask of steps is an input like the others, so that the loop hands each step its row.
    if sequence_length is not None:
        masks.append(steps_that_count(first, sequence_length, time_major=time_major, front=True))
    shape: dict[str, Any] = {}

    def step(each: list[Variable], held: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        out, after = cell(like(inputs, iter(each)), like(states, iter(held)), **given)
        shape["out"] = out
        new = flatten(after)
        if masks:
            new = [_kept(a, b, each[-1]) for a, b in zip(new, held, strict=True)]
        return new, flatten(out)

    with raised_as(FluidValueError):
        outs, finals = scan(step, [*rows, *masks], flatten(states), backwards=is_reverse)
    found = [x if time_major else _swapped(x) for x in outs]
    # `scan` hands back flat lists: only the cell has said how its outputs are nested.
    return like(shape["out"], iter(found)), like(states, iter(finals))


def steps_that_count(x: Variable, lengths: Variable, *, time_major: bool, front: bool, dtype: str = "float32") -> Any:
    """Return 1 for steps of sequences that count and 0 for those behind them, with the steps in front: [time, batch], or behind.

    Args:
        x: [batch, time, ...], or [time, batch, ...] where time_major.
        lengths: [batch] or [batch, 1] integers.
        time_major: the first axis of x is time.
        front: the first axis of the result is time.
        dtype: of the result.
    """
    time = 0 if time_major else 1
    if x.shape[time] > 0:
        kept = call("sequence_mask", lengths, x.shape[time], dtype)
        return call("transpose", kept, [1, 0]) if front else kept
    # Sizes are only known in a step: a column of the input gives the batch and the steps.
    axes = list(range(2, len(x.shape)))
    one = call("squeeze", call("slice", x, axes, [0] * len(axes), [1] * len(axes)), axes) if axes else x
    row = one if time_major == front else call("transpose", one, [1, 0])
    ones = call("scale", call("zeros_like", call("cast", row, "float32")), 1.0, 1.0)
    # A running sum of ones numbers the steps from 1.
    places = call("cumsum", ones, 0 if front else 1)
    last = call("reshape", call("cast", lengths, "float32"), [1, -1] if front else [-1, 1])
    return call("cast", less_equal(places, call("elementwise_mul", ones, last)), dtype)


def _swapped(x: Variable) -> Variable:
    """Return a variable with its first two axes in the other order."""
    made: Variable = call("transpose", x, [1, 0, *range(2, len(x.shape))])
    return made


def _kept(after: Variable, before: Variable, mask: Variable) -> Variable:
    """Return a new state where a sample's step counts, else the old one."""
    new = call("elementwise_mul", after, mask, 0)
    old = call("elementwise_mul", before, call("scale", mask, -1.0, 1.0), 0)
    made: Variable = call("elementwise_add", new, old)
    return made


__all__ = ["GRUCell", "LSTMCell", "RNNCell", "StaticRNN", "rnn"]
