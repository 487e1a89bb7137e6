"""Recurrent cells: one step of a network, as a layer."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.rnn import RNNCell
from pe_cli.paddle.fluid.layers.utils import flatten
from pe_cli.paddle.names_v2 import named_layer
from pe_cli.paddle.nn.layer import Layer
from pe_cli.program.initializer import Uniform


class RNNCellBase(Layer):
    """One step of a recurrent network: `cell(inputs, states) -> outputs, new states`; subclasses define forward and state_shape."""

    @property
    def state_shape(self) -> Any:
        """Sizes of the states without the batch axis: a list, or a list or tuple of those.

        Raises:
            NotImplementedError: the subclass does not say.
        """
        raise NotImplementedError(f"{type(self).__name__} has no state_shape: define it, or give initial states")

    @property
    def state_dtype(self) -> Any:
        """Element type of the states."""
        return self._dtype

    def get_initial_states(
        self, batch_ref: Any, shape: Any = None, dtype: Any = None, init_value: float = 0.0, batch_dim_idx: int = 0
    ) -> Any:
        """Return states of one value for the batch of a variable, or of the first one of a structure."""
        first, kind = flatten(batch_ref)[0], self.state_dtype if dtype is None else dtype
        sizes = self.state_shape if shape is None else shape
        return RNNCell.get_initial_states(self, first, sizes, kind, init_value, batch_dim_idx)  # type: ignore[arg-type]


class TwoProductCell(RNNCellBase):
    """What cells with two products share: gates = W_ih x + b_ih and W_hh h + b_hh.

    Args:
        input_size: width of x.
        hidden_size: width of h.
        weight_ih_attr: of weight_ih, [gates x hidden_size, input_size]; uniform within 1 / sqrt(hidden_size) by default, as all are.
        weight_hh_attr: of weight_hh, [gates x hidden_size, hidden_size].
        bias_ih_attr: of bias_ih, [gates x hidden_size]; False for none.
        bias_hh_attr: of bias_hh likewise.
        name: prefix of the names of the parameters.

    Raises:
        FluidValueError: a size below 1.
    """

    #: Parts of a row of weights.
    _gates = 1
    #: What a step uses up beside its products, see `names_v2`.
    _names = "tmp*3 tanh"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if input_size < 1 or hidden_size < 1:
            raise FluidValueError(f"{type(self).__name__}: input_size is {input_size} and hidden_size {hidden_size}, at least 1 each")
        rows, bound = self._gates * hidden_size, 1.0 / math.sqrt(hidden_size)
        facts: dict[str, Any] = {"default_initializer": Uniform(-bound, bound)}
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = self.create_parameter([rows, input_size], weight_ih_attr, **facts)
        self.weight_hh = self.create_parameter([rows, hidden_size], weight_hh_attr, **facts)
        self.bias_ih = self.create_parameter([rows], bias_ih_attr, is_bias=True, **facts)
        self.bias_hh = self.create_parameter([rows], bias_hh_attr, is_bias=True, **facts)

    @property
    def state_shape(self) -> Any:
        """Size of h."""
        return [self.hidden_size]

    def project(self, x: Any) -> Any:
        """Append W_ih x + b_ih, for one step or for all at once."""
        return _product(x, self.weight_ih, self.bias_ih)

    def recur(self, projected: Any, states: Any) -> tuple[Any, Any]:
        """Append the rest of a step.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no recur: define it")

    def forward(self, inputs: Any, states: Any = None) -> Any:
        """Append a step; return its output and the new states. Without states they are 0."""

        def made() -> Any:
            before = self.get_initial_states(inputs) if states is None else states
            return self.recur(self.project(inputs), before)

        begun = "" if states is not None else f"fill_constant*{4 if isinstance(self.state_shape, tuple) else 2} "
        return named_layer(made, f"{begun}matmul_v2*2 {self._names}")

    def extra_repr(self) -> str:
        """Return its sizes."""
        return f"{self.input_size}, {self.hidden_size}"


def _product(x: Any, weight: Any, bias: Any) -> Any:
    """Append x W^T + b."""
    made = call("matmul", x, weight, False, True)
    return made if bias is None else call("elementwise_add", made, bias, len(made.shape) - 1)


class SimpleRNNCell(TwoProductCell):
    __doc__ = (TwoProductCell.__doc__ or "").replace(
        "What cells with two products share: gates = W_ih x + b_ih and W_hh h + b_hh.",
        "h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu for `activation`.",
    )

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr, name)
        if activation not in ("tanh", "relu"):
            raise FluidValueError(f"SimpleRNNCell: activation is {activation!r}", hint="tanh or relu")
        self.activation, self._names = activation, f"tmp*3 {activation}"

    def recur(self, projected: Any, states: Any) -> tuple[Any, Any]:
        """Append the rest of a step."""
        after = call(self.activation, call("elementwise_add", projected, _product(states, self.weight_hh, self.bias_hh)))
        return after, after


class LSTMCell(TwoProductCell):
    __doc__ = (TwoProductCell.__doc__ or "").replace(
        "What cells with two products share: gates = W_ih x + b_ih and W_hh h + b_hh.",
        "c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), with i, f, g, o = W_ih x + b_ih + W_hh h + b_hh; states are (h, c).",
    )
    _gates = 4
    _names = "sigmoid*3 split tanh*2 tmp*6 tmp!"

    @property
    def state_shape(self) -> Any:
        """Sizes of h and c."""
        return ([self.hidden_size], [self.hidden_size])

    def recur(self, projected: Any, states: Any) -> tuple[Any, Any]:
        """Append the rest of a step."""
        hidden, cell = states
        gates = call("elementwise_add", projected, _product(hidden, self.weight_hh, self.bias_hh))
        # 2.x orders the gates as PyTorch does, so its weights can be exchanged; the op's default order is another one.
        inputs, facts = {"X": gates, "C_prev": cell}, {"order": "ifgo"}
        after, out, _ = LayerHelper("lstm_unit").op("lstm_unit", inputs, facts, ("C", "H", "Gates"))
        return out, (out, after)


class GRUCell(TwoProductCell):
    __doc__ = (TwoProductCell.__doc__ or "").replace(
        "What cells with two products share: gates = W_ih x + b_ih and W_hh h + b_hh.",
        "h' = z h + (1 - z) tanh(x_c + r h_c), r = s(x_r + h_r), z = s(x_z + h_z), with x = W_ih x + b_ih and h = W_hh h + b_hh in parts.",
    )
    _gates = 3
    _names = "sigmoid*2 split*2 tanh tmp*8 tmp!"

    def recur(self, projected: Any, states: Any) -> tuple[Any, Any]:
        """Append the rest of a step."""
        size, around = self.hidden_size, _product(states, self.weight_hh, self.bias_hh)
        (x_gates, x_new), (h_gates, h_new) = (call("split", v, [2 * size, size], -1) for v in (projected, around))
        reset, update = call("split", call("sigmoid", call("elementwise_add", x_gates, h_gates)), 2, -1)
        # The reset gate acts on W_hh h + b_hh, as in PyTorch and cuDNN; in Cho et al. 2014 it acts on h before the product.
        fresh = call("tanh", call("elementwise_add", x_new, call("elementwise_mul", reset, h_new)))
        # (h - n) z + n is z h + (1 - z) n with one product fewer.
        kept = call("elementwise_mul", call("elementwise_sub", states, fresh), update)
        after = call("elementwise_add", kept, fresh)
        return after, after


__all__ = ["GRUCell", "LSTMCell", "RNNCellBase", "SimpleRNNCell"]
