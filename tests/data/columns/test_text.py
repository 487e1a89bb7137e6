"""Columns of texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.column import Context, discover
from pe_cli.data.columns.text import TextState
from pe_cli.data.raw_cells import ListTable, Strings
from pe_cli.data.reader_context import Origin


def test_words_are_a_sequence_of_ids(column):
    found = column("text", ["b a b", "a", "", None, "c b"], tokens="words", min_count=2)
    assert found.encode() == [[2, 3, 2], [3], [0], [0], [1, 2]]
    kind = discover()["text"].encode(found.options, found.state, found.context)
    assert kind.sequences
    assert kind.type == TensorType((1,), "int64")


def test_only_training_rows_have_words(column):
    found = column("text", ["a a", "b b"], [0])
    assert found.state["tokens"]["words"] == ["a"]
    assert found.encode(["b a"]) == [[1, 2]]
    assert found.notes == ["1 token of column 'c' (50%) with the id of unknown ones, the first in row 1, 'b a'"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"tokens": "characters"}, [[2, 3], [3, 2, 2]], id="characters"),
        pytest.param({"tokens": "bpe", "size": 258}, [[257], [1 + 65, 1 + 64, 1 + 64]], id="byte pairs: ! is the first byte"),
        pytest.param({"tokens": "words", "min_count": 1}, [[2], [3]], id="words"),
        pytest.param({"tokens": "words", "min_count": 1, "size": 3}, [[2], [1]], id="one word beside padding and unknown"),
        pytest.param({"tokens": "characters", "max_length": 2}, [[2, 3], [3, 2]], id="the first tokens"),
        pytest.param({"tokens": "characters", "length": 3}, [[2, 3, 0], [3, 2, 2]], id="filled up"),
        pytest.param({"tokens": "characters", "length": 1}, [[2], [3]], id="cut"),
    ],
)
def test_tokens(column, options, expected):
    # (a, b) is twice there, (b, a) and (a, a) once
    found = column("text", ["ab", "baa"] if options["tokens"] != "bpe" else ["ab", "baa", "ab"], **options).encode()
    if isinstance(found, np.ndarray):
        assert found.dtype == np.int64
        found = found.tolist()
    assert found[:2] == expected


@pytest.mark.parametrize(
    ("tokens", "text"),
    [("words", "what is that ?"), ("characters", "what is that?"), ("bpe", "what is that?")],
)
def test_ids_are_texts_again(column, tokens, text):
    found = column("text", ["what is that?", "nothing"], tokens=tokens, min_count=1, length=40)
    ids = np.array(found.encode(), "int64")
    assert discover()["text"].decode(found.options, found.state, ids).tolist() == [text, "nothing"]
    scores = np.zeros((2, 40, 7), "float32")
    assert discover()["text"].decode(found.options, found.state, scores) is scores


def test_lower_case(column):
    found = column("text", ["A a", "a"], lower=True)
    assert found.encode(["A", "ä", "a"]) == [[2], [1], [2]]


def test_a_tokenizer_of_a_file(column, tmp_path):
    made = Tokenizer(models.WordLevel({"<pad>": 3, "<unk>": 0, "x": 7}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "t.json"))
    found = column("text", ["x y", ""], tokens={"file": str(tmp_path / "t.json")}, length=3)
    (tmp_path / "t.json").unlink()  # the state has all of it
    assert found.encode().tolist() == [[7, 0, 3], [3, 3, 3]]


def test_a_file_that_is_missing_is_said(column):
    with pytest.raises(PeError, match=r"no such file: .*none\.json") as caught:
        column("text", ["x"], tokens={"file": "none.json"})
    assert caught.value.code == ExitCode.DATA


def test_unknown_tokens_are_an_error_where_that_is_wished(column):
    found = column("text", ["a a", "b b"], [0], unknown="error")
    with pytest.raises(PeError, match="row 1, column 'c': token 2 of 'a b' is none that training saw") as caught:
        found.encode(["a b"])
    assert caught.value.code == ExitCode.DATA
    assert "unknown: index" in caught.value.hint


@pytest.mark.parametrize(
    ("cells", "options", "said"),
    [
        pytest.param(["", " "], {}, "no training text has a token", id="empty texts"),
        pytest.param(["a b c"], {}, "no word occurs 2 times in the training texts", id="rare words"),
        pytest.param(["a", "b\0c"], {}, "row 2, column 'c': byte 2 of the text is NUL", id="a NUL byte"),
    ],
)
def test_texts_that_cannot_be_learned_from(column, cells, options, said):
    with pytest.raises(PeError, match=said) as caught:
        column("text", cells, **options)
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "row", "said"),
    [
        pytest.param([b"ab", b"c\xffd"], 2, "byte 2 of the text, 0xff, is no UTF-8", id="no UTF-8"),
        pytest.param([b"a\xc3", b"\xa9b"], 1, "byte 2 of the text, 0xc3, is no UTF-8", id="a character over the end of a text"),
        pytest.param([b"a", b"", b"\xa9b"], 3, "byte 1 of the text, 0xa9, is no UTF-8", id="the second half of a character"),
        pytest.param([b"a", b"x\xc3"], 2, "byte 2 of the text, 0xc3, is no UTF-8", id="cut off"),
    ],
)
def test_bytes_that_are_no_text(column, data, row, said):
    found = column("text", ["a a"])
    offsets = np.append(0, np.cumsum([len(part) for part in data]))
    strings = Strings(np.frombuffer(b"".join(data), np.uint8), offsets)
    found.context.table = found.context.table.__class__({"c": [""] * len(data)}, found.context.table._origin)
    found.context.table.cells("c").strings = lambda: strings
    with pytest.raises(PeError, match=f"row {row}, column 'c': {said}") as caught:
        found.type.encode(found.options, found.state, found.context)
    assert caught.value.code == ExitCode.DATA


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"tokens": "bpe", "size": 200}, "size: 200 is too small for bpe", id="fewer ids than bytes"),
        pytest.param({"tokens": {"file": "t.json"}, "lower": True}, "lower is for tokens that are learned", id="a file and lower"),
        pytest.param({"length": 3, "max_length": 4}, "leave max_length out", id="two lengths"),
        pytest.param({"tokens": "syllables"}, "'words', 'characters' or 'bpe'", id="another kind"),
    ],
)
def test_wrong_options(options, said):
    with pytest.raises(ValueError, match=said):
        discover()["text"].options.model_validate(options)


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param({"kind": "bpe", "lower": False, "words": []}, id="another kind's list"),
        pytest.param({"kind": "words", "lower": False, "words": [1]}, id="a number for a word"),
        pytest.param({"kind": "characters", "lower": False, "characters": ["ab"]}, id="two characters for one"),
        pytest.param({"kind": "words", "lower": "no", "words": []}, id="text for a truth value"),
    ],
)
def test_a_state_that_was_edited_is_refused(tokens):
    with pytest.raises(ValueError, match="tokens"):
        TextState.model_validate({"tokens": tokens})


def test_a_vocabulary_of_several_columns():
    table = ListTable({"a": ["x y", "y", "z z"], "b": ["w y", "", "x w"]}, Origin(Path()))
    kind = discover()["text"]
    own = kind.options.model_validate({"min_count": 1})
    both = kind.options.model_validate({"min_count": 1, "vocabulary": ["a", "b"]})
    learned = [kind.fit(both, Context(table, name), np.array([0, 1])) for name in ("a", "b")]
    assert learned[0] == learned[1]
    assert sorted(learned[0]["tokens"]["words"]) == ["w", "x", "y"], "of the rows that train, of both columns"
    assert learned[0]["tokens"]["words"][0] == "y", "the most frequent one of both"
    assert sorted(kind.fit(own, Context(table, "a"), np.array([0, 1]))["tokens"]["words"]) == ["x", "y"]
