"""Imported graphs compute what onnxruntime computes of the file, and what has no layer is refused with its node."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

from pe_cli.cli.main import run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.execute.executor import Executor
from pe_cli.io.checkpoint import load_arrays
from pe_cli.session.importing.define import ImportedModel, ImportWish, read_model
from pe_cli.session.importing.onnx.node import Attributes, Node
from pe_cli.session.importing.onnx.values import Unimportable
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import model_text, write
from pe_cli.session.job import Job


def graph(text: str, opset: int = 18, **values: np.ndarray) -> onnx.ModelProto:
    """Return a model of ONNX's text form, with initializers beside."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in values.items())
    return model


def imported(model: onnx.ModelProto, folder: Path, **wish: bool) -> ImportedModel:
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "m.onnx")
    return read_model(ImportWish(folder / "m.onnx", **wish))


def computed(model: ImportedModel, folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return what a model computes, opened as a user's."""
    write(model, folder, replace=True)
    job = Job.open(folder / "config.yaml", ["executor.devices=1"])
    job.allocate()
    job.values.load(load_arrays(folder / "params.safetensors"))
    found = Executor(job.built.eval, job.scope, seed=1).run([feeds], list(model.fetches)).values[0]
    return [found[name] for name in model.fetches]


def drawn(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, shape).astype(dtype) if dtype.startswith("int") else rng.normal(size=shape).astype(dtype)


W, B, K = drawn((4, 3), 1), drawn((3,), 2), drawn((6, 2, 3, 3), 3)
GRAPHS = [
    pytest.param(
        "(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) a = Add(h, b) y = Softmax<axis=-1>(a) }",
        {"w": W, "b": B}, {"x": (5, 4)}, ["fc", "softmax"], id="a product and a sum are one layer",
    ),
    pytest.param(
        "(float[N, 4] x) => (float[N, 3] y) { y = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b) }",
        {"w": np.ascontiguousarray(W.T), "b": B}, {"x": (5, 4)}, ["fc"], id="Gemm with factors",
    ),
    pytest.param(
        "(float[N, 2, 8, 8] x) => (float[N, 6, 1, 1] y) { c = Conv<kernel_shape=[3, 3], pads=[1, 0, 1, 2], strides=[2, 1]>(x, k) "
        "r = LeakyRelu<alpha=0.2>(c) m = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(r) y = GlobalAveragePool(m) }",
        {"k": K}, {"x": (3, 2, 8, 8)}, ["conv2d", "leaky_relu", "pool2d", "pool2d"], id="pictures, with paddings of each side",
    ),
    pytest.param(
        "(float[N, 2, 3] x) => (float[N, 6] y) { s = Shape(x) zero = Constant<value_int=0>() n = Gather(s, zero) "
        "axes = Constant<value_ints=[0]>() u = Unsqueeze(n, axes) "
        "rest = Constant<value_ints=[-1]>() t = Concat<axis=0>(u, rest) y = Reshape(x, t) }",
        {}, {"x": (5, 2, 3)}, ["reshape"], id="sizes that are computed of a shape are folded",
    ),
    pytest.param(
        "(float[1, 2, 3] x) => (float[1, 6] y) { t = Constant<value_ints=[1, -1]>() r = Reshape(x, t) y = Relu(r) }",
        {}, {"x": (1, 2, 3)}, ["reshape", "relu"], id="a first axis of size 1 becomes the batch axis",
    ),
    pytest.param(
        "(float[N, 4] x) => (float[N, 4] y) { c = Greater(x, zero) d = Mul(x, two) e = Sub(one, x) y = Where(c, d, e) }",
        {"zero": np.float32(0), "two": np.float32(2), "one": np.ones(1, np.float32)}, {"x": (5, 4)},
        ["greater_than", "scale", "scale", "select"], id="a choice, and numbers as arguments",
    ),
    pytest.param(
        "(float[N, 3, 1] x, float[N, 1, 4] y) => (float[N, 3, 4] z) { z = Mul(x, y) }",
        {}, {"x": (2, 3, 1), "y": (2, 1, 4)}, ["expand", "elementwise_mul"], id="both sides are repeated",
    ),
    pytest.param(
        "(int64[N, 5] x) => (float[N, 2] y) { e = Gather<axis=0>(w, x) y = ReduceMean<keepdims=0>(e, axes) }",
        {"w": drawn((5, 2), 4), "axes": np.array([1])}, {"x": (3, 5)},
        ["reshape", "embedding", "reduce_mean"], id="rows of a table, and their mean",
    ),
    pytest.param(
        "(float[N, 3, 5] x) => (float[N, 3, 2] y) { y = Slice(x, s, e, a, t) }",
        {"s": np.array([4]), "e": np.array([-(2**62)]), "a": np.array([2]), "t": np.array([-3])}, {"x": (2, 3, 5)},
        ["strided_slice"], id="backwards to the very first",
    ),
    pytest.param(
        "(float[N, 4] x) => (float[N, 4] y) { c = Constant<value = bool {1}>() "
        "y = If(c)<then_branch = a () => (float[N, 4] p) { p = Tanh(x) }, else_branch = b () => (float[N, 4] q) { q = Neg(x) }> }",
        {}, {"x": (5, 4)}, ["tanh"], id="a branch that a constant chooses",
    ),
    pytest.param(
        "(float[T, 2, 3] x) => (float[T, 1, 2, 4] y, float[1, 2, 4] h) { y, h = LSTM<hidden_size=4>(x, w, r, b) }",
        {"w": drawn((1, 16, 3), 5), "r": drawn((1, 16, 4), 6), "b": drawn((1, 32), 7)}, {"x": (6, 2, 3)},
        ["lstm", "reshape", "assign", "assign"], id="an LSTM, whose gates are in another order",
    ),
    pytest.param(
        "(float[N, 4] x) => (float[N, 4] y) { y = Celu<alpha=2.0>(x) }", {}, {"x": (5, 4)}, ["scale", "elu", "scale"],
        id="what is made of other layers",
    ),
    pytest.param(
        "(float[N, 6] x) => (float[N, 6] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Clip(d, low, high) }",
        {"s": np.float32(1e-6), "z": np.uint8(128), "low": np.float32(-1e-4), "high": np.float32(1e-4)}, None, ["clip"],
        id="quantized values are floats",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "shapes", "layers"), GRAPHS)
def test_a_graph_computes_the_same(text, values, shapes, layers, tmp_path):
    model = graph(text, **values)
    made = imported(model, tmp_path)
    assert [layer["type"] for layer in made.layers.values() if not layer["type"].startswith("fill")] == layers
    if shapes is None:
        return
    kinds = {given.name: "int64" if given.type.tensor_type.elem_type == 7 else "float32" for given in model.graph.input}
    feeds = {name: drawn(shape, 9, kinds[name]) for name, shape in shapes.items()}
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for mine, other in zip(computed(made, tmp_path / "made", feeds), theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_names_and_values_are_those_of_the_file(tmp_path):
    made = imported(graph("(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) y = Add(h, b) }", w=W, b=B), tmp_path)
    assert made.layers == {"y": {"type": "fc", "input": "x", "size": 3, "param_attr": {"name": "w"}, "bias_attr": {"name": "b"}}}
    assert made.feeds == {"x": {"shape": [4], "dtype": "float32"}}
    np.testing.assert_array_equal(made.arrays["w"], W)
    np.testing.assert_array_equal(made.arrays["b"], B)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param(*case.values[:2], id=case.id)
        for case in GRAPHS
        if case.id in {"a product and a sum are one layer", "Gemm with factors", "both sides are repeated", "what is made of other layers"}
    ],
)
def test_what_is_exported_again_is_imported_as_the_same(text, values, tmp_path):
    model = graph(text, **values)
    model.metadata_props.add(key="licence", value='"MIT": yes\n')
    made = imported(model, tmp_path / "first")
    write(made, tmp_path)
    (tmp_path / "second").mkdir()
    out = tmp_path / "second" / "m.onnx"
    values = ["--checkpoint", str(tmp_path / "params.safetensors")]
    assert run(["export", str(tmp_path / "config.yaml"), *values, "--onnx", str(out), "--raw"]) == 0
    again = read_model(ImportWish(out))
    assert model_text(again) == model_text(made)
    assert again.metadata == {"licence": '"MIT": yes\n'}
    assert again.arrays.keys() == made.arrays.keys()
    for name, value in made.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], value)


def test_metadata_of_which_a_model_file_has_no_room_is_left_out(tmp_path):
    model = graph("(float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
    for key in ("author", "long", "after"):
        model.metadata_props.add(key=key, value="z" * (40_000 if key == "long" else 3))
    made = imported(model, tmp_path)
    assert made.metadata == {"author": "zzz"}
    assert any("left out: 2 entries of metadata" in note for note in made.notes)


def test_the_same_file_gives_the_same_bytes(tmp_path):
    model = graph("(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) y = Add(h, b) }", w=W, b=B)
    texts = [[file.read_bytes() for file in write(imported(model, tmp_path), tmp_path / name)] for name in "ab"]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("dtype", "said"), [("float", "epsilon: 1e-05"), ("double", "epsilon: 9.999999747378752e-06")])
def test_numbers_are_written_as_shortly_as_their_type_allows(dtype, said, tmp_path):
    kind = "float32" if dtype == "float" else "float64"
    scale, bias, mean, variance = (np.linspace(1, 2, 3).astype(kind) * k for k in (1, 2, 3, 4))
    text = f"({dtype}[N, 3] x) => ({dtype}[N, 3] y) {{ y = BatchNormalization<epsilon=0.00001>(x, s, b, m, v) }}"
    made = imported(graph(text, s=scale, b=bias, m=mean, v=variance), tmp_path)
    assert said in model_text(made)
    for value in (made.layers["y"]["epsilon"], float(said.split()[1])):
        assert np.float32(value) == np.float32(1e-5)


def test_a_head_may_have_another_number_of_classes(tmp_path):
    model = graph("(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) y = Softmax<axis=-1>(h) }", w=W)
    made = for_training(imported(model, tmp_path), "classes")
    assert made.args == {"classes": 3}
    assert made.layers["h"]["size"] == "${classes}"
    assert made.loss == "loss"


# --- what is refused --------------------------------------------------------------------------------------------------

UNKNOWN = "(float[N, 4] x) => (float[N, 4] y) { h = Relu(x) d = Det2(h) y = Tanh(d) }"


def test_a_node_without_a_layer_is_named(tmp_path):
    with pytest.raises(PeError, match=r"\(Det2, ONNX opset 18\): it has no layer") as error:
        imported(graph(UNKNOWN), tmp_path)
    assert error.value.code == ExitCode.DATA
    assert "--partial" in str(error.value.hint)


def test_partial_ends_before_it(tmp_path):
    made = imported(graph(UNKNOWN), tmp_path, partial=True)
    assert list(made.layers) == ["h"]
    assert made.fetches == ["h"]
    assert "Det2" in made.notes[-1]


def _twice() -> onnx.ModelProto:
    return graph("(float[N] x) => (float[N] y) { y = Relu(x) y = Tanh(x) }")


def _cycle() -> onnx.ModelProto:
    return graph("(float[N] x) => (float[N] y) { a = Add(x, y) y = Relu(a) }")


def _outside() -> onnx.ModelProto:
    model = graph("(float[N, 4] x) => (float[N, 3] y) { y = MatMul(x, w) }", w=W)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    return model


def _recursive() -> onnx.ModelProto:
    model = graph("(float[N] x) => (float[N] y) { y = Relu(x) }")
    body = [helper.make_node("f", ["a"], ["b"], domain="own")]
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("own", 1)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].CopyFrom(helper.make_node("f", ["x"], ["y"], domain="own"))
    return model


def _hollow() -> onnx.ModelProto:
    model = graph("(float[N] x) => (float[N] y) { y = Add(x, a) }")
    model.graph.initializer.add(name="a", dims=[2**62], data_type=onnx.TensorProto.FLOAT)
    return model


HOSTILE = [
    pytest.param(_twice, "made twice", id="a value that is made twice"),
    pytest.param(_cycle, "cycle", id="a cycle"),
    pytest.param(_outside, "not in the model's folder", id="values outside of the folder"),
    pytest.param(_recursive, "calls itself", id="a function that calls itself"),
    pytest.param(lambda: graph("(float[N] x) => (float[N] y) { y = Relu(x) }", 99), "opset 99 is not known", id="an opset of the future"),
    pytest.param(
        lambda: graph("(float[N] x) => (float[N, M] y) { s = Constant<value_ints=[1099511627776, 1048576]>() y = ConstantOfShape(s) }"),
        "no memory holds", id="a constant without bounds",
    ),
    pytest.param(_hollow, "says to be", id="a shape that nothing fills"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), HOSTILE)
def test_a_hostile_file_is_refused(make, said, tmp_path):
    with pytest.raises(PeError, match=said) as error:
        imported(make(), tmp_path)
    assert error.value.code == ExitCode.DATA


def test_what_says_more_than_its_layer_takes_is_refused(tmp_path):
    """An attribute that no form asks for changes a result, unless it has its default."""
    for text, said in (
        ("y = Dropout(x, r, t)", "in evaluation, too"),
        ('s = Resize<mode="linear", coordinate_transformation_mode="odd">(i, , f) y = Flatten(s)', "odd is not known"),
    ):
        given = {"r": np.float32(0.5), "t": np.array(True), "f": np.array([1, 1, 0.6, 0.6], np.float32)}
        body = "i = Reshape(x, k) " * ("Resize" in text) + text
        with pytest.raises(PeError, match=said):
            imported(graph(f"(float[N, 8] x) => (float[N, M] y) {{ {body} }}", k=np.array([-1, 1, 2, 4]), **given), tmp_path)
    for attrs in ({"alpha": 1.0}, {"nobody": 1}):
        node = Node("Selu", 18, Attributes(attrs), ["x"], [None], ["y"], {}, None, {}, {})  # type: ignore[arg-type]
        with pytest.raises(Unimportable, match="has no meaning"):
            node.check_read("")
        node.attr(next(iter(attrs)))
        node.check_read("")
    default = onnx.helper.get_attribute_value(onnx.defs.get_schema("Selu", 18).attributes["alpha"].default_value)
    Node("Selu", 18, Attributes({"alpha": default}), ["x"], [None], ["y"], {}, None, {}, {}).check_read("")  # type: ignore[arg-type]


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    data = graph("(float[N, 4] x) => (float[N, 3] y) { y = MatMul(x, w) }", w=W).SerializeToString()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        (tmp_path / "m.onnx").write_bytes(data[:length])
        with pytest.raises(PeError) as error:
            read_model(ImportWish(tmp_path / "m.onnx"))
        assert error.value.code == ExitCode.DATA


def test_values_that_are_no_numbers_are_kept_and_named(tmp_path):
    broken = W.copy()
    broken[0, 0] = math.nan
    made = imported(graph("(float[N, 4] x) => (float[N, 3] y) { y = MatMul(x, w) }", w=broken), tmp_path)
    assert any("NaN" in note for note in made.notes)


def test_a_file_of_no_known_kind_says_which_there_are(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"")
    with pytest.raises(PeError, match="no model of a kind that is read") as error:
        read_model(ImportWish(tmp_path / "m.bin"))
    assert "MODEL.onnx" in str(error.value.hint)
