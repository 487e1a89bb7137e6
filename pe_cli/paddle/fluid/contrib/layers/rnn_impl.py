"""basic_gru and basic_lstm: recurrent layers made of plain ops, of several layers and both directions, and their cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.paddle.nn.layer import Layer
from pe_cli.program.ir import Variable


def _named(attr: Any, suffix: str) -> Any:
    """Return an attribute whose name, if it has one, ends with a suffix."""
    # Under one name, the weights of all layers would be one parameter.
    return attr if getattr(attr, "name", None) is None else replace(attr, name=attr.name + suffix)


class _Unit(Layer):
    """What both cells have: parameters that are made at the first call, when the width of the input is known.

    Args:
        name_scope: what names of parameters begin with.
        hidden_size: width of the state.
        param_attr, bias_attr: of the weights (Xavier by default) and biases (0 by default).
        gate_activation, activation: functions of gates and of candidates; sigmoid and tanh by default.
        dtype: of the parameters.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Any], Any] | None = None,
        activation: Callable[[Any], Any] | None = None,
        dtype: str = "float32",
    ) -> None:
        use({name_scope: 1})
        super().__init__(f"{name_scope}/{type(self).__name__}", dtype)
        self._width, self._attrs = hidden_size, (param_attr, bias_attr)
        self._gate, self._node = gate_activation or layers.sigmoid, activation or layers.tanh

    def _once(self, name: str, attrs: tuple[Any, Any], rows: int, gates: int) -> tuple[Any, Any]:
        if name not in self._parameters:
            weight, bias = attrs
            self.add_parameter(name, self.create_parameter([rows, gates * self._width], weight))
            self.add_parameter(f"{name}_bias", self.create_parameter([gates * self._width], bias, is_bias=True))
        return getattr(self, name), getattr(self, f"{name}_bias")


class BasicGRUUnit(_Unit):
    """A step of a GRU: r, u = gate([x, h] W + b); c = node([x, r h] V + d); h' = u h + (1 - u) c.

    Args: see `_Unit`; a name of param_attr or bias_attr gets `_gate` and `_candidate` behind it.
    """

    def forward(self, input: Variable, pre_hidden: Variable) -> Any:
        """Return the new state, [batch, hidden_size], of [batch, width] and the state before."""
        rows = input.shape[-1] + self._width
        weight, bias = self._attrs
        # both weights before both biases, as in the original's order
        if "gate" not in self._parameters:
            parts = ("gate", "candidate")
            sizes = dict(zip(parts, (2 * self._width, self._width), strict=True))
            for part, size in sizes.items():
                self.add_parameter(part, self.create_parameter([rows, size], _named(weight, f"_{part}")))
            for part, size in sizes.items():
                self.add_parameter(f"{part}_bias", self.create_parameter([size], _named(bias, f"_{part}"), is_bias=True))
        both = layers.matmul(layers.concat([input, pre_hidden], 1), self.gate)
        reset, update = layers.split(self._gate(layers.elementwise_add(both, self.gate_bias)), num_or_sections=2, dim=1)
        new = layers.matmul(layers.concat([input, reset * pre_hidden], 1), self.candidate)
        new = self._node(layers.elementwise_add(new, self.candidate_bias))
        return update * pre_hidden + (1 - update) * new


class BasicLSTMUnit(_Unit):
    """A step of an LSTM: i, j, f, o = [x, h] W + b; c' = c sigmoid(f + forget_bias) + sigmoid(i) tanh(j); h' = tanh(c') sigmoid(o).

    As in the original, gate_activation and activation have no effect.

    Args:
        forget_bias: added to the forget gate's input, no unit.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Any], Any] | None = None,
        activation: Callable[[Any], Any] | None = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)
        self._lift = float(forget_bias)
        use({"fill_constant": 1})  # the original keeps it in a variable

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> Any:
        """Return the new state and cell, [batch, hidden_size] each, of [batch, width] and those before."""
        weight, bias = self._once("weight", self._attrs, input.shape[-1] + self._width, 4)
        gates = layers.elementwise_add(layers.matmul(layers.concat([input, pre_hidden], 1), weight), bias)
        i, j, f, o = layers.split(gates, num_or_sections=4, dim=-1)
        with apart("basic_lstm"):
            lifted = layers.scale(f, 1.0, self._lift)
        use({"elementwise_add": 1})
        kept = layers.elementwise_mul(pre_cell, layers.sigmoid(lifted))
        cell = layers.elementwise_add(kept, layers.elementwise_mul(layers.sigmoid(i), layers.tanh(j)))
        return layers.tanh(cell) * layers.sigmoid(o), cell


def _units(kind: type[_Unit], name: str, layers_: int, both: bool, attrs: tuple[Any, Any], **given: Any) -> list[list[_Unit]]:
    """Return a row of cells for each direction, in the order in which the original makes them."""
    return [
        [
            kind(
                f"{name}{part}_layers_{i}",
                param_attr=_named(attrs[0], f"_{way}_w_{i}"),
                bias_attr=_named(attrs[1], f"_{way}_b_{i}"),
                **given,
            )
            for i in range(layers_)
        ]
        for part, way in (("", "fw"), ("_reverse", "bw"))[: 1 + both]
    ]


def _run(
    input: Variable, units: list[_Unit], mask: Any, first: list[list[Any]], width: int, dropout: float | None, implementation: str
) -> tuple[Any, list[Any]]:
    """Run layers of cells over the steps; return the outputs [steps, batch, width] and the last states, [layers, batch, width] each.

    Args:
        input: [steps, batch, width of the input].
        units: a cell for each layer.
        mask: [steps, batch] of 0 and 1, or None: a state stays where it is 0.
        first: for each layer its first states; empty for zeros.
        width: of the states.
        dropout: share of the outputs between layers that is left out.
        implementation: of that dropout.
    """
    kinds = 2 if isinstance(units[0], BasicLSTMUnit) else 1
    rnn = layers.StaticRNN()
    with rnn.step():
        x = rnn.step_input(input)
        on: Any = None if mask is None else rnn.step_input(mask)
        for i, unit in enumerate(units):
            before = [
                rnn.memory(init=first[i][k]) if first else rnn.memory(batch_ref=input, shape=[-1, width], ref_batch_dim_idx=1)
                for k in range(kinds)
            ]
            made = unit(x, *before)
            after = list(made) if isinstance(made, (list, tuple)) else [made]
            if on is not None:
                after = [
                    layers.elementwise_mul(new, on, axis=0) - layers.elementwise_mul(old, on - 1, axis=0)
                    for new, old in zip(after, before, strict=True)
                ]
            for old, new in zip(before, after, strict=True):
                rnn.update_memory(old, new)
                rnn.step_output(new)
            x = after[0]
            if dropout:
                # Behind the last layer too, as in the original.
                x = layers.dropout(x, dropout_prob=dropout, dropout_implementation=implementation)
        rnn.step_output(x)
    *states, out = rnn()
    joined = [layers.concat([states[i * kinds + k][-1] for i in range(len(units))], 0) for k in range(kinds)]
    return out, [layers.reshape(v, [len(units), -1, width]) for v in joined]


def _whole(
    input: Variable,
    first: list[Any],
    hidden_size: int,
    sequence_length: Any,
    batch_first: bool,
    units: list[list[_Unit]],
    dropout: float | None,
    implementation: str,
) -> tuple[Any, ...]:
    """Run both directions, and join them: the outputs, then the last states, [layers * directions, batch, width] each."""
    x = layers.transpose(input, [1, 0, 2]) if batch_first else input
    mask = None
    if sequence_length is not None:
        mask = layers.transpose(layers.sequence_mask(sequence_length, maxlen=layers.shape(x)[0], dtype="float32"), [1, 0])
    ways, num_layers = len(units), len(units[0])
    states = [layers.reshape(v, [num_layers, ways, -1, hidden_size]) for v in first]
    outs, lasts = [], []
    for way in range(ways):
        given = [[v[i, way] for v in states] for i in range(num_layers)] if states else []
        # Reversed, padding comes first: the mask, reversed likewise, keeps the first state until a sequence begins.
        turned = layers.reverse(x, axis=[0]) if way else x
        seen = layers.reverse(mask, axis=[0]) if way and mask is not None else mask
        out, last = _run(turned, units[way], seen, given, hidden_size, dropout, implementation)
        outs.append(layers.reverse(out, axis=[0]) if way else out)
        lasts.append(last)
    out = layers.concat(outs, axis=2) if ways > 1 else outs[0]
    ends = [
        # Beside one another along the batch, directions of one layer are neighbours once that axis is cut again.
        layers.reshape(layers.concat([last[k] for last in lasts], axis=1), [num_layers * ways, -1, hidden_size])
        if ways > 1
        else lasts[0][k]
        for k in range(len(lasts[0]))
    ]
    return layers.transpose(out, [1, 0, 2]) if batch_first else out, *ends


def basic_gru(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    init_hidden: Any,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Any = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[[Any], Any] | None = None,
    activation: Callable[[Any], Any] | None = None,
    dtype: str = "float32",
    name: str = "basic_gru",
) -> tuple[Any, ...]:
    """Run layers of GRUs over padded sequences.

    Args:
        input: [batch, steps, width], or [steps, batch, width] without batch_first.
        init_hidden: [layers * directions, batch, hidden_size], or None for zeros.
        hidden_size: width of the states.
        num_layers: layers, one upon the other.
        sequence_length: [batch] steps of each sequence: later ones leave the states as they are; None where all have all.
        dropout_prob: share of a layer's outputs that the next one does not see.
        bidirectional: also from the end to the beginning; outputs stand side by side.
        batch_first: form of input and output.
        param_attr, bias_attr, gate_activation, activation, dtype: of the cells; names get the direction and the layer behind them.
        name: what names of parameters begin with.

    Returns:
        The outputs, in the form of input, and the last states [layers * directions, batch, hidden_size].
    """
    cells = {"hidden_size": hidden_size, "gate_activation": gate_activation, "activation": activation, "dtype": dtype}
    units = _units(BasicGRUUnit, name, num_layers, bidirectional, (param_attr, bias_attr), **cells)
    first = [] if init_hidden is None else [init_hidden]
    # The default of fluid's dropout; basic_lstm scales in training instead, as in the original.
    return _whole(input, first, hidden_size, sequence_length, batch_first, units, dropout_prob, "downgrade_in_infer")


def basic_lstm(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    init_hidden: Any,
    init_cell: Any,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Any = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[[Any], Any] | None = None,
    activation: Callable[[Any], Any] | None = None,
    forget_bias: float = 1.0,
    dtype: str = "float32",
    name: str = "basic_lstm",
) -> tuple[Any, ...]:
    """Run layers of LSTMs over padded sequences: as `basic_gru`, with the last cells after the last states.

    Args:
        init_cell: type of init_hidden, both or neither.
        forget_bias: of `BasicLSTMUnit`.
    """
    cells = {
        "hidden_size": hidden_size, "gate_activation": gate_activation, "activation": activation, "forget_bias": forget_bias,
        "dtype": dtype,
    }  # fmt: skip
    units = _units(BasicLSTMUnit, name, num_layers, bidirectional, (param_attr, bias_attr), **cells)
    first = [] if init_hidden is None else [init_hidden, init_cell]
    return _whole(input, first, hidden_size, sequence_length, batch_first, units, dropout_prob, "upscale_in_train")


__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]
