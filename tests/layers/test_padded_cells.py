"""gru and simple_rnn as layers of model files: outputs, last states and gradients of PyTorch's modules."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.program.backward import gradients
from pe_cli.program.initializer import Constant
from tests.layers.support import layers as L
from tests.layers.support import programs, run
from tests.needs import torch

X = np.random.default_rng(5).standard_normal((3, 6, 4))
STARTS = np.random.default_rng(6).standard_normal((4, 3, 5))
LENGTHS = np.array([6, 2, 4])


@pytest.mark.parametrize(("kind", "facts"), [("gru", {}), ("simple_rnn", {}), ("simple_rnn", {"activation": "relu"})])
@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both directions"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("told", ["plain", "states", "lengths", "time first"])
def test_pytorch_gives_the_same(kind, facts, both, layers, told):
    theirs = {"gru": torch.nn.GRU, "simple_rnn": torch.nn.RNN}[kind]
    net = theirs(4, 5, layers, batch_first=True, bidirectional=both, dtype=torch.float64, **({"nonlinearity": "relu"} if facts else {}))
    count = layers * (1 + both)
    with programs() as (main, startup):
        zero = L.create_parameter([6, 4], "float64", default_initializer=Constant(0.0))
        x = L.elementwise_add(L.data("x", [6, 4], dtype="float64"), zero, axis=1)  # what is made of data alone has no gradient
        feed = {"x": X}
        more = dict(facts, num_layers=layers, is_bidirec=both)
        if told == "states":
            more["init_h"] = L.transpose(L.data("h", [count, 5], dtype="float64"), [1, 0, 2])
            feed["h"] = np.ascontiguousarray(STARTS[:count].transpose(1, 0, 2))
        if told == "lengths":
            more["sequence_length"], feed["n"] = L.data("n", [], dtype="int64"), LENGTHS
        source = x if told != "time first" else L.transpose(x, [1, 0, 2])
        out, last = getattr(L, kind)(source, 5, time_major=told == "time first", **more)
        out = L.transpose(out, [1, 0, 2]) if told == "time first" else out
        slopes = gradients([L.reduce_sum(L.square(out))], [x])
        made = [p.name for p in main.global_block().parameters() if p.name != zero.name]
        values = dict(zip(made, [p.detach().numpy().T.copy() for p in net.parameters()], strict=True))
        found = run(main, startup, feed, [out, last, *slopes], values)
    fed = torch.tensor(X, requires_grad=True)
    start = torch.from_numpy(STARTS[:count].copy()) if told == "states" else None
    if told == "lengths":
        packed = torch.nn.utils.rnn.pack_padded_sequence(fed, torch.from_numpy(LENGTHS), batch_first=True, enforce_sorted=False)
        packed, end = net(packed)
        want, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    else:
        want, end = net(fed, start)
    want.square().sum().backward()
    for one, other in zip(found, (want.detach(), end.detach(), fed.grad), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x: L.gru(x, 0), "hidden_size is 0"),
        (lambda x: L.gru(x, 3, is_bidirec=True, is_reverse=True), "runs both ways already"),
        (lambda x: L.simple_rnn(x, 3, activation="sine"), "tanh or relu"),
        (lambda x: L.simple_rnn(L.data("y", [4]), 3), "simple_rnn: input is y"),
        (lambda x: L.gru(x, 3, init_h=x), "gru: an initial state is x"),
    ],
)
def test_what_does_not_fit(wrong, says):
    with programs(), pytest.raises(PeError, match=says):
        wrong(L.data("x", [6, 4]))
