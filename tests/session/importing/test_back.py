"""Weights of an imported folder go back: the same names, shapes and values; networks that timm and torchvision name are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run
from pe_cli.core.errors import PeError
from pe_cli.io.tensors import read_safetensors, write_safetensors
from pe_cli.session.importing.define import ImportWish
from pe_cli.session.importing.hugging_face.family import architectures
from pe_cli.session.importing.hugging_face.read import _of_architecture, read
from pe_cli.session.importing.write import write
from tests.rotation import of_today
from tests.session.importing.test_hugging_face import CONFIG, FOLDERS, NAMES

#: What a module of transformers has beside what is in the folder: it is tied, and saved once.
TIED = {
    "gpt2": {"lm_head.weight"}, "qwen2": {"lm_head.weight"},
    "bert_masked": {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    "roberta_masked": {"lm_head.decoder.weight", "lm_head.decoder.bias"}, "distilbert_masked": {"vocab_projector.weight"},
}  # fmt: skip
#: Of whose folders a part is left out, as the import says.
PARTS = {"whisper_encoder", "bert_embedding"}


def exported(folder: Path, into: Path, *options: str) -> tuple[dict[str, np.ndarray], int]:
    write(read(ImportWish(folder)), into)
    expected = np.load(folder / "expected.npz")
    feeds = {name: expected[name] for name in expected.files if name not in {"outputs", "loss"}}
    np.savez(into / "data.npz", **feeds)
    length = next((value.shape[1] for name, value in feeds.items() if name == "input_ids"), None)
    text = CONFIG.replace("TRAIN", "").replace("FEEDS", "{" + ", ".join(f"{name}: {name}" for name in feeds) + "}")
    (into / "run.yaml").write_text(text.replace("ARGS", "{}" if length is None else f"{{length: {length}}}"))
    out, values = into / "back.safetensors", ["--checkpoint", str(into / "params.safetensors")]
    code = run(["export", str(into / "run.yaml"), *values, "--safetensors", str(out), "--layout", "torch", *options])
    return read_safetensors(out) if code == 0 else {}, code


@pytest.mark.parametrize("name", of_today([name for name in NAMES if name not in PARTS], 4))
def test_weights_go_back_as_they_came(name: str, tmp_path: Path) -> None:
    there = read_safetensors(FOLDERS / name / "model.safetensors")
    back, code = exported(FOLDERS / name, tmp_path / "made", "--names", str(tmp_path / "made" / "tensors.json"))
    assert code == 0
    assert back.keys() == there.keys() | TIED.get(name, set())
    for key, value in there.items():
        assert back[key].shape == value.shape, key
        np.testing.assert_array_equal(back[key], value, err_msg=key)


def test_names_of_another_model_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tensors.json"
    file.write_text(json.dumps({"other.w_0": {"names": ["a"], "shape": [1], "layout": "torch"}}))
    assert exported(FOLDERS / "bert", tmp_path / "made", "--names", str(file))[1] == 3
    assert "does not name" in capfd.readouterr().err
    file.write_text('{"x": {"names": "a", "shape": [], "layout": ""}}')
    assert exported(FOLDERS / "bert", tmp_path / "again", "--names", str(file))[1] == 3
    assert "does not name tensors" in capfd.readouterr().err


def test_names_without_a_layout_of_pytorch_are_a_mistake(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["export", "configs/iris.yaml", "--safetensors", str(tmp_path / "a"), "--names", str(tmp_path / "b")])
    assert code == 2
    assert "--names is for" in capfd.readouterr().err


#: Network -> values of its parameters, without running statistics, as timm and torchvision say; those in both are the same.
COUNTS = {
    "resnet18": 11_689_512, "resnet50": 25_557_032, "efficientnet_b0": 5_288_548, "efficientnet_b1": 7_794_184,
    "efficientnet_b2": 9_109_994, "efficientnet_b3": 12_233_232, "efficientnet_b4": 19_341_616, "mobilenet_v2": 3_504_872,
    "efficientnet_b5": 30_389_784, "efficientnet_b6": 43_040_704, "efficientnet_b7": 66_347_960, "tf_efficientnet_b0": 5_288_548,
    "tf_efficientnet_b5": 30_389_784,
    "mobilenetv2_100": 3_504_872, "convnext_tiny": 28_589_128, "convnext_small": 50_223_688,
}  # fmt: skip


@pytest.mark.parametrize("name", of_today(sorted(COUNTS), 3))
def test_a_network_that_is_named_has_as_many_values(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architecture": f"{name}.in1k", "num_classes": 1000}))
    write_safetensors(tmp_path / "model.safetensors", {"nothing": np.zeros(1, np.float32)})
    with pytest.raises(PeError) as found:
        read(ImportWish(tmp_path))
    assert "unknown: nothing" in found.value.message
    config = {**architectures()[name], "num_labels": 1000}
    config.pop("torchvision", None)
    assert _values(config, tmp_path) == COUNTS[name]


@pytest.mark.parametrize(("tensor", "epsilon"), [("features.0.0.weight", 1e-3), ("conv_stem.weight", 1e-5)])
def test_names_of_tensors_tell_timm_from_torchvision(tensor: str, epsilon: float, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {tensor: np.zeros(1, np.float32)})
    found = _of_architecture({"architecture": "efficientnet_b6"}, tmp_path)
    assert found["batch_norm_eps"] == epsilon
    assert "torchvision" not in found


def test_pictures_of_odd_sides_have_no_padding_as_that_of_tensorflow(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="image_size is 225, and with same_padding only even sides are known"):
        _values({**architectures()["tf_efficientnet_b0"], "image_size": 225}, tmp_path)


def _values(config: dict[str, object], folder: Path) -> int:
    from pe_cli.session.importing.hugging_face.config_values import ConfigValues
    from pe_cli.session.importing.hugging_face.read import _family, _model, _parameters

    family = _family(config, folder)
    values = {**ConfigValues(family, config, folder).all(None, None), "mean_pooling": False}
    types, _ = _parameters(_model(family, family.heads["classes"], values, folder), folder)
    statistics = {name for name in types if name.rpartition(".")[2] in {"w_1", "w_2"}}
    return sum(int(np.prod(kind.shape)) for name, kind in types.items() if name not in statistics)


def test_a_network_of_no_known_name_says_which_there_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architecture": "resnet51"}')
    with pytest.raises(PeError, match="no such network is declared") as found:
        read(ImportWish(tmp_path))
    assert "resnet50" in str(found.value.hint)
