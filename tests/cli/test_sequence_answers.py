"""A model that says something of every item of a sequence answers with all of them: taggers, and a reader by CTC."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.common import open_trained
from pe_cli.session.evaluation.predictor import Predictor
from tests.cli.conftest import Pe, Said

#: Words are known as 1, 2, 3 (0 is any other), and so are tags: the embedding is how much speaks for each tag of each word.
TAGGER = """\
name: tagger
feeds:
  words: {shape: [1], dtype: int64, lod_level: 1}
  tags:  {shape: [1], dtype: int64, lod_level: 1}
layers:
  scores: {type: embedding, input: words, size: [4, 4], param_attr: {name: table}}
  COST
  loss:   {type: mean, x: cost}
fetches: [loss, LAST]
"""
CRF = """\
cost: {type: linear_chain_crf, input: scores, label: tags, param_attr: {name: transitions}}
  best: {type: crf_decoding, input: scores, param_attr: {name: transitions}}
  right: {type: crf_decoding, input: scores, param_attr: {name: transitions}, label: tags}"""
SOFTMAX = "cost: {type: softmax_with_cross_entropy, logits: scores, label: tags}"
CONFIG = """\
model: model.yaml
data:
  source: {reader: table, files: rows.csv}
  columns:
    words: {type: sequence, items: category}
    tags:  {type: sequence, items: category, separator: "/"}
train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 1.0e-6}}
executor: {devices: DEVICES, seed: 1}
output: {dir: runs}
"""
ROWS = "words,tags\nann saw bob,name/verb/name\nbob saw,name/verb\nsaw,verb\ntwice saw,other/verb\n"
#: In the order of their names: ann, bob, saw, twice.
TABLE = [[2, 0, 0, 0], [0, 4, 0, 0], [0, 3, 0, 1], [0, 0, 0, 5], [0, 0, 2, 0]]


def taught(folder: Path, pe: Pe, cost: str, last: str, devices: int = 1) -> Path:
    (folder / "rows.csv").write_text(ROWS)
    (folder / "model.yaml").write_text(TAGGER.replace("COST", cost).replace("LAST", last).replace("[4, 4]", "[5, 4]"))
    (folder / "config.yaml").write_text(CONFIG.replace("DEVICES", str(devices)).replace("runs", str(folder / "runs")))
    values = {"table": np.array(TABLE, np.float32)}
    if cost == CRF:  # a verb does not follow a verb, whatever the words say
        values["transitions"] = np.zeros((6, 4), np.float32)
        values["transitions"][2 + 3, 3] = -100
    return trained(folder, pe, values)


def trained(folder: Path, pe: Pe, values: dict[str, np.ndarray]) -> Path:
    """Return a run that hardly moves from first values."""
    np.savez(folder / "values.npz", **values)
    said = pe("train", folder / "config.yaml", "--quiet", "--init", folder / "values.npz", "-o", "train.init.layout=paddle")
    assert said.code == 0, said.err
    return next((folder / "runs").iterdir())


def answers(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [row["tags"] for row in csv.DictReader(io.StringIO(said.out))]


@pytest.fixture(params=[(CRF, "best"), (SOFTMAX, "scores")], ids=["by a CRF", "word by word"])
def run(request: pytest.FixtureRequest, pe: Pe, tmp_path: Path) -> Path:
    return taught(tmp_path, pe, *request.param)


def test_tags_are_those_of_the_file_and_written_as_there(run, pe, tmp_path):
    (tmp_path / "new.csv").write_text("words\nbob saw ann twice\nsaw\nwho saw\n")
    # tags in the order of their names, behind the unknown one: name, other, verb; of an unknown word nothing is known
    assert answers(pe("predict", run, tmp_path / "new.csv")) == ["name/verb/name/other", "verb", "<unknown>/verb"]


@pytest.mark.parametrize(("cost", "last", "op"), [(CRF, "best", "linear_chain_crf"), (SOFTMAX, "scores", "softmax_with_cross_entropy")])
def test_a_row_with_another_number_of_tags_is_named(pe, tmp_path, cost, last, op):
    taught(tmp_path, pe, cost, last)
    # a word more in one row and a tag more in the next: the batch has as many of both
    (tmp_path / "rows.csv").write_text(ROWS + "ann saw bob,name/verb\nbob saw,name/verb/name\n")
    said = pe("train", tmp_path / "config.yaml", "--quiet")
    assert said.code == 3
    assert f"{op}: 'words' has 3 items and 'tags' has 2 in row 5 of data.train" in said.err
    assert "hint: every item has a label; 2 rows are like that" in said.err
    assert "'words' has 3 items and 'tags' has 2 in row 5" in pe("check", tmp_path / "config.yaml").err


def test_a_line_of_slots_with_another_number_of_tags_is_named(pe, tmp_path):
    taught(tmp_path, pe, CRF, "best")
    (tmp_path / "lines.txt").write_text("2 1 2 2 1 3\n1 2 2 1 3\n2 1 2 1 3\n")
    slots = "{words: {type: uint64}, tags: {type: uint64}}"
    (tmp_path / "lines.yaml").write_text(
        f"model: model.yaml\ndata: {{train: {{reader: multi_slot, files: [lines.txt], slots: {slots}}}}}\n"
        "train: {loss: loss, epochs: 1, batch_size: 3, optimizer: {type: SGD, learning_rate: 0.1}}\nexecutor: {devices: 1}\n"
    )
    said = pe("train", tmp_path / "lines.yaml", "--quiet", "-o", f"output.dir={tmp_path / 'runs'}")
    assert said.code == 3
    assert "'words' has 1 item and 'tags' has 2 in row 2 of data.train" in said.err


def test_a_crf_takes_the_best_tags_of_a_sentence_together(pe, tmp_path):
    run = taught(tmp_path, pe, CRF, "best")
    (tmp_path / "new.csv").write_text("words\nsaw saw\nsaw bob\n")
    first, second = answers(pe("predict", run, tmp_path / "new.csv"))
    assert sorted(first.split("/"))[-1] == "verb"
    assert first != "verb/verb"
    assert second == "verb/name"


def test_devices_that_share_a_batch_say_the_same(pe, tmp_path):
    run = taught(tmp_path, pe, CRF, "best", devices=2)
    assert answers(pe("predict", run, tmp_path / "rows.csv")) == ["name/verb/name", "name/verb", "verb", "other/verb"]


def test_lines_of_standard_input_are_sequences(run, pe, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bob saw ann\nsaw\n")))
    assert answers(pe("predict", run, "-")) == ["name/verb/name", "verb"]


def test_requests_are_answered_alike(run):
    job, _ = open_trained(run, (), None)
    found = Predictor(job).rows([{"words": "twice saw"}, {"words": "bob"}])
    assert found == [{"tags": "other/verb"}, {"tags": "name"}]


def test_arrays_of_sequences_are_written_with_their_lengths(pe, tmp_path):
    run = taught(tmp_path, pe, CRF, "best")
    said = pe("predict", run, "--split", "train", "--fetch", "words", "--fetch", "best", "--out", tmp_path / "all.npz")
    assert said.code == 0, said.err
    with np.load(tmp_path / "all.npz") as found:
        assert found["words"].tolist() == [[1], [3], [2], [2], [3], [3], [4], [3]]
        assert found["best"].tolist() == [[1], [3], [1], [1], [3], [3], [2], [3]]
        assert found["words.lengths"].tolist() == found["best.lengths"].tolist() == [3, 2, 1, 2]
    pe("predict", run, "--split", "train", "--fetch", "best", "--out", tmp_path / "all.jsonl")
    lines = [json.loads(line)["best"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert lines == [[1, 3, 1], [1, 3], [3], [2, 3]]
    said = pe("predict", run, "--split", "train", "--fetch", "best", "--out", tmp_path / "all.csv")
    assert said.code == 2
    assert "'best' has sequences, and samples of a .csv have one length" in said.err


READER = """\
name: reader
feeds:
  steps: {shape: [5]}
  label: {shape: [3], dtype: int64}
layers:
  path:   {type: cast, x: steps, dtype: int64}
  column: {type: unsqueeze, input: path, axes: [2]}
  hot:    {type: one_hot, input: column, depth: 4}
  first:  {type: transpose, x: hot, perm: [1, 0, 2]}
  moved:  {type: fc, input: first, size: 4, num_flatten_dims: 2, bias_attr: false, param_attr: {name: w}}
  back:   {type: transpose, x: moved, perm: [1, 0, 2]}
  many:   {type: fill_constant_batch_size_like, input: steps, shape: [-1, 1], dtype: int64, value: 5}
  long:   {type: fill_constant_batch_size_like, input: steps, shape: [-1, 1], dtype: int64, value: 1}
  cost:   {type: warpctc, input: moved, label: label, input_length: many, label_length: long}
  loss:   {type: mean, x: cost}
  text:   {type: ctc_greedy_decoder, input: back, blank: 0, input_length: many}
fetches: [loss]
"""


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        pytest.param("npz, file: lines.npz", "}", ["[1, 3, 3]", "[]"], id="of arrays, numbers of classes"),
        pytest.param(
            "table, files: lines.csv",
            ", columns: {label: {type: text, tokens: characters, length: 3, min_count: 1}, NUMBERS}}\nfeeds: {steps: [a, b, c, d, e]}",
            ["\ufffdxx", ""],
            id="of texts, texts: unknown, and the second of two characters by frequency",
        ),
    ],
)
def test_what_ctc_reads_is_the_answer(pe, tmp_path, source, more, expected):
    paths = [[1, 1, 3, 0, 3], [0, 0, 0, 0, 0]]  # a blank between two equal ones keeps both
    np.savez(tmp_path / "lines.npz", steps=np.array(paths, np.float32), label=np.array([[1, 3, 3], [1, 0, 0]]))
    numbers = ", ".join(f"{name}: {{type: number}}" for name in "abcde")
    texts = [",".join(map(str, path)) for path in paths]
    (tmp_path / "lines.csv").write_text(f"a,b,c,d,e,label\n{texts[0]},xbb\n{texts[1]},b\n")
    (tmp_path / "model.yaml").write_text(READER)
    (tmp_path / "config.yaml").write_text(
        f"model: model.yaml\ndata: {{train: {{reader: {source}}}{more.replace('NUMBERS', numbers)}\n"
        "train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 1.0e-6}}\n"
        f"executor: {{devices: 1, seed: 1}}\noutput: {{dir: {tmp_path / 'runs'}}}\n"
    )
    run = trained(tmp_path, pe, {"w": np.eye(4, dtype=np.float32)})
    said = pe("predict", run, "--split", "train")
    assert [row["label"] for row in csv.DictReader(io.StringIO(said.out))] == expected, said.err
