"""Batch norms are folded into the convolutions before them, where these are read by nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pe_cli.cli.main import run
from pe_cli.session.importing.batch_norm import with_folded_batch_norms
from pe_cli.session.importing.repeats.fold import with_blocks
from tests.session.importing.test_onnx import computed, drawn, graph, imported

NORM = "BatchNormalization<epsilon=0.01>"
WHOLE = f"c = Conv(x, w, b) n = {NORM}(c, s, t, m, v) r = Relu(n) d = Conv<group=3>(r, u) y = {NORM}(d, s2, t2, m2, v2)"
#: Text of a graph -> how many of two batch norms are folded.
GRAPHS = [
    pytest.param(WHOLE, 2, id="with a bias and without, and of channels by themselves"),
    pytest.param(WHOLE.replace("Relu(n)", "Add(n, c)"), 1, id="what else reads the convolution keeps it"),
    pytest.param(WHOLE.replace("d = Conv<group=3>(r, u)", "d = Tanh(r)"), 1, id="behind no convolution"),
    pytest.param(WHOLE.replace("(d, s2, t2", "(d, s, t2"), 0, id="values that both have are changed for neither"),
]  # fmt: skip


def model(text: str) -> onnx.ModelProto:
    values = {"w": drawn((3, 2, 3, 3), 1), "b": drawn((3,), 2), "u": drawn((3, 1, 1, 1), 3)}
    for k, end in enumerate(("", "2")):
        values |= {f"{name}{end}": drawn((3,), 10 * k + i) for i, name in enumerate("stm")} | {f"v{end}": drawn((3,), 90 + k) ** 2 + 0.5}
    used = {name: value for name, value in values.items() if f"{name}," in text or f"{name})" in text}
    return graph(f"(float[N, 2, 6, 6] x) => (float[N, 3, 4, 4] y) {{ {text} }}", **used)


@pytest.mark.parametrize(("text", "count"), GRAPHS)
def test_the_same_is_computed_with_fewer_layers(text: str, count: int, tmp_path: Path) -> None:
    whole = model(text)
    flat = imported(whole, tmp_path)
    made = with_blocks(with_folded_batch_norms(flat))
    assert made.notes[-1].startswith(f"{count} of 2 batch norms")
    assert sum(layer["type"] == "batch_norm" for layer in made.layers.values()) == 2 - count
    assert len(made.layers) == len(flat.layers) - count
    feeds = {"x": drawn((2, 2, 6, 6), 5)}
    (theirs,) = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    (mine,) = computed(made, tmp_path / "made", feeds)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_command_folds_when_it_is_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(WHOLE), tmp_path / "m.onnx")
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "a"), "--fold-batch-norm"]) == 0
    assert "2 of 2 batch norms are folded" in capfd.readouterr().out
    assert "batch_norm" not in (tmp_path / "a" / "model.yaml").read_text()
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "b")]) == 0
    assert "batch_norm" in (tmp_path / "b" / "model.yaml").read_text()


@pytest.mark.parametrize("name", ["resnet", "efficientnet_torchvision", "mobilenet_v2", "mobilenet_v3_timm"])
def test_batch_norms_of_a_folder_are_folded(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parent / "folders" / name
    assert run(["import", str(folder), "-o", str(tmp_path), "--fold-batch-norm"]) == 0, capfd.readouterr().err
    said, made = capfd.readouterr().out, (tmp_path / "model.yaml").read_text()
    count = int(said.partition(" batch norms are folded")[0].rpartition(" ")[2])
    assert f"{count} of {count} batch norms" in said
    assert "batch_norm" not in made
    assert not (tmp_path / "tensors.json").exists()
    expected = dict(np.load(folder / "expected.npz"))
    np.savez(tmp_path / "input.npz", **{key: value for key, value in expected.items() if key not in {"outputs", "loss"}})
    out, config = tmp_path / "out.npz", str(tmp_path / "config.yaml")
    options = ["--checkpoint", str(tmp_path / "params.safetensors"), "--fetch", "logits", "--out", str(out)]
    assert run(["predict", config, *options]) == 0, capfd.readouterr().err
    np.testing.assert_allclose(np.load(out)["logits"], expected["outputs"], rtol=1e-5, atol=1e-5)
