"""fluid.contrib against NumPy, closed forms and the original's own documented example."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError

L, C = fluid.layers, fluid.contrib

def fed(name, array):
    v = fluid.data(name, list(array.shape), str(array.dtype))
    v.stop_gradient = False
    return v


def run(*fetches, **feed):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(feed=feed, fetch_list=list(fetches))]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_functions_of_two_tensors_and_parts_of_rows(rng):
    a, b = rng.standard_normal((2, 3, 4)).astype("float32")
    x, y = fed("x", a), fed("y", b)
    layers = C.layers
    found = run(
        layers.fused_elemwise_activation(x, y, "relu,elementwise_add"), layers.fused_elemwise_activation(x, y, ["elementwise_mul", "tanh"]),
        layers.partial_concat([x, y], 1, 2), layers.partial_sum([x, y], -3), x=a, y=b,
    )  # fmt: skip
    right = [np.maximum(a + b, 0), a * np.tanh(b), np.concatenate([a[:, 1:3], b[:, 1:3]], 1), (a + b)[:, 1:]]
    for got, wanted in zip(found, right, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(FluidValueError, match="columns 2 to 6"):
        layers.partial_concat([x, y], 2, 4)
    with pytest.raises(FluidValueError, match="functor_list"):
        layers.fused_elemwise_activation(x, y, ["relu", "tanh"])


def test_children_of_a_tree():
    tree = [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6], [0, 2, 1, 0, 0], [1, 2, 1, 0, 0], [2, 2, 2, 0, 0], [3, 2, 2, 0, 0]]
    start = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(np.array(tree, "int32")))
    nodes = np.array([[2], [1], [5]], "int32")
    children, leaf = run(*C.layers.tdm_child(fed("x", nodes), 7, 2, start), x=nodes)
    assert children.tolist() == [[[5, 6]], [[3, 4]], [[0, 0]]]
    assert leaf.tolist() == [[[1, 1]], [[0, 1]], [[0, 0]]]


def test_pooled_embeddings_and_shuffled_rows():
    table = np.arange(12, dtype="float32").reshape(4, 3)
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(table))
    ids = fluid.create_lod_tensor(np.array([[1], [2], [1]]), [[2, 1]], fluid.CPUPlace())
    pooled = C.layers.fused_embedding_seq_pool(fluid.data("i", [None, 1], "int64", lod_level=1), [4, 3], padding_idx=1, param_attr=attr)
    x = fluid.data("x", [None, 3])
    mixed = C.layers.shuffle_batch(x, seed=3)
    rows = np.arange(60, dtype="float32").reshape(20, 3)
    got, shuffled = run(pooled, mixed, i=ids, x=rows)
    np.testing.assert_array_equal(got, [table[2], [0, 0, 0]])
    np.testing.assert_array_equal(shuffled[np.argsort(shuffled[:, 0])], rows)
    assert (shuffled != rows).any()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_both_directions_over_padded_sequences(kind, rng):
    a, steps, width = rng.standard_normal((2, 3, 4)).astype("float32"), np.array([2, 3]), 5
    x, n = fed("x", a), fluid.data("n", [2], "int64")
    states = (None,) if kind == "gru" else (None, None)
    out, *ends = getattr(C.layers, f"basic_{kind}")(x, *states, width, sequence_length=n, bidirectional=True)
    names = [p.name for p in fluid.default_main_program().all_parameters()]
    got, *last = run(out, *ends, x=a, n=steps)
    values = [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names]
    half = len(values) // 2

    def step(weights, row, h, c):
        if kind == "gru":
            gate, candidate, shift, lift = weights
            r, u = np.split(sigmoid(np.concatenate([row, h]) @ gate + shift), 2)
            return u * h + (1 - u) * np.tanh(np.concatenate([row, r * h]) @ candidate + lift), c
        i, j, f, o = np.split(np.concatenate([row, h]) @ weights[0] + weights[1], 4)
        c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        return np.tanh(c) * sigmoid(o), c

    for way, (weights, order) in enumerate(((values[:half], range(3)), (values[half:], range(2, -1, -1)))):
        for row in range(2):
            h, c = np.zeros(width), np.zeros(width)
            for t in order:
                if t < steps[row]:
                    h, c = step(weights, a[row, t], h, c)
                np.testing.assert_allclose(got[row, t, way * width : (way + 1) * width], h, rtol=1e-4, atol=1e-5)
            for found, right in zip(last, (h, c), strict=False):
                np.testing.assert_allclose(found[way, row], right, rtol=1e-4, atol=1e-5)


def test_decay_apart_from_the_gradient(rng):
    a = rng.standard_normal((2, 3)).astype("float32")
    w, v = (L.create_parameter([3], "float32", name=name, default_initializer=fluid.initializer.Constant(1.0)) for name in "wv")
    loss = L.reduce_sum(fed("x", a) * (w + v))
    made = C.extend_with_decoupled_weight_decay(fluid.optimizer.SGD)
    made(learning_rate=0.1, weight_decay=0.2, apply_decay_param_fun=lambda name: name == "w").minimize(loss)
    run(loss, x=a)
    for name, kept in (("w", 0.8), ("v", 1.0)):
        np.testing.assert_allclose(np.array(fluid.global_scope().find_var(name).get_tensor()), kept - 0.1 * a.sum(0), rtol=1e-5)
    with pytest.raises(FluidTypeError, match="a float or a variable"):
        made(learning_rate=0.1, weight_decay="0.2")
    with pytest.raises(FluidTypeError, match="class of an optimizer"):
        C.extend_with_decoupled_weight_decay(dict)


def test_sums_for_click_rates():
    rates, clicks = np.array([[0.5], [0.25]], "float32"), np.array([[1], [0]], "float32")
    sums = C.layers.ctr_metric_bundle(fed("x", rates), fed("y", clicks))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for _ in range(2):
        found = exe.run(feed={"x": rates, "y": clicks}, fetch_list=list(sums))
    right = [0.25 + 0.0625, 0.75, 0.75, sigmoid(0.5) + sigmoid(0.25), 1, 2]
    np.testing.assert_allclose(np.ravel(found), 2 * np.array(right), rtol=1e-6)


def test_what_is_said_of_a_program(capsys, monkeypatch):
    x = fluid.data("x", [None, 4, 8, 8])
    y = L.relu(L.conv2d(x, 6, 3, groups=2, bias_attr=False))
    low, high, unit = C.memory_usage(fluid.default_main_program(), 10)
    assert unit == "KB"  # twice 10 images of 6 channels of 6 x 6 float32 numbers
    np.testing.assert_allclose([low, high], np.array([1.05, 1.1]) * 2 * 10 * 6 * 36 * 4 / 1024)
    single, pairs = C.op_freq_statistic(fluid.default_main_program())
    assert single == [("conv2d", 1), ("relu", 1)]
    assert pairs == [("conv2d->relu", 1)]
    C.model_stat.summary(y.block.program)
    text = capsys.readouterr().out
    assert "|   0 | conv2d | (4, 8, 8) | (6, 6, 6) |    108 |  7776 |" not in text  # the filters of one group count
    assert "Total PARAMs: 54(0.0001M)" in text
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    assert list(C.reader.distributed_batch_reader(lambda: iter(range(8)))()) == [1, 4]
