"""pe import: what it writes is a model like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from pe_cli.core.errors import ExitCode
from pe_cli.session.importing.define import ImportWish, read_model
from pe_cli.session.importing.write import model_text
from tests.cli.conftest import Pe

W, B, V = (np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in ((4, 3), (3,), (4, 4)))


def written(folder: Path, text: str) -> Path:
    """Write a model of ONNX's text form with the initializers w, b and v."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {text}')
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("w", W), ("b", B), ("v", V)) if n in read)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def test_what_is_exported_again_is_imported_as_the_same_graph(tmp_path: Path, pe: Pe) -> None:
    text = "(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) a = Relu(h) z = Tanh(a) y = Mul(z, z) }"
    assert pe("import", written(tmp_path, text), "-o", tmp_path / "a").code == 0
    first = read_model(ImportWish(tmp_path / "m.onnx"))
    values = tmp_path / "a" / "params.safetensors"
    said = pe("export", tmp_path / "a" / "config.yaml", "--checkpoint", values, "--raw", "--onnx", tmp_path / "a.onnx")
    assert said.code == 0, said.err
    again = read_model(ImportWish(tmp_path / "a.onnx"))
    assert model_text(again).splitlines()[2:] == model_text(first).splitlines()[2:]
    assert all((again.arrays[name] == first.arrays[name]).all() for name in first.arrays)


def test_the_command_writes_a_model_that_trains(tmp_path: Path, pe: Pe) -> None:
    layers = "h = MatMul(x, v) r = Relu(h) l = MatMul(r, w) a = Add(l, b) y = Softmax<axis=-1>(a)"
    written(tmp_path, f"(float[N, 4] x) => (float[N, 3] y) {{ {layers} }}")
    folder = tmp_path / "out"
    said = pe("import", tmp_path / "m.onnx", "-o", folder, "--task", "classes")
    assert said.code == 0, said.err
    assert pe("import", tmp_path / "m.onnx", "-o", folder).code == ExitCode.USAGE
    assert pe("import", tmp_path / "m.onnx", "-o", folder, "--task", "classes", "--force").code == 0
    rng = np.random.default_rng(1)
    np.savez(folder / "train.npz", x=rng.normal(size=(64, 4)).astype(np.float32), label=rng.integers(0, 2, (64, 1)))
    np.savez(folder / "input.npz", x=rng.normal(size=(8, 4)).astype(np.float32))
    fewer = ["-o", "model.args.classes=2", "-o", f"output.dir={tmp_path / 'runs'}"]
    said = pe("train", folder / "config.yaml", "--quiet", *fewer)
    assert said.code == 0, said.err
    (run,) = (tmp_path / "runs").iterdir()
    said = pe("predict", run, "--fetch", "y", "--split", "predict", "--out", tmp_path / "y.npz")
    assert said.code == 0, said.err
    for command in ("check", "summary"):
        assert pe(command, folder / "model.yaml").code == 0


