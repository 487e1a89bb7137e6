"""basic_gru and basic_lstm of several layers, with first states and named parameters, against loops in NumPy over their equations."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

C = fluid.contrib.layers
LENGTHS = np.array([5, 2, 4], "int64")
BATCH, STEPS, WIDTH, HIDDEN = 3, 5, 4, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, states, weights):
    """A step by Cho et al.: the candidate sees the state after it has been reset."""
    (h,) = states
    w, v, b, d = weights
    r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ w + b), 2, axis=1)
    return (u * h + (1 - u) * np.tanh(np.concatenate([x, r * h], 1) @ v + d),)


def lstm(x, states, weights):
    h, c = states
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ weights[0] + weights[1], 4, axis=1)
    c = c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j)
    return sigmoid(o) * np.tanh(c), c


def walked(step, x, states, weights, on):
    """Run one layer over [batch, steps, width]; states stay where `on`, [batch, steps], is 0."""
    seen = []
    for t in range(x.shape[1]):
        new = step(x[:, t], states, weights)
        states = tuple(np.where(on[:, t, None], a, b) for a, b in zip(new, states, strict=True))
        seen.append(states[0])
    return np.stack(seen, 1), states


def expected(step, x, first, weights, lengths):
    """Run all layers of each direction; first: [layers, directions, batch, width] of each state."""
    outs, lasts = [], []
    for way, layers in enumerate(weights):
        turn = slice(None, None, -1 if way else 1)
        seen, on = x[:, turn], (np.arange(STEPS) < lengths[:, None])[:, turn]
        ends = []
        for i, layer in enumerate(layers):
            seen, last = walked(step, seen, tuple(state[i, way] for state in first), layer, on)
            ends.append(last)
        outs.append(seen[:, turn])
        lasts.append(ends)
    ordered = [[last[i][k] for i in range(len(weights[0])) for last in lasts] for k in range(len(first))]
    return np.concatenate(outs, 2), *map(np.array, ordered)


def computed(kind, layers, both, given, lengths, batch_first=True):
    """Return outputs and last states, the parameters by name, and what was fed."""
    shape = [None, STEPS, WIDTH] if batch_first else [STEPS, BATCH, WIDTH]
    x = fluid.data("x", shape, "float32")
    rng = np.random.default_rng(3)
    states = {"h": rng.standard_normal((layers * (1 + both), BATCH, HIDDEN)).astype("float32")}
    if kind == "lstm":
        states["c"] = rng.standard_normal(states["h"].shape).astype("float32")
    states = states if given else {}
    drawn = fluid.initializer.UniformInitializer(-0.9, 0.9)
    attrs = {f"{what}_attr": fluid.ParamAttr(name=what, initializer=drawn) for what in ("param", "bias")}
    if lengths is not None:
        attrs["sequence_length"] = fluid.data("n", [None], "int64")
    before = [fluid.data(name, list(v.shape), "float32") for name, v in states.items()]
    before = before or [None] * (1 + (kind == "lstm"))
    more = {"forget_bias": 0.5} if kind == "lstm" else {}
    made = getattr(C, f"basic_{kind}")(
        x, *before, HIDDEN, num_layers=layers, bidirectional=both, batch_first=batch_first, **attrs, **more
    )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    value = rng.standard_normal((BATCH, STEPS, WIDTH)).astype("float32")
    feed = {"x": value if batch_first else value.transpose(1, 0, 2), **states, **({} if lengths is None else {"n": lengths})}
    parts = ["_gate", "_candidate"] if kind == "gru" else [""]
    names = [
        [[f"{what}_{way}_{what[0].replace('p', 'w')}_{i}{part}" for what in ("param", "bias") for part in parts] for i in range(layers)]
        for way in ("fw", "bw")[: 1 + both]
    ]
    scope = fluid.global_scope()
    weights = [[[np.array(scope.find_var(n).get_tensor()) for n in layer] for layer in way] for way in names]
    zeros = np.zeros((layers * (1 + both), BATCH, HIDDEN), "float32")
    first = [states.get(k, zeros).reshape(layers, 1 + both, BATCH, HIDDEN) for k in ("h", "c")[: 1 + (kind == "lstm")]]
    return exe.run(feed=feed, fetch_list=list(made)), weights, first, value


@pytest.mark.parametrize(
    ("layers", "both", "given", "lengths", "batch_first"),
    [
        pytest.param(1, False, True, None, False, id="first states, steps first"),
        pytest.param(2, True, True, LENGTHS, True, id="two layers in both directions of sequences that end early"),
    ],
)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_outputs_and_last_states(kind, layers, both, given, lengths, batch_first):
    (out, *last), weights, first, x = computed(kind, layers, both, given, lengths, batch_first)
    ends = np.full(BATCH, STEPS) if lengths is None else lengths
    right, *states = expected({"gru": gru, "lstm": lstm}[kind], x, first, weights, ends)
    np.testing.assert_allclose(out if batch_first else out.transpose(1, 0, 2), right, rtol=1e-5, atol=1e-6)
    for found, state in zip(last, states, strict=True):
        np.testing.assert_allclose(found, state, rtol=1e-5, atol=1e-6)
