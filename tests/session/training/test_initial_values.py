"""train.init and --init: parameters and statistics from elsewhere, and nothing of how that was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.core.patterns import renamed
from pe_cli.io import checkpoint
from pe_cli.session.training.initial_values import is_state
from tests.session.conftest import Bench

#: The model under other names, and with another last layer.
OTHER = """\
name: other
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  encoder: {type: fc, input: x, size: 6, act: tanh}
  normal:  {type: batch_norm, input: encoder}
  head:    {type: fc, input: normal, size: 1}
  error:   {type: square_error_cost, input: head, label: y}
  loss:    {type: mean, x: error}
fetches: [loss]
"""
STATISTICS = ("w_0", "b_0", "w_1", "w_2")
PLAIN = ("-o", "fetches={}", "-o", "output.checkpoint={every: 1 steps, keep: 99}", "-o", "train.steps=2")
RENAME = "train.init.rename={'hidden.*': 'encoder.*'}"


@pytest.fixture
def trained(bench: Bench) -> Path:
    """A run of the first model; the config names the other one from then on."""
    folder = bench.train("first")
    (bench.base / "model.yaml").write_text(OTHER)
    return folder


def refused(bench: Bench, *arguments: object, code: int = ExitCode.DATA) -> str:
    """Return what is said of a training that does not begin."""
    into = bench.base / "refused"
    assert bench.run("train", bench.base / "run.yaml", "--quiet", "-o", f"output.dir={into}", *arguments) == code, bench.err
    assert not into.exists()
    return bench.err


def first(folder: Path) -> dict[str, np.ndarray]:
    return checkpoint.load(folder / "checkpoints" / "step-0")[0]


def test_parameters_and_statistics_are_taken_and_nothing_of_the_training(bench: Bench, trained: Path) -> None:
    folder = bench.train("tuned", "--init", trained, "-o", RENAME, *PLAIN)
    old, new = checkpoint.load(trained)[0], first(folder)
    taken = {"encoder.w_0": "hidden.w_0", "encoder.b_0": "hidden.b_0"} | {f"normal.{n}": f"normal.{n}" for n in STATISTICS}
    for name, source in taken.items():
        np.testing.assert_array_equal(new[name], old[source], err_msg=name)
    assert new["@LR_DECAY_COUNTER@"] == -1, "the schedule begins"
    moments = [name for name in new if "_moment" in name]
    assert len(moments) == 12
    assert not any(new[name].any() for name in moments)
    assert any(old[name].any() for name in old if "_moment" in name)


def test_what_is_left_over_is_told_and_strict_refuses_it(bench: Bench, trained: Path) -> None:
    config = bench.base / "run.yaml"
    config.write_text(config.read_text().replace("  loss: loss\n", f"  loss: loss\n  init: {{from: {trained}}}\n"))
    assert bench.run("train", bench.base / "run.yaml", "-o", f"output.dir={bench.base / 'r'}", "-o", RENAME, *PLAIN) == 0
    assert f"start values: 6 of 8 from {trained}" in bench.err
    assert "not in the file, as initialised: head.w_0, head.b_0" in bench.err
    assert "in the file, not in the model: guess.w_0, guess.b_0\n" in bench.err, "of the optimizer nothing is told"
    (folder,) = (bench.base / "r").iterdir()
    assert "start values: 6 of 8" in (folder / "log.txt").read_text()
    said = refused(bench, "-o", RENAME, "-o", "train.init.strict=true", *PLAIN)
    assert "strict is true, and not in the file, as initialised: head.w_0" in said
    both = "train.init.rename={'hidden.*': 'encoder.*', 'guess.*': 'head.*'}"
    bench.train("t", "-o", both, "-o", "train.init.strict=true", *PLAIN)


def test_a_value_of_another_shape_stays_random(bench: Bench, trained: Path) -> None:
    wider = OTHER.replace("{type: batch_norm, input: encoder}", "{type: fc, input: encoder, size: 7}")
    (bench.base / "model.yaml").write_text(wider)
    options = [*PLAIN, "-o", "train.init.rename={'hidden.*': 'encoder.*', 'guess.*': 'head.*'}", "-o", f"output.dir={bench.base / 'r'}"]
    assert bench.run("train", bench.base / "run.yaml", "--init", trained, *options) == 0, bench.err
    assert "of another shape, as initialised: " in bench.err
    assert "head.w_0 is [6, 1] there and [7, 1] here" in bench.err


def test_one_name_at_a_time(bench: Bench, trained: Path) -> None:
    wish = f"train.init={{from: {trained}, match: {{head.w_0: guess.w_0}}, only: ['head.*']}}"
    old, new = checkpoint.load(trained)[0], first(bench.train("r", "-o", wish, *PLAIN))
    np.testing.assert_array_equal(new["head.w_0"], old["guess.w_0"])
    assert not np.array_equal(new["normal.w_1"], old["normal.w_1"])


def test_from_an_onnx_file(bench: Bench, trained: Path) -> None:
    pytest.importorskip("onnx")
    assert bench.run("export", trained, "--onnx", bench.base / "m.onnx") == 0, bench.err
    old, new = checkpoint.load(trained)[0], first(bench.train("r", "--init", bench.base / "m.onnx", "-o", RENAME, *PLAIN))
    np.testing.assert_array_equal(new["encoder.w_0"], old["hidden.w_0"])
    (bench.base / "m.onnx").write_bytes(b"\x0a\xff\xff")
    assert "not a whole ONNX file" in refused(bench, "--init", bench.base / "m.onnx", *PLAIN)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        pytest.param("only: ['heat.*']", "no variable is called 'heat.*'", id="only"),
        pytest.param("rename: {'nothing/*': 'x/*'}", "the file has no name like 'nothing/*'", id="rename"),
        pytest.param("match: {head.w_9: guess.w_0}", "the model has no variable 'head.w_9'", id="match"),
        pytest.param("match: {head.w_0: guess.w_9}", "did you mean 'guess.w_0'", id="match in the file"),
        pytest.param("strikt: true", "did you mean 'strict'", id="key"),
    ],
)
def test_what_fits_nothing_is_told(bench: Bench, trained: Path, wish: str, said: str) -> None:
    assert said in refused(bench, "-o", f"train.init={{from: {trained}, {wish}}}", *PLAIN, code=ExitCode.USAGE)


def test_a_file_that_is_not_there_is_told_with_its_place(bench: Bench) -> None:
    assert "-o train.init={from: nowhere}:1:19: error: " in (said := refused(bench, "-o", "train.init={from: nowhere}", *PLAIN))
    assert "nowhere: no such file or folder" in said


def test_a_tuned_run_is_verified_from_its_config(bench: Bench, trained: Path) -> None:
    folder = bench.train("r", "--init", trained, "-o", RENAME, *PLAIN, "-o", "output.checkpoint={every: 2 steps, keep: 1}")
    assert not (folder / "checkpoints" / "step-0").exists()
    assert bench.run("verify", folder) == 0, bench.out
    assert "same bits" in bench.out


def test_names_of_training_are_known() -> None:
    names = ["fc.w_0", "fc.w_0_moment1_0", "fc.w_0_beta1_pow_acc_0", "@LR_DECAY_COUNTER@", "learning_rate_0", "fc_2.w_0", "w", "w_2"]
    assert [n for n in names if not is_state(n, names)] == ["fc.w_0", "fc_2.w_0", "w"]


@pytest.mark.parametrize(
    ("name", "pattern", "target", "made"),
    [("a/b.w", "a/*", "c/*", "c/b.w"), ("a/b.w", "*/b.*", "*/x/y.*", "a/x/y.w"), ("ab", "a/*", "c/*", None), ("a.w", "a.w", "b.w", "b.w")],
)
def test_patterns_rename(name: str, pattern: str, target: str, made: str | None) -> None:
    assert renamed(name, pattern, target) == made
