"""Recurrent layers of paddle.nn beside PyTorch's with the same weights: values, last states and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle import nn
from pe_cli.paddle.errors import FluidValueError
from tests.needs import torch
from tests.paddle.nn_support import values

KINDS = {"SimpleRNN": "RNN", "LSTM": "LSTM", "GRU": "GRU"}


def flat(value) -> list:
    return [v for part in value for v in flat(part)] if isinstance(value, (list, tuple)) else [value]


def assign(ours, theirs, torch) -> None:
    """Give both the same parameters: they declare them in the same order and shapes."""
    generator, scope = torch.Generator().manual_seed(0), fluid.global_scope()
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        two.data = torch.randn(two.shape, generator=generator) * 0.5
        scope.find_var(one.name).get_tensor().set(two.detach().numpy(), fluid.CPUPlace())


def compare(torch, ours, theirs, call_ours, call_theirs, arrays) -> None:
    """Compare everything that is returned, and the gradients of the sum of all squares."""
    fed = {f"x{i}": a for i, a in enumerate(arrays)}
    given = [fluid.data(n, list(a.shape), a.dtype.name) for n, a in fed.items()]
    for v in given:
        v.stop_gradient = False
    outs = flat(call_ours(*given))
    loss = fluid.layers.sums([fluid.layers.reduce_sum(fluid.layers.square(o)) for o in outs])
    slopes = fluid.gradients(loss, [*given, *ours.parameters()])
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    assign(ours, theirs, torch)
    found = executor.run(feed=fed, fetch_list=[*outs, *slopes])
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = flat(call_theirs(*tensors))
    sum((o**2).sum() for o in expected).backward()
    wanted = [o.detach() for o in expected] + [t.grad for t in (*tensors, *theirs.parameters())]
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two.numpy(), rtol=2e-4, atol=2e-5)


# --- cells ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", ["SimpleRNNCell", "LSTMCell", "GRUCell"])
def test_a_step_of_a_cell(kind, given, bias):
    attrs = {} if bias else {"bias_ih_attr": False, "bias_hh_attr": False}
    ours = getattr(nn, kind)(5, 4, **attrs)
    theirs = getattr(torch.nn, kind.replace("Simple", ""))(5, 4, bias)
    count = (2 if kind == "LSTMCell" else 1) if given else 0
    arrays = [values(3, 5), *(values(3, 4, seed=i + 1) for i in range(count))]

    def called(cell):
        return lambda x, *s: cell(x, *([s] if len(s) == 2 else s))

    def ours_called(x, *s):
        out, states = called(ours)(x, *s)
        assert flat(states)[0] is out
        return states

    compare(torch, ours, theirs, ours_called, called(theirs), arrays)


def test_a_cell_with_relu():
    ours, theirs = nn.SimpleRNNCell(3, 2, activation="relu"), torch.nn.RNNCell(3, 2, nonlinearity="relu")
    compare(torch, ours, theirs, lambda x: ours(x)[0], theirs, [values(4, 3)])


# --- stacks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    ("layers", "direction", "time_major", "states", "lengths"),
    [
        (1, "forward", False, False, None),
        (2, "forward", True, True, None),
        (2, "bidirect", False, True, None),
        (1, "forward", False, False, [6, 2, 4]),
        (2, "bidirectional", False, True, [1, 6, 3]),
        (2, "bidirect", True, False, [6, 5, 1]),
    ],
)
def test_layers_over_padded_sequences(kind, layers, direction, time_major, states, lengths):
    both = 1 + (direction != "forward")
    ours = getattr(nn, kind)(5, 4, layers, direction, time_major)
    theirs = getattr(torch.nn, KINDS[kind])(5, 4, layers, batch_first=not time_major, bidirectional=both == 2)
    arrays = [values(6, 3, 5) if time_major else values(3, 6, 5)]
    if states:
        arrays += [values(layers * both, 3, 4, seed=i + 1) for i in range(2 if kind == "LSTM" else 1)]

    def of(s):
        return {0: None, 1: s[0] if s else None}.get(len(s), s)

    def call_ours(x, *s):
        steps = None if lengths is None else fluid.layers.assign(np.array(lengths))
        return ours(x, of(s), steps)

    def call_theirs(x, *s):
        if lengths is None:
            return theirs(x, of(s))
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, not time_major, enforce_sorted=False)
        out, final = theirs(packed, of(s))
        return torch.nn.utils.rnn.pad_packed_sequence(out, not time_major, total_length=6)[0], final

    compare(torch, ours, theirs, call_ours, call_theirs, arrays)


def test_a_layer_backwards(rng):
    ours, theirs = nn.GRU(3, 2, direction="backward"), torch.nn.GRU(3, 2, batch_first=True)

    def flipped(x):
        out, final = theirs(x.flip(1))
        return out.flip(1), final

    compare(torch, ours, theirs, ours, flipped, [values(2, 5, 3)])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_dropout_lies_between_layers_while_training(kind):
    layer = getattr(nn, kind)(3, 4, 2, dropout=1.0)
    x = fluid.data("x", [2, 5, 3], "float32")
    training = layer(x)[0]
    layer.eval()
    out = layer(x)[0]
    ends = layer[1].cell.bias_ih.name
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    assert np.array(fluid.global_scope().find_var(ends).get_tensor()).any()
    first, other = values(2, 5, 3), values(2, 5, 3, seed=1)
    (a, b), (c, d) = (executor.run(feed={"x": v}, fetch_list=[training, out]) for v in (first, other))
    np.testing.assert_array_equal(a, c)
    assert np.abs(b - d).max() > 1e-3


def test_parameters_begin_within_their_bound():
    layer = nn.LSTM(7, 16)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    drawn = [np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in layer.parameters()]
    assert [v.shape for v in drawn] == [(64, 7), (64, 16), (64,), (64,)]
    assert all(0.2 < np.abs(v).max() <= 0.25 for v in drawn)


# --- repeaters of cells -----------------------------------------------------------------------------------------------


class Sum(nn.RNNCellBase):
    """Adds up what it sees, by a factor."""

    @property
    def state_shape(self):
        return [3]

    def forward(self, inputs, states, factor=1.0):
        after = fluid.layers.elementwise_add(states, fluid.layers.scale(inputs, factor))
        return after, after


def test_a_cell_of_ones_own_is_repeated():
    x = values(2, 4, 3)
    given = fluid.data("x", [2, 4, 3], "float32")
    out, final = nn.RNN(Sum())(given, factor=2.0)
    back, start = nn.RNN(Sum(), is_reverse=True)(given, sequence_length=fluid.layers.assign(np.array([4, 2])))
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[out, final, back, start])
    np.testing.assert_allclose(found[0], 2 * x.cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(found[1], 2 * x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(found[2][0], x[0, ::-1].cumsum(0)[::-1], rtol=1e-5)
    np.testing.assert_allclose(found[3], [x[0].sum(0), x[1, :2].sum(0)], rtol=1e-5)


@pytest.mark.parametrize("time_major", [False, True])
def test_two_cells_in_both_directions(time_major):
    ours = nn.BiRNN(nn.LSTMCell(3, 2), nn.LSTMCell(3, 2), time_major)
    theirs = torch.nn.LSTM(3, 2, bidirectional=True, batch_first=not time_major)

    def call_ours(x):
        out, finals = ours(x)
        return out, *(fluid.layers.stack(list(states)) for states in zip(*finals, strict=True))

    compare(torch, ours, theirs, call_ours, theirs, [values(4, 3, 3)])


def test_a_stack_trains():
    x = fluid.data("x", [None, 6, 2], "float32")
    y = fluid.data("y", [None, 1], "float32")
    layer, last = nn.GRU(2, 8), nn.Linear(8, 1)
    _, final = layer(x)
    loss = paddle.mean(fluid.layers.square_error_cost(last(fluid.layers.squeeze(final, [0])), y))
    paddle.optimizer.Adam(0.03).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fed = values(32, 6, 2)
    feed = {"x": fed, "y": fed[:, :, 0].sum(1, keepdims=True)}
    losses = [float(np.ravel(executor.run(feed=feed, fetch_list=[loss])[0])[0]) for _ in range(60)]
    assert losses[-1] < losses[0] / 10


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: nn.LSTM(3, 2, direction="up"), "direction is 'up'"),
        (lambda x: nn.GRU(3, 2, 0), "num_layers is 0"),
        (lambda x: nn.GRU(3, 0), "hidden_size 0"),
        (lambda x: nn.SimpleRNN(3, 2, activation="elu"), "activation is 'elu'"),
        (lambda x: nn.LSTM(3, 2)(x, x), "initial states are"),
        (lambda x: nn.GRU(3, 2, 2)(x, x), "initial states are"),
        (lambda x: nn.BiRNN(nn.GRUCell(3, 2), nn.GRUCell(4, 2)), "cell_fw takes 3 numbers and cell_bw 4"),
        (lambda x: nn.BiRNN(nn.GRUCell(3, 2), nn.GRUCell(3, 2))(x, [x]), "1 initial states"),
    ],
)
def test_what_does_not_fit(build, message):
    with pytest.raises(FluidValueError, match=message):
        build(fluid.data("x", [1, 4, 3], "float32"))


def test_a_cell_says_the_sizes_of_its_states():
    with pytest.raises(NotImplementedError, match="state_shape"):
        nn.RNN(nn.RNNCellBase())(fluid.data("x", [1, 4, 3], "float32"))


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("time_major", [False, True])
def test_sizes_that_only_a_step_knows(kind, time_major):
    layer = getattr(nn, kind)(3, 2, 2, "bidirect", time_major)
    lengths = fluid.data("lengths", [None], "int64")
    x = values(4, 5, 3).swapaxes(0, 1) if time_major else values(4, 5, 3)
    given = fluid.data("any", [None, None, 3], "float32"), fluid.data("known", list(x.shape), "float32")
    (a, _), (b, _) = (layer(v, sequence_length=lengths) for v in given)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    found, expected = executor.run(feed={"any": x, "known": x, "lengths": np.array([5, 1, 3, 4])}, fetch_list=[a, b])
    np.testing.assert_array_equal(found, expected)
