"""Warnings of whole runs: tables and arrays, each once where it has to be and once where it must not be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.session.data.diagnostics import diagnose_data
from pe_cli.session.job import Job

MODEL = """\
name: m
feeds:
  x: {shape: [2]}
  kind: {shape: [1], dtype: int64}
layers:
  logits: {type: fc, input: x, size: 9}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: kind}
  loss: {type: mean, x: xent}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
DATA
feeds: {x: [a, b], kind: kind}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1}
output: {dir: RUNS}
"""
SPLIT = """\
  source: {reader: table, files: rows.csv}
  split: {eval: 0.25, seed: 1HOW}
"""


def write(
    folder: Path, rows: Sequence[tuple[object, ...]], data: str, model: str = MODEL, config: str = CONFIG
) -> Path:
    """Write a table, a model and a config."""
    lines = ["a,b,kind", *(",".join(map(str, row)) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "model.yaml").write_text(model)
    path = folder / "run.yaml"
    path.write_text(config.replace("DATA", data.rstrip()).replace("RUNS", str(folder / "runs")))
    return path


def warned(folder: Path, rows: Sequence[tuple[object, ...]], data: str, **files: str) -> list[str]:
    return diagnose_data(Job.open(write(folder, rows, data, **files)))


def mixed(count: int) -> list[tuple[object, ...]]:
    """Return rows that all differ, with three kinds in no order."""
    rng = np.random.default_rng(5)
    return [(i * 7919 % 1000, f"{rng.normal():.6f}", "abc"[int(rng.integers(3))]) for i in range(count)]


def test_of_drawn_rows_that_differ_nothing_is_said(tmp_path):
    assert warned(tmp_path, mixed(80), SPLIT.replace("HOW", ", stratify: kind")) == []


def test_rows_that_are_there_twice_are_counted(tmp_path):
    rows = mixed(40)
    found = warned(tmp_path, rows + rows, SPLIT.replace("HOW", ", order: random"))
    job = Job.open(tmp_path / "run.yaml")
    train, other = (
        {(row % 40) for row in part.tolist()} for part in (job.data.prepared.sources.parts()[use] for use in ("train", "eval"))
    )
    count = sum(row % 40 in train for row in job.data.prepared.sources.parts()["eval"].tolist())
    assert other & train
    assert found[0].startswith(f"{count} of 20 rows of data.eval (")


def test_grouped_rows_are_in_one_part(tmp_path):
    rows = mixed(40)
    assert warned(tmp_path, rows + rows, SPLIT.replace("HOW", ", group: a")) == []


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param(", order: position", True, id="cut by position"),
        pytest.param(", stratify: kind", False, id="drawn"),
    ],
)
def test_sorted_rows_that_are_cut(tmp_path, how, expected):
    rows = sorted(mixed(80), key=lambda row: str(row[2]))
    found = warned(tmp_path, rows, SPLIT.replace("HOW", how))
    cut = "the rows are sorted by column 'kind' and cut by their position (data.split.order: position)"
    assert any(text.startswith(cut) for text in found) is expected
    assert any(text.startswith("data.eval has no row of classes 'a', 'b' of 'kind'") for text in found) is expected


CUT = """\
  train: {reader: table, files: rows.csv, limit: 60}
  eval: {reader: table, files: rows.csv, skip: 60}
"""


def test_a_file_that_skip_and_limit_cut_is_looked_at_too(tmp_path):
    rows = sorted(mixed(80), key=lambda row: int(str(row[0])))
    found = warned(tmp_path, rows, CUT)
    assert found[0].startswith("the rows are sorted by column 'a' and cut by their position (skip and limit)")
    assert warned(tmp_path, mixed(80), CUT) == []


def test_a_time_split_of_sorted_rows_is_meant(tmp_path):
    rows = sorted(mixed(80), key=lambda row: int(str(row[0])))
    assert warned(tmp_path, rows, SPLIT.replace("HOW", ", time: a")) == []


def test_a_constant_target_has_its_name(tmp_path):
    rows = [(a, b, "same") for a, b, _ in mixed(40)]
    found = warned(tmp_path, rows, SPLIT.replace("HOW", ""))
    assert found == [text for text in found if text.startswith("the target 'kind' is 'same' in every training row")]
    assert len(found) == 1


def test_a_constant_number_is_in_the_unit_of_the_file(tmp_path):
    model = MODEL.replace("kind: {shape: [1], dtype: int64}", "kind: {shape: [1]}")
    model = model.replace("size: 9", "size: 1").replace(
        "softmax_with_cross_entropy, logits: logits", "square_error_cost, input: logits"
    )
    data = SPLIT.replace("HOW", "") + "  columns: {kind: {type: number, scale: standard}}\n"
    found = warned(tmp_path, [(a, b, 12.5) for a, b, _ in mixed(40)], data, model=model)
    assert found[0].startswith("the target 'kind' is 12.5 in every training row")


def test_an_id_is_told_and_other_categories_are_not(tmp_path):
    model = MODEL.replace("x: {shape: [2]}", "x: {shape: [1], dtype: int64}").replace(
        "logits: {type: fc, input: x",
        "row: {type: embedding, input: x, size: [99, 2]}\n  logits: {type: fc, input: row",
    )
    data = SPLIT.replace("HOW", "") + "  columns: {a: {type: category}, kind: {type: category}}\n"
    config = CONFIG.replace("x: [a, b]", "x: a")
    found = warned(tmp_path, mixed(80), data, model=model, config=config)
    assert found[0].startswith("column 'a' has another value in every row, 60 in 60 training rows: is it an id?")
    again = warned(
        tmp_path, [(i % 4, b, kind) for i, (_, b, kind) in enumerate(mixed(80))], data, model=model, config=config
    )
    assert not any("is it an id?" in text for text in again)


def test_arrays_are_compared_as_they_are(tmp_path, rng):
    x, y = rng.normal(size=(60, 2)).astype("float32"), rng.integers(0, 3, (60, 1))
    y[:3, 0] = [0, 1, 2]
    y[40:, 0] = 1
    x[50] = x[4]
    y[50] = y[4] = 1
    np.savez(tmp_path / "rows.npz", a=x[:40], kind=y[:40], a2=x[40:], kind2=y[40:])
    data = """\
  train: {reader: npz, file: rows.npz, fields: {a: a, kind: kind}}
  eval: {reader: npz, file: rows.npz, fields: {a: a2, kind: kind2}}
"""
    found = warned(tmp_path, [], data, config=CONFIG.replace("x: [a, b]", "x: a"))
    assert found[0].startswith("data.eval has no row of classes '0', '2' of 'kind'")
    assert found[1].startswith("1 of 20 rows of data.eval (5%) is a training row, too")
    assert len(found) == 2


def test_warnings_are_in_the_log_of_a_run(tmp_path, capfd):
    rows = mixed(40)
    path = write(tmp_path, rows + rows, SPLIT.replace("HOW", ", order: random"))
    assert run_command_line(["train", str(path)]) == 0
    assert "are training rows, too" in capfd.readouterr().err
    log = next((tmp_path / "runs").glob("*/log.txt")).read_text()
    assert "are training rows, too" in log
    assert run_command_line(["check", str(path)]) == 0
    assert "warning: " in capfd.readouterr().err


def test_numbers_of_arrays_that_are_none_are_told_by_their_row(tmp_path):
    x = np.ones((9, 2), np.float32)
    x[6, 1] = np.nan
    np.savez(tmp_path / "data.npz", x=x, kind=np.arange(9)[:, None] % 3)
    data = "  train: {reader: npz, file: data.npz, skip: 2}\n  eval: {reader: npz, file: data.npz, limit: 6}"
    found = warned(tmp_path, [], data, config=CONFIG.replace("x: [a, b]", "x: x"))
    assert [text for text in found if "NaN" in text] == [
        "feed 'x' has NaN in row 7 of data.train: what is computed of it is no number. Mend the data"
    ]
