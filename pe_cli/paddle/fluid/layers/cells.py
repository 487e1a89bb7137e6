"""Cells: one step of a recurrent network each, which `rnn` and decoders repeat."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.original_counts import GRU_STEP, LSTM_STEP
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.paddle.fluid.layers.utils import flatten
from pe_cli.paddle.fluid.naming import apart, plainly, rename, temporary, use
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


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


def _suffixed(attr: Any, suffix: str) -> Any:
    """Return an attribute for one of two parameters: its name, where it has one, with a suffix."""
    if isinstance(attr, str):
        return f"{attr}_{suffix}"
    if not isinstance(attr, ParamAttr) or attr.name is None:
        return attr
    made = copy.copy(attr)
    object.__setattr__(made, "name", f"{attr.name}_{suffix}")  # the core's attributes are frozen
    return made


def _last(key: str) -> str:
    """Return the name of a key that was used up last."""
    return f"{unique_name.generator.prefix}{key}_{unique_name.generator.ids[key] - 1}"


def _first_names(name: str, unit: str) -> str:
    """Return the prefix of a cell's weights, which the original makes with the cell, not with its first step."""
    use({name: 1})
    return unique_name.generate(f"{name}/{unit}")


class _GatedCell(RNNCell, ABC):
    """A cell whose weights are made at its first step, when the width of its inputs is known, and shared by all later ones.

    Args:
        hidden_size: width of a state.
        param_attr, bias_attr, dtype: of the weights.
        prefix: of their names.
    """

    def __init__(self, hidden_size: int, param_attr: Any, bias_attr: Any, dtype: str, prefix: str) -> None:
        self.hidden_size = hidden_size
        self._facts = param_attr, bias_attr, dtype
        self._prefix = prefix
        self._weights: Any = None

    def _made(self, width: int) -> Any:
        """Return the weights for inputs of a width."""
        if self._weights is None or _gone(self._weights):
            with plainly():
                self._weights = self._parameters(width + self.hidden_size)
        return self._weights

    @abstractmethod
    def _parameters(self, rows: int) -> Any:
        """Make the weights, which have so many rows."""


class GRUCell(_GatedCell):
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
        super().__init__(hidden_size, param_attr, bias_attr, dtype, _first_names(name, "BasicGRUUnit"))
        self._gate = gate_activation or (lambda v: call("sigmoid", v))
        self._act = activation or (lambda v: call("tanh", v))

    def _parameters(self, rows: int) -> Any:
        param, bias, dtype = self._facts
        helper = LayerHelper("gru_cell", self._prefix)
        parts = (("gate", 2 * self.hidden_size), ("candidate", self.hidden_size))
        weights = [helper.parameter(_suffixed(param, what), [rows, columns], dtype) for what, columns in parts]
        biases = [helper.parameter(_suffixed(bias, what), [columns], dtype, is_bias=True) for what, columns in parts]
        return tuple(zip(weights, biases, strict=True))

    def call(self, inputs: Variable, states: Any, **given: Any) -> tuple[Variable, Any]:
        """Append one step."""
        gates, candidate = self._made(inputs.shape[-1])
        with apart("gru_cell"):
            joined = _linear([inputs, states], *gates)
            with plainly():
                both = self._gate(joined)
            reset, update = call("split", both, 2, 1)
            joined = _linear([inputs, call("elementwise_mul", reset, states)], *candidate)
            with plainly():
                fresh = self._act(joined)
            # u h + (1 - u) fresh with one multiplication.
            kept = call("elementwise_mul", update, call("elementwise_sub", states, fresh))
            new = call("elementwise_add", kept, fresh)
        use(GRU_STEP)
        rename(new.block, new, _last("tmp"))
        return new, new


def _linear(parts: list[Any], weight: Variable, bias: Variable) -> Any:
    return call("elementwise_add", call("matmul", call("concat", parts, 1), weight), bias)


class LSTMCell(_GatedCell):
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
        super().__init__(hidden_size, param_attr, bias_attr, dtype, _first_names(name, "BasicLSTMUnit"))
        use({"fill_constant": 1})  # the original keeps forget_bias in a variable
        if gate_activation is not None or activation is not None:
            words = "fluid.layers.LSTMCell: gate_activation and activation have no effect, as in the original: it takes sigmoid and tanh"
            warnings.warn(words, stacklevel=2)
        self._forget = forget_bias

    @property
    def state_shape(self) -> Any:
        """Sizes of h and c without the batch axis."""
        return [[self.hidden_size], [self.hidden_size]]

    def _parameters(self, rows: int) -> Any:
        param, bias, dtype = self._facts
        helper, columns = LayerHelper("lstm_cell", self._prefix), 4 * self.hidden_size
        return helper.parameter(param, [rows, columns], dtype), helper.parameter(bias, [columns], dtype, is_bias=True)

    def call(self, inputs: Variable, states: Any, **given: Any) -> tuple[Variable, Any]:
        """Append one step."""
        hidden, cell = states
        weights = self._made(inputs.shape[-1])
        with apart("lstm_cell"):
            gates = _linear([inputs, hidden], *weights)
            # The op calls g what is j here: the candidate.
            facts = {"forget_bias": self._forget, "order": "igfo"}
            new_cell, new_hidden, _ = LayerHelper("lstm_cell").op("lstm_unit", {"X": gates, "C_prev": cell}, facts, ("C", "H", "Gates"))
        use(LSTM_STEP)
        rename(new_hidden.block, new_hidden, _last("tmp"))
        rename(new_cell.block, new_cell, temporary(_last("elementwise_add")))
        return new_hidden, [new_hidden, new_cell]


__all__ = ["GRUCell", "LSTMCell", "RNNCell"]
