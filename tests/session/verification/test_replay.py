"""Values of a step of a run, rebuilt: what checkpoints, files and the rule of the optimizer say they were."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.verification.replay import replay
from tests.session.conftest import Bench

EVERY = ("-o", "output.checkpoint={every: 1 steps, keep: 99}", "-o", "train.eval_every=9 epochs")


def array(folder: Path, step: int, name: str) -> np.ndarray:
    return checkpoint.load(folder / "checkpoints" / f"step-{step}")[0][name]


@pytest.mark.parametrize("devices", [1, 2])
def test_values_are_those_that_checkpoints_have(bench: Bench, devices: int) -> None:
    folder = bench.train("runs", *EVERY, "-o", f"executor.devices={devices}")
    name = next(n for n, a in checkpoint.load(folder / "checkpoints" / "step-7")[0].items() if a.ndim == 2)
    found = replay(RunFolder(folder), 7, [name, f"{name}@UPDATE"])
    assert found.step == 7
    for value in found.values[name]:
        np.testing.assert_array_equal(value, array(folder, 7, name))
    np.testing.assert_array_equal(found.values[f"{name}@UPDATE"][0], array(folder, 7, name) - array(folder, 6, name))


def test_a_gradient_is_what_the_optimizer_took_from_however_far_it_begins(bench: Bench) -> None:
    rate = 0.05
    given = ("-o", f"train.optimizer={{type: SGD, learning_rate: {rate}}}", "-o", "train.eval_every=9 epochs")
    near = bench.train("near", *given, "-o", "output.checkpoint={every: 1 steps, keep: 99}")
    far = bench.train("far", *given, "-o", "output.checkpoint={every: 9 epochs, keep: 1}")
    name = next(n for n, a in checkpoint.load(near / "checkpoints" / "step-7")[0].items() if a.ndim == 2)
    first, other = (replay(RunFolder(folder), 11) for folder in (near, far))
    assert first.ops[f"{name}@GRAD"].endswith("grad")
    assert set(first.values) == set(other.values)
    for key, values in first.values.items():
        np.testing.assert_array_equal(values[0], other.values[key][0])
    expected = array(near, 10, name) - np.float32(rate) * first.values[f"{name}@GRAD"][0]
    np.testing.assert_allclose(first.values[name][0], expected, rtol=0, atol=1e-7)


def test_what_a_step_fetched_is_what_its_file_has(bench: Bench) -> None:
    folder = bench.train("runs")
    lines = [json.loads(line) for line in (folder / "fetches" / "hidden.jsonl").read_text().splitlines()]
    recorded = np.array([line["hidden"] for line in lines if line["step"] == 5], "float32")
    found = replay(RunFolder(folder), 5, [variable_of(folder, "hidden")])
    (values,) = found.values.values()
    np.testing.assert_array_equal(values[0], recorded)


def variable_of(folder: Path, fetch: str) -> str:
    from pe_cli.session.job import Job

    return Job.open(folder / "resolved.yaml").variable(fetch)


def test_the_command_shows_and_writes_values(bench: Bench, tmp_path: Path) -> None:
    folder = bench.train("runs")
    names = [p for p in checkpoint.load(folder / "checkpoints" / "last")[0] if p.endswith("w_0")]
    into = tmp_path / "values.npz"
    wanted = ("--fetch", names[0], "--fetch", f"{names[0]}@GRAD")
    assert bench.run("replay", folder, "--step", 4, *wanted, "--to", into, "--json") == 0, bench.err
    shown = json.loads(bench.out)["values"]
    with np.load(into) as arrays:
        for name in (names[0], f"{names[0]}@GRAD"):
            assert shown[name]["shape"] == list(arrays[name].shape)
            assert shown[name]["mean"] == pytest.approx(float(arrays[name].astype("float64").mean()), rel=1e-12)
            assert shown[name]["first"] == arrays[name].reshape(-1)[:4].astype("float64").tolist()
    assert bench.run("replay", folder, "--step", 4, "--quiet") == 0, bench.err
    assert f"{names[0]}@UPDATE" in bench.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "999"], "the run has no step 999"),
        (["--step", "3", "--fetch", "nosuch"], "the training program has no variable 'nosuch'"),
        (["--step", "3", "--fetch", "x@UPDATE"], "has no parameter or state 'x'"),
        (["--step", "3", "--to", "a.txt"], "--to writes an .npz"),
    ],
)
def test_mistakes(bench: Bench, arguments: list[str], message: str) -> None:
    folder = bench.train("runs")
    assert bench.run("replay", folder, *arguments) == ExitCode.USAGE
    assert message in bench.err


def test_steps_that_do_not_come_out_as_recorded_are_no_replay(bench: Bench) -> None:
    folder = bench.train("runs", "-o", "output.checkpoint={every: 9 epochs, keep: 1}")
    text = (folder / "metrics.jsonl").read_text()
    line = json.loads(text.splitlines()[0])
    name = next(k for k in line if k not in ("step", "epoch", "split"))
    (folder / "metrics.jsonl").write_text(text.replace(json.dumps(line[name]), "0.123", 1))
    assert bench.run("replay", folder, "--step", 9, "--quiet") == ExitCode.DIFFERENT
    assert "it does not come out as it was recorded: step" in bench.err
