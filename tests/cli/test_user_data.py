"""A table of the user's: trained, measured and asked, with what the training rows taught."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io.checkpoint import load
from tests.cli.conftest import Pe, train

MODEL = """\
name: kinds
feeds:
  x: {shape: [2]}
  color: {shape: [1], dtype: int64}
  kind: {shape: [1], dtype: int64}
layers:
  row:    {type: embedding, input: color, size: [5, 2]}
  all:    {type: concat, input: [x, row], axis: 1}
  logits: {type: fc, input: all, size: 3}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: kind}
  loss:   {type: mean, x: xent}
  prob:   {type: softmax, input: logits}
  acc:    {type: accuracy, input: prob, label: kind}
fetches: [loss, acc, prob]
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: table, files: rows.csv}
  split: {eval: 0.25, test: 0.25, stratify: kind}
  columns:
    a: {type: number, missing: median, scale: standard}
    b: {type: number, scale: minmax}
    color: {type: category}
    kind: {type: category}
feeds: {x: [a, b]}
train: {loss: loss, epochs: 40, batch_size: 16, optimizer: {type: Adam, learning_rate: 0.05}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS, checkpoint: {every: 40 epochs}}
"""


def written(folder: Path) -> Path:
    """Return a config beside 120 rows whose kind follows from a and color; one cell of a is missing."""
    rng = np.random.default_rng(20240229)
    with (folder / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["a", "b", "color", "kind"])
        for i in range(120):
            color = ("red", "green", "blue")[i % 3]
            a = float(rng.normal(10, 4))
            kind = "cat" if a > 12 else "dog" if color == "red" else "ant"
            out.writerow(["" if i == 7 else f"{a:.3f}", f"{rng.uniform():.3f}", color, kind])
    (folder / "model.yaml").write_text(MODEL)
    path = folder / "kinds.yaml"
    path.write_text(CONFIG.replace("RUNS", str(folder / "runs")))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture
def own(table: Path) -> Path:
    """A run that may be changed, and the data beside it."""
    return train(table)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is only read."""
    return train(written(tmp_path_factory.mktemp("kinds")))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def by_hand(run: Path, row: dict[str, str]) -> np.ndarray:
    """Work out the probabilities of a row of cells with NumPy."""
    values, _ = load(run / "checkpoints/last")
    columns = json.loads((run / "checkpoints/step-160/data.json").read_text())["columns"]
    cells = []
    for name in ("a", "b"):
        state = columns[name]["state"]
        cell = state["fill"] if row[name] == "" else float(row[name])
        cells.append((cell - state["shift"][0]) / state["divisor"][0])
    classes = ["", "", *sorted({r["color"] for r in rows_of((run.parents[1] / "rows.csv").read_text())})]
    table_of = next(v for k, v in values.items() if v.shape == (5, 2))
    weight = next(v for k, v in values.items() if v.shape == (4, 3))
    bias = next(v for k, v in values.items() if v.shape == (3,))
    index = classes.index(row["color"]) if row["color"] in classes[2:] else 0 if row["color"] else 1
    logits = np.array([*cells, *table_of[index]]) @ weight + bias
    return np.exp(logits) / np.exp(logits).sum()


NEW = """\
id,color,b,a
k1,red,0.5,4.5
k2,green,0.25,
k3,violet,0.75,15
k4,,0.1,9
"""


def test_predictions_carry_names_and_ids(pe: Pe, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.csv").write_text(NEW)
    monkeypatch.chdir(tmp_path)
    said = pe("predict", run, "new.csv")
    assert said.code == 0, said.err
    found = rows_of(said.out)
    assert [row["id"] for row in found] == ["k1", "k2", "k3", "k4"]
    assert list(found[0]) == ["id", "kind", "prob_ant", "prob_cat", "prob_dog"]
    for row, cells in zip(found, rows_of(NEW), strict=True):
        prob = by_hand(run, cells)
        np.testing.assert_allclose([float(row[f"prob_{k}"]) for k in ("ant", "cat", "dog")], prob, rtol=1e-4, atol=1e-7)
        assert row["kind"] == ["ant", "cat", "dog"][int(prob.argmax())]
    assert "'violet' in row 3 is no class of the training rows" in said.err


def test_permuted_columns_give_the_same_answers(pe: Pe, run: Path, tmp_path: Path) -> None:
    rows = rows_of(NEW)
    other = tmp_path / "other.csv"
    with other.open("w", newline="") as file:
        out = csv.DictWriter(file, ["a", "b", "color", "id"])
        out.writeheader()
        out.writerows(rows)
    (tmp_path / "new.csv").write_text(NEW)
    one, two = (pe("predict", run, tmp_path / name) for name in ("new.csv", "other.csv"))
    assert one.out == two.out != ""


def test_the_training_files_are_not_needed(pe: Pe, own: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(NEW)
    before = pe("predict", own, tmp_path / "new.csv").out
    (table.parent / "rows.csv").unlink()
    assert pe("predict", own, tmp_path / "new.csv").out == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("color,b\nred,1\n", "the data has no column 'a'", id="a missing column"),
        pytest.param("color,b,a\nred,1,x\n", "column 'a': 'x' is no finite number", id="text for a number"),
        pytest.param("color,b,a\nred,,1\n", "column 'b': the cell is missing", id="a cell that may not be missing"),
        pytest.param("color,b,a\n", "has a header and no rows", id="a header only"),
    ],
)
def test_what_cannot_be_answered(pe: Pe, run: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    said = pe("predict", run, tmp_path / "new.csv")
    assert said.code == 3
    assert message in said.err
    assert said.out == ""


def test_superfluous_columns_are_said_once(pe: Pe, run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("color,b,a,x,y\nred,1,2,7,8\nred,1,2,7,8\n")
    said = pe("predict", run, tmp_path / "new.csv")
    assert said.code == 0, said.err
    assert said.err == "note: the model does not read x, y\n"
    assert [row["row"] for row in rows_of(said.out)] == ["1", "2"]


def test_json_lines_from_standard_input(pe: Pe, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.csv").write_text(NEW)
    lines = b'{"id": "k1", "color": "red", "b": 0.5, "a": 4.5}\n{"id": "k2", "color": "green", "b": 0.25, "a": null}\n'
    monkeypatch.setattr("sys.stdin", type("In", (), {"buffer": io.BytesIO(lines)}))
    out = tmp_path / "answers.jsonl"
    said = pe("predict", run, "-", "--out", out)
    assert said.code == 0, said.err
    found = [json.loads(line) for line in out.read_text().splitlines()]
    expected = rows_of(pe("predict", run, tmp_path / "new.csv").out)[:2]
    assert [row["kind"] for row in found] == [row["kind"] for row in expected]
    assert found[0]["prob_ant"] == pytest.approx(float(expected[0]["prob_ant"]))


def test_an_evaluation_file_without_a_class_is_measured_right(pe: Pe, run: Path, tmp_path: Path) -> None:
    # text labels numbered by the file at hand would make dog 0 or 1
    rows = [row for row in rows_of((run.parents[1] / "rows.csv").read_text()) if row["kind"] != "ant"]
    with (tmp_path / "some.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    said = pe("eval", run, tmp_path / "some.csv", "--json", "--classes")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    right = np.mean([["ant", "cat", "dog"][int(by_hand(run, row).argmax())] == row["kind"] for row in rows])
    assert found["acc"] == pytest.approx(right)
    assert [row["class"] for row in found["classes"]] == ["ant", "cat", "dog"]
    assert found["classes"][0]["samples"] == 0


def test_a_class_that_training_never_saw_is_an_error(pe: Pe, run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("a,b,color,kind\n1,2,red,cow\n")
    said = pe("eval", run, tmp_path / "new.csv")
    assert said.code == 3
    assert "column 'kind': 'cow' is not among the 3 classes of the training rows" in said.err
    assert "new.csv:2:9" in said.err


def test_a_split_is_recorded_and_kept(pe: Pe, own: Path, table: Path) -> None:
    found = json.loads((own / "checkpoints/step-160/data.json").read_text())["split"]
    assert found["rows"] == 120
    assert found["parts"] == {"train": 60, "eval": 30, "test": 30}
    said = pe("eval", own, "--split", "test", "--json")
    assert json.loads(said.out)["samples"] == 30
    with (table.parent / "rows.csv").open("a") as file:
        file.write("1,1,red,dog\n")
    said = pe("eval", own, "--split", "test")
    assert said.code == 3
    assert "data.source has 121 rows, divided otherwise than in training, where it had 120" in said.err


def test_an_edited_data_json_is_found_out(pe: Pe, own: Path, tmp_path: Path) -> None:
    path = own / "checkpoints/step-160/data.json"
    path.write_text(path.read_text().replace('"ant"', '"bee"'))
    (tmp_path / "new.csv").write_text(NEW)
    said = pe("predict", own, tmp_path / "new.csv")
    assert said.code == 3
    assert "data.json: changed since it was written" in said.err


def test_a_resumed_run_keeps_what_was_learned(pe: Pe, own: Path, table: Path) -> None:
    before = (own / "checkpoints/step-160/data.json").read_bytes()
    said = pe("train", "--resume", own, "-o", "train.epochs=41", "-o", "output.checkpoint.every=1 epoch", "--quiet")
    assert said.code == 0, said.err
    assert (own / "checkpoints/step-164/data.json").read_bytes() == before


def test_fewer_threads_and_another_batch_change_nothing_that_is_learned(pe: Pe, run: Path, tmp_path: Path) -> None:
    said = pe("train", run.parents[1] / "kinds.yaml", "--quiet", "-o", "executor.devices=2", "-o", f"output.dir={tmp_path / 'two'}")
    assert said.code == 0, said.err
    other = next((tmp_path / "two").iterdir())
    name = "checkpoints/step-160/data.json"
    assert (run / name).read_bytes() == (other / name).read_bytes()


def test_all_wrong_columns_are_told_in_one_run(pe: Pe, table: Path) -> None:
    shutil.copy(table.parent / "rows.csv", table.parent / "good.csv")
    (table.parent / "rows.csv").write_text("a,b,color,kind\nx,1,red,dog\n2,,red,cat\n3,4,blue,dog\n4,4,blue,cat\n5,4,red,ant\n")
    said = pe("train", table, "-o", "data.split={eval: 0.3}")
    assert said.code == 3
    assert "rows.csv:2:1: error: column 'a': 'x' is no finite number" in said.err
    assert "rows.csv:3:3: error: column 'b': the cell is missing" in said.err
    assert not (table.parent / "runs").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        pytest.param("data.columns.a={type: numbr}", "data.columns.a: there is no column type 'numbr'", id="a type"),
        pytest.param("data.columns.a={type: number, scal: standard}", "type number has no option 'scal'", id="an option"),
        pytest.param("data.columns.a={type: number, scale: big}", "data.columns.a: type number: scale must be none", id="a value"),
        pytest.param("data.columns.z={type: number}", "the data has no column 'z'", id="no such column"),
        pytest.param("feeds.x=[a, bb]", "the data has no column 'bb'", id="no such column in a feed"),
        pytest.param("feeds.x=[]", "feeds.x.from must be the name of a field, or a list of names", id="an empty list"),
        pytest.param("data.split={eval: 0.5, folds: 3, fold: 1}", "eval and folds both say", id="eval and folds"),
        pytest.param("data.split={eval: 0.6, test: 0.5}", "leave no row for training", id="all shares"),
        pytest.param("data.eval={reader: table, files: rows.csv}", "data.eval and data.split both say", id="two evaluations"),
    ],
)
def test_mistakes_in_a_config(pe: Pe, table: Path, override: str, message: str) -> None:
    said = pe("train", table, "-o", override)
    assert said.code in (2, 3), said.err
    assert message in said.err
