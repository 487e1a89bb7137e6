"""A run that was stopped goes on bit for bit as if it never had been."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.rotation import of_today
from tests.session.conftest import Bench

STOPPED = ExitCode.STOPPED


@pytest.mark.parametrize(
    "options",
    of_today([
        pytest.param([], id="one device"),
        pytest.param(["executor.devices=2"], id="two devices with their own statistics"),
        pytest.param(["executor.devices=3", "build_strategy.reduce_strategy=Reduce"], id="parameters with owners"),
        pytest.param(["train.ema.decay=0.8", "executor.devices=2"], id="moving averages"),
        pytest.param(["train.accumulate=2", "train.batch_size=4"], id="gradients in parts"),
        pytest.param(["exec_strategy.num_iteration_per_run=2"], id="two iterations a step"),
        pytest.param(["train.optimizer={type: Lamb, learning_rate: 0.01}", "train.eval_every=1 epoch"], id="another one"),
        pytest.param(
            ["train.optimizer={type: Lookahead, k: 4, inner: {type: AdamW}}", "executor.devices=2"], id="rounds of steps"
        ),
        pytest.param(["train.optimizer={type: NAdam, weight_decay: 0.01}"], id="an optimizer that counts steps"),
    ], 3),
)  # fmt: skip
def test_stopped_after_any_step_it_goes_on_bit_for_bit(bench: Bench, options: list[str]) -> None:
    given = [part for option in options for part in ("-o", option)]
    whole = bench.seen(bench.train("whole", *given))
    folder = bench.train("pieces", *given, "--max-steps", 1, code=STOPPED)
    for steps in (1, 2, 3, 4, 2, 4):  # 18 steps: inside epochs, at their ends, and at evaluations
        code = bench.run("train", "--resume", folder, "--quiet", "--max-steps", steps)
        assert code in (0, STOPPED), bench.err
    assert code == 0 or bench.run("train", "--resume", folder, "--quiet") == 0
    assert bench.seen(folder) == whole


def test_a_config_finds_its_newest_run_and_begins_one_where_there_is_none(bench: Bench) -> None:
    config, into = bench.base / "run.yaml", bench.base / "runs"
    (bench.base / "runs").mkdir()
    assert bench.run("train", config, "--resume", "--max-steps", 2) == STOPPED
    assert "no run of run in it: a new run begins" in bench.err
    assert bench.run("train", config, "-o", "output.name=run-other", "--max-steps", 1, "--quiet") == STOPPED
    assert bench.run("train", config, "--resume", "--max-steps", 2) == STOPPED
    assert "goes on after step 2" in bench.err
    assert {p.name.rpartition("-")[0].rpartition("-")[0] for p in into.iterdir()} == {"run", "run-other"}


def test_another_number_of_devices_gives_the_same_but_for_rounding(bench: Bench) -> None:
    smooth = ["-o", "output.checkpoint.best=null"]
    text = (bench.base / "model.yaml").read_text()
    (bench.base / "model.yaml").write_text(text.replace("{type: batch_norm, input: hidden}", "{type: tanh, x: hidden}"))
    whole, _ = checkpoint.load(bench.train("whole", *smooth))
    folder = bench.train("pieces", *smooth, "--max-steps", 7, code=STOPPED)
    assert bench.run("train", "--resume", folder, "-o", "executor.devices=3") == 0, bench.err
    assert "changed: executor.devices: 1 -> 3" in bench.err
    for name, value in checkpoint.load(folder)[0].items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("first", "then"), [(2, 3), (3, 1)], ids=["more devices", "fewer devices"])
def test_statistics_of_devices_find_a_place_on_another_number(bench: Bench, first: int, then: int) -> None:
    folder = bench.train("runs", "-o", f"executor.devices={first}", "--max-steps", 5, code=STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet", "-o", f"executor.devices={then}") == 0, bench.err
    names = checkpoint.load(folder)[0]
    copies = {int(name.rpartition("@")[2]) for name in names if "@DEVICE@" in name}
    assert copies == set(range(1, then))


def test_a_finished_run_does_nothing_more_and_can_be_made_longer(bench: Bench) -> None:
    longer = bench.seen(bench.train("longer", "-o", "train.epochs=5"))
    folder = bench.train("runs", "-o", "train.epochs=2")
    before = bench.seen(folder)
    assert bench.run("train", "--resume", folder) == 0
    assert bench.seen(folder) == before
    assert bench.run("train", "--resume", folder, "-o", "train.epochs=5") == 0, bench.err
    after = bench.seen(folder)
    assert {k: v for k, v in after.items() if k != "metrics"} == {k: v for k, v in longer.items() if k != "metrics"}


def test_an_older_checkpoint_puts_later_ones_aside(bench: Bench) -> None:
    keep = ["-o", "output.checkpoint.keep=20", "-o", "output.checkpoint.best=null"]
    folder = bench.train("runs", *keep)
    whole = bench.seen(folder)
    old = bench.base / "old"
    shutil.copytree(folder, old)
    assert bench.run("train", "--resume", old / "checkpoints" / "step-8", "--max-steps", 1) == STOPPED
    assert "step 10 comes later: its checkpoint is now later-step-10" in bench.err
    assert checkpoint.steps(old / "checkpoints") == [2, 4, 6, 8, 9]
    assert {json.loads(line)["step"] for line in (old / "metrics.jsonl").read_text().splitlines()} <= set(range(9 + 1))
    assert bench.run("train", "--resume", old) == 0, bench.err
    assert bench.seen(old) == whole


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param("train.batch_size=4", "train.batch_size: 8 -> 4", id="another batch"),
        pytest.param("executor.seed=4", "executor.seed: 3 -> 4", id="another seed"),
        pytest.param("train.optimizer.learning_rate=0.1", "train.optimizer.learning_rate", id="another rate"),
        pytest.param("feeds.x={from: x, scale: 2.0}", "feeds.x.scale: 1.0 -> 2.0", id="another feed"),
    ],
)
def test_a_config_that_changes_the_meaning_is_refused_with_the_difference(bench: Bench, change: str, said: str) -> None:
    folder = bench.train("runs", "--max-steps", 2, code=STOPPED)
    before = bench.seen(folder), (folder / "resolved.yaml").read_text()
    assert bench.run("train", "--resume", folder, "-o", change) == ExitCode.USAGE
    assert said in bench.err
    assert "--allow-changes" in bench.err
    assert (bench.seen(folder), (folder / "resolved.yaml").read_text()) == before
    assert bench.run("train", "--resume", folder, "-o", change, "--allow-changes", "--max-steps", 1) == STOPPED
    assert f"changed: {said}" in bench.err
    assert bench.run("train", "--resume", folder) == 0, "what was allowed is the run's config now"


def test_a_model_file_that_was_changed_is_refused(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 2, code=STOPPED)
    model = bench.base / "model.yaml"
    model.write_text(model.read_text().replace("dropout_prob: 0.3", "dropout_prob: 0.4"))
    assert bench.run("train", bench.base / "run.yaml", "--resume", folder) == ExitCode.USAGE
    assert "model file.layers.some.dropout_prob: 0.3 -> 0.4" in bench.err
    assert bench.run("train", "--resume", folder, "--quiet") == 0, "the run's own model is as it was"


def test_an_allowed_learning_rate_counts_though_the_checkpoint_has_another(bench: Bench) -> None:
    plain = ["-o", "train.optimizer={type: SGD, learning_rate: 0.1}", "-o", "output.checkpoint.best=null"]
    folder = bench.train("runs", *plain, "--max-steps", 4, code=STOPPED)
    before, _ = checkpoint.load(folder)
    tiny = ["-o", "train.optimizer.learning_rate=1e-30", "--allow-changes"]
    assert bench.run("train", "--resume", folder, *tiny, "--max-steps", 2) == STOPPED, bench.err
    after, _ = checkpoint.load(folder)
    np.testing.assert_array_equal(after["hidden.w_0"], before["hidden.w_0"])


def test_a_run_that_began_with_given_values_goes_on_from_them(bench: Bench) -> None:
    """Of a file of another run the learning rate stays there."""
    plain = ["-o", "train.optimizer={type: SGD, learning_rate: 0.1}"]
    np.savez(bench.base / "init.npz", **{"guess.b_0": np.ones(1, np.float32), "learning_rate_0": np.full(1, 0.3, np.float32)})
    init = ["--init", bench.base / "init.npz", "-o", "train.init.strict=false", "-o", "output.checkpoint.keep=99"]
    whole = bench.seen(bench.train("whole", *plain, *init))
    folder = bench.train("pieces", *plain, *init, "--max-steps", 4, code=STOPPED)
    assert checkpoint.load(folder)[0]["learning_rate_0"] == np.float32(0.1)
    for step in checkpoint.steps(folder / "checkpoints")[1:]:
        shutil.rmtree(folder / "checkpoints" / f"step-{step}")
    (bench.base / "init.npz").unlink()
    assert bench.run("train", "--resume", folder) == 0, bench.err
    assert "goes on after step 0" in bench.err, "as killed in the first step"
    assert bench.seen(folder) == whole


def test_a_run_without_a_checkpoint_begins_again(bench: Bench) -> None:
    whole = bench.seen(bench.train("whole"))
    folder = bench.train("runs", "--max-steps", 5, code=STOPPED)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    assert bench.run("train", "--resume", folder) == 0, bench.err
    assert "there is no checkpoint yet" in bench.err
    assert bench.seen(folder) == whole


def damage(path: Path, how: str) -> None:
    if how == "torn":
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(bytes(data))
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("params.safetensors", "torn"), ("params.safetensors", "flipped"), ("params.safetensors", "gone"),
        ("meta.json", "torn"), ("meta.json", "gone"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_named_and_an_older_one_used(bench: Bench, file: str, how: str) -> None:
    whole = bench.seen(bench.train("whole"))
    folder = bench.train("runs", "--max-steps", 7, code=STOPPED)
    damage(folder / "checkpoints" / "step-7" / file, how)
    assert bench.run("eval", folder) == ExitCode.DATA
    assert "step-7" in bench.err
    assert bench.run("train", "--resume", folder) == 0, bench.err
    assert "it is now damaged-step-7, and an older checkpoint is used" in bench.err
    assert "goes on after step 6" in bench.err
    assert bench.seen(folder) == whole


def test_no_whole_checkpoint_at_all_is_an_error(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 7, code=STOPPED)
    for step in checkpoint.steps(folder / "checkpoints"):
        damage(folder / "checkpoints" / f"step-{step}" / "params.safetensors", "torn")
    assert bench.run("train", "--resume", folder) == ExitCode.DATA
    assert "step-7" in bench.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda meta: meta.pop("progress"), "how far training was", id="no progress"),
        pytest.param(lambda meta: meta["progress"].update(step=5), "its progress is of step 5", id="another step"),
        pytest.param(lambda meta: meta["progress"].update(batch="x"), "batch is 'x'", id="no number"),
        pytest.param(lambda meta: meta.update(averages={"loss": 3}), "averages", id="no averages"),
        pytest.param(lambda meta: meta.update(outputs={"metrics.jsonl": {"bytes": -1}}), "how long", id="below zero"),
    ],
)
def test_a_description_that_makes_no_sense_is_an_error(bench: Bench, change, said: str) -> None:
    folder = bench.train("runs", "--max-steps", 2, code=STOPPED)
    path = folder / "checkpoints" / "step-2" / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    assert bench.run("train", "--resume", folder) == ExitCode.DATA
    assert said in bench.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "pe train needs CONFIG", id="nothing"),
        pytest.param(["--resume", "--quiet"], "a run after --resume", id="no run"),
        pytest.param(["CONFIG", "--resume", "--smoke"], "can't be used together", id="smoke"),
        pytest.param(["CONFIG", "--resume", "--init", "x.npz"], "can't be used together", id="init"),
        pytest.param(["CONFIG", "--allow-changes"], "goes with --resume", id="changes of nothing"),
        pytest.param(["CONFIG", "--max-time", "soon"], "is no time", id="no time"),
        pytest.param(["CONFIG", "--max-steps", "0"], "max-steps", id="no steps"),
    ],
)
def test_wrong_usage(bench: Bench, arguments: list[str], said: str) -> None:
    config = str(bench.base / "run.yaml")
    assert bench.run("train", *(a.replace("CONFIG", config) for a in arguments)) == ExitCode.USAGE
    assert said in bench.err


def test_what_is_no_run_cannot_be_resumed(bench: Bench) -> None:
    assert bench.run("train", bench.base / "run.yaml", "--resume", bench.base) == ExitCode.DATA
    assert "not the folder of a run" in bench.err
    assert bench.run("train", "--resume", bench.base / "absent") != 0
    assert "absent" in bench.err


def test_a_refused_resume_leaves_the_status_alone(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 2, code=STOPPED)
    before = (folder / "status.json").read_text()
    assert bench.run("train", "--resume", folder, "-o", "executor.seed=9") == ExitCode.USAGE
    assert (folder / "status.json").read_text() == before


@pytest.mark.parametrize("text", [None, "", "{", '{"state": "running"', "[]", "\0" * 100])
def test_a_run_whose_status_was_lost_goes_on_from_its_checkpoint(bench: Bench, text: str | None) -> None:
    whole = bench.seen(bench.train("whole"))
    folder = bench.train("runs", "--max-steps", 7, code=STOPPED)
    (folder / "status.json").unlink()
    if text is not None:
        (folder / "status.json").write_text(text)
    assert bench.run("runs", bench.base / "runs") == 0
    assert folder.name in bench.out
    assert bench.run("train", bench.base / "run.yaml", "--resume", "-o", f"output.dir={bench.base / 'runs'}") == 0, bench.err
    assert "status.json" in bench.err
    assert "the checkpoints say how far the run is" in bench.err
    assert "goes on after step" in bench.err
    assert [p.name for p in (bench.base / "runs").iterdir()] == [folder.name]
    assert bench.seen(folder) == whole
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert "damaged" not in (folder / "status.json").read_text()


def test_another_processor_or_version_is_told(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 2, code=STOPPED)
    path = folder / "env.json"
    env = json.loads(path.read_text())
    env["cpu"], env["packages"]["llvmlite"] = "an abacus", "0.1"
    path.write_text(json.dumps(env))
    assert bench.run("train", "--resume", folder) == 0
    assert "cpu was an abacus, it is " in bench.err
    assert "llvmlite was 0.1, it is " in bench.err


def test_what_a_kill_at_the_start_left_out_is_written_by_the_run_that_goes_on(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 1, "-o", "output.checkpoint.every=5 steps", code=STOPPED)
    names = {path.name for path in folder.iterdir()}
    for path in (folder / "env.json", folder / "status.json", folder / "metrics.jsonl", folder / "log.txt", folder / "inputs.json"):
        path.unlink()
    (folder / "graphs").rmdir()
    assert bench.run("train", "--resume", folder) == 0, bench.err
    assert {path.name for path in folder.iterdir()} >= names
    assert json.loads((folder / "env.json").read_text())["devices"] == ["cpu"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "fetches/hidden.jsonl", "log.txt", "status.json", "checkpoints"])
def test_a_run_from_elsewhere_writes_nothing_through_its_links(bench: Bench, name: str) -> None:
    folder = bench.train("runs", "--max-steps", 5, code=STOPPED)
    target = bench.base / f"mine{Path(name).suffix}"
    (folder / name).rename(target)
    (folder / name).symlink_to(target)
    before = _everything(bench.base)
    assert bench.run("train", "--resume", folder, "--quiet") == ExitCode.USAGE
    assert f"{folder / name}: this link leads out of the run's folder, to {target}" in bench.err
    assert "hint: " in bench.err
    assert _everything(bench.base) == before


def test_links_inside_a_run_and_a_link_to_it_are_fine(bench: Bench) -> None:
    whole = bench.seen(bench.train("whole"))
    folder = bench.train("runs", "--max-steps", 5, code=STOPPED)
    (folder / "log.txt").rename(folder / "log-1.txt")
    (folder / "log.txt").symlink_to("log-1.txt")
    (bench.base / "newest").symlink_to(folder)
    assert bench.run("train", "--resume", bench.base / "newest", "--quiet") == 0, bench.err
    assert bench.seen(folder) == whole


def _everything(base: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
