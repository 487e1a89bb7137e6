"""Blocks of a long text."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.data import open_reader
from pe_cli.data.column import Context, discover
from pe_cli.data.row_split import split_rows
from pe_cli.data.tokens.tokenizer_kinds import open_tokens
from pe_cli.session.job import Job

ALWAYS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ALPHABET = [chr(c) for c in range(97, 123)]


@pytest.fixture
def read(tmp_path):
    """Read a text as blocks: read("text", blocks=4)."""

    def make(text, **options):
        (tmp_path / "a.txt").write_bytes(text.encode())
        return open_reader("text", {"files": "a.txt", **options}, tmp_path, Span("run.yaml", 3, 5))

    return make


def fit(table, rows=None, **options):
    kind = discover()["blocks"]
    checked = kind.options.model_validate(options)
    state = kind.fit(checked, Context(table, "tokens"), rows)
    kind.learned.model_validate(state)
    return state


def blocks(table, state, rows=None):
    """Return the tokens and the tokens behind them, as text."""
    found, _ = table.regroup(rows, SimpleNamespace(columns={"tokens": SimpleNamespace(type="blocks", state=state)}))
    tokens = open_tokens(state["tokens"])
    both = []
    for shift in (0, 1):
        options = discover()["blocks"].options.model_validate({"shift": shift})
        field = discover()["blocks"].encode(options, state, Context(found, "tokens"))
        values, offsets = field.take(np.arange(len(field)))
        assert offsets is None
        assert values.dtype == np.int64
        assert field.type == TensorType((state["length"],), "int64")
        both.append([tokens.decode(row) for row in values.tolist()])
    assert len(found) == len(both[0])
    return both


def test_a_block_and_the_tokens_behind_it(read):
    table = read("abcdefghij", blocks=3)
    assert len(table) == 1
    assert blocks(table, fit(table)) == [["abc", "def", "ghi"], ["bcd", "efg", "hij"]]


def test_blocks_that_overlap(read):
    table = read("abcdef", blocks=3, stride=1)
    assert blocks(table, fit(table)) == [["abc", "bcd", "cde"], ["bcd", "cde", "def"]]


@pytest.mark.parametrize("tokens", ["characters", "bpe"])
@given(lines=st.lists(st.text(st.sampled_from("ab é日\n"), min_size=100, max_size=900), min_size=8, max_size=24), data=st.data())
@ALWAYS
def test_blocks_never_go_over_a_gap_between_pieces(read, tokens, lines, data):
    table = read("\n".join(lines) + "\n" + "x" * 600, blocks=7)
    pieces = [table.cells("text").text(row) for row in range(len(table))]
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(table) - 1), min_size=1))))
    state = fit(table, rows, tokens=tokens, **({"size": 270} if tokens == "bpe" else {}))
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    tokenizer = open_tokens(state["tokens"])
    expected = []
    for run in runs:
        # one stretch holds 128 pieces: a run is cut into tokens as a whole
        ids = tokenizer.encode("".join(pieces[row] for row in run))
        expected += [tokenizer.decode(ids[start : start + 7]) for start in range(0, len(ids) - 7, 7)]
    if expected:
        assert blocks(table, state, rows)[0] == expected
    else:
        with pytest.raises(PeError, match="blocks: 7 needs 8 tokens side by side"):
            blocks(table, state, rows)


def test_the_tokens_of_two_files_follow_one_another(tmp_path):
    for name, text in {"a": "abc", "b": "def"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    table = open_reader("text", {"files": "*.txt", "blocks": 5}, tmp_path)
    assert blocks(table, fit(table)) == [["abcde"], ["bcdef"]]


def test_only_the_training_part_is_learned_from(read):
    table = read("a" * 511 + "\n" + "b" * 600, blocks=5)
    assert len(table) == 2
    assert fit(table, np.array([0]))["tokens"]["characters"] == ["a", "\n"]


@pytest.mark.parametrize(
    ("options", "train", "last"),
    [
        pytest.param({"eval": 0.2, "test": 0.1}, list(range(14)), [18, 19], id="by position when nothing is said"),
        pytest.param({"eval": 0.2, "test": 0.1, "order": "position"}, list(range(14)), [18, 19], id="by position when that is said"),
    ],
)
def test_a_split_cuts_the_text_in_order(read, options, train, last):
    table = read("".join("x" * 511 + "\n" for _ in range(20)), blocks=5)
    found = split_rows(table, np.arange(20), SplitSection.model_validate(options))
    assert found["train"].tolist() == train
    assert found["test"].tolist() == last


def test_a_random_split_may_be_asked_for(read):
    table = read("".join("x" * 511 + "\n" for _ in range(20)), blocks=5)
    found = split_rows(table, np.arange(20), SplitSection.model_validate({"eval": 0.3, "order": "random"}))
    assert found["eval"].tolist() != list(range(14, 20))


def test_folds_are_neighbouring_rows(read):
    table = read("".join("x" * 511 + "\n" for _ in range(9)), blocks=5)
    found = split_rows(table, np.arange(9), SplitSection.model_validate({"folds": 3, "fold": 2}))
    assert found["eval"].tolist() == [3, 4, 5]


def test_too_little_text_for_a_block_is_said(read):
    table = read("abc", blocks=3)
    with pytest.raises(PeError, match="blocks: 3 needs 4 tokens side by side, and a part of the text has 3") as caught:
        blocks(table, fit(table))
    assert caught.value.code == ExitCode.DATA


def test_blocks_of_another_readers_rows_are_refused(column):
    with pytest.raises(PeError, match="only the reader text cuts a text into blocks"):
        column("blocks", ["a"])


def test_a_column_that_shares_tokens_has_none_of_its_own():
    with pytest.raises(ValueError, match="size is said by the column 'tokens'"):
        discover()["blocks"].options.model_validate({"of": "tokens", "size": 5})


MODEL = """
name: counter
feeds: {tokens: {shape: [6], dtype: int64}, next: {shape: [6], dtype: int64}}
layers:
  ids: {type: unsqueeze, input: tokens, axes: [2]}
  logits: {type: embedding, input: ids, size: [40, 40]}
  wanted: {type: unsqueeze, input: next, axes: [2]}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: wanted}
  loss: {type: mean, x: xent}
fetches: [loss]
"""
RUN = """
model: model.yaml
data:
  source: {reader: text, files: a.txt, blocks: 6}
  split: {eval: 0.25}
  columns: {tokens: {type: blocks, tokens: characters, size: 40}}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1}
"""


def test_a_run_has_a_part_of_the_text_for_evaluation(tmp_path):
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "run.yaml").write_text(RUN)
    lines = ["".join(ALPHABET[(7 * i + j) % 26] for j in range(511)) + "\n" for i in range(8)]
    (tmp_path / "a.txt").write_text("".join(lines))
    job = Job.open(tmp_path / "run.yaml")
    for use, part in (("train", "".join(lines[:6])), ("eval", "".join(lines[6:]))):
        dataset = job.data.dataset(use)
        assert len(dataset) == (len(part) - 1) // 6
        batch = dataset.take(np.arange(len(dataset)))
        tokens = open_tokens(job.data.fitted.columns["tokens"].state["tokens"])
        assert tokens.decode(batch["tokens"].reshape(-1).tolist()) == part[: 6 * len(dataset)]
        assert tokens.decode(batch["next"].reshape(-1).tolist()) == part[1 : 6 * len(dataset) + 1]
    assert set(job.data.fitted.columns["next"].state) == {"length"}
