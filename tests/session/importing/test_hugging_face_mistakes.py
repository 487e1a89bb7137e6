"""Folders that are damaged, hostile or of no family that is declared: an exit code and a sentence, never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli.cli.main import run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.tensors import read_safetensors
from pe_cli.session.importing.define import ImportWish
from pe_cli.session.importing.hugging_face.family import families
from pe_cli.session.importing.hugging_face.read import read

FOLDERS = Path(__file__).parent / "folders"
WORDS = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of BERT that can be damaged."""
    return shutil.copytree(FOLDERS / "bert", tmp_path / "bert")


def refused(folder: Path, **wishes: Any) -> PeError:
    with pytest.raises(PeError) as caught:
        read(ImportWish(folder, **wishes))
    assert caught.value.hint
    return caught.value


def with_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def with_tensors(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_an_unknown_family_is_named_with_those_that_are_known(folder: Path) -> None:
    with_config(folder, model_type="retrobert")
    error = refused(folder)
    assert error.code == ExitCode.DATA
    assert "no family 'retrobert'" in error.message
    with_config(folder, model_type="unheard of")
    for known in (kind for family in families() for kind in family.model_types):
        assert known in str(refused(folder).hint)


def test_every_tensor_that_does_not_fit_is_named(folder: Path) -> None:
    def change(tensors: dict[str, np.ndarray]) -> None:
        del tensors[QUERY]
        tensors["bert.extra.weight"] = np.zeros(3, np.float32)
        tensors[WORDS] = tensors[WORDS][:-1].copy()
        tensors["classifier.bias"] = np.zeros(3, np.int64)

    with_tensors(folder, change)
    message = refused(folder).message
    assert f"missing: {QUERY}; unknown" in message
    assert "unknown: bert.extra.weight" in message
    assert f"of another shape: {WORDS} is [63, 8] there and makes [64, 8] here" in message
    assert "no floats: classifier.bias is int64" in message


def test_tensors_that_the_model_has_once_must_be_the_same(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "gpt2", tmp_path / "gpt2")
    with_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].copy()}))
    assert "tied: lm_head.weight and transformer.wte.weight are wte.w_0" in read(ImportWish(folder)).notes
    with_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"] + 1}))
    assert "tied and different: " in refused(folder).message


def test_a_head_that_is_not_tied_has_a_matrix_of_its_own(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "gpt2", tmp_path / "gpt2")
    with_config(folder, tie_word_embeddings=False)
    assert "missing: lm_head.weight" in refused(folder).message
    with_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"] + 1}))
    found = read(ImportWish(folder)).arrays
    np.testing.assert_array_equal(found["logits.w_0"], found["wte.w_0"].T + 1)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("mobilenet_v1", {"depth_multiplier": 1e30}, "depth_multiplier makes a size that is 3"),
        ("mobilenet_v2", {"expand_ratio": 1e9}, "expand_ratio makes a size that is "),
        ("mobilenet_v2", {"depth_divisible_by": 0}, "depth_divisible_by is 0"),
        ("mobilenet_v2", {"output_stride": 8}, "output_stride is 8"),
        ("convnext", {"hidden_sizes": [4, 4, 6]}, "hidden_sizes has 3 items"),
        ("convnext", {"layer_scale_init_value": 0.0}, "unknown: convnext.encoder.stages.0.layers.0.layer_scale_parameter"),
        ("whisper", {"max_source_positions": 7}, "encoder.embed_positions.weight is [6, 8] there and makes [7, 8] here"),
        ("whisper", {"use_weighted_layer_sum": True}, "use_weighted_layer_sum is true"),
    ],
)
def test_values_that_other_families_cannot_have(name: str, values: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / name, tmp_path / name)
    with_config(folder, **values)
    error = refused(folder)
    assert error.code == ExitCode.DATA
    assert said in error.message


def test_both_last_layers_of_deit_are_new_with_other_classes(tmp_path: Path) -> None:
    found = read(ImportWish(FOLDERS / "deit_teacher", classes=5))
    assert not any(name.startswith(("of_labels", "of_teacher")) for name in found.arrays)
    assert any("of_labels.w_0" in note and "of_teacher.b_0" in note for note in found.notes if "begins at random" in note)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": 10**30}, "hidden_size is 1000"),
        ({"hidden_size": True}, "hidden_size is true"),
        ({"hidden_size": "8"}, 'hidden_size is "8"'),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 10_000}, "num_hidden_layers is 10000"),
        ({"num_attention_heads": 3}, "its sizes make no model"),
        ({"hidden_act": "gulu"}, 'hidden_act is "gulu"'),
        ({"hidden_act": {}}, "hidden_act is {}"),
        ({"layer_norm_eps": [1]}, "layer_norm_eps is [1]"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob is 1.5"),
        ({"position_embedding_type": "relative_key"}, 'position_embedding_type is "relative_key"'),
        ({"model_type": ["bert"]}, 'model_type is ["bert"]'),
        ({"id2label": {}, "num_labels": 0}, "num_labels is 0"),
        ({"pad_token_id": -1}, "pad_token_id is -1"),
    ],
)
def test_values_that_no_model_has_are_refused(folder: Path, values: dict[str, Any], said: str) -> None:
    with_config(folder, **values)
    error = refused(folder)
    assert error.code == ExitCode.DATA
    assert said in error.message


def test_wishes_that_cannot_be_met_are_refused(folder: Path) -> None:
    assert refused(folder, head="clases").code == ExitCode.USAGE
    assert "12 positions" in refused(folder, length=13).message


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"\xff\xfe", b"1" * 5000,
     b"[" + b"1," * 300_000 + b"1]", b" " * (1 << 22) + b"{}"],
    ids=["empty", "list", "cut", "nan", "deep", "deeper", "no text", "digits", "many", "large"],
)  # fmt: skip
def test_a_config_that_is_none_is_refused(folder: Path, text: bytes) -> None:
    (folder / "config.json").write_bytes(text)
    assert refused(folder).code == ExitCode.DATA


@pytest.mark.parametrize("size", [0, 7, 8, 1 << 40, (1 << 64) - 1])
def test_a_header_that_lies_about_its_size_is_refused(folder: Path, size: int) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(size.to_bytes(8, "little") + data[8:])
    assert refused(folder).code == ExitCode.DATA


def test_a_header_that_lies_about_offsets_is_refused(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for offsets, shape in (([0, 1 << 50], [64, 8]), ([8, 0], [64, 8]), ([0, 2048], [1 << 40, 1 << 40])):
        header[WORDS] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        assert refused(folder).code == ExitCode.DATA


def test_other_files_of_weights_are_refused_with_what_reads_them(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in refused(folder).message
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "torch.load" in str(refused(folder).hint)


def test_several_files_and_narrow_floats_give_the_same(folder: Path, tmp_path: Path) -> None:
    whole = read(ImportWish(folder)).arrays
    tensors = {name: value.astype(np.float16) for name, value in load_file(folder / "model.safetensors").items()}
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for name, value in read(ImportWish(folder)).arrays.items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-3, atol=1e-3)


def test_the_command_writes_a_report_and_refuses_to_write_over_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    where = [str(FOLDERS / "bert_masked"), "-o", str(tmp_path / "out"), "--head", "classes", "--classes", "4"]
    assert run(["import", *where]) == 0
    assert "begins at random: pooler.w_0, pooler.b_0, logits.w_0, logits.b_0" in capfd.readouterr().out
    report = (tmp_path / "out" / "import.txt").read_text()
    assert "left out: cls.predictions.bias: of the head 'masked'" in report
    assert f"taken: {WORDS} -> word_embeddings.w_0 [64, 8]" in report
    assert "logits.w_0" not in read_safetensors(tmp_path / "out" / "params.safetensors")
    assert run(["import", *where]) == ExitCode.USAGE
    assert "--force" in capfd.readouterr().err


def test_options_of_one_kind_of_model_are_refused_for_another(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(folder), "-o", str(tmp_path / "out"), "--partial"]) == ExitCode.USAGE
    (tmp_path / "m.onnx").write_bytes(b"")
    assert run(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"), "--head", "classes"]) == ExitCode.USAGE
    assert "--head" in capfd.readouterr().err


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_end_in_an_error_or_a_model(folder: Path, seed: int) -> None:
    rng, codes = np.random.default_rng(seed), set()
    files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    for _ in range(20):
        for name, data in files.items():
            made = bytearray(data)
            for at in rng.integers(0, min(len(made), 4000), rng.integers(0, 4)):
                made[at] = rng.integers(0, 256)
            (folder / name).write_bytes(made[: rng.integers(0, len(made))] if rng.random() < 0.1 else made)
        try:
            read(ImportWish(folder))
        except PeError as error:
            codes.add(error.code)
    assert codes <= {ExitCode.DATA, ExitCode.USAGE}
