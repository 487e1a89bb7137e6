"""Repeated parts of an ONNX file become blocks: the same numbers, the same training, and a file that can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pe_cli.cli.main import run
from pe_cli.io.checkpoint import load
from pe_cli.io.tensors import read_safetensors
from pe_cli.session.importing.define import ImportedModel, ImportWish, read_model
from pe_cli.session.importing.repeats.flat import taken_apart
from pe_cli.session.importing.repeats.fold import with_blocks
from pe_cli.session.importing.repeats.search import repeats
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import model_text, write
from tests.rotation import of_today
from tests.session.importing.test_onnx import computed, drawn, graph, imported

#: What PyTorch's exporters have written; see `make_graphs.py`.
GRAPHS = Path(__file__).parent / "graphs"
#: File -> lines of its model file at most, and how often each block is used.
FILES = {
    "bert": (57, [3]),
    "bert_dynamo": (60, [3]),
    "mixer": (36, [4]),
    "mixer_dynamo": (36, [4]),
    "resnet": (46, [4]),
    "resnet_dynamo": (46, [4]),
}


def uses(model: ImportedModel) -> list[int]:
    """Return how often each block is used."""
    return [sum(layer.get("block") == name for layer in model.layers.values()) for name in model.blocks]


def fed(file: Path) -> dict[str, np.ndarray]:
    given = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_inputs()[0]
    shape = [2, *given.shape[1:]]
    return {"x": drawn(tuple(shape), 3, "int64" if "int64" in given.type else "float32")}


@pytest.mark.parametrize("name", ["bert", *of_today(sorted(FILES.keys() - {"bert"}), 2)])
def test_blocks_compute_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    file, (lines, counts) = GRAPHS / f"{name}.onnx", FILES[name]
    flat = read_model(ImportWish(file))
    made = with_blocks(flat)
    assert uses(made) == counts
    assert len(model_text(made).splitlines()) <= lines < 0.7 * len(model_text(flat).splitlines())
    assert model_text(with_blocks(read_model(ImportWish(file)))) == model_text(made)
    assert made.fetches == flat.fetches == ["out"]
    feeds = fed(file)
    (theirs,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feeds)
    (mine,) = computed(made, tmp_path / "made", feeds)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    (same,) = computed(flat, tmp_path / "flat", feeds)
    np.testing.assert_array_equal(mine, same)


@pytest.mark.parametrize("name", of_today(["resnet", "mixer_dynamo"], 1))
def test_a_model_with_blocks_learns_the_same(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = GRAPHS / f"{name}.onnx"
    flat = for_training(read_model(ImportWish(file)), "classes")
    made = with_blocks(flat)
    found = {}
    for kind, model in {"flat": flat, "blocks": made}.items():
        write(model, tmp_path / kind)
        np.savez(tmp_path / kind / "train.npz", **fed(file), label=np.array([[0], [2]]))
        config = str(tmp_path / kind / "config.yaml")
        options = ["--quiet", "-o", f"output.dir={tmp_path / kind}/runs", "-o", "train.epochs=2", "-o", "executor.devices=1"]
        assert run(["train", config, *options]) == 0, capfd.readouterr().err
        (folder,) = (tmp_path / kind / "runs").iterdir()
        found[kind] = load(folder / "checkpoints" / "step-2")[0]
    called = dict(line.split(" is called ") for line in made.details)
    before = read_safetensors(tmp_path / "flat" / "params.safetensors")
    assert sorted(made.arrays) == sorted(called.get(old, old) for old in flat.arrays)
    for old in flat.arrays:
        np.testing.assert_array_equal(found["flat"][old], found["blocks"][called.get(old, old)], err_msg=old)
    assert any(np.abs(found["flat"][old] - before[old]).max() > 1e-6 for old in flat.arrays)


def test_parameters_keep_names_that_say_where_they_are() -> None:
    made = with_blocks(read_model(ImportWish(GRAPHS / "mixer_dynamo.onnx")))
    assert made.layers["blocks_0"]["named"] == "blocks.0"
    assert "${named}.norm1.weight" in {layer.get("param_attr", {}).get("name") for layer in made.blocks["blocks"]["layers"].values()}
    assert {"blocks.0.norm1.weight", "blocks.3.mlp_channels.fc2.bias"} <= made.arrays.keys()


CHAIN = "(float[N, 4] x) => (float[N, 4] y, float[N, 4] b) {{ {} y = Relu(e) }}"


def chained(text: str, folder: Path) -> ImportedModel:
    return with_blocks(imported(graph(CHAIN.format(text)), folder))


def test_outputs_within_a_block_keep_their_names(tmp_path: Path) -> None:
    steps, last = [], "x"
    for name in "abcde":
        steps.append(f"{name}0 = Tanh({last}) {name}1 = Sigmoid({name}0) {name}2 = Exp({name}1) {name} = Mul({name}2, {last})")
        last = name
    made = chained(" ".join(steps), tmp_path)
    assert made.fetches == ["y", "b"]
    assert uses(made) == [5]
    assert made.layers["b"]["type"] == "assign"
    x = drawn((3, 4), 1)
    wanted, values = x, []
    for _ in range(5):
        wanted = np.exp(1 / (1 + np.exp(-np.tanh(wanted)))) * wanted
        values.append(wanted)
    y, b = computed(made, tmp_path / "made", {"x": x})
    np.testing.assert_allclose(b, values[1], rtol=1e-5)
    np.testing.assert_allclose(y, np.maximum(values[4], 0), rtol=1e-5)


def test_copies_within_a_part_are_parts_of_it(tmp_path: Path) -> None:
    steps, last = [], "x"
    for name in "abcd":
        steps.append(f"{name}0 = Tanh({last}) {name}1 = Identity({name}0) {name}2 = Exp({name}1) {name} = Identity({name}2)")
        last = name
    made = chained(f"{' '.join(steps)} e = Neg(d)", tmp_path)
    assert not any("written out" in note for note in made.notes)
    assert made.fetches == ["y", "b"]


def test_batch_norms_are_in_blocks_with_their_statistics(tmp_path: Path) -> None:
    steps, held, last = [], {}, "x"
    for i in range(4):
        held |= {f"bn{i}.{kind}": drawn((4,), 10 * i + k) ** 2 + 0.5 for k, kind in enumerate(("scale", "bias", "mean", "var"))}
        given = ", ".join(f"bn{i}_{kind}" for kind in ("scale", "bias", "mean", "var"))
        steps.append(f"n{i} = BatchNormalization({last}, {given}) t{i} = Tanh(n{i}) s{i} = Add(t{i}, {last})")
        last = f"s{i}"
    model = graph(f"(float[N, 4] x) => (float[N, 4] y) {{ {' '.join(steps)} y = Relu({last}) }}", **{
        name.replace(".", "_"): value for name, value in held.items()
    })
    for node in model.graph.node:
        node.input[:] = [name.replace("_", ".") if name.startswith("bn") else name for name in node.input]
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.replace("_", ".")
    flat = imported(model, tmp_path)
    made = with_blocks(flat)
    assert uses(made) == [4]
    assert sorted(made.arrays) == sorted(held)
    feeds = {"x": drawn((3, 4), 77)}
    np.testing.assert_array_equal(computed(made, tmp_path / "made", feeds)[0], computed(flat, tmp_path / "flat", feeds)[0])


def test_parts_that_read_each_other_otherwise_are_no_repetition(tmp_path: Path) -> None:
    steps, last = [], "x"
    for i, name in enumerate("abcde"):
        other = (last, f"{name}0", f"{name}1", "x", f"{name}2")[i]
        steps.append(f"{name}0 = Tanh({last}) {name}1 = Sigmoid({name}0) {name}2 = Exp({name}1) {name} = Mul({name}2, {other})")
        last = name
    made = chained(" ".join(steps), tmp_path)
    assert all(len(block["layers"]) < 4 for block in made.blocks.values())


def test_flat_writes_every_layer_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(GRAPHS / "mixer.onnx")
    assert run(["import", file, "-o", str(tmp_path / "flat"), "--flat"]) == 0
    assert run(["import", file, "-o", str(tmp_path / "blocks")]) == 0
    assert "blocks:" not in (tmp_path / "flat" / "model.yaml").read_text()
    assert "blocks:" in (tmp_path / "blocks" / "model.yaml").read_text()
    assert run(["check", str(tmp_path / "blocks" / "model.yaml")]) == 0, capfd.readouterr().err


def test_a_layer_of_an_argument_of_the_model_is_in_no_block(tmp_path: Path) -> None:
    model = read_model(ImportWish(GRAPHS / "mixer.onnx"))
    first = next(name for name, layer in model.layers.items() if layer["type"] == "layer_norm")
    layers = {name: {**layer, "begin_norm_axis": "${axis}"} if name == first else layer for name, layer in model.layers.items()}
    made = with_blocks(replace(model, layers=layers, args={"axis": 2}))
    assert made.blocks
    assert made.layers[first]["begin_norm_axis"] == "${axis}"


def test_a_long_model_is_searched_in_bounded_time() -> None:
    types = ["relu", "tanh", "sigmoid", "exp", "swish", "gelu"]
    rng, layers = np.random.default_rng(0), {}
    for i in range(20_000):
        layers[f"l{i}"] = {"type": types[rng.integers(6)], "x": f"l{i - 1}" if i else "x"}
    found = repeats(taken_apart(layers, {"x": {}}))
    places = [i for repeat in found for start in repeat.starts for i in range(start, start + repeat.length)]
    assert len(places) == len(set(places))
    for repeat in found:
        parts = {tuple(layers[f"l{i}"]["type"] for i in range(start, start + repeat.length)) for start in repeat.starts}
        assert len(parts) == 1
