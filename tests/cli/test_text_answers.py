"""A classifier of texts answers: rows, lines of standard input, files, folders, and requests."""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path

import pytest

from pe_cli.cli.common import open_trained
from pe_cli.session.evaluation.predictor import Predictor
from tests.cli.conftest import train

MODEL = """\
name: words
feeds:
  words: {shape: [1], dtype: int64, lod_level: 1}
  label: {shape: [1], dtype: int64}
layers:
  table:  {type: embedding, input: words, size: [20, 4]}
  text:   {type: sequence_pool, pool_type: sum}
  logits: {type: fc, size: 2}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  source: SOURCE
  columns: {COLUMNlabel: {type: category}}
feeds: {words: NAME}
train: {loss: loss, epochs: 40, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.05}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""
GOOD = ["great, and quiet", "great and handy", "handy", "quiet, handy"]
BAD = ["slow, and noisy", "noisy and ugly", "ugly", "slow, ugly"]


def taught(folder: Path, source: str, name: str, column: str = "") -> Path:
    (folder / "model.yaml").write_text(MODEL)
    given = {"SOURCE": source, "COLUMN": column, "NAME": name, "RUNS": str(folder / "runs")}
    (folder / "config.yaml").write_text(re.sub("|".join(given), lambda found: given[found[0]], CONFIG))
    return train(folder / "config.yaml")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("remark: {type: text, tokens: words, min_count: 1, lower: true}, ", id="declared"),
        pytest.param("", id="inferred"),
    ],
)
def of_table(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("table")
    rows = [*((text, "good") for text in GOOD * 4), *((text, "bad") for text in BAD * 4)]
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("remark", "label"), *rows])
    return taught(folder, "{reader: table, files: rows.csv}", "remark", request.param)


@pytest.fixture(scope="module")
def of_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    for label, texts in (("good", GOOD), ("bad", BAD)):
        (folder / "texts" / label).mkdir(parents=True)
        for i, text in enumerate(texts * 4):
            (folder / "texts" / label / f"{i:02d}.txt").write_text(text)
    return taught(folder, "{reader: text, folder: texts}", "text", "text: {type: text, min_count: 1}, ")


def labels(out: str) -> list[str]:
    return [row["label"] for row in csv.DictReader(io.StringIO(out))]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(b"great\n", ["good"], id="a line is a text"),
        pytest.param(b"noisy and ugly", ["bad"], id="the last line needs no end"),
        pytest.param(b"noisy, and ugly, really\n\nquiet, handy\n", ["bad", "good"], id="lines with commas, and an empty one"),
        pytest.param(b"\xef\xbb\xbfslow\r\nhandy\r\n", ["bad", "good"], id="a mark at the start, and ends of another system"),
        pytest.param(b"remark\nugly\ngreat\n", ["bad", "good"], id="a table of one column"),
        pytest.param(b"id,remark\n1,ugly\n2,\"great, quiet\"\n", ["bad", "good"], id="a table of two columns"),
        pytest.param(b"id\tremark\n1\tugly\n2\tgreat\n", ["bad", "good"], id="a table with tabs"),
        pytest.param(b'{"remark": "ugly"}\n{"remark": "handy"}\n', ["bad", "good"], id="lines of JSON"),
    ],
)
def test_standard_input_of_a_model_of_one_text(of_table, pe, monkeypatch, given, expected):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    said = pe("predict", of_table, "-")
    assert said.code == 0, said.err
    assert labels(said.out) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(b"", "standard input is empty", id="nothing"),
        pytest.param(b"good\nb\xffd\n", "line 2 of standard input is no UTF-8: byte 2 is 0xff", id="no UTF-8"),
        pytest.param(b"ugly\na\0b\n", "byte 2 of the text is NUL", id="a NUL byte"),
    ],
)
def test_standard_input_that_is_no_text(of_table, pe, monkeypatch, given, message):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    said = pe("predict", of_table, "-")
    assert said.code == 3
    assert message in said.err


def test_a_model_of_texts_in_files(of_folder, pe, monkeypatch, tmp_path):
    said = pe("predict", of_folder, of_folder.parents[1] / "texts")
    assert labels(said.out) == ["bad"] * 16 + ["good"] * 16
    (tmp_path / "new.txt").write_text("handy\nslow\n")
    assert labels(pe("predict", of_folder, tmp_path / "new.txt").out) == ["good", "bad"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"slow, slow, slow\n")))
    assert labels(pe("predict", of_folder, "-").out) == ["bad"]


def test_standard_input_is_known_by_no_file(of_folder, pe, monkeypatch, tmp_path):
    (tmp_path / "new.txt").write_text("handy\n")
    as_files = ("-o", "data.source.per=file")  # one text is one file
    assert pe("predict", of_folder, tmp_path / "new.txt", *as_files).out.startswith("file,label,")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"handy\n")))
    said = pe("predict", of_folder, "-", *as_files)
    assert said.out.startswith("row,label,prob_bad,prob_good\n1,good,")
    assert said.err == ""


def test_words_that_training_never_saw_are_counted(of_folder, pe, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"quiet wombats\n")))
    said = pe("predict", of_folder, "-")
    assert "1 token of column 'text' (50%) with the id of unknown ones, the first in row 1, 'quiet wombats'" in said.err


def test_requests_may_be_a_text_alone(of_folder):
    job, _ = open_trained(of_folder, (), None)
    predictor = Predictor(job)
    assert predictor.text == "text"
    found = predictor.rows([{"text": "handy"}, {"text": "noisy"}, {"text": ""}])
    assert [row["label"] for row in found[:2]] == ["good", "bad"]
