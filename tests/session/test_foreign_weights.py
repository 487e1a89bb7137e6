"""train.init with files of other frameworks: a weight is taken as it lies there, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.io.tensors import read_safetensors, written_by
from pe_cli.io.weight_layouts import LAYOUTS, fitting, turned
from tests.needs import torch
from tests.session.conftest import Bench

MODEL = """\
name: net
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  square: {type: fc, input: x, size: 4, act: tanh}
  wide:   {type: fc, input: square, size: 6, act: relu}
  head:   {type: fc, input: wide, size: 1}
  error:  {type: square_error_cost, input: head, label: y}
  loss:   {type: mean, x: error}
fetches: [loss]
"""
IMAGES = """\
name: pictures
feeds:
  x: {shape: [2, 5, 5], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  conv:   {type: conv2d, input: x, num_filters: 2, filter_size: 2, padding: 0, act: relu}
  apart:  {type: conv2d, input: conv, num_filters: 2, filter_size: 3, padding: 1, groups: 2}
  up:     {type: conv2d_transpose, input: apart, num_filters: 2, filter_size: 2, stride: 2}
  head:   {type: fc, input: up, size: 1}
  error:  {type: square_error_cost, input: head, label: y}
  loss:   {type: mean, x: error}
fetches: [loss]
"""
PLAIN = ("-o", "fetches={}", "-o", "output.checkpoint={every: 1 steps, keep: 99}", "-o", "train.steps=1")
RENAME = {f"{name}.weight": f"{name}.w_0" for name in ("square", "wide", "head", "conv", "apart", "up")} | {
    f"{name}.bias": f"{name}.b_0" for name in ("square", "wide", "head", "conv", "apart", "up")
}


@pytest.fixture
def net(bench: Bench) -> Bench:
    (bench.base / "model.yaml").write_text(MODEL)
    return bench


def taken(bench: Bench, file: Path, *more: str, code: int = 0, **wishes: object) -> dict[str, np.ndarray]:
    """Return the first values of a training that begins with a file; nothing where it does not begin."""
    wish = json.dumps({"from": str(file), **wishes})
    into = bench.base / f"run-{len(list(bench.base.glob('run-*')))}"
    found = bench.run("train", bench.base / "run.yaml", "-o", f"output.dir={into}", "-o", f"train.init={wish}", *PLAIN, *more)
    assert found == code, bench.err
    if code:
        assert not into.exists()
        return {}
    (folder,) = into.iterdir()
    return checkpoint.load(folder / "checkpoints" / "step-0")[0]


def dense(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return weights as PyTorch keeps them: outputs, inputs."""
    sizes = {"square": (4, 4), "wide": (6, 4), "head": (1, 6)}
    return {
        **{f"{name}.weight": rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()},
        **{f"{name}.bias": rng.standard_normal(shape[0]).astype(np.float32) for name, shape in sizes.items()},
    }


def wishes_for(names) -> dict[str, str]:
    return {name: RENAME[name] for name in names}


def assert_turned(found: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> None:
    for name in ("square", "wide", "head"):
        np.testing.assert_array_equal(found[f"{name}.w_0"], weights[f"{name}.weight"].T)
        np.testing.assert_array_equal(found[f"{name}.b_0"], weights[f"{name}.bias"])


@pytest.mark.parametrize("said", ["by the user", "by the file"])
def test_matrices_of_pytorch_are_turned(net: Bench, rng: np.random.Generator, said: str) -> None:
    weights, file = dense(rng), net.base / "w.safetensors"
    save_file(weights, file, {"format": "pt"} if said == "by the file" else None)
    layout = {"layout": "torch"} if said == "by the user" else {}
    assert_turned(taken(net, file, rename=wishes_for(weights), **layout), weights)


def test_a_network_of_pytorch_answers_as_there(net: Bench) -> None:
    there = torch.nn.Sequential()
    for name, (out, into), act in (("square", (4, 4), torch.nn.Tanh()), ("wide", (6, 4), torch.nn.ReLU()), ("head", (1, 6), None)):
        there.add_module(name, torch.nn.Linear(into, out))
        if act is not None:
            there.add_module(f"{name}_act", act)
    save = pytest.importorskip("safetensors.torch").save_file
    save(there.state_dict(), net.base / "w.safetensors", {"format": "pt"})
    found = taken(net, net.base / "w.safetensors", rename=wishes_for(there.state_dict()))
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    here = np.tanh(x @ found["square.w_0"] + found["square.b_0"])
    here = np.maximum(here @ found["wide.w_0"] + found["wide.b_0"], 0) @ found["head.w_0"] + found["head.b_0"]
    np.testing.assert_allclose(here, there(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_square_matrix_of_unknown_origin_is_refused_with_both_readings(net: Bench, rng: np.random.Generator) -> None:
    weights = {"square.w_0": rng.standard_normal((4, 4)).astype(np.float32)}
    for file in (net.base / "w.safetensors", net.base / "w.npz"):
        save_file(weights, file) if file.suffix == ".safetensors" else np.savez(file, **weights)
        taken(net, file, only=["square.w_0"], code=ExitCode.DATA)
        assert "'square.w_0': [4, 4] may lie in 2 ways" in net.err
        assert "layout: paddle or layout: torch" in net.err
        for layout, right in (("paddle", weights["square.w_0"]), ("keras", weights["square.w_0"]), ("torch", weights["square.w_0"].T)):
            np.testing.assert_array_equal(taken(net, file, only=["square.w_0"], layout=layout)["square.w_0"], right)


def test_a_matrix_that_fits_only_turned_names_the_layout(net: Bench, rng: np.random.Generator) -> None:
    np.savez(net.base / "w.npz", **{"wide.w_0": rng.standard_normal((6, 4)).astype(np.float32)})
    taken(net, net.base / "w.npz", only=["wide.w_0"], strict=False, code=ExitCode.DATA)
    assert "'wide.w_0': [6, 4] lies as others keep it" in net.err
    assert "layout: torch" in net.err


def test_a_matrix_whose_shape_settles_it_needs_no_word(net: Bench, rng: np.random.Generator) -> None:
    value = rng.standard_normal((4, 6)).astype(np.float32)
    np.savez(net.base / "w.npz", **{"wide.w_0": value, "wide.b_0": value[0]})
    np.testing.assert_array_equal(taken(net, net.base / "w.npz", only=["wide.*"])["wide.w_0"], value)


def test_files_of_elsewhere_have_to_fit_and_runs_need_not(net: Bench, rng: np.random.Generator) -> None:
    value = rng.standard_normal((4, 6)).astype(np.float32)
    np.savez(net.base / "w.npz", **{"wide.w_0": value, "other": value})
    taken(net, net.base / "w.npz", code=ExitCode.DATA)
    assert "a file of elsewhere is to fit, and not in the file, as initialised: square.w_0" in net.err
    assert "in the file, not in the model: other" in net.err
    taken(net, net.base / "w.npz", strict=False)
    folder = net.train("first", "-o", "fetches={}")
    (net.base / "model.yaml").write_text(MODEL.replace("size: 6", "size: 7"))
    found = taken(net, folder)
    assert found["wide.w_0"].shape == (4, 7)
    assert "of another shape, as initialised: wide.w_0" in net.err


@pytest.fixture
def pictures(bench: Bench, rng: np.random.Generator) -> Bench:
    (bench.base / "model.yaml").write_text(IMAGES)
    data = {"x": rng.standard_normal((8, 2, 5, 5)), "y": rng.standard_normal((8, 1))}
    np.savez(bench.base / "data.npz", **{name: value.astype(np.float32) for name, value in data.items()})
    return bench


def filters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"conv.w_0": (2, 2, 2, 2), "apart.w_0": (2, 1, 3, 3), "up.w_0": (2, 2, 2, 2)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def kept(name: str, value: np.ndarray, layout: str) -> np.ndarray:
    """Return filters as a framework keeps them."""
    if layout in ("paddle", "torch"):
        return value
    if name == "up.w_0":
        return value.transpose(2, 3, 1, 0)  # height, width, outputs, inputs
    if name == "apart.w_0" and layout == "keras":
        return value.reshape(2, 1, 3, 3).transpose(2, 3, 0, 1)  # a layer of its own there
    return value.transpose(2, 3, 1, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_filters_of_every_framework(pictures: Bench, rng: np.random.Generator, layout: str) -> None:
    own = filters(rng)
    names = [name for name in own if layout != "flax" or name != "up.w_0"]
    save_file({name: np.ascontiguousarray(kept(name, own[name], layout)) for name in own}, pictures.base / "w.safetensors")
    found = taken(pictures, pictures.base / "w.safetensors", layout=layout, only=names)
    for name in names:
        np.testing.assert_array_equal(found[name], own[name], err_msg=name)
    if layout == "flax":
        taken(pictures, pictures.base / "w.safetensors", layout=layout, only=["up.w_0"], code=ExitCode.DATA)
        assert "of a layout that is not known to be the model's, as initialised: up.w_0" in pictures.err


def test_filters_of_unknown_origin_that_may_lie_in_several_ways_are_refused(pictures: Bench, rng: np.random.Generator) -> None:
    own = filters(rng)
    np.savez(pictures.base / "w.npz", **own)
    taken(pictures, pictures.base / "w.npz", only=["conv.w_0"], code=ExitCode.DATA)
    assert "may lie in 2 ways" in pictures.err


def onnx_file(path: Path, weights: dict[str, np.ndarray], how: str) -> None:
    """Write x @ W + b three times, with weights as `how` says."""
    from onnx import TensorProto, checker, helper, numpy_helper, save

    nodes, arrays, before = [], {}, "x"
    for name in ("square", "wide", "head"):
        weight, bias, out = weights[f"{name}.weight"], weights[f"{name}.bias"], f"{name}_out"
        arrays[f"{name}.bias"] = bias
        arrays[f"{name}.weight"] = np.ascontiguousarray(weight.T) if how in ("MatMul", "Gemm") else weight
        if how.startswith("Gemm"):
            nodes.append(helper.make_node("Gemm", [before, f"{name}.weight", f"{name}.bias"], [out], transB=int(how == "Gemm, transB")))
        else:
            factor = f"{name}.weight"
            if how == "Transpose":
                nodes.append(helper.make_node("Transpose", [factor], [f"{name}_t"], perm=[1, 0]))
                factor = f"{name}_t"
            nodes.append(helper.make_node("MatMul", [before, factor], [f"{name}_m"]))
            nodes.append(helper.make_node("Add", [f"{name}_m", f"{name}.bias"], [out]))
        before = out
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, [None, 1])], [numpy_helper.from_array(v, k) for k, v in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(model)
    save(model, path)


@pytest.mark.parametrize("how", ["MatMul", "Gemm", "Gemm, transB", "Transpose"])
def test_the_graph_of_an_onnx_file_says_how_a_matrix_lies(net: Bench, rng: np.random.Generator, how: str) -> None:
    weights = dense(rng)
    onnx_file(net.base / "m.onnx", weights, how)
    assert_turned(taken(net, net.base / "m.onnx", rename=wishes_for(weights)), weights)
    taken(net, net.base / "m.onnx", rename=wishes_for(weights), layout="torch", code=ExitCode.USAGE)
    assert "says itself how its weights lie" in net.err


def test_whole_numbers_with_scales_are_read_as_floats(net: Bench, rng: np.random.Generator) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    whole, scale = rng.integers(-100, 100, (4, 6)).astype(np.int8), np.array([0.5, 1, 2, 4, 8, 16], np.float32)
    arrays = {"wide.w_0": whole, "scale": scale, "zero": np.full(6, 3, np.int8)}
    nodes = [helper.make_node("DequantizeLinear", [*arrays], ["w"], axis=1), helper.make_node("MatMul", ["x", "w"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size]) for name, size in (("x", 4), ("y", 6))]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(v, k) for k, v in arrays.items()])
    save(helper.make_model(graph), net.base / "m.onnx")
    found = taken(net, net.base / "m.onnx", only=["wide.w_0"])
    np.testing.assert_array_equal(found["wide.w_0"], (whole.astype(np.float32) - 3) * scale)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_are_widened(tmp_path: Path, kind: str) -> None:
    bits = np.arange(256, dtype=np.uint8) if "8_" in kind else np.arange(1 << 16, dtype=np.uint16)
    wide = bits.view(getattr(np, kind, None) or getattr(ml_dtypes, kind)).astype(np.float32)
    code = {"float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}[kind]
    header = json.dumps({"w": {"dtype": code, "shape": [16, len(bits) // 16], "data_offsets": [0, bits.nbytes]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
    found = read_safetensors(tmp_path / "w.safetensors")["w"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.reshape(-1), wide)


def test_half_precision_of_an_npz_file(net: Bench, rng: np.random.Generator) -> None:
    value = rng.standard_normal((4, 6)).astype(np.float16)
    np.savez(net.base / "w.npz", **{"wide.w_0": value})
    np.testing.assert_array_equal(taken(net, net.base / "w.npz", only=["wide.w_0"])["wide.w_0"], value.astype(np.float32))


def test_an_index_of_several_files(net: Bench, rng: np.random.Generator) -> None:
    weights, index = dense(rng), net.base / "model.safetensors.index.json"
    places = {name: f"model-0000{1 + ('head' in name)}-of-00002.safetensors" for name in weights}
    for file in set(places.values()):
        save_file({n: v for n, v in weights.items() if places[n] == file}, net.base / file, {"format": "pt"})
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    assert_turned(taken(net, index, rename=wishes_for(weights)), weights)
    for wrong, said in (
        ({"weight_map": {"a": "../w.safetensors"}}, "is no .safetensors file beside it"),
        ({"weight_map": {"absent": places["head.bias"]}}, "'absent' is not in model-00002-of-00002.safetensors"),
        ({"weight_map": [1]}, "no weight_map from names to files"),
        ({"weight_map": {"a": 3}}, "no weight_map from names to files"),
    ):
        index.write_text(json.dumps(wrong))
        taken(net, index, code=ExitCode.DATA)
        assert said in net.err
    index.write_text("{")
    taken(net, index, code=ExitCode.DATA)
    assert "not a whole index" in net.err


@pytest.mark.parametrize("name", ["w.pth", "pytorch_model.bin", "w.pdparams"])
def test_files_that_only_code_can_read_are_refused_with_the_command_that_converts_them(net: Bench, name: str) -> None:
    (net.base / name).write_bytes(b"\x80\x04K\x01.")
    taken(net, net.base / name, code=ExitCode.DATA)
    assert "is read by running what it says" in net.err
    assert "torch.load(sys.argv[1], weights_only=True)" in net.err


def test_what_pe_writes_says_so(net: Bench) -> None:
    folder = net.train("first", "-o", "fetches={}")
    file = max((folder / "checkpoints").glob("step-*/params.safetensors"))
    assert written_by(file) == "pe"
    copy = net.base / "copy.safetensors"
    copy.write_bytes(file.read_bytes())
    np.testing.assert_array_equal(taken(net, copy)["square.w_0"], read_safetensors(file)["square.w_0"])


def test_no_layout_turns_a_vector_and_a_tied_table_keeps_one_order() -> None:
    vector, table = np.arange(4.0), np.arange(6.0).reshape(2, 3)
    assert fitting(vector, {}, (4,)) == ["paddle"]
    tied = {"table": "vd", "matrix": "oi"}
    np.testing.assert_array_equal(turned(table, LAYOUTS["torch"], tied, (2, 3)), table)
    assert turned(table, LAYOUTS["keras"], tied, (2, 3)) is None




def test_check_tells_what_is_taken_and_refuses_what_training_would(net: Bench, rng: np.random.Generator) -> None:
    file = net.base / "w.npz"
    check = ["check", net.base / "run.yaml", "-o", "fetches={}", "-o", f"train.init={{from: {file}, only: ['wide.*', 'square.w_0']}}"]
    assert net.run(*check) == 0, net.err
    assert f"note: train.init: no such file or folder yet: {file}" in net.out
    np.savez(file, **{"wide.w_0": rng.standard_normal((4, 6)).astype(np.float32)})
    assert net.run(*check) == ExitCode.DATA
    assert "not in the file, as initialised: square.w_0, wide.b_0" in net.err
    assert net.run(*check, "-o", "train.init.strict=false") == 0, net.err
    assert f"note: start values: 1 of 3 from {file}: wide.w_0" in net.out
    np.savez(file, **{"square.w_0": rng.standard_normal((4, 4)).astype(np.float32)})
    assert net.run(*check, "-o", "train.init.strict=false") == ExitCode.DATA
    assert "may lie in 2 ways" in net.err
