"""Series of the user's: trained, measured, forecast, and never with a look into the future."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from pe_cli.cli.common import open_trained
from pe_cli.core.errors import PeError
from pe_cli.session.evaluation.predictor import Predictor
from tests.cli.conftest import Pe, train
from tests.rotation import on_its_day

MODEL = """\
name: next_days
feeds:
  past: {shape: [6, 2]}
  shop: {shape: [1], dtype: int64}
  next: {shape: [2]}
layers:
  row:      {type: embedding, input: shop, size: [5, 2]}
  flat:     {type: reshape, x: past, shape: [-1, 12]}
  all:      {type: concat, input: [flat, row], axis: 1}
  forecast: {type: fc, size: 2}
  square:   {type: square_error_cost, input: forecast, label: next}
  loss:     {type: mean, x: square}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: windows, table: rows.csv, key: shop, time: day, length: 6, horizon: 2}
  split: {eval: 0.2, test: 0.1}
  columns:
    sold: {type: number, scale: standard}
    past: {type: window, of: [sold, open]}
    next: {type: window, of: sold, part: horizon}
train: {loss: loss, epochs: 150, batch_size: 16, optimizer: {type: Adam, learning_rate: 0.02}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""
SHOPS, DAYS = ("a", "b", "c"), 80


def number(shop: int, day: int) -> float:
    """A wave of three days on a level of its own for every shop."""
    return 100 * (shop + 1) + 10 * ((day + shop) % 3)


def write(path: Path, days: int, change_from: int | None = None) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["shop", "open", "day", "sold", "remark"])
        for i in range(days):
            for j, shop in enumerate(SHOPS):
                sold = number(j, i) if change_from is None or i < change_from else 9999 + i
                out.writerow([shop, "yes" if i % 2 else "no", date(2024, 1, 1) + timedelta(days=i), sold, "x"])


def written(folder: Path) -> Path:
    """Return a config beside its data."""
    write(folder / "rows.csv", DAYS)
    (folder / "model.yaml").write_text(MODEL)
    (folder / "config.yaml").write_text(CONFIG.replace("RUNS", str(folder / "runs")))
    return folder / "config.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(written(tmp_path_factory.mktemp("series")))


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def test_forecasts_are_rows_per_series_in_the_unit_of_the_column(run: Path, pe: Pe, tmp_path: Path) -> None:
    write(tmp_path / "new.csv", 50)
    said = pe("predict", run, tmp_path / "new.csv")
    assert said.code == 0, said.err
    assert "the model does not read remark" in said.err
    for j, row in enumerate(rows(said.out)):
        assert (row["shop"], row["day"]) == (SHOPS[j], "2024-02-19")
        assert float(row["sold_1"]) == pytest.approx(number(j, 50), abs=4)
        assert float(row["sold_2"]) == pytest.approx(number(j, 51), abs=4)


def test_a_request_has_the_rows_of_series(run: Path, tmp_path: Path) -> None:
    write(tmp_path / "new.csv", 50)
    predictor = Predictor(open_trained(run, (), None)[0])
    assert set(predictor.columns) == {"sold", "open", "shop", "day"}
    assert predictor.schema()["series"] == {"rows": 6, "key": "shop", "time": "day"}
    with (tmp_path / "new.csv").open() as file:
        asked = list(csv.DictReader(file))[-18:]
    found = predictor.rows(asked[::-1])  # whatever the order of the rows
    assert sorted(row["shop"] for row in found) == ["a", "b", "c"]
    of = {row["shop"]: row for row in found}
    assert of["b"]["sold_1"] == pytest.approx(number(1, 50), abs=4)
    with pytest.raises(PeError, match="no window of 6 rows fits: the longest series has 2"):
        predictor.rows(asked[:6])


def test_eval_measures_a_file_by_all_its_windows(run: Path, pe: Pe, tmp_path: Path) -> None:
    write(tmp_path / "new.csv", 20)
    said = pe("eval", run, tmp_path / "new.csv")
    assert said.code == 0, said.err
    assert "(39 samples" in said.out  # 20 - 6 - 2 + 1 of each shop


@on_its_day(1, of=2)
def test_what_comes_later_changes_nothing_that_is_learned(run: Path, tmp_path: Path) -> None:
    config = written(tmp_path)
    write(tmp_path / "rows.csv", DAYS, change_from=56)  # the first 70% train
    other = train(config)
    one, two = (max((folder / "checkpoints").glob("step-*"), key=lambda step: step.stat().st_mtime_ns) for folder in (run, other))
    assert json.loads((one / "data.json").read_text())["columns"] == json.loads((two / "data.json").read_text())["columns"]
    assert (one / "params.safetensors").read_bytes() == (two / "params.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("of: [sold, open]", "of: [sold, opne]", "the data has no column 'opne'", id="no such column"),
        pytest.param("of: [sold, open]", "of: [sold, next]", "is made of 'next', which is a window itself", id="a window of a window"),
        pytest.param("horizon: 2}", "horizon: 2, ends: true}", "the ends of series have no horizon", id="no horizon"),
        pytest.param("{reader: windows, table: rows.csv, key: shop, time: day, length: 6, horizon: 2}", "{reader: table, files: rows.csv}",
                     "column 'past': only the reader windows cuts series into windows", id="another reader"),
        pytest.param("length: 6", "length: 60", "no window of 62 rows fits", id="too long"),
        pytest.param("length: 6", "length: 5", "float32[5, 2]", id="another length than the model's"),
        pytest.param("length: 6", "length: 0", "length", id="no rows"),
    ],
)  # fmt: skip
def test_mistakes(pe: Pe, tmp_path: Path, old: str, new: str, message: str) -> None:
    config = written(tmp_path)
    config.write_text(config.read_text().replace(old, new))
    said = pe("train", config, "--quiet")
    assert said.code in (2, 3)
    assert message in said.err
