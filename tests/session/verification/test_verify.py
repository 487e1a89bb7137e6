"""Runs that are trained again: the same bits, or where they begin to differ; and nothing of the run is touched."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.verification.rerun_check import arrays_by_step, first_difference, tables_by_step
from pe_cli.session.verification.verify import _check
from tests.rotation import on_its_day
from tests.session.conftest import Bench

OPTIONS = {
    "as it is": [],
    "two devices": ["executor.devices=2"],
    "moving averages": ["train.ema={decay: 0.9}"],
    "accumulated": ["train.accumulate=2"],
    "many checkpoints": ["output.checkpoint={every: 3 steps, keep: 9}", "train.eval_every=5 steps"],
}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_run_is_repeated_and_not_touched(bench: Bench, options: list[str]) -> None:
    folder = bench.train("runs", *(word for option in options for word in ("-o", option)))
    before = everything(folder)
    assert bench.run("verify", folder, "--quiet") == 0, bench.err
    steps = RunFolder(folder).read_status()["step"]
    assert bench.out.startswith(f"same bits: steps 0 to {steps}: ")
    recorded = sum(len(line) - 3 for line in RunFolder(folder).metrics())
    there = checkpoint.steps(folder / "checkpoints")
    assert f": {recorded} numbers of metrics, {len(there)} checkpoints with" in bench.out
    assert everything(folder) == before


@on_its_day(2, of=3)
def test_a_part_of_a_run_begins_at_a_checkpoint(bench: Bench) -> None:
    folder = bench.train("runs", "-o", "output.checkpoint={every: 4 steps, keep: 9}")
    assert bench.run("verify", folder, "--steps", "8..12", "--json") == 0, bench.err
    found = json.loads(bench.out)
    assert (found["same"], found["first"], found["last"], found["seen"]["checkpoints"]) == (True, 8, 12, [12])
    assert bench.run("verify", folder, "--steps", "9..12") == ExitCode.USAGE
    assert "no checkpoint of step 9" in bench.err
    assert "it has 4, 8, 12" in bench.err
    assert bench.run("verify", folder, "--steps", "8..9", "--quiet") == 0
    assert bench.out == "same bits: steps 8 to 9: 2 numbers of metrics, 0 checkpoints with 0 variables, 2 fetched steps\n"
    assert bench.run("verify", folder, "--steps", "8..999") == ExitCode.USAGE
    assert "there is no step to repeat: the run did" in bench.err
    assert bench.run("verify", folder, "--steps", "8") == ExitCode.USAGE


def test_steps_of_which_nothing_was_recorded_are_no_proof(bench: Bench) -> None:
    folder = bench.train("runs", "-o", "output.checkpoint={every: 4 steps, keep: 9}", "-o", "fetches={loss: {every: 3 steps}}")
    assert bench.run("verify", folder, "--steps", "12..13") == ExitCode.USAGE
    assert "nothing was recorded in steps 12 to 13" in bench.err


def test_a_run_that_was_stopped_and_went_on_is_repeated_in_one_go(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 5, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert bench.run("verify", folder, "--quiet") == 0, bench.err


def test_a_number_that_is_otherwise_is_named_with_its_op(bench: Bench) -> None:
    folder = bench.train("runs")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    line = json.loads(lines[1])
    name = next(key for key in line if key not in ("step", "epoch", "split"))
    line[name] = float(np.nextafter(line[name], 9.0))
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], json.dumps(line), *lines[2:]]) + "\n")
    assert bench.run("verify", folder, "--quiet") == ExitCode.DIFFERENT
    assert f"different: step {line['step']}: {line['split']}/{name} (" in bench.out
    assert f"was {line[name]}, it is" in bench.out
    assert "neither packages nor processor differ" in bench.out


def test_an_element_of_a_checkpoint_that_is_otherwise_is_named_with_the_op_that_writes_it(bench: Bench) -> None:
    folder = bench.train("runs", "-o", "output.checkpoint={every: 4 steps, keep: 9}")
    place = folder / "checkpoints" / "step-8"
    arrays, meta = checkpoint.load(place)
    name = next(n for n, a in arrays.items() if a.ndim == 2)
    arrays[name] = arrays[name].copy()
    arrays[name][1, 2] = np.nextafter(arrays[name][1, 2], np.float32(9))
    root = folder / "changed"
    checkpoint.write(root, 8, arrays, dict(meta), None, {})
    for path in (root / "step-8").iterdir():
        path.replace(place / path.name)
    assert bench.run("verify", folder, "--quiet") == ExitCode.DIFFERENT, bench.err
    assert f"different: step 8: {name}[1, 2] (" in bench.out
    assert repr(float(arrays[name][1, 2]))[:8] in bench.out
    assert "the same before: " in bench.out
    assert "1 checkpoint with" in bench.out


def test_what_is_otherwise_here_is_told(bench: Bench) -> None:
    folder = bench.train("runs")
    env = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps(env | {"cpu": "abacus", "packages": env["packages"] | {"llvmlite": "0.1"}}))
    assert bench.run("verify", folder, "--quiet") == 0, bench.err
    assert "note: cpu was abacus, it is " in bench.out
    assert "note: llvmlite was 0.1, it is " in bench.out


def test_a_run_is_repeated_with_as_many_devices_as_it_had(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    folder = bench.train("runs", "-o", "executor.devices=auto")
    monkeypatch.setenv("CPU_NUM", "1")
    assert bench.run("verify", folder, "--quiet") == 0, bench.out


def test_a_training_that_is_never_the_same_is_refused(bench: Bench) -> None:
    folder = bench.train("runs")
    path = folder / "resolved.yaml"
    run = SimpleNamespace(executor=SimpleNamespace(type="async", processes=1))
    with pytest.raises(PeError, match="asynchronous training is never the same twice"):
        _check(run, RunFolder(folder))
    run.executor = SimpleNamespace(type="parallel", processes=1, deterministic=False)
    with pytest.raises(PeError, match=r"with executor\.deterministic: false it need not be the same twice"):
        _check(run, RunFolder(folder))
    path.write_text(path.read_text().replace("processes: 1", "processes: mpi"))
    assert bench.run("verify", folder) == ExitCode.USAGE
    assert "was trained by several processes" in bench.err
    path.write_text(path.read_text() + "distributed: {mode: parameter_server, servers: 1}\n")
    (folder / "env.json").write_text(json.dumps({"devices": ["cpu"] * 2}))  # two trainers, which a config with servers has not as devices
    assert bench.run("verify", folder) == ExitCode.USAGE
    assert "was trained by several processes" in bench.err


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "step,x\n1,2\n1,3\n2,4\n"), ("a.jsonl", '{"step": 1, "x": 2}\n{"step": 2, "x": 4}\n')],
)
def test_tables_by_step(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = tables_by_step(tmp_path / name)
    assert list(found) == [1, 2]
    assert b"".join(found.values()).decode() == text.removeprefix("step,x\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("a.csv", b"step,x\n1,2\nx,3\n", "line 3: not a row", id="no step"),
        pytest.param("a.jsonl", b"[1]\n", "line 1: not a row", id="no mapping"),
        pytest.param("a.jsonl", b"\xff\n", "line 1: not a row", id="no text"),
        pytest.param("a.npz", b"PK\x03\x04 and no more", "not a whole npz file", id="no archive"),
    ],
)
def test_fetched_values_that_are_damaged_are_told(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PeError, match=said):
        arrays_by_step(tmp_path / name, 0, 1) if name.endswith("npz") else tables_by_step(tmp_path / name)


def test_arrays_by_step(tmp_path: Path) -> None:
    np.savez(tmp_path / "even.npz", step=[2, 4, 6], x=np.arange(9.0))
    assert arrays_by_step(tmp_path / "even.npz", 2, 4) == {4: np.arange(3.0, 6.0).tobytes()}
    np.savez(tmp_path / "uneven.npz", step=[2, 4, 6], x=np.arange(8.0))
    assert arrays_by_step(tmp_path / "uneven.npz", 2, 6) == {}
    assert arrays_by_step(tmp_path / "uneven.npz", 0, 6) == {6: np.arange(8.0).tobytes()}


@pytest.mark.parametrize(
    ("a", "b", "place"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 5.0]], (1, 1)),
        ([0.0], [-0.0], (0,)),
        ([np.nan], [np.nan], None),
        (3.0, 4.0, ()),
        ([1.0], [1.0, 2.0], ()),
    ],
)
def test_the_first_element_whose_bits_differ(a: object, b: object, place: tuple[int, ...] | None) -> None:
    assert first_difference(np.array(a), np.array(b)) == place
