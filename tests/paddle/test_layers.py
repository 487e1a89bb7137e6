"""Layers made of others, averages of parameters, and operators with an index, against NumPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import NotThereYet
from tests.needs import torch
from tests.paddle.support import rows

L = fluid.layers

def run(*fetches, startup=True, **feed):
    executor = fluid.Executor(fluid.CPUPlace())
    if startup:
        executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=list(fetches))


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_positional_arguments_have_the_original_order():
    x = fluid.data("x", [-1, 3, 8, 8])
    conv = L.conv2d(x, 4, 3, 1, 0, 1, None, None, False, True, "relu", "c")
    pooled = L.pool2d(conv, 2, "avg", 2, 0, False, True, False, "p")
    assert [op.type for op in x.block.ops] == ["conv2d", "relu", "pool2d"]
    assert pooled.name.startswith("p.tmp")
    assert L.softmax(fluid.data("y", [-1, 3]), False, "s").name.startswith("s.tmp")
    with pytest.raises(TypeError, match="got 'x' twice"):
        L.relu(x, x=x)


def test_indices_and_slices():
    a = array(4, 3, 2)
    x = fluid.data("x", [-1, 3, 2])
    wanted = [x[1], x[-1], x[1:3], x[:, 0], x[..., 0] if False else x[:, 1:], x[0, 2, 1:]]
    expected = [a[1], a[-1], a[1:3], a[:, 0], a[:, 1:], a[0, 2, 1:]]
    for value, right in zip(run(*wanted, x=a), expected, strict=True):
        assert np.array_equal(value, right)
    with pytest.raises(TypeError):
        list(x)


def test_norms():
    a = array(2, 4, 3, 3)
    x = fluid.data("x", [-1, 4, 3, 3])
    group, instance = run(L.group_norm(x, 2), L.instance_norm(x), x=a)
    parts = a.reshape(2, 2, -1).astype("float64")
    expected = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(group, expected.reshape(a.shape), rtol=1e-4, atol=1e-5)
    own = (a - a.mean((2, 3), keepdims=True)) / np.sqrt(a.var((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(instance, own, rtol=1e-4, atol=1e-5)


def test_rearrangements():
    a = array(2, 8, 2, 3)
    x = fluid.data("x", [-1, 8, 2, 3])
    shuffled, out, flipped = run(L.pixel_shuffle(x, 2), L.maxout(x, 2), L.flip(x, [1, 3]), x=a)
    expected = a.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
    assert np.array_equal(shuffled, expected)
    assert np.array_equal(out, a.reshape(2, 4, 2, 2, 3).max(2))
    assert np.array_equal(flipped, a[:, ::-1, :, ::-1])


def test_constants_of_a_pattern():
    two = L.fill_constant([1], "int32", 2)
    found = run(L.eye(2, 3, dtype="int32"), L.diag(np.arange(3)), L.linspace(0, 10, 5), L.range(1, 4, 1, "int64"),
                L.full([1, two], 1.5), L.reshape(L.range(0, 6, 1, "float32"), [two, 3]))  # fmt: skip
    expected = [
        np.eye(2, 3),
        np.diag(np.arange(3)),
        np.linspace(0, 10, 5),
        np.arange(1, 4),
        [[1.5, 1.5]],
        [[0, 1, 2], [3, 4, 5]],
    ]
    for value, right in zip(found, expected, strict=True):
        assert np.array_equal(value, right)
    with pytest.raises(NotThereYet, match="whose value only a step knows"):
        L.flatten(fluid.data("a", [2, 3]), L.cast(L.reduce_sum(fluid.data("fed", [1])), "int32"))


def test_tests_of_values():
    x = fluid.data("x", [-1, 3])
    wanted = [L.has_nan(x), L.has_inf(x), L.isfinite(x), L.is_empty(x), L.reduce_any(x > 0, 1), L.reduce_all(x > 0)]
    a = np.array([[1, np.nan, 2], [-3, np.inf, -1]], "float32")
    assert [v.tolist() for v in run(*wanted, x=a)] == [[True], [True], [False], [False], [True, True], [False]]
    assert [v.tolist() for v in run(*wanted[:4], x=np.ones((2, 3), "float32"))] == [[False], [False], [True], [False]]


def test_losses():
    a, label = array(3, 4), np.array([[1], [0], [3]])
    x, y = fluid.data("x", [-1, 4]), fluid.data("y", [-1, 1], dtype="int64")
    count = fluid.data("count", [1], dtype="int32")
    bpr, focal = run(L.bpr_loss(x, y), L.sigmoid_focal_loss(x, y, count), x=a, y=label, count=np.array([2], "int32"))
    expected = []
    for row, right in zip(a.astype("float64"), label[:, 0], strict=True):
        expected.append([-np.mean([np.log(sigmoid(row[right] - v)) for j, v in enumerate(row) if j != right])])
    np.testing.assert_allclose(bpr, expected, rtol=1e-5)
    p = sigmoid(a.astype("float64"))
    hit = np.array([[j + 1 == right for j in range(4)] for right in label[:, 0]])
    loss = np.where(hit, -0.25 * (1 - p) ** 2 * np.log(p), -0.75 * p**2 * np.log(1 - p)) / 2
    np.testing.assert_allclose(focal, loss, rtol=1e-4, atol=1e-7)


def test_prelu_and_bilinear_products():
    a, b = array(3, 4), array(3, 2, seed=1)
    x, y = fluid.data("x", [-1, 4]), fluid.data("y", [-1, 2])
    weight = fluid.ParamAttr("w")
    slopes = fluid.ParamAttr("slopes", initializer=fluid.initializer.Constant(0.5))
    leaky, channels, product = run(
        L.prelu(x, "all"), L.prelu(x, "channel", slopes), L.bilinear_tensor_product(x, y, 5, param_attr=weight, bias_attr=False), x=a, y=b
    )
    assert np.array_equal(leaky, np.where(a > 0, a, a / 4))
    assert np.array_equal(channels, np.where(a > 0, a, a / 2))
    assert np.array(fluid.global_scope().find_var("slopes").get_tensor()).shape == (1, 4, 1, 1)  # of every rank, as in the original
    w = np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(product, np.einsum("ni,kij,nj->nk", a, w, b), rtol=1e-4, atol=1e-6)


def test_attention_and_gates():
    a = array(2, 3, 4)
    q = fluid.data("q", [2, 3, 4])
    attended, gated = run(fluid.nets.scaled_dot_product_attention(q, q, q), fluid.nets.glu(q, -1), q=a)
    scores = a @ a.transpose(0, 2, 1) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(attended, weights @ a, rtol=1e-5)
    np.testing.assert_allclose(gated, a[..., :2] * sigmoid(a[..., 2:]), rtol=1e-5)


def test_lstm_takes_time_first_as_the_reference_does():
    a = array(5, 2, 4)
    x, state = fluid.data("x", [5, -1, 4]), fluid.data("state", [1, -1, 3])
    out, last_h, last_c = L.lstm(x, state, state, 5, 3, 1, default_initializer=fluid.initializer.Constant(0.5))
    found, h, c = run(out, last_h, last_c, x=a, state=np.zeros((1, 2, 3), "float32"))
    hidden = cell = np.zeros((2, 3))
    for step in a.astype("float64"):
        z = 0.5 * (step.sum(1) + hidden.sum(1))[:, None]  # all weights are alike, and so are the gates
        cell = sigmoid(z) * cell + sigmoid(z) * np.tanh(z)
        hidden = sigmoid(z) * np.tanh(cell)
    np.testing.assert_allclose(found[-1], hidden, rtol=1e-5)
    np.testing.assert_allclose(h[0], hidden, rtol=1e-5)
    np.testing.assert_allclose(c[0], cell, rtol=1e-5)
    with pytest.raises(ValueError, match="max_len=4"):
        L.lstm(x, state, state, 4, 3, 1)


def test_a_static_rnn_repeats_its_block_and_trains():
    x = fluid.data("x", [3, -1, 4])
    rnn = L.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 5], batch_ref=word)
        hidden = L.fc([word, before], 5, act="tanh", bias_attr=False)
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    out = rnn()
    loss = L.reduce_sum(out)
    fluid.optimizer.SGD(1.0).minimize(loss)
    a = array(3, 2, 4)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    names = [p.name for p in fluid.default_main_program().all_parameters()]
    u, w = (np.array(fluid.global_scope().find_var(n).get_tensor()).astype("float64") for n in names)

    def forward(w):
        state, found = np.zeros((2, 5)), []
        for step in a.astype("float64"):
            state = np.tanh(step @ u + state @ w)
            found.append(state)
        return np.array(found)

    value, gradient = executor.run(feed={"x": a}, fetch_list=[out, f"{names[1]}@GRAD"])
    np.testing.assert_allclose(value, forward(w), rtol=1e-5, atol=1e-6)
    for i, j in ((0, 0), (2, 3), (4, 1)):
        more, less = w.copy(), w.copy()
        more[i, j] += 1e-5
        less[i, j] -= 1e-5
        expected = (forward(more).sum() - forward(less).sum()) / 2e-5
        assert gradient[i, j] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_cells():
    a = array(2, 5, 3)
    x = fluid.data("x", [-1, 5, 3])
    out, (hidden, cell) = L.rnn(L.LSTMCell(4, forget_bias=0.0), x)
    value, last, state = run(out, hidden, cell, x=a)
    weight, bias = (np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in x.block.all_parameters())
    i, j, f, o = np.split(weight, 4, 1)
    peer = torch.nn.LSTM(3, 4, batch_first=True)
    with torch.no_grad():
        ordered = torch.tensor(np.concatenate([i, f, j, o], 1).T.copy())
        peer.weight_ih_l0.copy_(ordered[:, :3])
        peer.weight_hh_l0.copy_(ordered[:, 3:])
        peer.bias_ih_l0.zero_()
        peer.bias_hh_l0.zero_()
        expected, (h, c) = peer(torch.tensor(a))
    assert not bias.any()
    np.testing.assert_allclose(value, expected.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last, h[0].numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state, c[0].numpy(), rtol=1e-4, atol=1e-6)


def test_printed_variables(capfd):
    x = fluid.data("x", [-1, 2])
    L.Print(x, first_n=1, message="here:", summarize=3)
    L.Print(x, message="gradients:", print_phase="backward")
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        assert executor.run(feed={"x": np.array([[1, 2], [3, 4]], "float32")}) == []
    out = capfd.readouterr().out
    assert out.count("here:") == 1
    assert "data: [1.0, 2.0, 3.0]" in out
    assert "gradients:" not in out


def weight_and_steps(average, steps=3):
    """Train w by -0.1 a step from 1 on and return an executor and the loss."""
    x = fluid.layers.data("X", [1])
    w = fluid.ParamAttr("w", fluid.initializer.Constant(1.0))
    loss = L.mean(L.fc(x, 1, bias_attr=False, param_attr=w))
    fluid.optimizer.SGD(0.1).minimize(loss)
    made = average()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for _ in range(steps):
        executor.run(feed={"X": np.ones((2, 1), "float32")})
    return made, executor


def value():
    return float(np.array(fluid.global_scope().find_var("w").get_tensor())[0, 0])


def test_a_moving_average_is_swapped_in_and_out():
    def average():
        made = fluid.optimizer.ExponentialMovingAverage(0.5)
        made.update()
        return made

    made, executor = weight_and_steps(average)
    assert value() == pytest.approx(0.7)
    with made.apply(executor):
        # 0.5 (0.5 (0.5 0.9) + 0.5 0.8) + 0.5 0.7 over 1 - 0.5^3
        assert value() == pytest.approx((0.125 * 0.9 + 0.25 * 0.8 + 0.5 * 0.7) / 0.875)
    assert value() == pytest.approx(0.7)
    with made.apply(executor, need_restore=False):
        pass
    assert value() != pytest.approx(0.7)
    made.restore(executor)
    assert value() == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("window", "steps", "expected"),
    [
        pytest.param(100, 3, (0.9 + 0.8 + 0.7) / 3, id="one window"),
        pytest.param(2, 4, (0.7 + 0.6) / 2, id="a full window and an empty one"),
        pytest.param(2, 3, (0.9 + 0.8 + 0.7) / 3, id="a full window and a step"),
    ],
)
def test_a_model_average_is_over_the_last_windows(window, steps, expected):
    made, executor = weight_and_steps(lambda: fluid.optimizer.ModelAverage(0.0, window, 10000), steps)
    with made.apply(executor):
        assert value() == pytest.approx(expected)
    assert value() == pytest.approx(1 - 0.1 * steps)


def test_embedding_and_one_hot_of_both_interfaces():
    old = L.data("old", [1], dtype="int64")
    new = fluid.data("new", [-1], dtype="int64")
    table = fluid.ParamAttr("table")
    a, b = L.embedding(old, [5, 3], param_attr=table), fluid.embedding(new, [5, 3], param_attr=table)
    found = run(a, b, L.one_hot(old, 5), fluid.one_hot(new, 5), old=np.array([[1], [4]]), new=np.array([1, 4]))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[2], np.eye(5)[[1, 4]])
    assert np.array_equal(found[2], found[3])


def test_learning_rate_schedules_and_parameters_of_optimizers():
    loss = L.mean(L.fc(L.data("X", [1]), 2, bias_attr=False))
    rate = L.piecewise_decay([1], [0.5, 0.25])
    ops, pairs = fluid.optimizer.SGDOptimizer(learning_rate=rate).minimize(loss)
    assert [op.type for op in ops] == ["sgd"]
    assert [(p.name, g.name) for p, g in pairs] == [("fc_0.w_0", "fc_0.w_0@GRAD")]
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    found = [executor.run(feed={"X": rows(2)}, fetch_list=[rate])[0].tolist() for _ in range(2)]
    assert found == [[0.5], [0.25]]


def test_layers_on_images():
    a = array(4, 4, 4, 6)
    x = fluid.data("x", [-1, 4, 4, 6])
    wanted = [
        L.lrn(x, 5, 1.0, 0.5, 0.75),
        L.adaptive_pool2d(x, [2, 3], "avg"),
        L.temporal_shift(x, 2),
        L.selu(x),
    ]
    normed, pooled, shifted, squashed = run(*wanted, x=a)
    t = torch.tensor(a)
    np.testing.assert_allclose(normed, torch.nn.functional.local_response_norm(t, 5, 2.5, 0.75, 1.0), rtol=1e-5)
    np.testing.assert_allclose(pooled, torch.nn.functional.adaptive_avg_pool2d(t, (2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(squashed, torch.nn.functional.selu(t), rtol=1e-5, atol=1e-6)
    steps = a.reshape(2, 2, 4, 4, 6)
    expected = steps.copy()
    expected[:, 1, 0], expected[:, 0, 0] = steps[:, 0, 0], 0
    expected[:, 0, 1], expected[:, 1, 1] = steps[:, 1, 1], 0
    assert np.array_equal(shifted, expected.reshape(a.shape))


def test_layers_on_ids_and_sizes():
    ids, lengths = fluid.data("ids", [-1, 1], dtype="int64"), fluid.data("lengths", [-1], dtype="int64")
    a = np.array([[1], [9], [12], [19]])
    wanted = [L.shard_index(ids, 20, 2, 1), L.size(ids), L.rank(ids), L.sequence_mask(lengths, 4)]
    found = run(*wanted, ids=a, lengths=np.array([0, 3, 4]))
    expected = [[[-1], [-1], [2], [9]], [4], 2, [[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]]
    assert [v.tolist() for v in found] == expected


def test_beams_are_followed_back():
    ids = np.array([[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]])
    parents = np.array([[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]])
    steps, batch, beams = ids.shape
    expected = np.zeros_like(ids)
    for b in range(batch):
        for k in range(beams):
            at = k
            for t in reversed(range(steps)):
                expected[t, b, k] = ids[t, b, at]
                at = parents[t, b, at]
    v, p = (fluid.data(n, [3, 2, 2], dtype="int64") for n in ("v", "p"))
    assert np.array_equal(run(L.gather_tree(v, p), v=ids, p=parents)[0], expected)


def test_positions_and_lengths():
    a = array(2, 3, 4)
    x = fluid.data("x", [-1, 3, 4])
    coded, short = run(L.add_position_encoding(x, 2.0, 3.0), L.clip_by_norm(x, 1.0), x=a)
    angle = [[t / 10000**j for j in (0, 1)] for t in range(3)]
    np.testing.assert_allclose(coded, 2 * a + 3 * np.hstack([np.sin(angle), np.cos(angle)]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(short, a / np.linalg.norm(a), rtol=1e-5)


@pytest.mark.parametrize(
    "padding", ["SAME", "VALID", [1, 2, 0, 1], [1, 1, 2, 2], [[0, 0], [0, 0], [1, 0], [2, 1]]], ids=str
)
def test_forms_of_padding(padding):
    a = array(2, 3, 7, 8)
    x = fluid.data("x", [-1, 3, 7, 8])
    facts = {"pool_size": 3, "pool_stride": 2, "pool_padding": padding}
    weight = fluid.ParamAttr("w")
    conv = L.conv2d(x, 4, 3, stride=2, padding=padding, bias_attr=False, param_attr=weight)
    found = run(
        conv,
        L.pool2d(x, pool_type="max", **facts),
        L.pool2d(x, pool_type="avg", **facts),
        L.pool2d(x, pool_type="avg", exclusive=False, **facts),
        x=a,
    )
    same = {"SAME": [1, 1, 0, 1], "VALID": [0] * 4}  # 7 -> 4 and 8 -> 4 windows of 3 by steps of 2
    top, bottom, left, right = same[padding] if isinstance(padding, str) else np.ravel(padding)[-4:].tolist()

    def padded(value):
        return torch.nn.functional.pad(torch.tensor(a), (left, right, top, bottom), value=value)

    w = torch.tensor(np.array(fluid.global_scope().find_var("w").get_tensor()))
    pool = torch.nn.functional.avg_pool2d
    inside = torch.nn.functional.pad(torch.ones(a.shape), (left, right, top, bottom))
    expected = [
        torch.nn.functional.conv2d(padded(0.0), w, stride=2), torch.nn.functional.max_pool2d(padded(-np.inf), 3, 2),
        pool(padded(0.0), 3, 2) / pool(inside, 3, 2), pool(padded(0.0), 3, 2),
    ]  # fmt: skip
    for value, right_one in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, right_one, rtol=1e-4, atol=1e-5)
