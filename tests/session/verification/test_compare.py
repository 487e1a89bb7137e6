"""Two trainings beside each other: what is the same, and the first thing that is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from pe_cli.cli.compare import bar
from pe_cli.core.errors import ExitCode
from pe_cli.io.tensors import write_safetensors
from pe_cli.kernels.compiler import target
from pe_cli.session.verification.compare import differing
from tests.session.conftest import Bench

PASSES_OFF = [f"build_strategy.{name}=false" for name in ("simplify", "enable_auto_fusion", "fuse_gemm_epilogue", "enable_addto")]


def compared(bench: Bench, *arguments: object, code: int = ExitCode.DIFFERENT) -> dict:
    assert bench.run("compare", *arguments, "--json") == code, bench.err
    return json.loads(bench.out)


def test_passes_change_nothing(bench: Bench) -> None:
    found = compared(bench, bench.base / "run.yaml", *(w for o in PASSES_OFF for w in ("-o", o)), "--step", 3, code=0)
    assert found["differing"] == []
    assert found["compared"] > 30
    assert len(found["given"]) == len(PASSES_OFF)


def test_another_rate_shows_first_in_an_update(bench: Bench) -> None:
    found = compared(bench, bench.base / "run.yaml", "-o", "train.optimizer={type: Adam, learning_rate: 0.01}")
    first = found["differing"][0]
    assert first["op"] == "adam"
    assert all(d["op"] == "adam" for d in found["differing"])
    assert any("learning_rate" in text for text in found["given"])


def test_another_seed_shows_in_what_the_step_begins_with(bench: Bench) -> None:
    found = compared(bench, bench.base / "run.yaml", "-o", "executor.seed=4")
    assert found["step"] == 1
    assert {d["op"] for d in found["differing"][:2]} == {"feed"}
    assert "given" in {d["op"] for d in found["differing"]}
    assert [d["number"] for d in found["differing"]] == sorted(d["number"] for d in found["differing"])


def test_two_runs_of_one_config_are_the_same_at_any_step(bench: Bench) -> None:
    one, two = bench.train("one"), bench.train("two")
    found = compared(bench, one, two, "--step", 7, code=0)
    assert [text.partition(":")[0] for text in found["given"]] == ["output.dir"]
    assert found["recorded"] is None
    assert bench.run("compare", one, two) == 0
    assert "the same in all" in bench.out


def test_runs_that_part_later_are_looked_at_where_they_part(bench: Bench) -> None:
    """A rate that falls from step 5 on: steps before are the same."""
    schedule = "train.optimizer={{type: SGD, learning_rate: {{type: piecewise_decay, boundaries: [4], values: [0.05, {}]}}}}"
    one, two = (bench.train(str(v), "-o", schedule.format(v), "-o", "fetches={loss: {every: 1 steps}}") for v in (0.05, 0.01))
    found = compared(bench, one, two)
    step, name, a, b = found["recorded"]
    assert step > 4
    assert name.startswith("train/")
    assert a != b
    assert found["step"] == step
    assert compared(bench, one, two, "--step", 4, code=0)["differing"] == []
    assert compared(bench, one, two, "--step", 5)["differing"][0]["op"] in ("sgd", "piecewise_decay", "lr_schedule")


def test_a_tolerance_leaves_out_what_rounding_makes(bench: Bench) -> None:
    given = (bench.base / "run.yaml", "-o", "executor.devices=2", "-o", "build_strategy.sync_batch_norm=true")
    bits = compared(bench, *given)["differing"]
    within = compared(bench, *given, "--tolerance", "1e-4", code=0)["differing"]
    assert len(bits) > 0
    assert within == [], "the loss is shared out, and its gradient, 1, with it"


def test_a_step_that_was_carried_is_compared_as_the_training_is(bench: Bench) -> None:
    rate = ("-o", "train.optimizer={type: Adam, learning_rate: 0.01}", "-o", "executor.seed=4")
    there = bench.base / "there.safetensors"
    assert bench.run("compare", bench.base / "run.yaml", "--step", 3, "--to", there) == 0, bench.err
    assert re.fullmatch(rf"step 3: (\d+) variables -> {re.escape(str(there))}\n", bench.out)
    direct = compared(bench, bench.base / "run.yaml", *rate, "--step", 3)
    (bench.base / "changed.yaml").write_text((bench.base / "run.yaml").read_text())
    carried = bench.base / "changed.safetensors"
    assert bench.run("compare", bench.base / "run.yaml", *rate, "--step", 3, "--to", carried) == 0, bench.err
    assert compared(bench, there, carried) == direct
    assert compared(bench, bench.base / "run.yaml", carried) == direct, "of the config, that step is computed"
    same = compared(bench, there, bench.base / "run.yaml", code=0)
    assert (same["step"], same["differing"], same["given"]) == (3, [], [])
    assert bench.run("compare", there, carried, "--step", 2) == ExitCode.USAGE
    assert "holds step 3, not 2" in bench.err


def test_instruction_sets_are_compared_by_a_step_of_another_process(bench: Bench) -> None:
    there = bench.base / "portable.safetensors"
    environment = os.environ | {target.VARIABLE: ""}
    command = [sys.executable, "-m", "pe_cli", "compare", bench.base / "run.yaml", "-o", "executor.instructions=portable", "--to", there]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    code = bench.run("compare", bench.base / "run.yaml", there, "--json")
    found = json.loads(bench.out)
    assert any("executor.instructions" in text for text in found["given"]), found
    assert code == (ExitCode.DIFFERENT if found["differing"] else 0)


@pytest.mark.parametrize(
    "facts",
    [
        None, b"", b"{", b"[]", b"{}", b"\xff",
        b'{"step": "1", "texts": ["", ""], "environment": {}, "ops": {}, "fed": {}}',
        b'{"step": 1, "texts": [""], "environment": {}, "ops": {}, "fed": {}}',
        b'{"step": 1, "texts": ["", ""], "environment": [], "ops": {}, "fed": {}}',
        b'{"step": 1, "texts": ["", ""], "environment": {}, "ops": {"a": [1, 2]}, "fed": {}}',
        b'{"step": 1, "texts": ["", ""], "environment": {}, "ops": {}, "fed": {"x": 1}}',
    ],
)  # fmt: skip
def test_a_file_that_carries_no_step_is_refused(bench: Bench, facts: bytes | None) -> None:
    path = bench.base / "none.safetensors"
    write_safetensors(path, {"facts": np.frombuffer(facts, np.uint8)} if facts is not None else {"w": np.zeros(2)})
    assert bench.run("compare", path, bench.base / "run.yaml") == ExitCode.DATA
    assert "no step of a training" in bench.err
    assert "--to FILE.safetensors" in bench.err


def test_mistakes(bench: Bench) -> None:
    assert bench.run("compare", bench.base / "run.yaml") == ExitCode.USAGE
    assert "name two trainings" in bench.err
    folder = bench.train("runs")
    assert bench.run("compare", folder, folder, "-o", "executor.seed=4") == ExitCode.USAGE
    assert "a run is as it was" in bench.err
    assert bench.run("compare", folder, "--to", bench.base / "there.npz") == ExitCode.USAGE
    assert bench.run("compare", folder, folder, "--to", bench.base / "there.safetensors") == ExitCode.USAGE
    assert "a step of one training" in bench.err
    other = bench.base / "other.yaml"
    other.write_text((bench.base / "run.yaml").read_text().replace("model.yaml", "none.yaml"))
    (bench.base / "none.yaml").write_text((bench.base / "model.yaml").read_text().replace("hidden", "covered"))
    assert bench.run("compare", bench.base / "run.yaml", other) in (ExitCode.USAGE, ExitCode.DIFFERENT)


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "largest", "share"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, None, 0),
        ([1.0, 2.0], [1.0, 2.5], 0.0, 0.2, 0.5),
        ([1.0, 2.0], [1.0, 2.5], 0.2, None, 0),
        ([0.0], [-0.0], 0.0, 0.0, 0.0),
        ([1.0], [np.nan], 0.5, np.nan, 1.0),
    ],
)
def test_how_far_two_values_are_apart(a, b, tolerance, largest, share) -> None:
    found = differing(1, "op", "v", np.array(a), np.array(b), tolerance)
    if largest is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_equal(found.largest, largest)
        assert found.share == share


def test_values_of_other_types_and_sizes() -> None:
    assert differing(1, "op", "v", np.float32([1.5]), np.float64([1.5]), 0.0) is None
    found = differing(1, "op", "v", np.zeros(2), np.zeros(3), 0.0)
    assert found is not None
    assert (found.first, found.second) == ("float64[2]", "float64[3]")


def test_bars_grow_with_the_power_of_ten() -> None:
    assert [len(bar(v)) for v in (0.0, 1e-30, 1e-16, 1e-8, 1.0, 1e9, float("inf"))] == [0, 1, 1, 8, 16, 16, 16]

