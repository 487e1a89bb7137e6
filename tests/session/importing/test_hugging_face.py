"""Folders as transformers writes them: outputs and a step of training are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pe_cli.cli.main import run
from pe_cli.io.checkpoint import load
from pe_cli.io.tensors import read_safetensors
from pe_cli.session.importing.define import ImportWish
from pe_cli.session.importing.hugging_face.read import read
from pe_cli.session.importing.write import write
from tests.rotation import of_today

#: What transformers has written; see `make_folders.py`.
FOLDERS = Path(__file__).parent / "folders"
NAMES = sorted(folder.name for folder in FOLDERS.iterdir())
#: Those that are tried in every run.
ALWAYS = ["bert", "gpt2"]
CONFIG = """\
model: {file: model.yaml, args: ARGS}
data:
  train: {reader: npz, file: data.npz}
  predict: {reader: npz, file: data.npz}
feeds: FEEDS
TRAINexecutor: {devices: 1, seed: 1}
output: {dir: runs, checkpoint: {every: 1 steps}}
"""
TRAIN = """\
train:
  loss: loss
  steps: 1
  batch_size: 16
  optimizer: {type: SGD, learning_rate: 0.1}
  init: {from: params.safetensors}
fetches: {loss: {every: 1 steps}}
"""


def prepared(folder: Path, into: Path) -> dict[str, np.ndarray]:
    """Import a folder, write a config for it, and return what is expected."""
    write(read(ImportWish(folder)), into)
    expected = dict(np.load(folder / "expected.npz"))
    feeds = {name: value for name, value in expected.items() if name not in {"outputs", "loss"}}
    np.savez(into / "data.npz", **feeds)
    length = next((value.shape[1] for name, value in feeds.items() if name == "input_ids"), None)
    taken = "{" + ", ".join(f"{name}: {name}" for name in feeds) + "}"
    config = CONFIG.replace("TRAIN", TRAIN if "loss" in expected else "").replace("FEEDS", taken)
    (into / "run.yaml").write_text(config.replace("ARGS", "{}" if length is None else f"{{length: {length}}}"))
    return expected


@pytest.mark.parametrize("name", of_today([name for name in NAMES if (FOLDERS / name / "greedy.json").exists()], 3))
def test_a_decoder_goes_on_as_in_transformers(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(read(ImportWish(FOLDERS / name)), tmp_path)
    told = json.loads((FOLDERS / name / "greedy.json").read_text())
    options = ["--checkpoint", str(tmp_path / "params.safetensors"), "--temperature", "0", "--tokens", str(len(told["tokens"]))]
    assert run(["generate", str(tmp_path / "train.yaml"), *options, "--prompt", told["prompt"]]) == 0, capfd.readouterr().err
    words = Tokenizer.from_file(str(FOLDERS / name / "tokenizer.json"))
    added = capfd.readouterr().out.strip().removeprefix(told["prompt"])
    assert added.replace(" ", "").replace("##", "") == "".join(words.id_to_token(token).removeprefix("##") for token in told["tokens"])


@pytest.mark.parametrize("name", [*ALWAYS, *of_today([name for name in NAMES if name not in ALWAYS], 3)])
def test_answers_and_a_step_are_those_of_transformers(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = prepared(FOLDERS / name, tmp_path)
    out = tmp_path / "out.npz"
    fetch = "logits" if "loss" in expected else "embedding"
    config = str(tmp_path / "run.yaml")
    code = run(["predict", config, "--checkpoint", str(tmp_path / "params.safetensors"), "--fetch", fetch, "--out", str(out)])
    assert code == 0, capfd.readouterr().err
    found = np.load(out)[fetch]
    counts = expected["labels"] != -100 if "labels" in expected else ...  # padding has other positions in RoBERTa, which count for nothing
    np.testing.assert_allclose(found[counts], expected["outputs"].reshape(found.shape)[counts], atol=1e-5, rtol=1e-5)
    if "loss" not in expected:
        return

    assert run(["train", config, "--quiet", "-o", f"output.dir={tmp_path / 'runs'}"]) == 0, capfd.readouterr().err
    (folder,) = (tmp_path / "runs").iterdir()
    trained = load(folder / "checkpoints" / "step-1")[0]
    (there := tmp_path / "there").mkdir()
    (there / "config.json").write_bytes((FOLDERS / name / "config.json").read_bytes())
    (there / "model.safetensors").write_bytes((FOLDERS / name / "after.safetensors").read_bytes())
    wanted, before = read(ImportWish(there)).arrays, read_safetensors(tmp_path / "params.safetensors")
    for parameter, value in wanted.items():
        if parameter.endswith(("bn.w_2", "normalization.w_2")):
            continue  # a running variance, which PyTorch takes over one less than the number of values
        np.testing.assert_allclose(trained[parameter], value, atol=1e-4, rtol=1e-4, err_msg=parameter)
    moved = sum(bool(np.abs(wanted[parameter] - before[parameter]).max() > 1e-5) for parameter in wanted)
    assert moved > 0.8 * len(wanted)
