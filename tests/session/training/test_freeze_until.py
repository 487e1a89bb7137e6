"""train.groups with freeze: until so many steps or epochs: frozen at first, and trained from then on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.needs import torch
from tests.rotation import of_today
from tests.session.conftest import Bench
from tests.session.training.test_parameter_groups import start, trained

STOPPED = ExitCode.STOPPED
LATE = "train.groups=[{match: hidden, freeze: until 7 steps}, {match: normal, freeze: {until: 2 epochs}}]"
#: Epochs of two steps.
EVERY = ("train.batch_size=22", "train.init={from: start.npz}", "output.checkpoint={every: 1 steps, keep: 99}")
OPTIMIZERS = {
    "Momentum": "{type: Momentum, momentum: 0.9, learning_rate: 0.05, regularization: {type: L2Decay, regularization_coeff: 0.01}}",
    "Adam": "{type: Adam, learning_rate: 0.02}",
    "clipped": "{type: SGD, learning_rate: 0.3, grad_clip: {type: GradientClipByGlobalNorm, clip_norm: 0.2}}",
}


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("until", ["until 4 steps", "{until: 2 epochs}"])
def test_ten_steps_are_those_of_pytorch(bench: Bench, kind: str, devices: int, until: str) -> None:
    values = start(bench)
    folder = trained(bench, f"[{{match: encoder/*, freeze: {until}}}]", f"train.optimizer={OPTIMIZERS[kind]}", *EVERY, devices=devices)
    ours = checkpoint.load(folder)[0]

    theirs = {name: torch.tensor(value, requires_grad=name.startswith("head")) for name, value in values.items()}
    optimizer = {
        "Momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
        "Adam": lambda p: torch.optim.Adam(p, 0.02),
        "clipped": lambda p: torch.optim.SGD(p, 0.3),
    }[kind](list(theirs.values()))
    with np.load(bench.base / "data.npz") as data:
        x, y = torch.tensor(data["x"]), torch.tensor(data["y"])
    for step in range(10):
        if step == 4:
            for value in theirs.values():
                value.requires_grad_(True)
        rows = slice(22 * (step % 2), 22 * (step % 2) + 22)
        h = torch.tanh(x[rows] @ theirs["encoder/a.w_0"] + theirs["encoder/a.b_0"])
        h = torch.tanh(h @ theirs["encoder/b.w_0"] + theirs["encoder/b.b_0"])
        loss = ((h @ theirs["head.w_0"] + theirs["head.b_0"] - y[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if kind == "clipped":
            torch.nn.utils.clip_grad_norm_(list(theirs.values()), 0.2)
        optimizer.step()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value.detach().numpy(), rtol=5e-5, atol=2e-6, err_msg=name)


def test_before_its_time_a_group_costs_nothing(bench: Bench) -> None:
    values = start(bench)
    groups = "[{match: encoder/*, freeze: until 4 steps}]"
    folder = trained(bench, groups, *EVERY)
    for step in range(1, 11):
        found = checkpoint.load(checkpoint.folder_of(folder / "checkpoints", step))[0]
        state = [name for name in found if name.startswith("encoder") and "velocity" in name]
        assert len(state) == (4 if step > 4 else 0), step
        assert all(np.array_equal(found[n], v) for n, v in values.items() if n.startswith("encoder")) == (step <= 4), step
    assert "trained from step 5 on: encoder/a.w_0" in (folder / "log.txt").read_text()
    assert bench.run("graph", bench.base / "run.yaml", "--stage", "program") == 0
    backward = [line for line in bench.out.splitlines() if line.startswith("  backward")]
    assert backward
    assert not [line for line in backward if "encoder" in line.partition("->")[2] or "tanh" in line]


@pytest.mark.parametrize(
    "options",
    of_today([
        pytest.param([], id="one device"),
        pytest.param(["executor.devices=2"], id="two devices with their own statistics"),
        pytest.param(["train.ema.decay=0.8", "executor.devices=2"], id="moving averages"),
        pytest.param(["train.accumulate=2", "train.batch_size=4"], id="gradients in parts"),
        pytest.param(["train.optimizer={type: Lookahead, k: 4, inner: {type: AdamW}}"], id="rounds of steps"),
        pytest.param(["output.gradient_norms=true", "output.log=[jsonl, csv]"], id="lengths of gradients"),
    ], 3),
)  # fmt: skip
def test_it_goes_on_bit_for_bit_and_is_verified(bench: Bench, options: list[str]) -> None:
    given = [part for option in (LATE, *options) for part in ("-o", option)]
    first = bench.train("whole", *given)
    whole = bench.seen(first)
    folder = bench.train("pieces", *given, "--max-steps", 1, code=STOPPED)
    for steps in (5, 1, 4, 1, 1, 3):  # 18 steps: right before and behind both times, and between
        code = bench.run("train", "--resume", folder, "--quiet", "--max-steps", steps)
        assert code in (0, STOPPED), bench.err
    assert code == 0 or bench.run("train", "--resume", folder, "--quiet") == 0
    assert bench.seen(folder) == whole
    assert bench.run("verify", first) == 0, bench.err


def test_until_then_it_is_what_a_frozen_group_is(bench: Bench) -> None:
    start(bench)
    late = trained(bench, "[{match: encoder/*, freeze: until 6 steps}]", *EVERY, where="late")
    never = trained(bench, "[{match: encoder/*, freeze: true}]", *EVERY, where="never")
    for step, same in ((6, True), (7, False)):
        a, b = (checkpoint.load(checkpoint.folder_of(folder / "checkpoints", step))[0] for folder in (late, never))
        assert ({n: v.tobytes() for n, v in a.items()} == {n: v.tobytes() for n, v in b.items()}) == same


def test_averages_are_those_of_what_did_not_change(bench: Bench) -> None:
    values = start(bench)
    folder = trained(bench, "[{match: encoder/*, freeze: until 6 steps}]", *EVERY, "train.ema={decay: 0.5}")
    found = checkpoint.load(checkpoint.folder_of(folder / "checkpoints", 6))[0]
    name = next(n for n in found if n.startswith("encoder/a.w_0_ema"))
    expected = np.zeros_like(values["encoder/a.w_0"])
    for _ in range(6):
        expected = np.float32(0.5) * expected + np.float32(0.5) * values["encoder/a.w_0"]
    np.testing.assert_array_equal(found[name], expected)


def test_lookahead_goes_on_from_where_the_parameter_is(bench: Bench) -> None:
    """The time comes in the middle of a round: its begin is the value until then."""
    values = start(bench)
    inner = "{type: SGD, learning_rate: 0.1}"
    options = [f"train.optimizer={{type: Lookahead, k: 4, alpha: 0.5, inner: {inner}}}", *EVERY]
    folder = trained(bench, "[{match: encoder/*, freeze: until 2 steps}]", *options)
    at = {step: checkpoint.load(checkpoint.folder_of(folder / "checkpoints", step))[0] for step in (3, 4)}
    name = "encoder/a.w_0"
    slow = next(n for n in at[3] if n.startswith(f"{name}_slow"))
    np.testing.assert_array_equal(at[3][slow], values[name])
    assert np.abs(at[4][name] - values[name]).max() < 0.2  # half of two small steps, and not half of the way to zero


def test_a_random_group_may_wait_and_a_smoke_run_trains_both_ways(bench: Bench) -> None:
    trained(bench, "[{match: encoder/*, freeze: until 3 steps}]")
    assert bench.run("train", bench.base / "run.yaml", "--smoke", "-o", f"output.dir={bench.base / 'smoke'}") == 0
    (folder,) = (bench.base / "smoke").iterdir()
    assert "trained from step 2 on" in (folder / "log.txt").read_text()


def test_the_summary_says_until_when(bench: Bench) -> None:
    trained(bench, "[{match: encoder/*, freeze: until 3 epochs, learning_rate: 0.1x}]")
    assert bench.run("summary", bench.base / "run.yaml", "--json") == 0
    listed = {m["parameter"]: m["frozen"] for m in json.loads(bench.out)["groups"]}
    assert listed["encoder/a.w_0"] == "until 3 epochs"
    assert listed["head.w_0"] is False
    assert bench.run("summary", bench.base / "run.yaml") == 0
    assert "frozen until 3 epochs, 0.1 x" in bench.out
    assert bench.run("check", bench.base / "run.yaml") == 0, bench.err


@pytest.mark.parametrize("written", ["until 3", "until 0 steps", "3 epochs", "{until: 3 hours}", "{until: 3 steps, from: 1}", "1"])
def test_a_time_that_is_none_has_a_place(bench: Bench, written: str) -> None:
    found = trained(bench, f"[{{match: head, freeze: {written}}}]", code=ExitCode.USAGE)
    assert "must be true, false, or until so many steps or epochs" in found
    assert "run.yaml:8:" in found
