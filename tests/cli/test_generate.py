"""pe generate: text of a model that was trained on a text."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Pe

#: One layer from a token to the next one; of the last position alone where the model is asked so.
MODEL = """\
name: pairs
args: {last: false}
feeds:
  tokens: {shape: [8], dtype: int64}
  next: {shape: [8], dtype: int64}
layers:
  ids:    {type: unsqueeze, input: tokens, axes: [2]}
  logits: {type: embedding, input: ids, size: [SIZE, SIZE]}
  wanted: {type: unsqueeze, input: next, axes: [2]}
LAST
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
ALL = "  xent: {type: softmax_with_cross_entropy, logits: logits, label: wanted}"
LAST = """\
  lastl: {type: slice, input: logits, axes: [1], starts: [7], ends: [8]}
  flat:  {type: squeeze, input: lastl, axes: [1]}
  lastw: {type: slice, input: next, axes: [1], starts: [7], ends: [8]}
  xent:  {type: softmax_with_cross_entropy, logits: flat, label: lastw}"""
PROBABILITIES = """\
  prob: {type: softmax, input: logits}
  xent: {type: cross_entropy, input: prob, label: wanted}"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: text, files: text.txt, blocks: 8, stride: 1}
  columns: {tokens: {type: blocks, tokens: TOKENS}}
train: {loss: loss, epochs: 3, batch_size: 32, optimizer: {type: Adam, learning_rate: 0.3}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""


@pytest.fixture
def taught(tmp_path: Path, pe: Pe):
    """Train on a text; return the run's folder."""

    def make(text: str, loss: str = ALL, tokens: str = "characters", size: int = 12) -> Path:
        (tmp_path / "model.yaml").write_text(MODEL.replace("LAST", loss).replace("SIZE", str(size)))
        (tmp_path / "config.yaml").write_text(CONFIG.replace("TOKENS", tokens).replace("RUNS", str(tmp_path / "runs")))
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        done = pe("train", tmp_path / "config.yaml", "--quiet")
        assert done.code == 0, done.err
        # the tokens come from the checkpoint
        (tmp_path / "text.txt").unlink()
        return next((tmp_path / "runs").iterdir())

    return make


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(ALL, id="logits of every position"),
        pytest.param(PROBABILITIES, id="probabilities of every position"),
        pytest.param(LAST, id="logits of the last position"),
    ],
)
def test_a_text_in_which_one_letter_follows_another_is_gone_on_with(taught, pe, loss):
    run = taught("abcdeéf" * 40, loss)
    said = pe("generate", run, "--prompt", "cd", "--tokens", 20, "--temperature", 0)
    assert (said.code, said.out) == (0, "cd" + ("eéfabcd" * 3)[:20] + "\n")
    assert ("padding stands before the prompt's 2" in said.err) == (loss == LAST)


def test_the_same_seed_gives_the_same_text(taught, pe):
    run = taught("abcabdacbdca" * 30)
    texts = [pe("generate", run, "--prompt", "a", "--tokens", 60, "--seed", seed).out for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == 62
    assert set(texts[0]) <= set("abcd\n")


def test_a_character_of_several_bytes_is_whole(taught, pe):
    run = taught("é日🙂" * 100, tokens="bpe, size: 258", size=258)
    said = pe("generate", run, "--prompt", "é日🙂", "--tokens", 30, "--temperature", 0)
    assert said.code == 0
    # the last character may be cut off
    assert said.out.rstrip("\n\ufffd") == ("é日🙂" * 9)[: len(said.out.rstrip("\n\ufffd"))]


def test_standard_input_is_a_prompt(taught, pe, monkeypatch):
    run = taught("abc" * 60)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n")))
    assert pe("generate", run, "--prompt", "-", "--tokens", 4, "--top-k", 1).out == "abcabc\n"


def test_characters_that_training_never_saw_are_said(taught, pe):
    run = taught("abc" * 60)
    said = pe("generate", run, "--prompt", "xab", "--tokens", 1, "--top-k", 1)
    assert (said.out, said.err) == ("xabc\n", "note: training never saw 1 of the prompt's 3 tokens\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(["--prompt", ""], 3, "the prompt has no token to go on from", id="an empty prompt"),
        pytest.param([], 2, "pe generate needs --prompt", id="no prompt"),
        pytest.param(["--prompt", "a", "--temperature", "nan"], 2, "finite numbers", id="no temperature"),
        pytest.param(["--prompt", "a", "--top-p", "0"], 2, "0", id="no probability"),
        pytest.param(["--prompt", "a", "--tokens", "0"], 2, "0", id="no token"),
    ],
)
def test_wrong_arguments(taught, pe, arguments, code, said):
    run = taught("abc" * 20)
    found = pe("generate", run, *arguments)
    assert found.code == code
    assert said in found.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"a\0b", "byte 2 of the text is NUL", id="a NUL byte"),
        pytest.param(b"a\xff", "standard input is no UTF-8", id="no UTF-8"),
    ],
)
def test_a_prompt_that_is_no_text(taught, pe, monkeypatch, data, said):
    run = taught("abc" * 20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = pe("generate", run, "--prompt", "-")
    assert found.code == 3
    assert said in found.err


def test_a_model_of_other_things_is_refused(pe, trained):
    found = pe("generate", trained, "--prompt", "a")
    assert found.code == 2
    assert "the model reads no column of tokens, so it is no language model" in found.err
