"""pe profile and pe explain: figures as text and JSON, and a timeline on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Pe


def test_profile_says_where_time_goes_and_writes_a_timeline(pe: Pe, config: Path, tmp_path: Path) -> None:
    two = ["-o", "executor.devices=2", "-o", "executor.num_threads=2", "-o", "build_strategy.fuse_all_optimizer_ops=false"]
    said = pe("profile", config, "--steps", 3, "--trace", tmp_path / "t.json", *two)
    assert said.code == 0, said.err
    for text in ("mul_grad", "GFLOP/s", "thread 1:", "sums over devices:", "exposed", "timeline of 3 steps"):
        assert text in said.out, said.out
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"steps", "cpu:0", "cpu:1"}


def test_profile_as_json(pe: Pe, config: Path) -> None:
    said = pe("profile", config, "--steps", 2, "--json", "--by", "op")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["steps"] == 2
    assert found["threads"] == 1
    assert sum(r["share"] for r in found["ops"]) == pytest.approx(1, abs=1e-3)
    assert {"op", "calls", "ms", "share", "gflops", "gbytes"} <= set(found["ops"][0])
    assert found["use"]["busy_ms"][0] <= found["use"]["wall_ms"]


def test_profile_shows_so_many_rows(pe: Pe, config: Path) -> None:
    said = pe("profile", config, "--steps", 1, "--top", 2)
    assert " more " in said.out


def test_explain_tells_of_passes_ops_path_threads_and_memory(pe: Pe) -> None:
    said = pe("explain", ROOT / "configs" / "digits_cnn.yaml", "--steps", 2, "-o", "executor.devices=2")
    assert said.code == 0, said.err
    for text in (
        "\npasses\n  fold_constants:",
        "\n  layout:",
        "\nops\n  forward",
        "\ncritical path\n",
        "efficiency",
        "memory of cpu:1",
        "parameters",
        "optimizer state",
        "peak at ",
    ):
        assert text in said.out, said.out


def test_explain_as_json(pe: Pe, config: Path) -> None:
    said = pe("explain", config, "--steps", 1, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["ops"]["optimize"] == {"sgd": 1}
    assert 0 < found["parallelism"]["measured_efficiency"] <= 1.5
    assert found["memory"][0]["kept"]["parameters"] == 128


@pytest.mark.parametrize("command", ["profile", "explain"])
def test_what_is_wrong_with_a_config_is_told(pe: Pe, config: Path, command: str) -> None:
    assert pe(command, config, "-o", "train.batch_size=0").code == 2
    (config.parent / "data.npz").unlink()
    assert pe(command, config).code == 3


def test_the_watchdog_is_set_in_the_config(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--quiet", "-o", "executor.watchdog=20")
    assert said.code == 0, said.err
    said = pe("train", config, "-o", "executor.watchdog=-1")
    assert said.code == 2
    assert "watchdog" in said.err
