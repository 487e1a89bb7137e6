"""pe init and pe bench."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io.run_folder import RunFolder
from tests.cli.conftest import Pe


def test_init_writes_what_trains_as_it_is(pe: Pe, tmp_path: Path) -> None:
    config = tmp_path / "new folder" / "first.yaml"
    assert pe("init", config).code == 0
    checked = pe("check", config)
    assert (checked.code, checked.err) == (0, "")
    said = pe("train", config, "-o", f"output.dir={tmp_path / 'runs'}", "--quiet")
    assert said.code == 0, said.err
    (folder,) = (tmp_path / "runs").iterdir()
    newest = [m for m in RunFolder(folder).metrics() if m["split"] == "eval"][-1]
    # ten classes: chance is 0.1
    assert float(str(newest["acc"])) > 0.9


def test_init_overwrites_only_when_forced(pe: Pe, tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    assert pe("init", config).code == 0
    config.write_text("mine")
    said = pe("init", config)
    assert said.code == 2
    assert "--force" in said.err
    assert config.read_text() == "mine"
    assert pe("init", config, "--force").code == 0
    assert config.read_text() != "mine"


def test_init_says_when_it_cannot_write(pe: Pe) -> None:
    said = pe("init", "/proc/nothing/a.yaml")
    assert said.code == 2
    assert "cannot write" in said.err


FIELDS = {
    "model", "batch_size", "devices", "threads", "ms_per_step", "samples_per_s", "first_step_s", "import_s",
    "peak_rss_mb", "loss_first", "loss_last", "kernels", "kernels_compiled",
}  # fmt: skip


def test_bench_prints_one_line_of_json(pe: Pe, config: Path) -> None:
    said = pe("bench", config, "--steps", 5, "--warmup", 2, "--json")
    assert said.code == 0, said.err
    (line,) = said.out.splitlines()
    found = json.loads(line)
    assert set(found) >= FIELDS
    assert found["batch_size"] == 16
    assert found["steps"] == 5
    assert found["ms_per_step"]["min"] <= found["ms_per_step"]["median"] <= found["ms_per_step"]["max"]
    assert found["samples_per_s"] == pytest.approx(16 / found["ms_per_step"]["median"] * 1000, rel=0.01)
    assert found["loss_last"] < found["loss_first"]


def test_bench_times_the_reader_too(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pe_cli.cli.bench.READING_S", 0.1)
    said = pe("bench", config, "--steps", 3, "--data", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["data_samples_per_s"] > 0
    assert 0 <= found["beyond_step"] < 1
    assert found["ms_per_reading_step"] > 0
    assert "the reader alone gives" in pe("bench", config, "--steps", 3, "--data").out


def test_bench_starts_from_given_values(pe: Pe, config: Path, tmp_path: Path) -> None:
    data = np.load(tmp_path / "data.npz")
    np.savez(tmp_path / "w.npz", **{"guess.w_0": np.zeros((4, 1), np.float32), "guess.b_0": np.zeros(1, np.float32)})
    found = json.loads(pe("bench", config, "--steps", 1, "--json", "--init", tmp_path / "w.npz").out)
    # with all values 0 the guess is 0
    assert found["loss_first"] == pytest.approx(float((data["y"][:16] ** 2).mean()), rel=1e-5)


def test_bench_measures_from_the_start_of_the_process(config: Path) -> None:
    command = [sys.executable, "-m", "pe_cli.cli.main", "bench", str(config), "--steps", "1", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["build_s"] < found["import_s"] < 60


def test_the_starter_files_are_packaged() -> None:
    """Whatever setuptools packs by the patterns of pyproject.toml, the starter files lie beside the code."""
    from importlib import resources

    here = resources.files("pe_cli.cli")
    for name in ("starter_config.yaml", "starter_model.yaml"):
        assert here.joinpath(name).is_file()


def test_init_in_a_folder_that_is_there(pe: Pe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pe("init", ".").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "config_model.yaml"}
    again = pe("init", tmp_path)
    assert again.code == 2
    assert "there already" in again.err
