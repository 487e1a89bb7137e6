"""Metrics as a table and as TensorBoard events, read back by csv and by TensorBoard."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from pe_cli.core.errors import PeError, Span
from pe_cli.io.metric_files import CsvTable, EventFile, require_tensorboard
from tests import needs


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_table_has_a_column_a_metric_and_empty_cells(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "m.csv", ["loss", "a,b", "acc"])
    table.add(1, 0, {"train/loss": 0.5, "train/a,b": 1e-9})
    table.add(1, 1, {"eval/acc": float("nan")})
    found = rows(tmp_path / "m.csv")
    assert found[0] == {"step": "1", "epoch": "0", "split": "train", "loss": "0.5", "a,b": "1e-09", "acc": ""}
    assert found[1] == {"step": "1", "epoch": "1", "split": "eval", "loss": "", "a,b": "", "acc": "nan"}


def test_a_run_that_goes_on_keeps_the_rows_of_its_metrics(tmp_path: Path) -> None:
    CsvTable(tmp_path / "m.csv", ["loss"]).add(9, 0, {"train/loss": 7.0})
    before = [{"step": 1, "epoch": 0, "split": "train", "loss": 0.5}]
    CsvTable(tmp_path / "m.csv", ["loss"], before).add(2, 0, {"train/loss": 0.25})
    assert [(r["step"], r["loss"]) for r in rows(tmp_path / "m.csv")] == [("1", "0.5"), ("2", "0.25")]


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    needs.package("tensorboardX")
    loader = needs.package("tensorboard.backend.event_processing.event_file_loader")
    events = EventFile(tmp_path / "tb")
    events.add(3, {"train/loss": 0.5, "train/acc": 0.25})
    events.add(4, {"eval/loss": float("inf")})
    events.close()
    assert events.path.name.endswith(".pe"), "the name of the machine is not in it"
    read = list(loader.LegacyEventFileLoader(str(events.path)).Load())
    assert read[0].file_version == "brain.Event:2"
    values = [(e.step, v.tag, v.simple_value) for e in read[1:] for v in e.summary.value]
    assert values == [(3, "train/loss", 0.5), (3, "train/acc", 0.25), (4, "eval/loss", float("inf"))]


def test_a_missing_library_is_told_with_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(PeError) as caught:
        require_tensorboard(Span("run.yaml", 7, 3))
    assert "run.yaml:7:3" in str(caught.value)
    assert "pe-cli[tensorboard]" in str(caught.value)
