"""Recurrent layers: what repeats a cell over the steps of padded sequences, and stacks of both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.rnn import rnn, steps_that_count
from pe_cli.paddle.fluid.naming import Naming, appended
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn.containers import LayerList
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.nn.rnn_cells import GRUCell, LSTMCell, SimpleRNNCell, TwoProductCell
from pe_cli.program.initializer import Constant

_ATTRS = ("weight_ih_attr", "weight_hh_attr", "bias_ih_attr", "bias_hh_attr")


class RNN(Layer):
    """Repeat a cell over the steps of [batch, time, ...], or [time, batch, ...] with time_major.

    Args:
        cell: one step.
        is_reverse: the last step first.
        time_major: the first axis is time.
    """

    def __init__(self, cell: Any, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell, self.is_reverse, self.time_major = cell, is_reverse, time_major

    def forward(self, inputs: Any, initial_states: Any = None, sequence_length: Any = None, **given: Any) -> tuple[Any, Any]:
        """Append the steps.

        Args:
            inputs: of all steps.
            initial_states: as the cell takes them; 0 by default.
            sequence_length: [batch] int64 steps of each sequence; its states stay what they are after that.
            given: passed on to the cell.

        Returns:
            Outputs of all steps, and the last states.
        """
        cell, facts = self.cell, (sequence_length, self.time_major, self.is_reverse)
        if initial_states is None:
            initial_states = cell.get_initial_states(inputs, batch_dim_idx=1 if self.time_major else 0)
        # Products with the inputs do not depend on the state: one product over all steps, and the loop has only the other one.
        if not isinstance(cell, TwoProductCell) or given:
            return rnn(cell, inputs, initial_states, *facts, **given)
        return rnn(cell.recur, cell.project(inputs), initial_states, *facts)  # type: ignore[arg-type]


class BiRNN(Layer):
    """Repeat one cell forwards and another backwards; their outputs lie side by side.

    Args:
        cell_fw: from the first step on.
        cell_bw: from the last step on.
        time_major: the first axis is time.

    Raises:
        FluidValueError: the cells take inputs of different sizes.
    """

    def __init__(self, cell_fw: Any, cell_bw: Any, time_major: bool = False) -> None:
        super().__init__()
        sizes = [getattr(cell, "input_size", None) for cell in (cell_fw, cell_bw)]
        if None not in sizes and sizes[0] != sizes[1]:
            raise FluidValueError(f"BiRNN: cell_fw takes {sizes[0]} numbers and cell_bw {sizes[1]}", hint="give both one input_size")
        self.cell_fw, self.cell_bw, self.time_major = cell_fw, cell_bw, time_major

    def forward(self, inputs: Any, initial_states: Any = None, sequence_length: Any = None, **given: Any) -> tuple[Any, Any]:
        """Append the steps in both directions; initial_states are a pair, and so are the last states. See `RNN`.

        Raises:
            FluidValueError: initial_states are no pair.
        """
        starts = initial_states if isinstance(initial_states, (list, tuple)) else [initial_states] * 2
        if len(starts) != 2:
            raise FluidValueError(f"BiRNN: {len(starts)} initial states", hint="one for each direction")
        outs, finals = [], []
        for cell, start, back in zip((self.cell_fw, self.cell_bw), starts, (False, True), strict=True):
            out, final = RNN(cell, back, self.time_major)(inputs, start, sequence_length, **given)
            outs.append(out)
            finals.append(final)
        return call("concat", outs, -1), tuple(finals)


class _Stack(LayerList):
    """Layers of cells over padded sequences, one on the outputs of the other.

    Args:
        input_size: width of the inputs.
        hidden_size: width of the states.
        num_layers: how many.
        direction: forward, backward, or bidirect (bidirectional): every layer runs both ways, and its outputs lie side by side.
        time_major: the first axis is time.
        dropout: chance of a zero between layers while training.
        weight_ih_attr: of every layer's and direction's weights; see the cell.
        weight_hh_attr: likewise.
        bias_ih_attr: likewise.
        bias_hh_attr: likewise.
        name: prefix of the names of the parameters.
    """

    _cell: type[TwoProductCell] = TwoProductCell

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
        **given: Any,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        if direction not in ("forward", "backward", "bidirect", "bidirectional"):
            raise FluidValueError(f"{kind}: direction is {direction!r}", hint="forward, backward, bidirect or bidirectional")
        if num_layers < 1 or not 0 <= dropout <= 1:
            raise FluidValueError(f"{kind}: num_layers is {num_layers}, at least 1, and dropout {dropout}, from 0 to 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.time_major, self.dropout, self.num_directions = time_major, dropout, 2 if direction.startswith("bi") else 1
        given |= dict(zip(_ATTRS, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr), strict=True))
        for number in range(num_layers):
            width = self.num_directions * hidden_size if number else input_size
            cells = [self._cell(width, hidden_size, name=name, **given) for _ in range(self.num_directions)]
            one_way = self.num_directions == 1
            self.append(RNN(cells[0], direction == "backward", time_major) if one_way else BiRNN(cells[0], cells[1], time_major))
        self._name_all()
        self._keep_unread()

    def _name_all(self) -> None:
        """Give the parameters of the cells the names that they have as the stack's, too."""
        for number, layer in enumerate(self):
            cells = {"": layer.cell} if isinstance(layer, RNN) else {"": layer.cell_fw, "_reverse": layer.cell_bw}
            for way, cell in cells.items():
                for name, parameter in cell._parameters.items():
                    if parameter is not None:
                        self.add_parameter(f"{name}_l{number}{way}", parameter)

    def _keep_unread(self) -> None:
        """Make the row of all weights that the original keeps for its library of GPUs: no op reads it, but its files have it."""
        weights = self.parameters()
        if len(weights) != 4 * self.num_layers * self.num_directions:
            return  # without a bias the original has none either
        row = self.create_parameter([sum(product(weight.shape) for weight in weights)], default_initializer=Constant(0.0))
        # The row of the library has all weights first and all biases behind, layer by layer.
        row.joined = tuple(w.name for first in (0, 2) for i, w in enumerate(weights) if i % 4 in (first, first + 1))

    def forward(self, inputs: Any, initial_states: Any = None, sequence_length: Any = None) -> tuple[Any, Any]:
        """Append the layers.

        Args:
            inputs: [batch, time, input_size], or [time, batch, input_size] with time_major.
            initial_states: [layers x directions, batch, hidden_size], a pair of those where the cell has two states; 0 by default.
            sequence_length: [batch] int64 steps of each sequence; behind them outputs are 0, and states stay what they are.

        Returns:
            Outputs of the last layer, [batch, time, directions x hidden_size], and the last states of all, like initial_states.
        """
        begun = {} if initial_states is not None else {"fill_constant": 4 if issubclass(self._cell, LSTMCell) else 2}
        outputs: tuple[Any, ...] = (0, 1, 2) if self.time_major else ("transpose.tmp_0", 1, 2)
        how = Naming("rnn", outputs, begun, made=2, exact=True)
        found: tuple[Any, Any] = appended(lambda: self._layers(inputs, initial_states, sequence_length), how, self._helper.name)
        return found

    def _layers(self, inputs: Any, initial_states: Any, sequence_length: Any) -> tuple[Any, Any]:
        """Append the layers; see `forward`."""
        starts = self._split(initial_states)
        finals: list[Any] = []
        mask = self._mask(inputs, sequence_length)
        for number, layer in enumerate(self):
            # As in the original, dropout stands between layers and not before the first one.
            if number and self.dropout:
                inputs = functions.dropout(inputs, self.dropout, training=self.training)
            ways = [(layer.cell, layer.is_reverse)] if isinstance(layer, RNN) else [(layer.cell_fw, False), (layer.cell_bw, True)]
            outs = []
            for cell, back in ways:
                out, final = self._way(cell, back, inputs, starts[len(finals)], sequence_length, mask)
                outs.append(out)
                finals.append(final)
            inputs = outs[0] if len(outs) == 1 else call("concat", outs, -1)
        if isinstance(finals[0], tuple):
            return inputs, tuple(call("stack", list(states), 0) for states in zip(*finals, strict=True))
        return inputs, call("stack", finals, 0)

    def _way(self, cell: Any, back: bool, inputs: Any, start: Any, lengths: Any, mask: Any) -> tuple[Any, Any]:
        """Append one layer in one direction."""
        out, final = RNN(cell, back, self.time_major)(inputs, start, lengths)
        # Steps behind a sequence's end are 0, as in the original; the state already stays as it was there.
        return (out if mask is None else call("elementwise_mul", out, mask)), final

    def _mask(self, inputs: Any, lengths: Any) -> Any:
        """Return 1 for steps that count and 0 for others, with the axes of the outputs; None where all count."""
        if lengths is None:
            return None
        major = self.time_major
        return call("unsqueeze", steps_that_count(inputs, lengths, time_major=major, front=major, dtype=inputs.dtype), [2])

    def _split(self, states: Any) -> Sequence[Any]:
        """Return the initial states of every layer and direction.

        Raises:
            FluidValueError: they are not as many.
        """
        count = self.num_layers * self.num_directions
        if states is None:
            return [None] * count
        each = list(states) if isinstance(states, (list, tuple)) else [states]
        wanted = 2 if isinstance(self[0].cell if self.num_directions == 1 else self[0].cell_fw, LSTMCell) else 1
        if len(each) != wanted or any(len(v.shape) != 3 or v.shape[0] != count for v in each):
            hint = f"give {wanted} of [{count}, batch, {self.hidden_size}]"
            raise FluidValueError(f"{type(self).__name__}: initial states are {', '.join(map(str, each))}", hint=hint)
        rows = [call("unstack", v, 0, count) for v in each]
        return rows[0] if wanted == 1 else list(zip(*rows, strict=True))


class SimpleRNN(_Stack):
    __doc__ = (_Stack.__doc__ or "").replace("Layers of cells", "Layers of `SimpleRNNCell`, with its `activation`,")
    _cell = SimpleRNNCell

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr, name)
        super().__init__(input_size, hidden_size, num_layers, direction, time_major, dropout, *attrs, activation=activation)


class LSTM(_Stack):
    __doc__ = (_Stack.__doc__ or "").replace("Layers of cells", "Layers of `LSTMCell`")
    _cell = LSTMCell

    def _way(self, cell: Any, back: bool, inputs: Any, start: Any, lengths: Any, mask: Any) -> tuple[Any, Any]:
        """Append one layer in one direction: one op for all its steps."""
        # Stored as [gates, inputs] as PyTorch does, multiplied as [inputs, gates].
        weights = {"WeightIh": cell.weight_ih, "WeightHh": cell.weight_hh}
        given = {slot: call("transpose", w, [1, 0]) for slot, w in weights.items()}
        given |= {"BiasIh": cell.bias_ih, "BiasHh": cell.bias_hh, "Input": inputs, "Lengths": lengths}
        given |= dict(zip(("InitH", "InitC"), start or (None, None), strict=True))
        attrs = {"is_reverse": back, "time_major": self.time_major}
        # The mask is not needed: the op itself writes 0 behind the end of a sequence.
        out, hidden, state, *_ = LayerHelper("lstm").op(
            "padded_lstm", given, attrs, ("Out", "LastH", "LastC", "Gates", "Cells", "States")
        )
        return out, (hidden, state)


class GRU(_Stack):
    __doc__ = (_Stack.__doc__ or "").replace("Layers of cells", "Layers of `GRUCell`")
    _cell = GRUCell


__all__ = ["GRU", "LSTM", "RNN", "BiRNN", "SimpleRNN"]
