"""What exporters write into files beside the network: sizes of the batch, masks, and values that are no parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pe_cli.cli.main import run
from pe_cli.core.errors import PeError
from pe_cli.execute.executor import Executor
from pe_cli.io.checkpoint import load
from pe_cli.session.importing.define import ImportedModel
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import write
from pe_cli.session.job import Job
from tests.session.importing.test_onnx import computed, drawn, graph, imported

BATCH_SIZES = [
    pytest.param(
        "(float[N, 3] x) => (float[N, 3] y) { s = Shape(x) i = Constant<value_int=0>() n = Gather(s, i) z = Constant<value_int=0>() "
        "o = Constant<value_int=1>() r = Range(z, n, o) f = Cast<to=1>(r) a = Constant<value_ints=[1]>() u = Unsqueeze(f, a) "
        "y = Add(x, u) }",
        id="rows are counted",
    ),
    pytest.param(
        "(float[N, 3] x, bool[1, 3] c) => (float[N, 3] y) { s = Shape(x) e = Expand(c, s) m = Neg(x) y = Where(e, x, m) }",
        id="truth values are repeated for every row",
    ),
    pytest.param(
        "(float[N, 3] x) => (float[M, 3] y) { s = Shape<start=0, end=1>(x) o = Constant<value_ints=[1]>() r = Concat<axis=0>(s, o) "
        "t = Tile(k, r) b = Constant<value_ints=[2]>() n = Mul(s, b) e = Concat<axis=0>(n, three) m = Expand(row, e) y = Mul(t, m) }",
        id="two rows are repeated for every row, and one as often as both",
    ),
]


@pytest.mark.parametrize("text", BATCH_SIZES)
def test_sizes_of_the_batch_are_those_of_a_step(text: str, tmp_path: Path) -> None:
    tables = {"k": drawn((2, 3), 7), "row": drawn((1, 3), 8), "three": np.array([3])}
    model = graph(text.replace(", bool[1, 3] c", ""), c=np.array([[True, False, True]]), **tables)
    made = imported(model, tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (2, 5):
        feeds = {"x": drawn((rows, 3), rows)}
        np.testing.assert_array_equal(computed(made, tmp_path / f"of_{rows}", feeds)[0], session.run(None, feeds)[0])


def test_first_axes_of_several_names_are_taken_for_the_batch_and_told(tmp_path: Path) -> None:
    model = graph("(float[s10, 4] x, float[s86, 4] k) => (float[s10, 4] y) { y = Mul(x, k) }")
    made = imported(model, tmp_path)
    assert made.feeds == {name: {"shape": [4], "dtype": "float32"} for name in ("x", "k")}
    assert any("s10, s86 in the file, are taken for one" in note for note in made.notes)
    apart = imported(graph("(float[s10, 4] x, float[s86, 4] k) => (float[4, s86] y) { t = Transpose(k) y = Identity(t) }"), tmp_path)
    assert apart.feeds["k"]["shape"] == [-1, 4]


#: A table of two rows joined to each of two pictures, as an exporter writes a token of classes that it has repeated.
JOINED = "(float[{rows}, 3, 4] x) => (float[{rows}, 4, 4] y) {{ y = Concat<axis=1>(c, x) }}"
REPEATED = "(float[{rows}, 4] x) => (float[{rows}, 4] y) {{ y = Add(c, x) }}"


@pytest.mark.parametrize(("text", "shape"), [(REPEATED, (2, 4)), (JOINED, (2, 1, 4))])
def test_a_batch_that_is_written_into_the_graph_is_no_batch_of_any_size(text: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    made = imported(graph(text.format(rows=2), c=drawn(shape)), tmp_path)
    assert made.feeds["x"]["replicate"]
    assert made.feeds["x"]["shape"][0] == 2
    assert any("keep the sizes of the file" in note and "2 rows" in note for note in made.notes)
    with pytest.raises(PeError, match=r"in a batch of 2|says \[-1"):
        imported(graph(text.format(rows="N"), c=drawn(shape)), tmp_path)


def test_a_constant_with_infinities_does_not_stop_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) s = Where(c, h, low) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"
    )
    values = {"w": drawn((4, 3), 1), "v": drawn((3, 3), 2), "low": np.float32(-np.inf), "c": np.array([True, False, True])}
    model = for_training(imported(graph(text, **values), tmp_path), "classes")
    write(model, tmp_path / "made")
    np.savez(tmp_path / "made" / "train.npz", x=drawn((8, 4), 3), label=np.arange(8).reshape(8, 1) % 3)
    config = str(tmp_path / "made" / "config.yaml")
    assert run(["train", config, "--quiet", "-o", "output.checkpoint.every=1 epochs", "-o", f"output.dir={tmp_path / 'runs'}"]) == 0, (
        capfd.readouterr().err
    )


# --- which values are parameters ------------------------------------------------------------------------------------------------------


RATE = 0.1
X, TARGET = drawn((6, 4), 20), drawn((6, 4), 21)
W, V, ZEROS = drawn((4, 4), 22), drawn((4, 4), 23), np.zeros(4, np.float32)
Arrays = dict[str, np.ndarray]


def after_a_step(model: ImportedModel, folder: Path, feeds: dict[str, np.ndarray], target: np.ndarray) -> np.ndarray:
    """Return the first output after a step of plain descent on the mean of squared distances."""
    out = model.fetches[0]
    cost = {"type": "square_error_cost", "input": out, "label": "target_"}
    layers = {**model.layers, "cost_": cost, "loss_": {"type": "mean", "x": "cost_"}}
    given = {**model.feeds, "target_": {"shape": list(target.shape[1:]), "dtype": "float32"}}
    optimizer = {"type": "SGD", "learning_rate": RATE}
    model = replace(model, layers=layers, feeds=given, fetches=[out, "loss_"], loss="loss_", optimizer=optimizer)
    write(model, folder, replace=True)
    np.savez(folder / "train.npz", target_=target, **feeds)
    options = ["train.epochs=1", f"train.batch_size={len(target)}", f"output.dir={folder / 'runs'}", "output.checkpoint.every=1 epochs"]
    options += ["executor.devices=1"]  # whose batch norms take statistics of the whole batch
    assert run(["train", str(folder / "config.yaml"), "--quiet", *(part for option in options for part in ("-o", option))]) == 0
    (made,) = (folder / "runs").iterdir()
    job = Job.open(folder / "config.yaml", ["executor.devices=1"])
    job.allocate()
    job.values.load(load(made / "checkpoints" / "step-1")[0])
    return Executor(job.built.eval, job.scope, seed=1).run([{**feeds, "target_": target}], [out]).values[0][out]


def stepped(model: onnx.ModelProto, tmp_path: Path) -> tuple[ImportedModel, np.ndarray]:
    """Import a graph; return the model, and its output after a step."""
    made = imported(model, tmp_path)
    return made, after_a_step(made, tmp_path / "made", {"x": X}, TARGET)


def slope(y: np.ndarray) -> np.ndarray:
    """Return the derivative of the loss by the output."""
    return np.asarray(2 * (y - TARGET) / TARGET.size)


def say(model: onnx.ModelProto, name: str, kind: str) -> None:
    """Say of an initializer what it is, as PyTorch's exporter does."""
    said = next(t for t in model.graph.initializer if t.name == name)
    info = onnx.helper.make_tensor_value_info(name, said.data_type, said.dims)
    info.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=kind)
    model.graph.value_info.append(info)


def two_layers() -> np.ndarray:
    """Return the output of two layers after a step, each with a bias of its own that begins at 0."""
    a = X @ W
    d = slope(a @ V)
    back = d @ V.T
    w, v, b, c = W - RATE * X.T @ back, V - RATE * a.T @ d, -RATE * back.sum(0), -RATE * d.sum(0)
    return np.asarray((X @ w + b) @ v + c)


TWO_LAYERS = "(float[N, 4] x) => (float[N, 4] y) { IDENTITY h = MatMul(x, w) a = Add(h, b) g = MatMul(a, v) y = Add(g, c) }"


def by_identity() -> onnx.ModelProto:
    model = graph(TWO_LAYERS.replace("IDENTITY", "c = Identity(b)"), w=W, v=V, b=ZEROS)
    model.producer_name = "pytorch"
    names = {"b": "net.one.bias", "c": "net.two.bias"}
    model.graph.initializer[-1].name = names["b"]
    for node in model.graph.node:
        for names_of in (node.input, node.output):
            for i, name in enumerate(names_of):
                names_of[i] = names.get(name, name)
    return model


def by_module() -> onnx.ModelProto:
    model = graph(TWO_LAYERS.replace("IDENTITY ", "").replace("(g, c)", "(g, b)"), w=W, v=V, b=ZEROS)
    for node, module in zip(model.graph.node, ("one", "one", "two", "two"), strict=True):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'net', 'net.{module}', 'linear']")
    for name in ("w", "v", "b"):
        say(model, name, "PARAMETER")
    return model


def by_weight() -> onnx.ModelProto:
    return graph(TWO_LAYERS.replace("IDENTITY ", "").replace("(g, c)", "(g, b)"), w=W, v=V, b=ZEROS)


@pytest.mark.parametrize("make", [by_identity, by_module, by_weight])
def test_biases_that_an_exporter_merged_are_trained_each_for_itself(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    made, found = stepped(make(), tmp_path)
    assert len(made.arrays) == 4
    assert any("has merged parameters" in note for note in made.notes)
    np.testing.assert_allclose(found, two_layers(), rtol=1e-5, atol=1e-6)


def test_a_bias_that_one_layer_uses_twice_stays_one(tmp_path: Path) -> None:
    text = "(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) a = Add(h, b) g = MatMul(a, w) y = Add(g, b) }"
    made, found = stepped(graph(text, w=W, b=ZEROS), tmp_path)
    a = X @ W
    d = slope(a @ W)
    back = d @ W.T
    w, b = W - RATE * (X.T @ back + a.T @ d), -RATE * (back.sum(0) + d.sum(0))
    assert sorted(made.arrays) == ["b", "w"]
    np.testing.assert_allclose(found, (X @ w + b) @ w + b, rtol=1e-5, atol=1e-6)


def test_a_matrix_that_is_written_twice_once_turned_is_one_parameter(tmp_path: Path) -> None:
    text = "(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) y = MatMul(h, v) }"
    made, found = stepped(graph(text, w=W, v=np.ascontiguousarray(W.T)), tmp_path)
    a = X @ W
    d = slope(a @ W.T)
    w = W - RATE * (X.T @ (d @ W) + d.T @ a)
    assert list(made.arrays) == ["w"]
    assert "'v' is 'w', turned: they are one parameter" in made.notes
    np.testing.assert_allclose(found, X @ w @ w.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [drawn((4,), 24), np.float32(1.5)], ids=["a vector", "a number"])
@pytest.mark.parametrize("kind", ["BUFFER", "PARAMETER"])
def test_what_the_file_says_to_be_a_parameter_is_trained_and_nothing_else(kind: str, scale: np.ndarray, tmp_path: Path) -> None:
    model = graph("(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) y = Mul(h, s) }", w=W, s=scale)
    say(model, "w", "PARAMETER")
    say(model, "s", kind)
    made, found = stepped(model, tmp_path)
    a = X @ W
    d = slope(a * scale)
    s = scale - RATE * ((d * a).sum(0) if np.ndim(scale) else (d * a).sum()) if kind == "PARAMETER" else scale
    np.testing.assert_allclose(found, (X @ (W - RATE * X.T @ (d * scale))) * s, rtol=1e-5, atol=1e-6)
    assert kind == "PARAMETER" or not np.ndim(scale) or any("no parameter" in note for note in made.notes)


def test_filters_that_are_no_parameter_stay_as_they_are(tmp_path: Path) -> None:
    model = graph("(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) y = MatMul(h, v) }", w=W, v=V)
    say(model, "w", "BUFFER")
    say(model, "v", "PARAMETER")
    made, found = stepped(model, tmp_path)
    assert made.layers["h"]["param_attr"] == {"name": "w", "trainable": False}
    a = X @ W
    np.testing.assert_allclose(found, a @ (V - RATE * a.T @ slope(a @ V)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("low", [-1e9, -np.inf])
def test_a_mask_is_no_parameter(low: float, tmp_path: Path) -> None:
    text = "(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) s = Add(h, mask) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"
    mask = np.array([0, low, 0, 0], np.float32)
    made, found = stepped(graph(text, w=W, v=V, mask=mask), tmp_path)
    p = np.exp(X @ W + mask)
    p /= p.sum(1, keepdims=True)
    d = slope(p @ V)
    back = d @ V.T
    back = p * (back - (back * p).sum(1, keepdims=True))
    after = np.exp(X @ (W - RATE * X.T @ back) + mask)
    np.testing.assert_allclose(found, after / after.sum(1, keepdims=True) @ (V - RATE * p.T @ d), rtol=1e-4, atol=1e-5)
    assert any("'mask' has the values 0 and" in note for note in made.notes)


def test_rows_that_constants_take_of_a_table_train_the_table(tmp_path: Path) -> None:
    text = "(float[N, 4] x) => (float[N, 4] y) { r = Gather<axis=0>(table, place) h = MatMul(x, w) y = Add(h, r) }"
    table = drawn((5, 4), 25)
    made, found = stepped(graph(text, w=W, table=table, place=np.array([3])), tmp_path)
    d = slope(X @ W + table[3])
    np.testing.assert_allclose(found, X @ (W - RATE * X.T @ d) + table[3] - RATE * d.sum(0), rtol=1e-5, atol=1e-6)
    assert made.arrays["table"].shape == (5, 4)


def test_what_a_layer_needs_as_a_constant_is_trained_as_one_of_its_own_and_told(tmp_path: Path) -> None:
    text = (
        "(float[N, 2, 5, 5] x) => (float[N, 3, 3, 3] y) { l = ReduceL2<axes=[1, 2, 3], keepdims=1>(v) u = Mul(v, l) k = Mul(u, g) "
        "y = Conv(x, k) }"
    )
    model = graph(text, 13, v=drawn((3, 2, 3, 3), 26), g=drawn((3, 1, 1, 1), 27))
    made = imported(model, tmp_path)
    assert any(note.startswith("'k' is computed of parameters in the file") for note in made.notes)
    feeds = {"x": drawn((2, 2, 5, 5), 28)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(computed(made, tmp_path / "made", feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


LENGTH = "l = ReduceL2<axes=[1, 2, 3], keepdims=1>(v) "
SQUARES = "s = Mul(v, v) t = ReduceSum<keepdims=1>(s, axes) l = Sqrt(t) "


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        pytest.param(f"{LENGTH} u = Div(v, l) k = Mul(u, g)", 0, id="directions times lengths"),
        pytest.param(f"{LENGTH} u = Div(g, l) k = Mul(v, u)", 0, id="factors times what they multiply"),
        pytest.param(f"{LENGTH} u = Mul(g, v) k = Div(u, l)", 0, id="a quotient of a product"),
        pytest.param(f"{SQUARES} u = Div(v, l) k = Mul(g, u)", 0, id="the root of a sum of squares"),
        pytest.param("l = ReduceL2<keepdims=0>(v) u = Div(g, l) k = Mul(v, u)", None, id="one length"),
    ],
)
def test_weight_normalisation_is_trained_as_lengths_and_directions(text: str, dim: int | None, tmp_path: Path) -> None:
    v, g = drawn((4, 4, 1, 1), 30), np.abs(drawn((4, 1, 1, 1) if dim == 0 else (), 31)) + 0.5
    text = f"(float[N, 4, 1, 1] x) => (float[N, 4, 1, 1] y) {{ {text} y = Conv(x, k) }}"
    more = {"axes": np.array([1, 2, 3])} if "axes)" in text else {}
    names = {"v": "conv.weight_v", "g": "conv.weight_g"}
    model = graph(text, 13, v=v, g=g.astype(np.float32), **more)
    model.producer_name = "pytorch"  # of other files a single number may be a constant
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
    made = imported(model, tmp_path)
    (conv,) = (layer for layer in made.layers.values() if layer["type"] == "conv2d")
    assert conv["param_attr"] == {"name": "conv.weight", "type": "weight_norm", **({} if dim is None else {"dim": dim})}
    assert sorted(made.arrays) == ["conv.weight_g", "conv.weight_v"]
    found = after_a_step(made, tmp_path / "made", {"x": X[:, :, None, None]}, TARGET[:, :, None, None])[:, :, 0, 0]

    directions, lengths = v[:, :, 0, 0].astype(float), g.reshape(-1, 1).astype(float)
    norm = np.sqrt((directions**2).sum(**({} if dim is None else {"axis": 1, "keepdims": True})))
    unit = directions / norm
    d = slope(X @ (lengths * unit).T).T @ X  # of the loss by the weight
    along = (d * unit).sum(**({} if dim is None else {"axis": 1, "keepdims": True}))
    moved, longer = directions - RATE * lengths / norm * (d - along * unit), lengths - RATE * along
    norm = np.sqrt((moved**2).sum(**({} if dim is None else {"axis": 1, "keepdims": True})))
    np.testing.assert_allclose(found, X @ (longer * moved / norm).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 18])
def test_rows_that_a_mask_hides_as_a_whole_do_not_stop_training(opset: int, tmp_path: Path) -> None:
    text = (
        "(float[N, 4] x, bool[N, 4] seen) => (float[N, 4] y) { h = MatMul(x, w) m = Where(seen, zero, low) s = Add(h, m) "
        "p = Softmax<axis=-1>(s) n = IsNaN(p) q = Where(n, zero, p) y = MatMul(q, v) }"
    )
    model = graph(text, opset, w=W, v=V, zero=np.float32(0), low=np.float32(-np.inf))
    seen = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]], bool)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made = imported(model, tmp_path)
    before = session.run(None, {"x": X, "seen": seen})[0]
    np.testing.assert_allclose(computed(made, tmp_path / "made", {"x": X, "seen": seen})[0], before, rtol=1e-5, atol=1e-6)
    found = after_a_step(made, tmp_path / "step", {"x": X, "seen": seen}, TARGET)

    def shares(w: np.ndarray) -> np.ndarray:
        e = np.exp(X @ w) * seen
        return np.asarray(e / np.maximum(e.sum(1, keepdims=True), 1e-30))

    p = shares(W)
    d = slope(p @ V)
    back = d @ V.T
    back = p * (back - (back * p).sum(1, keepdims=True))
    np.testing.assert_allclose(found, shares(W - RATE * X.T @ back) @ (V - RATE * p.T @ d), rtol=1e-4, atol=1e-5)


def test_numbered_parameters_are_called_as_their_modules(tmp_path: Path) -> None:
    model = graph("(float[N, 4] x) => (float[N, 4] y) { h = MatMul(x, w) r = Relu(h) g = MatMul(r, v) y = Add(g, b) }", w=W, v=V, b=V[0])
    model.producer_name = "pytorch"
    for tensor, name in zip(model.graph.initializer, ("onnx::MatMul_10", "onnx::MatMul_11", "head.bias"), strict=True):
        old, tensor.name = tensor.name, name
        for node in model.graph.node:
            node.input[:] = [name if one == old else one for one in node.input]
    paths = ("/layer1/layer1.0/fc/MatMul", "/layer1/layer1.0/Relu", "/head/MatMul", "/head/Add")
    for node, name in zip(model.graph.node, paths, strict=True):
        node.name = name
    made = imported(model, tmp_path)
    assert sorted(made.arrays) == ["head.bias", "head.weight", "layer1.0.fc.weight"]
    assert not made.notes


def test_weights_that_an_exporter_computed_of_several_are_told(tmp_path: Path) -> None:
    model = graph("(float[N, 2, 5, 5] x) => (float[N, 3, 3, 3] y) { y = Conv(x, k, b) }", k=drawn((3, 2, 3, 3), 32), b=drawn((3,), 33))
    model.producer_name = "pytorch"
    model.graph.node[0].name = "/stem/conv/Conv"
    for tensor, name in zip(model.graph.initializer, ("onnx::Conv_20", "onnx::Conv_21"), strict=True):
        tensor.name = name
    model.graph.node[0].input[1:] = ["onnx::Conv_20", "onnx::Conv_21"]
    made = imported(model, tmp_path)
    assert sorted(made.arrays) == ["stem.conv.bias", "stem.conv.weight"]
    assert sum("of several parameters" in note and "'stem.conv.weight'" in note for note in made.notes) == 1


NORM = (
    "(float[N, 2, 6] x) => (float[N, 2, 6] y) { one = Constant<value = float[2] {1.0, 1.0}>() "
    "zero = Constant<value = float[2] {0.0, 0.0}>() n = InstanceNormalization(x, one, zero) y = Conv<pads=[1, 1]>(n, k, zero) }"
)


def test_factors_of_one_and_biases_of_nothing_in_nodes_are_no_parameters(tmp_path: Path) -> None:
    made = imported(graph(NORM, k=drawn((2, 2, 3), 29)), tmp_path)
    norm = next(layer for layer in made.layers.values() if layer["type"] == "instance_norm")
    conv = next(layer for layer in made.layers.values() if layer["type"] == "conv2d")
    assert [norm[name]["trainable"] for name in ("param_attr", "bias_attr")] == [False, False]
    assert (conv["param_attr"], conv["bias_attr"]) == ({"name": "k"}, False)


def test_values_that_a_file_has_in_nodes_alone_are_parameters(tmp_path: Path) -> None:
    """As Paddle2ONNX writes a network: also what is added beside a product is trained, and parameters are called as in the network."""
    model = graph("(float[N, 4] x) => (float[N, 4] y) { w = Constant() b = Constant() h = MatMul(x, w) r = Relu(h) y = Add(r, b) }")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(W, "")))
    model.graph.node[1].attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(V[0], "")))
    made, found = stepped(model, tmp_path)
    assert made.arrays.keys() == {"w", "b"}
    a = X @ W
    d = slope(np.maximum(a, 0) + V[0])
    w, b = W - RATE * X.T @ (d * (a > 0)), V[0] - RATE * d.sum(0)
    np.testing.assert_allclose(found, np.maximum(X @ w, 0) + b, rtol=1e-5, atol=1e-6)


def test_values_that_pytorch_has_in_nodes_are_none_and_told(tmp_path: Path) -> None:
    model = graph("(float[N, 4] x) => (float[N, 4] y) { w = Constant() h = MatMul(x, w) y = MatMul(h, v) }", v=V)
    model.producer_name = "pytorch"
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(W, "")))
    made = imported(model, tmp_path)
    assert sum("'trainable': False" in str(layer) for layer in made.layers.values()) == 1
    assert "'h.weight' stand in nodes and are not trained: without `trainable: false` in model.yaml they are" in made.notes
