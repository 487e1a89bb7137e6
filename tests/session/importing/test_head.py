"""A network of elsewhere gets a last layer for the classes of a folder of pictures, and is trained, resumed, asked and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import numpy_helper, parser
from PIL import Image

from pe_cli.build.build import build
from pe_cli.cli.main import run
from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.checkpoint import load_arrays
from pe_cli.session.importing.define import ImportWish, read_model
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import write
from pe_cli.session.job import Job

GRAPH = """<ir_version: 8, opset_import: ["" : 17]> net (float[N, 3, 8, 8] input) => (float[N, 4] logits) {
  c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(input, conv_weight)
  b = BatchNormalization<epsilon = 0.00001>(c, bn_weight, bn_bias, bn_mean, bn_var)
  r = Relu(b) g = GlobalAveragePool(r) f = Flatten(g) d = Dropout(f, ratio)
  logits = Gemm<transB = 1>(d, fc_weight, fc_bias)
}"""


def _network() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    values = {"conv_weight": rng.normal(0, 0.3, (6, 3, 3, 3)), "fc_weight": rng.normal(0, 0.3, (4, 6)), "fc_bias": rng.normal(size=4)}
    values |= {"bn_weight": np.ones(6), "bn_bias": np.zeros(6), "bn_mean": rng.normal(0, 0.1, 6), "bn_var": rng.uniform(0.5, 2, 6)}
    model = parser.parse_model(GRAPH)
    model.graph.initializer.extend(numpy_helper.from_array(value.astype("float32"), name) for name, value in values.items())
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.2), "ratio"))
    return model


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with an imported network, pictures of three classes, and a config."""
    onnx.save(_network(), tmp_path / "net.onnx")
    write(for_training(read_model(ImportWish(tmp_path / "net.onnx")), "classes"), tmp_path / "net")
    rng = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 90, (8, 8, 3))
            pixels[..., channel] += 140
            Image.fromarray(pixels.astype("uint8")).save(tmp_path / "pictures" / name / f"{i}.png")
    _write(tmp_path)
    return tmp_path


def _write(folder: Path, **head: Any) -> Path:
    config = {
        "model": {"file": "net/model.yaml", "head": {"replace": "logits", "classes": "from data", **head}},
        "data": {
            "source": {"reader": "images", "folder": "pictures"}, "split": {"eval": 0.25, "stratify": "label", "seed": 1},
            "columns": {"image": {"type": "image", "size": [8, 8], "scale": "standard"}, "label": {"type": "category"}},
        },
        "feeds": {"input": "image", "label": "label"},
        "train": {
            "loss": "loss", "epochs": 2, "batch_size": 6, "init": {"from": "net/params.safetensors"},
            "optimizer": {"type": "Adam", "learning_rate": 0.01},
        },
        "executor": {"devices": 1, "seed": 1},
        "output": {"dir": "runs", "checkpoint": {"every": "1 epoch", "keep": 5}},
    }  # fmt: skip
    (folder / "own.yaml").write_text(yaml.safe_dump(config))
    return folder / "own.yaml"


def test_dropout_and_batch_norm_are_in_training_form(project: Path) -> None:
    layers = yaml.safe_load((project / "net/model.yaml").read_text())["layers"]
    assert layers["d"] == {"type": "dropout", "x": "f", "dropout_prob": 0.2, "dropout_implementation": "upscale_in_train"}
    job = Job.open(project / "own.yaml")
    trained = {op.type: op for op in job.program.top_ops}
    assert trained["dropout"].attrs["is_test"] is False
    assert trained["batch_norm"].attrs["is_test"] is False
    assert {op.attrs["is_test"] for op in job.built.eval.top_ops if op.type in ("dropout", "batch_norm")} == {True}


def test_all_but_the_head_is_taken(project: Path) -> None:
    job = Job.open(project / "own.yaml")
    notes: list[str] = []
    job.log_to(notes.append)
    job.initialise()
    own = load_arrays(project / "net/params.safetensors")
    assert job.values.get("fc_weight").shape == (6, 3)
    for name in own.keys() - {"fc_weight", "fc_bias"}:
        np.testing.assert_array_equal(job.values.get(name), own[name])
    assert any("begin anew" in note and "fc_bias, fc_weight" in note for note in notes)
    # As many classes as before: the values fit, and yet are not taken.
    job = Job.open(_write(project, classes=4))
    job.initialise()
    assert job.values.get("fc_weight").shape == own["fc_weight"].shape
    assert not np.array_equal(job.values.get("fc_weight"), own["fc_weight"])


def test_train_resume_predict_export(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert run(["train", "own.yaml", "--quiet", "-o", "output.name=whole"]) == 0
    assert run(["train", "own.yaml", "--quiet", "-o", "output.name=half", "-o", "train.epochs=1"]) == 0
    (whole,), (half,) = (list(Path("runs").glob(f"{name}-*")) for name in ("whole", "half"))
    assert yaml.safe_load((whole / "resolved.yaml").read_text())["model"]["head"] == {"replace": "logits", "classes": 3}
    assert run(["train", "--resume", str(half), "--quiet", "-o", "train.epochs=2"]) == 0
    ends = [load_arrays(folder / "checkpoints/step-6/params.safetensors") for folder in (whole, half)]
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)
    assert run(["export", str(whole), "--onnx", "mine.onnx", "--raw", "--fetch", "prob"]) == 0
    x = np.random.default_rng(1).normal(size=(5, 3, 8, 8)).astype("float32")
    (theirs,) = onnxruntime.InferenceSession("mine.onnx", providers=["CPUExecutionProvider"]).run(None, {"input": x})
    # By hand, from the values of the checkpoint.
    mine = _network()
    for tensor in mine.graph.initializer:
        if tensor.name != "ratio":
            value = ends[0][tensor.name]
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value.T if tensor.name == "fc_weight" else value), tensor.name))
    mine.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    (logits,) = onnxruntime.InferenceSession(mine.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"input": x})
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(theirs, shares / shares.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    assert run(["predict", str(whole), "pictures", "--out", "answers.csv"]) == 0
    answers = Path("answers.csv").read_text()
    assert len(answers.splitlines()) == 25
    assert "green" in answers


@pytest.mark.parametrize(
    ("head", "said"),
    [
        pytest.param({"replace": "logit"}, "no layer 'logit'", id="a layer that is not there"),
        pytest.param({"replace": "r"}, "no number of outputs", id="a layer without a width"),
        pytest.param({"classes": 0}, "classes", id="no classes"),
        pytest.param({"classes": "all"}, "classes", id="another word"),
        pytest.param({"classes": 2}, "2 classes apart", id="fewer classes than the data has"),
    ],
)
def test_a_wrong_head_is_said(head: dict[str, Any], said: str, project: Path) -> None:
    with pytest.raises(PeError, match=said) as error:
        Job.open(_write(project, **head)).data.loader("train", Job.open(project / "own.yaml").program, 4)
    assert error.value.code == ExitCode.USAGE
    assert error.value.each[0].hint


def test_what_is_shared_is_not_begun_anew(project: Path) -> None:
    path = project / "net/model.yaml"
    written = yaml.safe_load(path.read_text())
    written["layers"]["twin"] = {**written["layers"]["logits"], "input": "d"}
    path.write_text(yaml.safe_dump(written, sort_keys=False))
    with pytest.raises(PeError, match="'logits' shares 'fc_bias' with 'twin'"):
        Job.open(project / "own.yaml")


def test_two_numbers_of_classes_contradict_each_other(project: Path) -> None:
    with pytest.raises(PeError, match="both say how many classes"):
        Job.open(project / "own.yaml", ["model.args.classes=7"])


def test_without_the_data_nothing_is_built(project: Path) -> None:
    found = load_run(project / "own.yaml")
    with pytest.raises(PeError, match="not known without the data"):
        build(found.model, found)


def test_classes_of_plain_arrays_are_counted(project: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(project / "rows.npz", image=rng.normal(size=(9, 3, 8, 8)).astype("float32"), label=np.arange(9)[:, None] % 5)
    data = {"train": {"reader": "npz", "file": "rows.npz"}}
    written = yaml.safe_load((project / "own.yaml").read_text())
    (project / "own.yaml").write_text(yaml.safe_dump({**written, "data": data}))
    assert Job.open(project / "own.yaml").built.eval.var("logits").shape == (-1, 5)
