"""Tagged words: CoNLL files and spans say the same, and what is wrong is told with its line."""

from __future__ import annotations

import json

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.registry import open_reader

CONLL = "-DOCSTART- -X- O O\n\nAnna NNP B-NP B-PER\nSmith NNP I-NP I-PER\nsleeps VBZ B-VP O\n. . O O\n\nOslo NNP B-NP B-LOC\n"
CONLLU = "# sent_id = 1\n" + "".join(
    "\t".join([number, word, "_", tag, *"______"]) + "\n"
    for number, word, tag in (("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"), ("2.1", "x", "X"), ("3", "go", "VERB"))
)
TEXT = "Anna Smith sleeps. "
SPANS = [{"text": TEXT, "label": [[0, 10, "PER"]]}, {"text": "Oslo", "entities": [{"start_offset": 0, "end_offset": 4, "label": "LOC"}]}]
WANTED = [["Anna Smith sleeps .", "B-PER I-PER O O"], ["Oslo", "B-LOC"]]


def rows(folder, text, **options):
    (folder / "t.txt").write_text(text)
    table = open_reader("tagged", {"files": "t.txt", **options}, folder)
    return [[table.cells(name).text(i) for name in ("words", "tags")] for i in range(len(table))]


@pytest.mark.parametrize("text", [
    pytest.param(CONLL, id="CoNLL-2003"), pytest.param("".join(json.dumps(one) + "\n" for one in SPANS), id="JSON lines"),
    pytest.param(json.dumps(SPANS, indent=1), id="JSON list"), pytest.param("\ufeff" + CONLL.replace(" ", "\t"), id="tabs and a mark"),
])  # fmt: skip
def test_forms_say_the_same(tmp_path, text):
    assert rows(tmp_path, text) == WANTED


def test_a_line_ends_where_json_says_so(tmp_path):
    text = json.dumps({"text": "Oslo\u2028 \u0085Bergen", "label": [[0, 4, "LOC"]]}, ensure_ascii=False)
    assert len(rows(tmp_path, f"{text}\r\n{text}\n")) == 2


def test_universal_dependencies_and_other_columns(tmp_path):
    assert rows(tmp_path, CONLLU) == [["do n't go", "AUX PART VERB"]]
    assert rows(tmp_path, CONLL, tag=1)[0] == ["Anna Smith sleeps .", "NNP NNP VBZ ."]


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("a O\nb\n", "line 2 has 1 column, and lines before it have 2", id="a tag is missing"),
    pytest.param("a\n", "line 1 has 1 column, and it needs a word and a tag", id="no tags"),
    pytest.param('{"text": "ab", "label": [[0, 5, "X"]]}', "the span 0 to 5 lies outside of its text of 2", id="outside"),
    pytest.param('{"text": "ab cd", "label": [[0, 4, "X"], [3, 5, "Y"]]}', "lies over another one", id="two tags"),
    pytest.param('{"text": "ab"}', "line 1: no text with spans", id="no spans"),
    pytest.param('{"text": "ab", "label": [["0", 1, "X"]]}', "is no span", id="a word for a number"),
    pytest.param("{" * 9, "line 1 is no JSON", id="no JSON"), pytest.param("\n\n", "no sentence is left", id="nothing"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, said):
    with pytest.raises(PeError, match=said) as told:
        rows(tmp_path, text)
    assert told.value.code == ExitCode.DATA
