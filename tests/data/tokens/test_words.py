"""Words: how texts are cut, which are kept, and the package `tokenizers` beside them."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.tokens.tokenizer_kinds import open_tokens
from pe_cli.data.tokens.unicode_tables import BLANKS

ALWAYS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("don't stop!?", ["don", "'", "t", "stop", "!?"], id="symbols that touch are one word"),
        pytest.param("x_1 3.5 ½", ["x_1", "3", ".", "5", "½"], id="connectors and digits are parts of words, fractions are symbols"),
        pytest.param("e\u0301te\u0301\u00a0\u3000à", ["e\u0301te\u0301", "à"], id="marks belong to letters, all of Unicode's blanks part"),
        pytest.param("日本語 мир", ["日本語", "мир"], id="other scripts"),
        pytest.param(" \t\n", [], id="blanks alone"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_a_text_is_cut_into_words(learned, text, words):
    found = learned("words", [text, "a"])
    (ids, _) = found.encode([text, "a"])
    assert [found.state["words"][i - 2] for i in ids] == words


def _words(text):
    """Return the words by Python's own tables."""

    def kind(c):
        if ord(c) in BLANKS:
            return " "
        category = unicodedata.category(c)
        return "w" if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in "\u200c\u200d" else "s"

    kinds = "".join(map(kind, text))
    return [text[m.start() : m.end()] for m in re.finditer("w+|s+", kinds)]


@given(text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60))
@ALWAYS
def test_any_text_is_cut_as_unicode_says(learned, text):
    found = learned("words", [text, "a"])
    assert [found.state["words"][i - 2] for i in found.encode([text])[0]] == _words(text)


def test_the_vocabulary_is_that_of_tokenizers(learned, prose):
    theirs = Tokenizer(models.WordLevel(unk_token="<unknown>"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=120, min_frequency=2, special_tokens=["<pad>", "<unknown>"], show_progress=False)
    theirs.train_from_iterator(prose, trainer)
    found = learned("words", prose, size=120, min_count=2)
    vocabulary = theirs.get_vocab()
    assert ["<pad>", "<unknown>", *found.state["words"]] == sorted(vocabulary, key=vocabulary.get)
    assert found.tokens.size == 120
    assert found.encode(prose) == [each.ids for each in theirs.encode_batch(prose)]


@pytest.mark.parametrize("lower", [False, True])
def test_a_tokenizer_json_of_it_gives_the_same_ids(learned, prose, lower):
    found = learned("words", prose[:300], min_count=2, lower=lower)
    assert found.encode(prose) == [each.ids for each in found.theirs().encode_batch(prose)]


def test_rare_words_are_unknown(learned):
    found = learned("words", ["b a b", "a c b"], min_count=2)
    assert found.state["words"] == ["b", "a"]
    assert found.encode(["a c b d", ""]) == [[3, 1, 2, 1], []]
    assert (found.state["seen"], found.state["unknown"]) == (6, 1)


def test_equally_frequent_words_are_in_the_order_of_their_characters(learned):
    assert learned("words", ["é z a é z a b"], size=4).state["words"] == ["a", "z"]


def test_lower_case_is_pythons_for_every_letter(learned):
    letters = [chr(c) for c in range(0x20000) if unicodedata.category(chr(c)).startswith("L") and len(chr(c).lower()) == 1]
    found = learned("words", letters, lower=True)
    (ids,) = np.unique([len(ids) for ids in found.encode(letters)])
    assert ids == 1
    assert sorted(found.state["words"]) == sorted({c.lower() for c in letters})


def test_letters_whose_lower_case_is_longer_are_made_lower(learned):
    # two bytes become three; and one letter two
    assert learned("words", ["ȺȾȺ İx"], lower=True).state["words"] == ["i\u0307x", "ⱥⱦⱥ"]


def test_a_word_of_more_than_256_bytes_is_unknown(learned):
    found = learned("words", ["x" * 256 + " " + "y" * 257])
    assert found.state["words"] == ["x" * 256]
    assert found.encode(["x" * 256, "y" * 257, "x" * 300]) == [[2], [1], [1]]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same(learned, prose, threads):
    texts = prose * 120  # several chunks
    one = learned("words", texts, 1, min_count=3)
    many = learned("words", texts, threads, min_count=3)
    assert many.state == one.state
    first, second = one.tokens.encode_many(_column(texts), threads=1), many.tokens.encode_many(_column(texts), threads=threads)
    assert first.ids.tobytes() == second.ids.tobytes()
    assert first.offsets.tobytes() == second.offsets.tobytes()
    assert first.unknown == second.unknown == int((first.ids == 1).sum())


def _column(texts):
    from pe_cli.data.raw_cells import join_strings

    return join_strings([text.encode() for text in texts])


def test_texts_are_cut_and_filled_up(learned):
    found = learned("words", ["a b c"])
    assert found.encode(["a b c", "", "c"], most=2) == [[2, 3], [], [4]]
    assert found.encode(["a b c", "", "c"], filled=2) == [[2, 3, 4], [0, 0], [4, 0]]


def test_only_the_rows_that_are_meant_are_learned_from_and_encoded(learned):
    from pe_cli.data.tokens.base import Wanted
    from pe_cli.data.tokens.tokenizer_kinds import learn

    strings = _column(["a a", "b", "c"])
    rows = np.array([0, 2])
    state = learn(Wanted("words"), strings, rows)
    assert state["words"] == ["a", "c"]
    assert open_tokens(state).encode_many(strings, rows).ids.tolist() == [2, 2, 3]


def test_words_are_joined_by_blanks(learned):
    found = learned("words", ["to be , or"])
    assert found.tokens.decode(found.tokens.encode("to be,or not")) == "to be , or <unknown>"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param({"kind": "words", "lower": False, "words": ["a", "b", "a"]}, "a token is listed twice", id="a word twice"),
        pytest.param({"kind": "characters", "lower": False, "characters": ["a", "a"]}, "a character is listed twice", id="a character"),
        pytest.param({"kind": "words", "words": ["a"]}, "KeyError", id="a key is gone"),
        pytest.param({"kind": "syllables"}, "there is no kind 'syllables'", id="another kind"),
        pytest.param({"kind": "bpe", "lower": False, "merges": ["a b", "x"]}, "merge 2, 'x', is not of two tokens", id="half a merge"),
        pytest.param({"kind": "bpe", "lower": False, "merges": ["ab c"]}, "merge 1, 'ab c', is not of two tokens", id="a merge too early"),
        pytest.param({"kind": "bpe", "lower": False, "merges": ["a b", "a b"]}, "a merge is listed twice", id="a merge twice"),
    ],
)
def test_a_state_that_was_edited_is_refused(state, said):
    with pytest.raises(PeError, match=said) as caught:
        open_tokens(state)
    assert caught.value.code == ExitCode.DATA


def test_ids_that_are_larger_than_their_share_of_memory_are_in_a_file(learned, monkeypatch):
    texts = ["b a b", "", "a c"] * 50
    found = learned("words", texts)
    before = found.tokens.encode_many(_column(texts))
    monkeypatch.setattr("pe_cli.data.spill_storage.memory_of_one", lambda: 100)
    after = found.tokens.encode_many(_column(texts))
    assert isinstance(after.ids, np.memmap)
    assert after.ids.tolist() == before.ids.tolist()
