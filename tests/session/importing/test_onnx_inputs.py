"""Inputs of a graph whose sizes users say, which they make constants, or whose batch is not the first axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pe_cli.cli.main import run
from pe_cli.core.errors import PeError
from pe_cli.session.importing.define import ImportedModel, ImportWish, read_model
from pe_cli.session.importing.training import for_training
from tests.session.importing.test_onnx import computed, drawn, graph

#: A pooling whose padding depends on a size that the file leaves open.
PICTURES = graph(
    "(float[N, 2, H, W] x) => (float[N, 3, P, Q] y) { c = Conv<kernel_shape=[3, 3]>(x, k) "
    'y = MaxPool<kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER">(c) }',
    k=drawn((3, 2, 3, 3), 1),
)
#: A recurrent network over steps, which come first, with a state beside the input.
STEPS = graph(
    "(float[T, N, 3] x, float[1, N, 4] h) => (float[T, N, 2] y, float[1, N, 4] hn) { a, hn = GRU<hidden_size=4>(x, w, r, , , h) "
    "axes = Constant<value_ints=[1]>() s = Squeeze(a, axes) y = MatMul(s, v) }",
    w=drawn((1, 12, 3), 2), r=drawn((1, 12, 4), 3), v=drawn((4, 2), 4),
)  # fmt: skip
#: Another network for each rate, as one file has it.
RATES = graph(
    "(float[N, 4] x, int64 sr) => (float[N, 4] y) { high = Constant<value = int64 {16000}>() c = Equal(sr, high) "
    "y = If(c)<then_branch = a () => (float[N, 4] p) { p = Mul(x, f) }, else_branch = b () => (float[N, 4] q) { q = Add(x, f) }> }",
    f=drawn((4,), 5),
)


def imported(model: onnx.ModelProto, folder: Path, **wish: object) -> ImportedModel:
    onnx.save(model, folder / "m.onnx")
    return read_model(ImportWish(folder / "m.onnx", **wish))  # type: ignore[arg-type]


def theirs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    return found


def test_a_size_that_is_said_makes_a_layer_of_a_node_that_needs_it(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="size that is not known") as told:
        imported(PICTURES, tmp_path)
    assert told.value.hint
    assert "--shape x=N,2,SIZE,SIZE" in told.value.hint
    made = imported(PICTURES, tmp_path, shapes={"x": [None, 2, 9, 8]})
    assert made.feeds["x"] == {"shape": [2, 9, 8], "dtype": "float32"}
    x = drawn((3, 2, 9, 8), 6)
    (mine,), (other,) = computed(made, tmp_path / "made", {"x": x}), theirs(PICTURES, {"x": x})
    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_what_has_the_batch_as_another_axis_has_it_as_the_first_one_here(tmp_path: Path) -> None:
    made = imported(graph("(float[N, 3] z, float[2, N, 3] x) => (float[2, N, 3] y) { y = Add(x, z) }"), tmp_path)
    assert made.feeds == {"z": {"shape": [3], "dtype": "float32"}, "x": {"shape": [2, 3], "dtype": "float32"}}
    assert list(made.fetches) == ["y"]
    z, x = drawn((4, 3), 7), drawn((2, 4, 3), 8)
    (mine,) = computed(made, tmp_path / "made", {"z": z, "x": x.transpose(1, 0, 2)})
    np.testing.assert_array_equal(mine.transpose(1, 0, 2), x + z)


@pytest.mark.parametrize("said", [
    pytest.param({"x": [5, None, 3], "h": [1, None, 4]}, id="of all inputs"),
    pytest.param({"x": [5, None, 3]}, id="of one, and the others call it the same"),
])  # fmt: skip
def test_users_say_where_the_batch_lies(said: dict[str, list[int | None]], tmp_path: Path) -> None:
    made = imported(STEPS, tmp_path, shapes=said)
    assert made.feeds["x"]["shape"] == [5, 3]
    assert made.feeds["h"]["shape"] == [1, 4]
    assert list(made.fetches) == ["y", "hn"]
    x, h = drawn((5, 3, 3), 7), drawn((1, 3, 4), 8)
    mine = computed(made, tmp_path / "made", {"x": x.transpose(1, 0, 2), "h": h.transpose(1, 0, 2)})
    for one, other in zip(mine, theirs(STEPS, {"x": x, "h": h}), strict=True):
        np.testing.assert_allclose(one.transpose(1, 0, 2), other, rtol=1e-5, atol=1e-6)


def test_an_input_that_is_always_one_number_chooses_a_branch(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="condition") as told:
        imported(RATES, tmp_path)
    assert told.value.hint
    assert "--constant sr=NUMBER" in told.value.hint
    x = drawn((3, 4), 9)
    for rate in (16000, 8000):
        made = imported(RATES, tmp_path, constants={"sr": rate})
        assert list(made.feeds) == ["x"]
        (mine,), (other,) = computed(made, tmp_path / "made", {"x": x}), theirs(RATES, {"x": x, "sr": np.asarray(rate)})
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("options", "said"), [
    pytest.param(["--shape", "z=N,4"], "no input 'z'", id="an input that is not there"),
    pytest.param(["--shape", "x=N,4,1"], "2 axes in the file, and 3 are said", id="another number of axes"),
    pytest.param(["--shape", "x=N,5"], "axis 1 is 4 in the file, and not 5", id="another size"),
    pytest.param(["--shape", "x=3,N"], "axis 1 is 4 in the file, and not N", id="a batch in the place of a size"),
    pytest.param(["--shape", "x=N,N"], "N stands there twice", id="two batches"),
    pytest.param(["--shape", "x=N,0"], "are no sizes", id="a size of 0"),
    pytest.param(["--shape", "x=N,-4"], "are no sizes", id="a size below 0"),
    pytest.param(["--shape", "x"], "takes INPUT=VALUE", id="no sizes"),
    pytest.param(["--shape", "x=N,4", "--shape", "x=N,4"], "said twice", id="sizes twice"),
    pytest.param(["--constant", "sr=fast"], "'fast' is no number", id="no number"),
    pytest.param(["--constant", "sr=1e400"], "not finite", id="a number that is not finite"),
    pytest.param(["--constant", "sr=0.5"], "none of the numbers of its type", id="a number that its type has not"),
    pytest.param(["--constant", "x=1"], "needs sizes that are known", id="a constant with a batch"),
])  # fmt: skip
def test_what_cannot_be_of_an_input_is_said(options: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(RATES, tmp_path / "m.onnx")
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "made"), *options]) == 2
    assert said in capfd.readouterr().err


def test_a_text_is_no_number(tmp_path: Path) -> None:
    model = graph("(float[N, 4] x, string t) => (float[N, 4] y) { y = Tanh(x) }")
    with pytest.raises(PeError, match="no number is of its type"):
        imported(model, tmp_path, constants={"t": 1.0})


@pytest.mark.parametrize("devices", [1, 2])
def test_a_network_whose_steps_come_first_predicts_for_each_sample(devices: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a recogniser of texts is written: pictures in, [steps, batch, letters] out."""
    model = graph(
        "(float[N, 3, 5] x) => (float[5, N, 2] y) { t = Transpose<perm=[2, 0, 1]>(x) y = MatMul(t, w) }", w=drawn((3, 2), 1)
    )  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    folder, x = tmp_path / "made", drawn((6, 3, 5), 2)
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(folder)]) == 0, capfd.readouterr().err
    np.savez(folder / "input.npz", x=x)
    given = ["--checkpoint", str(folder / "params.safetensors"), "-o", f"executor.devices={devices}", "--out", str(tmp_path / "y.npz")]
    assert run(["predict", str(folder / "config.yaml"), *given]) == 0, capfd.readouterr().err
    (other,) = theirs(model, {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"].transpose(1, 0, 2), other, rtol=1e-5, atol=1e-6)
    # What a model file has is joined as it lies, and nothing else is made of it.
    inner = next(line.split(":")[0].strip() for line in (folder / "model.yaml").read_text().splitlines() if "[5, batch, 2]" in line)
    assert run(["predict", str(folder / "config.yaml"), *given, "--fetch", inner]) == 2
    assert "its samples are not along its first axis" in capfd.readouterr().err


@pytest.mark.parametrize(("text", "shape"), [
    pytest.param("(float[N, 4] x) => (float[N, 4] y) { y = Tanh(x) }", [4], id="a row of numbers for each sample"),
    pytest.param("(float[N, 2, 3] x) => (float[N, 3, 2] y) { y = Transpose<perm=[0, 2, 1]>(x) }", [3, 2], id="an array"),
    pytest.param("(float[N, 4] x) => (float[N] y) { a = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(x, a) }", [], id="a number"),
])  # fmt: skip
def test_the_values_of_a_task_are_like_the_output(text: str, shape: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(graph(text), tmp_path / "m.onnx")
    folder = tmp_path / "made"
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(folder), "--task", "number"]) == 0, capfd.readouterr().err
    assert f"value: {{shape: {shape}, dtype: float32}}" in (folder / "model.yaml").read_text()
    assert run(["check", str(folder / "model.yaml")]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("names", ["y", "z"], ids=["of a softmax", "of another name of it, as Paddle2ONNX writes it"])
def test_scores_of_classes_are_what_stands_before_the_softmax(names: str, tmp_path: Path) -> None:
    text = f"(float[N, 4] x) => (float[N, 3] {names}) {{ h = MatMul(x, w) y = Softmax<axis=-1>(h) z = Identity(y) k = Relu(z) }}"
    model = graph(text, w=drawn((4, 3), 1))
    made = for_training(imported(model, tmp_path), "classes")
    assert [layer["logits"] for layer in made.layers.values() if layer["type"] == "softmax_with_cross_entropy"] == ["h"]
    assert made.layers["h"]["size"] == "${classes}"
    assert made.args == {"classes": 3}
    assert sum(layer["type"] == "softmax" for layer in made.layers.values()) == 1


def test_scores_that_no_last_layer_makes_keep_their_number(tmp_path: Path) -> None:
    made = for_training(imported(graph("(float[N, 4] x) => (float[N, 4] y) { y = Tanh(x) }"), tmp_path), "classes")
    assert "the number of classes stays: the scores 'y' are of tanh, and not of a last layer fc" in made.notes


@pytest.mark.parametrize(("task", "text", "said"), [
    pytest.param("number", "(float[N, L] x) => (float[N, L] y) { y = Tanh(x) }", "needs sizes that are known", id="a size that is open"),
    pytest.param(
        "number", "(float[N, 4] x) => (float[4] y) { a = Constant<value_ints=[0]>() y = ReduceSum<keepdims=0>(x, a) }",
        "no value for each sample", id="a sum over the batch",
    ),
    pytest.param("classes", "(float[N, 2, 3] x) => (float[N, 2, 3] y) { y = Tanh(x) }", "not one row of scores", id="scores of places"),
])  # fmt: skip
def test_an_output_no_task_is_about_is_said(task: str, text: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(graph(text), tmp_path / "m.onnx")
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "made"), "--task", task]) == 2
    assert said in capfd.readouterr().err


def test_sizes_that_stay_open_are_open_in_what_is_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of reshape, squeeze, unsqueeze and a product: two sizes are not known in each."""
    text = """(float[N, L, 3] x) => (float[N, 1, L, 2] y) {
        a = Constant<value_ints=[1]>() u = Unsqueeze(x, a) t = Tanh(u) s = Squeeze(t, a) p = MatMul(s, w)
        n = Constant<value_ints=[0, 1, -1, 2]>()
        y = Reshape(p, n) }"""
    model, folder = graph(text, w=drawn((3, 2), 1)), tmp_path / "made"
    onnx.save(model, tmp_path / "m.onnx")
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(folder)]) == 0, capfd.readouterr().err
    given = ["--checkpoint", str(folder / "params.safetensors"), "--raw", "--onnx", str(tmp_path / "back.onnx")]
    assert run(["export", str(folder / "config.yaml"), *given]) == 0, capfd.readouterr().err
    back = onnx.load(tmp_path / "back.onnx")
    for shape in ((2, 5, 3), (4, 7, 3)):
        x = drawn(shape, 2)
        (mine,), (other,) = theirs(back, {"x": x}), theirs(model, {"x": x})
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
