"""pe train: what it prints, what it leaves, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io.checkpoint import load
from tests.cli.conftest import ROOT, Pe
from tests.rotation import of_today

CONFIGS = sorted(ROOT.glob("configs/**/*.yaml"))
MODELS = sorted(ROOT.glob("models/**/*.yaml"))


def only_run(config: Path) -> Path:
    (folder,) = (config.parent / "runs").iterdir()
    return folder


def test_it_learns_and_leaves_a_run_folder(pe: Pe, config: Path) -> None:
    said = pe("train", config, "-o", "train.epochs=30")
    assert said.code == 0, said.err
    folder = only_run(config)
    assert said.out.splitlines()[0].startswith("line: 5 parameters, 30 epochs, 90 steps, on 1 cpu (executor.devices)")
    assert said.out.splitlines()[-1].startswith("done: step 90")
    assert said.out.splitlines()[-1].endswith(f"-> {folder}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [m["loss"] for m in lines if m["split"] == "eval"][-1] < 1e-3
    arrays, meta = load(folder)
    # the data is y = x . (1, -2, 3, 0.5) + 4
    np.testing.assert_allclose(arrays["guess.w_0"][:, 0], [1, -2, 3, 0.5], atol=0.02)
    np.testing.assert_allclose(arrays["guess.b_0"], [4], atol=0.02)
    assert meta["step"] == 90


def test_one_device_and_two_give_the_same_numbers(pe: Pe, config: Path) -> None:
    finals = []
    for devices in (1, 2, 3):
        assert pe("train", config, "-o", f"executor.devices={devices}", "--quiet").code == 0
    for folder in sorted((config.parent / "runs").iterdir()):
        finals.append(load(folder)[0]["guess.w_0"])
    np.testing.assert_allclose(finals[1], finals[0], rtol=1e-5)
    np.testing.assert_allclose(finals[2], finals[0], rtol=1e-5)


def test_quiet_prints_one_line(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--quiet")
    assert len(said.out.splitlines()) == 1
    assert said.err == ""


def test_smoke_is_two_steps_one_line_and_every_output(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--smoke", "-o", "fetches.guess.every=100 epochs")
    assert said.code == 0, said.err
    assert said.out.startswith("smoke: step 2")
    assert len(said.out.splitlines()) == 1
    folder = only_run(config)
    assert (folder / "checkpoints" / "last").is_file()
    assert {json.loads(line)["split"] for line in (folder / "metrics.jsonl").read_text().splitlines()} == {
        "train",
        "eval",
    }
    assert np.load(folder / "fetches" / "guess.npz")["guess"].shape == (16, 1)


def test_smoke_makes_up_data_that_is_not_there(pe: Pe, config: Path) -> None:
    (config.parent / "data.npz").unlink()
    assert pe("train", config, "--smoke").code == 0
    missing = pe("train", config)
    assert missing.code == 3
    assert "no such file" in missing.err


def test_a_process_that_a_launcher_started_with_others_says_that_it_trains_apart(
    pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "1")
    said = pe("train", config, "--max-steps", 1)
    assert "alone like each of the 4 processes of MPICH's mpiexec" in said.out


@pytest.mark.parametrize("path", of_today(CONFIGS, 3), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_shipped_config_runs_two_steps(pe: Pe, path: Path, tmp_path: Path) -> None:
    evaluates_only = "\ntrain:" not in path.read_text()
    said = (
        pe("bench", path, "--steps", 1)
        if evaluates_only
        else pe("train", path, "--smoke", "-o", f"output.dir={tmp_path}")
    )
    assert said.code == 0, said.err


@pytest.mark.parametrize("path", of_today(MODELS, 3), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_shipped_model_trains_two_steps_on_made_up_data(pe: Pe, path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    loss = next((name for name in ("loss", "out", "recon", "rating_loss", "xent", "d_loss") if f"\n  {name}:" in text), "")
    config = tmp_path / "run.yaml"
    optimizer = "{type: SGD, learning_rate: 0.001}"
    config.write_text(
        f"model: {path}\ntrain: {{loss: {loss}, epochs: 1, batch_size: 4, optimizer: {optimizer}}}\n"
        f"output: {{dir: {tmp_path / 'runs'}}}\n"
    )
    trains = json.loads(pe("summary", path, "--json").out)["totals"]["parameters"] > 0
    said = pe("train", config, "--smoke") if trains else pe("graph", path, "--stage", "plan")
    assert said.code == 0, said.err


def test_init_takes_the_values_that_match(pe: Pe, config: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "start.npz", **{"guess.w_0": np.ones((4, 1), np.float32), "other": np.zeros(2, np.float32)})
    frozen = "train.optimizer.learning_rate=1e-30"
    strict = pe("train", config, "--init", tmp_path / "start.npz", "-o", frozen)
    assert strict.code == 3
    assert "strict: false names them alone" in strict.err
    said = pe("train", config, "--init", tmp_path / "start.npz", "-o", frozen, "-o", "train.init.strict=false")
    assert said.code == 0, said.err
    assert "start values: 1 of 2 from" in said.err
    assert "as initialised: guess.b_0" in said.err
    assert "not in the model: other" in said.err
    np.testing.assert_array_equal(load(only_run(config))[0]["guess.w_0"], np.ones((4, 1)))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        pytest.param({"w": np.ones(3, np.float32)}, "no name in the file", id="no name matches"),
        pytest.param({"guess.w_0": np.ones((3, 1), np.float32)}, "[3, 1] there and [4, 1] here", id="another shape"),
    ],
)
def test_init_refuses_a_file_of_another_model(pe: Pe, config: Path, tmp_path: Path, arrays: dict, text: str) -> None:
    np.savez(tmp_path / "start.npz", **arrays)
    said = pe("train", config, "--init", tmp_path / "start.npz")
    assert said.code == 3
    assert text in said.err


@pytest.mark.parametrize(
    ("override", "code", "text"),
    [
        pytest.param("train.epoch=1", 2, "did you mean 'epochs'?", id="an unknown key"),
        pytest.param("train.epochs", 2, "-o needs key=value", id="no value"),
        pytest.param("train.epochs=0", 2, "at least 1", id="a number out of range"),
        pytest.param("train.loss=los", 2, "did you mean 'loss'?", id="a loss that is no variable"),
        pytest.param("train.loss=error", 2, "loss", id="a loss that is many numbers"),
        pytest.param("model=modell.yaml", 2, "did you mean 'model.yaml'?", id="a model file that is not there"),
        pytest.param("data.train.file=dta.npz", 3, "did you mean 'data.npz'?", id="a data file that is not there"),
        pytest.param("data.train.reader=npy", 2, "reader 'npy'", id="options of another reader"),
        pytest.param("feeds.x=z", 3, "z", id="a field that is not there"),
        pytest.param("output.dir=/proc/nothing", 2, "cannot write", id="an output folder that cannot be written"),
        pytest.param("executor.place=cuda", 5, "cuda", id="a device that is not there"),
        pytest.param("output.checkpoint.best={by: eval/los, mode: min}", 2, "eval/loss", id="a best that is no metric"),
    ],
)
def test_mistakes_have_codes_and_remedies(pe: Pe, config: Path, override: str, code: int, text: str) -> None:
    said = pe("train", config, "-o", override)
    assert (said.code, text in said.err) == (code, True), said.err
    assert "bug of pe" not in said.err


def test_a_missing_config_is_named_with_the_closest(pe: Pe, config: Path) -> None:
    said = pe("train", config.parent / "lin.yaml")
    assert said.code == 2
    assert "did you mean 'line.yaml'?" in said.err


def test_a_config_without_a_train_section_cannot_train(pe: Pe, config: Path) -> None:
    text = config.read_text()
    config.write_text(text[: text.index("train:\n  loss")] + text[text.index("executor:") :])
    said = pe("train", config)
    assert said.code == 2
    assert "no train section" in said.err


def test_a_loss_that_is_no_number_ends_with_4_and_names_the_line(pe: Pe, config: Path) -> None:
    said = pe("train", config, "-o", "train.optimizer.learning_rate=1e30", "-o", "train.epochs=20")
    assert said.code == 4
    assert "model.yaml:8" in said.err
    assert "lower the learning rate" in said.err
    assert '"failed"' in (only_run(config) / "status.json").read_text()


def test_a_best_checkpoint_is_marked_before_it_is_first_measured(pe: Pe, config: Path) -> None:
    best = "output.checkpoint={every: 1 steps, keep: 2, best: {by: eval/loss, mode: min}}"
    said = pe("train", config, "-o", best)
    assert said.code == 0, said.err
    assert (only_run(config) / "checkpoints" / "best").is_file()


@pytest.mark.parametrize(
    ("policy", "code", "sizes"),
    [
        pytest.param("weighted", 0, [16, 16, 8], id="weighted takes every sample"),
        pytest.param("drop", 0, [15, 15, 6], id="drop leaves out what does not fit"),
        pytest.param("error", 2, [], id="error says so"),
    ],
)
def test_batches_that_three_devices_cannot_share(
    pe: Pe, config: Path, policy: str, code: int, sizes: list[int]
) -> None:
    said = pe(
        "train", config, "--quiet", "-o", "executor.devices=3", "-o", f"executor.uneven_batch={policy}",
        "-o", "train.epochs=1", "-o", "fetches.guess={every: 1 steps, to: guess.jsonl}",
    )  # fmt: skip
    assert said.code == code, said.err
    rows = (
        [json.loads(r)["step"] for r in (only_run(config) / "fetches" / "guess.jsonl").read_text().splitlines()]
        if sizes
        else []
    )
    assert [rows.count(step) for step in sorted(set(rows))] == sizes
    if code:
        assert "16 samples cannot be split evenly over 3 devices" in said.err


def test_a_fetch_may_keep_the_devices_apart(pe: Pe, config: Path) -> None:
    fetch = "fetches.guess={every: 1 steps, merge: list}"
    said = pe("train", config, "--quiet", "-o", "executor.devices=2", "-o", "train={drop_last: true, epochs: 1, loss: loss,"
              " batch_size: 16, optimizer: {type: SGD, learning_rate: 0.1}}", "-o", fetch)  # fmt: skip
    assert said.code == 0, said.err
    # two steps of two devices with 8 samples each
    assert np.load(only_run(config) / "fetches" / "guess.npz")["guess"].shape == (4, 8, 1)


def test_graphs_are_drawn_where_the_strategy_asks_for_them(pe: Pe, config: Path) -> None:
    assert pe("train", config, "--smoke", "-o", "build_strategy.debug_graphviz_path=graphs/").code == 0
    names = {path.name for path in (only_run(config) / "graphs").iterdir()}
    assert names == {"original_graph.dot", "fused_graph.dot", "multi_devices_graph.dot"}
