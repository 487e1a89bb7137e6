"""Checkpoints and runs of every release can be resumed, evaluated, asked and listed by this version, and their configs hold no mistake.

Bits depend on the processor, so numbers are compared within a tolerance. A failure here breaks what docs/stability.md promises: the code
is to be mended, not the kept run.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pe_cli import __version__
from pe_cli.cli.main import run as run_command_line
from tests.kept.make import HERE, STOP, last

#: Some are of parameter servers, and go on in one process.
KEPT = sorted(path.parent for path in HERE.glob("*/*/expected.json"))
NAMED = pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.name} of {kept.parent.name}")


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    """Return a copy of a kept run, beside its data."""
    shutil.copytree(kept, tmp_path / "kept")
    return tmp_path / "kept" / "run"


def options(kept: Path, run: Path) -> list[str]:
    """Return what a command has to be told where data lie elsewhere than when the run was made, and where there are no servers."""
    data = ["-o", f"data.source.files={run.parent / 'rows.csv'}"] if (kept / "rows.csv").exists() else []
    return [*data, *(["-o", "distributed=null"] if kept.name == "servers" else [])]


def expected(kept: Path) -> dict[str, Any]:
    found = json.loads((kept / "expected.json").read_text(encoding="utf-8"))
    assert found["version"] == kept.parent.name
    return found  # type: ignore[no-any-return]


def test_runs_of_this_version_are_kept() -> None:
    assert {kept.name for kept in KEPT if kept.parent.name == __version__} == set(STOP), "run python -m tests.kept.make"


@NAMED
def test_its_config_has_no_mistake(kept: Path) -> None:
    assert run_command_line(["check", str(kept / "config.yaml")]) == 0


@NAMED
def test_training_goes_on_to_the_same_end(kept: Path, run: Path) -> None:
    moved = options(kept, run)  # a path that differs is a change of the config
    assert run_command_line(["train", "--resume", str(run), "--quiet", *(["--allow-changes"] if moved else []), *moved]) == 0
    found, end = last(run), expected(kept)["end"]
    assert set(found) >= set(end)
    assert {name: found[name] for name in end} == pytest.approx(end, rel=0.02, abs=2e-3)


@NAMED
def test_its_checkpoint_is_evaluated(kept: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["eval", str(run), "--json", *options(kept, run)]) == 0
    found, told = json.loads(capsys.readouterr().out), expected(kept)["eval"]
    assert set(found) >= set(told)
    assert Path(found.pop("checkpoint")).name == told.pop("checkpoint")
    assert found["split"] == told.pop("split")
    assert {name: found[name] for name in told} == pytest.approx(told, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("kept", [k for k in KEPT if (k / "new.csv").exists()], ids=lambda kept: f"{kept.name} of {kept.parent.name}")
def test_its_checkpoint_answers(kept: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["predict", str(run), str(kept / "new.csv")]) == 0
    found = list(csv.reader(capsys.readouterr().out.splitlines()))
    wanted = list(csv.reader(expected(kept)["predict"]))
    assert found[0] == wanted[0]
    for row, told in zip(found[1:], wanted[1:], strict=True):
        assert row[:2] == told[:2]
        assert [float(cell) for cell in row[2:]] == pytest.approx([float(cell) for cell in told[2:]], abs=1e-4)


@NAMED
def test_its_run_is_listed(kept: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["runs", str(run.parent), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["state"] == "stopped"
    assert row["step"] == STOP[kept.name]
    assert set(row) >= set(expected(kept)["runs"])
