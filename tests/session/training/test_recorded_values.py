"""What a run records beside the loss: learning rate, lengths of gradients, tables, speed, a timeline."""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io.checkpoint import load
from pe_cli.io.run_folder import State
from pe_cli.session.training.run_writer import RunWriter
from tests.cli.conftest import Pe, config, pe

__all__ = ["config", "pe"]  # fixtures


def run_of(config: Path) -> Path:
    return max((config.parent / "runs").iterdir())


def lines(folder: Path, split: str) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [m for m in found if m["split"] == split]


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(["executor.devices=1"], id="one device"),
        pytest.param(["executor.devices=2", "executor.uneven_batch=weighted"], id="all_reduce over two"),
        pytest.param(["executor.devices=3", "build_strategy.reduce_strategy=Reduce"], id="reduce to owners, of three"),
        pytest.param(["executor.devices=2", "build_strategy.fuse_all_optimizer_ops=true"], id="fused updates"),
    ],
)
def test_lengths_of_gradients_are_those_of_the_definition(pe: Pe, config: Path, strategy: list[str]) -> None:
    said = pe(
        "train", config, "--quiet", *(a for s in strategy for a in ("-o", s)), "-o", "output.gradient_norms=true",
        "-o", "train={loss: loss, steps: 2, batch_size: 40, optimizer: {type: SGD, learning_rate: 0.25}}",
        "-o", "data.train.shuffle=false", "-o", "output.checkpoint={every: 1 steps, keep: 5}", "-o", "fetches.loss={every: 1 steps}",
    )  # fmt: skip
    assert said.code == 0, said.err
    folder = run_of(config)
    arrays, _ = load(folder / "checkpoints" / "step-1")
    data = np.load(config.parent / "data.npz")
    wrong = data["x"].astype(np.float64) @ arrays["guess.w_0"] + arrays["guess.b_0"] - data["y"]
    # loss = mean (x w + b - y)^2
    by_w, by_b = 2 * data["x"].T @ wrong / 40, 2 * wrong.mean()
    second = lines(folder, "train")[1]
    assert second["gradient_norm/guess.w_0"] == pytest.approx(np.linalg.norm(by_w), rel=1e-5)
    assert second["gradient_norm/guess.b_0"] == pytest.approx(abs(by_b), rel=1e-5)
    assert second["gradient_norm"] == pytest.approx(np.hypot(np.linalg.norm(by_w), by_b), rel=1e-5)
    assert second["learning_rate"] == 0.25


def test_clipping_comes_after_the_length_is_measured_also_where_owners_update(pe: Pe, config: Path) -> None:
    clip = "train.optimizer={type: SGD, learning_rate: 0.1, grad_clip: {type: GradientClipByGlobalNorm, clip_norm: 0.001}}"
    found = []
    for devices in (1, 2):
        said = pe("train", config, "--quiet", "-o", clip, "-o", "output.gradient_norms=true", "-o", f"executor.devices={devices}",
                  "-o", "build_strategy.reduce_strategy=Reduce")  # fmt: skip
        assert said.code == 0, said.err
        found.append([m["gradient_norm"] for m in lines(run_of(config), "train")])
    assert min(found[0]) > 1
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_measuring_changes_no_bit_of_the_training(pe: Pe, config: Path) -> None:
    for wish in ("false", "true"):
        assert pe("train", config, "--quiet", "-o", f"output.gradient_norms={wish}", "-o", "output.trace=2").code == 0
    one, two = (load(folder)[0] for folder in sorted((config.parent / "runs").iterdir()))
    assert set(one) == set(two)
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_a_schedule_is_recorded_as_it_goes(pe: Pe, config: Path) -> None:
    decay = "{type: piecewise_decay, boundaries: [3], values: [0.1, 0.01]}"
    said = pe("train", config, "--quiet", "-o", f"train.optimizer.learning_rate={decay}", "-o", "fetches.loss={every: 1 steps}")
    assert said.code == 0, said.err
    assert [m["learning_rate"] for m in lines(run_of(config), "train")] == pytest.approx([0.1] * 3 + [0.01] * 3)


def test_a_table_holds_what_metrics_hold(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--quiet", "-o", "output.log=[jsonl, csv]")
    assert said.code == 0, said.err
    folder = run_of(config)
    with (folder / "metrics.csv").open(newline="") as stream:
        table = [{k: v for k, v in row.items() if v} for row in csv.DictReader(stream)]
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert table == [{k: str(v) for k, v in m.items()} for m in records]
    assert not (folder / "tensorboard").exists()


def test_single_gradients_do_not_flood_the_terminal(pe: Pe, config: Path) -> None:
    said = pe("train", config, "-o", "output.gradient_norms=true")
    assert "gradient_norm " in said.out
    assert "gradient_norm/" not in said.out


def test_tensorboard_without_its_library_is_an_error_before_anything_runs(
    pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    said = pe("train", config, "-o", "output.log=[tensorboard]")
    assert said.code == 2
    assert "pe-cli[tensorboard]" in said.err
    assert not (config.parent / "runs").exists()


def test_what_comes_after_the_last_step_does_not_count_as_training(
    pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = RunWriter.close

    def slow(self: RunWriter, state: State) -> None:
        time.sleep(0.7)
        close(self, state)

    monkeypatch.setattr(RunWriter, "close", slow)
    assert pe("train", config, "--quiet").code == 0
    lines = [json.loads(line) for line in (run_of(config) / "speed.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 6
    assert lines[-1]["seconds"] - lines[0]["seconds"] < 0.7


def test_speed_and_timeline_are_left_where_they_are_asked_for(pe: Pe, config: Path) -> None:
    assert pe("train", config, "--quiet", "-o", "output.trace=3").code == 0
    folder = run_of(config)
    last = json.loads((folder / "speed.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["samples"]) == (6, 80)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert sum(e["name"].startswith("step ") for e in events) == 3
    assert json.loads((folder / "status.json").read_text())["step"] == 6
