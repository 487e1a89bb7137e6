"""The scripts of benchmarks/: what counts as agreement, who is run again, what is kept and written. Nothing here is timed."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from tests.cuda.ptx.device import needs_compiler
from tests.rotation import on_its_day

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
FALSE = shutil.which("false") or "/bin/false"


@pytest.fixture(name="script")
def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a script of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]


def took(median: float, least: float, **more: Any) -> dict[str, Any]:
    """Return what a run prints."""
    facts = {
        "steps": 9,
        "loss_first": 2.0,
        "loss_last": 0.5,
        "peak_rss_mb": 300.0,
        "import_s": 1.0,
        "first_step_s": 0.5,
    }
    return facts | {"ms_per_step": {"median": median, "min": least, "max": 99.0}} | more


# --- agreement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        pytest.param({}, True, id="equal losses agree"),
        pytest.param({"loss_last": 0.519}, True, id="the last may differ by a hundredth of the first"),
        pytest.param({"loss_last": 0.521}, False, id="and by no more"),
        pytest.param({"loss_first": 2.0003}, False, id="the first must agree to four digits"),
        pytest.param({"loss_last": math.nan}, False, id="not a number agrees with nothing"),
        pytest.param({"loss_first": 3.0, "loss_last": 1.0}, True, id="agreeing with the second run of pe is enough"),
        pytest.param({"loss_first": 3.0}, False, id="half of each run of pe is not"),
    ],
)
def test_losses(script: Any, found: dict[str, float], agrees: bool) -> None:
    run = script("run")
    judges = [took(1, 1), took(1, 1, loss_first=3.0, loss_last=1.0)]
    assert (run.disagreement(took(1, 1, **found), judges, run.LIMITS) == "") is agrees


# --- repeats ----------------------------------------------------------------------------------------------------------


class Fake:
    """pe with a step of 1 ms."""

    name, size, steps = "mlp", 64, 9

    def __init__(self, log: list[str]) -> None:
        self.log, self.by_length = log, {}

    def all_devices(self) -> dict[str, Any]:
        self.log.append("pe")
        return took(1.0, 0.9)

    def one_device(self) -> dict[str, Any]:
        self.log.append("one")
        return took(1.8, 1.7)

    def judges(self, steps: int) -> list[dict[str, Any]]:
        return self.by_length[steps]

    def needs(self) -> list[tuple[float, float]]:
        return [(2e6, 1e3)]


@pytest.fixture
def measured(script: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str], Any]:
    """Return run.py, a log of what is run, and a function that sets what the peers print, by label."""
    run, log, prints = script("run"), [], {}

    def measure(way: Any, *_: Any) -> dict[str, Any]:
        log.append(way.label)
        if prints[way.label] is None:
            raise run.RunError("no memory")
        return prints[way.label]

    monkeypatch.setattr(run.peers, "measure", measure)
    monkeypatch.setattr(run, "operations", lambda *_: 2e6)
    monkeypatch.setattr(run, "peak", lambda: 100.0)
    monkeypatch.setattr(run, "stream", lambda: 20.0)
    return run, log, prints


def test_later_repeats_run_pe_and_the_two_best_ways_in_turn(measured: tuple[ModuleType, list[str], Any]) -> None:
    run, log, prints = measured
    torch = run.peers.PEERS[0]
    ways = [run.Way(torch, n, s) for n in (1, 2) for s in ((), ("channels-last",))]
    a, b, c, d = (w.label for w in ways)
    prints |= {a: took(5.0, 4.0), b: took(3.0, 2.9), c: took(9.0, 2.0), d: took(4.0, 3.5)}
    mine, one, theirs, out = run.measure(Fake(log), ways, 3, {"torch": "python"}, 9.0)
    # b has the least median; of the others c the fastest step
    assert log == ["pe", "one", a, b, c, d, *["pe", b, "one", c] * 2]
    assert (len(mine), len(one), {w.label: len(r) for w, r in theirs.items()}) == (3, 3, {a: 1, b: 3, c: 3, d: 1})
    assert out == {}
    assert d == "PyTorch, 2 threads, channels last"


def test_a_way_that_fails_or_differs_is_left_out_and_told(
    measured: tuple[ModuleType, list[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run, log, prints = measured
    torch, jax = run.peers.PEERS[:2]
    ways = [run.Way(torch, 1), run.Way(torch, 2), run.Way(jax, 2)]
    a, b, c = (w.label for w in ways)
    prints |= {a: took(5.0, 4.0), b: took(0.1, 0.1, loss_last=0.9), c: None}
    args = type("Args", (), {"repeats": 2, "max_seconds": 9.0})
    row = run.compare(Fake(log), ways, args, {"torch": "python", "jax": "python"})
    assert row["best"] == a
    assert set(row["left_out"]) == {b, c}
    assert "loss_last is 0.9" in row["left_out"][b]
    assert log.count(b) == log.count(c) == 1
    assert f"left out: {c}" in capsys.readouterr().err


def test_pe_is_no_exception(script: Any) -> None:
    run = script("run")
    fake = Fake([])
    fake.one_device = lambda: took(1.8, 1.7, loss_last=0.6)  # type: ignore[method-assign]
    with pytest.raises(run.RunError, match="on all devices and on one"):
        run.measure(fake, [], 1, {}, 9.0)


def test_a_row_has_the_best_of_every_peer(script: Any, measured: tuple[ModuleType, list[str], Any]) -> None:
    run, log, prints = measured
    torch, jax = run.peers.PEERS[:2]
    ways = [run.Way(torch, 2), run.Way(jax, 2)]
    prints[ways[0].label] = took(2.0, 1.8, peak_rss_mb=200.0)
    prints[ways[1].label] = took(3.0, 1.35, import_s=0.25)
    args = type("Args", (), {"repeats": 1, "max_seconds": 9.0})
    row = run.compare(Fake(log), ways, args, {"torch": "python", "jax": "python"})
    report = script("report")
    cells = report.table([row | {"computing": 0.5, "limit": 0.8}]).splitlines()[2]
    # 2.0 / 1.0; 1.35 / 0.9; 0.5 / 1.0; 0.8 / 1.0; the quicker start is 0.25 + 0.5
    expected = (
        "| mlp | 64 | 1.000 | 1.800 | PyTorch, 2 threads | 2.000 | **2.00** | 1.50 | 50% / 56% | 80% / 89% |"
        " 1.50 / 0.75 | 300 / 200 |"
    )
    assert cells == expected


def test_the_limit_is_of_every_op_what_takes_longer(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = script("report")
    monkeypatch.setattr(report, "last_cache", lambda: 1000)
    # computes for 4 ms and reads for 2; reads for 3 and computes for 1; has its bytes in the cache
    assert report.limit([(400, 2000), (100, 3000), (0, 1000)], rate=100, stream=1000) == 4 + 3


def test_what_a_step_needs(script: Any, tmp_path: Path) -> None:
    run, workloads = script("run"), script("workloads")
    needs = run.Own("mlp", 64, 4, workloads.write(tmp_path, "mlp", 64)).needs()
    assert sum(count for count, _ in needs) == pytest.approx(run.operations("mlp", 64), rel=0.02)
    assert max(size for _, size in needs) == pytest.approx(64 * 784 * 4 + 2 * 784 * 256 * 4, rel=0.2), "the largest gradient"


# --- peers ------------------------------------------------------------------------------------------------------------


def test_absent_peers_are_named(script: Any) -> None:
    peers = script("peers")
    pythons = peers.interpreters([f"jax={FALSE}", f"fluid={FALSE}"])
    assert peers.installed(["jax", "fluid"], pythons) == ({}, ["JAX", "PaddlePaddle 1.8"])


def test_interpreters_come_from_the_variable_and_the_option(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = script("peers")
    monkeypatch.setenv("PE_BENCH_PYTHON", f"jax={FALSE} paddle={FALSE}")
    found = peers.interpreters([f"jax={sys.executable}"])
    assert found == {"torch": sys.executable, "jax": sys.executable, "paddle": FALSE, "fluid": sys.executable}


@pytest.mark.parametrize("pair", ["jax", "jaxx=python", "jax=/nowhere/python"])
def test_a_wrong_interpreter_is_told(script: Any, pair: str) -> None:
    with pytest.raises(SystemExit, match="--python"):
        script("peers").interpreters([pair])


def test_every_switch_of_a_way_is_one_of_its_script(script: Any) -> None:
    peers, names = script("peers"), script("workloads").NAMES
    for peer in peers.PEERS:
        text = (FOLDER / peer.script).read_text(encoding="utf-8")
        for way in (w for name in names for w in peers.ways(peer, name, 2, True)):
            assert all(f"    {s.replace('-', '_')}=" in text for s in way.switches), way.label


def test_what_a_command_printed_last_is_told_when_it_fails(script: Any) -> None:
    peers = script("peers")
    with pytest.raises(peers.RunError, match=r"(?s)exit status 3.*out of memory"):
        peers.run([sys.executable, "-c", "import sys; print('out of memory'); sys.exit(3)"])
    with pytest.raises(peers.RunError, match="exit status 0"):
        peers.run([sys.executable, "-c", "print('no JSON')"])


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_rows_outlive_a_killed_run(script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = script("report")
    monkeypatch.setattr(report, "KEPT", tmp_path / "build" / "benchmarks.json")
    about = {"processor": "P", "cores": 2, "peers": {"JAX": "0.10"}}
    report.State(about, 14).add({"name": "mlp", "size": 64})
    report.KEPT.with_suffix(".part").write_text('{"about": {', encoding="utf-8")  # killed while it wrote the second
    after = report.State(json.loads(json.dumps(about)), 14)
    after.resume()
    assert (after.has("mlp", 64), after.has("mlp", 256)) == (True, False)
    with pytest.raises(SystemExit, match="differs in cores"):
        report.State(about | {"cores": 4}, 14).resume()


def test_text_between_two_marks_is_replaced_and_nothing_else(script: Any, tmp_path: Path) -> None:
    report = script("report")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\n\nold\n\n<!-- y -->\nb\n", encoding="utf-8")
    for _ in range(2):
        report.replace(page, ("<!-- x -->", "<!-- y -->"), "new")
    assert page.read_text(encoding="utf-8") == "a\n<!-- x -->\n\nnew\n\n<!-- y -->\nb\n"


@pytest.mark.parametrize(("name", "marks"), [("report", "MARKS"), ("growth", "MARKS"), ("growth", "CHECK_MARKS")])
def test_the_page_has_the_marks_once(script: Any, name: str, marks: str) -> None:
    lines = script("report").PAGE.read_text(encoding="utf-8").splitlines()
    assert [lines.count(mark) for mark in getattr(script(name), marks)] == [1, 1]


# --- curves -----------------------------------------------------------------------------------------------------------


def test_each_curve_varies_what_it_is_named_after(script: Any) -> None:
    for varied, settings in script("growth").curves(4).items():
        assert [key for key in settings[0] if len({s[key] for s in settings}) > 1] == [varied]


def test_a_setting_of_the_curves_runs(script: Any, tmp_path: Path) -> None:
    found = script("growth").bench(tmp_path, {"batch": 6, "width": 8, "depth": 2, "devices": 2}, 1)
    assert (found["batch_size"], found["devices"], found["steps"]) == (6, 2, 1)
    assert np.isfinite(found["loss_last"])


def test_a_chain_has_the_layers_that_it_says(script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    growth = script("growth")
    seconds, megabytes = growth.check(tmp_path, 100)
    assert seconds > 0
    assert megabytes > 10
    assert run_command_line(["summary", str(tmp_path / "check.yaml")]) == 0
    assert len(re.findall(r"^ *hidden\S* +fc ", capfd.readouterr().out, re.MULTILINE)) == 100
    rows = growth.check_lines([[(2.0, 100.4), (1.0, 90.0)]], [250])
    assert rows == [["250", "1.0", "4.00", "100"]]


def test_the_operations_of_a_curve_are_those_of_its_products(script: Any) -> None:
    # batch 2, one layer 3 x 3 whose input needs no gradient: 2 products of 2*2*3*3; logits 3 x 10: 3 products of 2*2*3*10
    assert script("growth").work({"batch": 2, "width": 3, "depth": 1}) == 2 * 36 + 3 * 120


def test_the_operations_of_a_row_are_those_of_its_products(script: Any) -> None:
    run = script("run")
    forward = 2 * 64 * (784 * 256 + 256 * 256 + 256 * 10)
    assert run.operations("mlp", 64) == 3 * forward - 2 * 64 * 784 * 256, "the feed needs no gradient"
    assert run.operations("chain", 1) == 0


# --- a GPU ------------------------------------------------------------------------------------------------------------


@on_its_day(3, of=4)
def test_a_rehearsal_for_a_gpu_writes_its_json_after_each_stage_and_goes_on_after_one_that_fails(script, tmp_path, monkeypatch):
    needs_compiler()
    gpu = script("gpu")
    out, seen = tmp_path / "gpu.json", []

    def fails(how: Any, left: float) -> Any:
        seen.append(json.loads(out.read_text())["stages"])
        raise RuntimeError("no such luck")

    monkeypatch.setitem(gpu.STAGES, "losses", fails)
    with gpu.fake_device():
        found = gpu.run(gpu.REHEARSAL, out, 60.0, ["versions", "ceilings", "losses", "counters"])
    assert list(seen[0]) == ["versions", "ceilings"]
    assert set(seen[0]["ceilings"]["found"]) == {
        "copy_GB_s", "launch_us", "replayed_launch_us", "replay_host_us", "upload_GB_s", "product_TFLOP_s"
    }  # fmt: skip
    assert found["stages"]["losses"]["error"][0] == "RuntimeError: no such luck\n"
    assert json.loads(out.read_text())["stages"]["counters"]["found"]["lines"][0].startswith("--csv --metrics")


def test_the_slowest_kernels_are_those_of_the_profiler(script):
    script("gpu")
    from gpu_tools import slowest

    rows = [("pe_a", "1,200"), ("pe_b", "90"), ("pe_a", "800"), ("pe_c", "3000"), ("pe_d", "7")]
    lines = ["==PROF== Connected to process 7", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for i, (name, ns) in enumerate(rows):
        lines += [f'"{i}","{name}","gpu__time_duration.sum","ns","{ns}"', f'"{i}","{name}","sm__throughput","%","{10 * i}"']
    assert slowest(lines) == [
        {"kernel": "pe_c", "launches": 1, "ns": 3000.0, "sm__throughput": 30.0},
        {"kernel": "pe_a", "launches": 2, "ns": 2000.0, "sm__throughput": 10.0},
        {"kernel": "pe_b", "launches": 1, "ns": 90.0, "sm__throughput": 10.0},
    ]
    assert slowest(["ncu is not there"]) == []


def test_what_does_not_fit_the_time_on_a_gpu_is_left_out(script, tmp_path):
    found = script("gpu").run(script("gpu").REHEARSAL, tmp_path / "gpu.json", 1.0, ["ceilings"])
    assert found["stages"]["ceilings"]["skipped"] == "1 s were left"


def test_a_card_that_does_not_answer_costs_no_stage_before(script, monkeypatch, tmp_path):
    gpu, out, ended, left = script("gpu"), tmp_path / "gpu.json", threading.Event(), []

    def end(code: int) -> None:
        left.append((code, json.loads(out.read_text())["stages"]))
        ended.set()

    monkeypatch.setattr(gpu, "GRACE", -19.8)
    monkeypatch.setattr(gpu.os, "_exit", end)
    monkeypatch.setitem(gpu.STAGES, "choices", lambda how, left: "done")
    monkeypatch.setitem(gpu.STAGES, "cards", lambda how, left: ended.wait(20))
    gpu.run(gpu.REHEARSAL, out, 20.0, ["choices", "cards"])
    ((code, stages),) = left
    assert (code, stages["choices"]["found"], stages["cards"]["error"][0]) == (1, "done", "it hangs")


def test_a_command_that_takes_too_long_ends_with_all_that_it_has_started(script, tmp_path):
    script("gpu")
    from gpu_tools import said

    begin = time.monotonic()
    text = said(["bash", "-c", f"(sleep 30; touch {tmp_path}/late) & echo begun; wait"], 0.5)
    assert text.splitlines() == ["begun", "", "ended after 0 s"]
    assert time.monotonic() - begin < 20


@on_its_day(2, of=3)
def test_two_cards_are_measured_where_there_are_two(script, monkeypatch):
    needs_compiler()
    gpu = script("gpu")
    from gpu_cards import measured_cards

    with gpu.fake_device():
        found = measured_cards([64], 1, "mlp", lambda name, count, libraries: {"ms_per_step": {"median": 8.0 / count}})
        assert (found["kernels"]["times_faster"], found["nccl"]["times_faster"]) == (2.0, 2.0)
        assert set(found["sums_ms"][64]) == {"kernels", "nccl"}
        with monkeypatch.context() as patch:
            patch.setattr("pe_cli.devices.cuda_driver.device_count", lambda: 1)
            assert measured_cards([64], 1, "mlp", lambda *_: {}) == "1 CUDA device: two are needed"
