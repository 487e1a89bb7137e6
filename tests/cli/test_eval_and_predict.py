"""pe eval and pe predict: a run folder is all they need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io.checkpoint import load
from tests.cli.conftest import Pe


def expected(config: Path, folder: Path) -> np.ndarray:
    data, values = np.load(config.parent / "data.npz"), load(folder)[0]
    return data["x"][:16] @ values["guess.w_0"] + values["guess.b_0"]


def test_eval_gives_the_mean_over_all_samples(pe: Pe, config: Path, trained: Path) -> None:
    said = pe("eval", trained, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    error = (expected(config, trained) - np.load(config.parent / "data.npz")["y"][:16]) ** 2
    assert found["loss"] == pytest.approx(float(error.mean()), rel=1e-4)
    assert found["samples"] == 16


def test_a_run_folder_needs_neither_config_nor_model(pe: Pe, config: Path, trained: Path, tmp_path: Path) -> None:
    before = pe("eval", trained, "--json").out
    moved = shutil.move(trained, tmp_path / "elsewhere")
    config.unlink()
    (tmp_path / "model.yaml").unlink()
    after = pe("eval", moved, "--json").out
    assert json.loads(after)["loss"] == json.loads(before)["loss"]


@pytest.mark.parametrize("part", ["checkpoints", "checkpoints/step-3", "checkpoints/last"])
def test_a_checkpoint_in_a_run_may_be_named(pe: Pe, trained: Path, part: str) -> None:
    said = pe("eval", trained / part)
    assert said.code == 0, said.err
    assert ("step-3" if part.endswith("3") else "step-6") in said.out


def test_where_the_best_checkpoint_is_another_one_is_said(pe: Pe, config: Path, trained: Path) -> None:
    assert "note:" not in pe("eval", trained).err, "the run keeps no best one"
    options = ("-o", "output.name=kept", "-o", "output.checkpoint={every: 1 epoch, best: {by: eval/loss, mode: max}}")
    made = pe("train", config, "--quiet", *options)
    assert made.code == 0, made.err
    run = next(folder for folder in trained.parent.iterdir() if folder.name.startswith("kept-"))
    told = "note: step-6 is the newest checkpoint; the best by eval/loss, step-3, is "
    for command in (("eval", run), ("predict", run, "--fetch", "guess", "--out", trained.parent / "o.npz")):
        said = pe(*command)
        assert said.code == 0, said.err
        assert f"{told}{run / 'checkpoints/best'}" in said.err
    for named in ("checkpoints/best", "checkpoints/last", "checkpoints/step-6"):
        assert "note:" not in pe("eval", run / named).err


def test_a_run_may_mean_its_best_checkpoint(pe: Pe, config: Path, trained: Path) -> None:
    options = ("-o", "output.name=kept", "-o", "output.checkpoint={every: 1 epoch, best: {by: eval/loss, mode: max, use: true}}")
    assert pe("train", config, "--quiet", *options).code == 0
    run = next(folder for folder in trained.parent.iterdir() if folder.name.startswith("kept-"))
    taken = {named: json.loads(pe("eval", run / named, "--json").out)["loss"] for named in ("", "checkpoints/best", "checkpoints/last")}
    assert taken[""] == taken["checkpoints/best"] != taken["checkpoints/last"]
    assert "note:" not in pe("eval", run).err, "the one that is used is the best"
    assert "step-3" in pe("eval", run).out
    gone_on = pe("train", "--resume", run, "--quiet", "-o", "train.epochs=3")
    assert gone_on.code == 0, gone_on.err
    assert "step 9," in gone_on.out + gone_on.err, "training goes on from the last one"


def test_a_config_takes_its_values_from_a_checkpoint(pe: Pe, config: Path, trained: Path) -> None:
    said = pe("eval", config, "--checkpoint", trained, "--split", "train")
    assert said.code == 0, said.err
    assert "40 samples" in said.out


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        pytest.param("npz", lambda p: np.load(p)["guess"], id="npz holds the array"),
        pytest.param("csv", lambda p: np.loadtxt(p, delimiter=",", skiprows=1)[:, 1:], id="csv has a row per sample"),
        pytest.param(
            "jsonl",
            lambda p: np.array([[json.loads(line)["guess"]] for line in p.read_text().splitlines()]),
            id="jsonl has a line per sample",
        ),
    ],
)
def test_predict_writes_what_the_model_says(pe: Pe, config: Path, trained: Path, tmp_path: Path, suffix, read) -> None:
    out = tmp_path / f"out.{suffix}"
    said = pe("predict", trained, "--fetch", "guess", "--out", out)
    assert said.code == 0, said.err
    np.testing.assert_allclose(read(out), expected(config, trained), rtol=1e-5)


def test_predict_needs_no_labels(pe: Pe, config: Path, trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", x=np.load(tmp_path / "data.npz")["x"][:5])
    said = pe(
        "predict", trained, "--fetch", "guess", "--out", tmp_path / "o.npz",
        "-o", f"data.predict={{reader: npz, file: {tmp_path / 'new.npz'}}}",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "5 samples of predict" in said.out
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["guess"], expected(config, trained)[:5], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gues", "did you mean 'guess'?"), ("zzz", "the model's fetches are loss; pe check CONFIG lists all variables")],
)
def test_a_variable_that_is_not_there_is_told_with_those_that_are(pe: Pe, trained: Path, tmp_path: Path, name: str, hint: str) -> None:
    said = pe("predict", trained, "--fetch", name, "--out", tmp_path / "a.csv")
    assert said.code == 2
    assert said.err == f"error: there is no variable '{name}'\nhint: {hint}\n"


def test_predict_may_fetch_a_feed_beside_a_result(pe: Pe, config: Path, trained: Path, tmp_path: Path) -> None:
    assert pe("predict", trained, "--fetch", "guess", "--fetch", "y", "--out", tmp_path / "o.npz").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "o.npz")["y"], np.load(tmp_path / "data.npz")["y"][:16])


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["eval", "{config}"], 2, "--checkpoint", id="a config has no values"),
        pytest.param(["eval", "{folder}/.."], 3, "no resolved.yaml", id="a folder that is no run"),
        pytest.param(["eval", "{folder}x"], 2, "no such file or folder", id="nothing there"),
        pytest.param(["eval", "{folder}", "--split", "evil"], 2, "did you mean 'eval'?", id="an unknown split"),
        pytest.param(["eval", "{folder}/checkpoints/step-7"], 3, "step-7", id="a step that was not saved"),
        pytest.param(
            ["predict", "{folder}", "--fetch", "gues", "--out", "{folder}/o.npz"], 2, "did you mean 'guess'?",
            id="an unknown variable",
        ),
        pytest.param(
            ["predict", "{folder}", "--fetch", "guess.w_0", "--out", "{folder}/o.npz"], 2, "is a parameter",
            id="a parameter has no samples",
        ),
        pytest.param(["predict", "{folder}", "--fetch", "guess", "--out", "o.txt"], 2, "suffix", id="an unknown suffix"),
        pytest.param(
            ["predict", "{folder}", "--fetch", "guess", "--out", "/proc/no/o.npz"], 2, "cannot write",
            id="an output that cannot be written",
        ),
    ],
)  # fmt: skip
def test_mistakes(pe: Pe, config: Path, trained: Path, arguments: list[str], code: int, text: str) -> None:
    said = pe(*(a.format(config=config, folder=trained) for a in arguments))
    assert (said.code, text in said.err) == (code, True), said.err


def test_a_torn_checkpoint_is_named_and_another_offered(pe: Pe, trained: Path) -> None:
    tensors = trained / "checkpoints" / "step-6" / "params.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-4])
    said = pe("eval", trained)
    assert said.code == 3
    assert "step-3" in said.err
