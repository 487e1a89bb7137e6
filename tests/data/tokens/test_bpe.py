"""Byte pairs: learned and encoded beside the package `tokenizers`, and by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pe_cli.data.tokens.bpe import ORDER
from pe_cli.data.tokens.tokenizer_kinds import open_tokens

ALWAYS = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ANY = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=80)


def train(texts, size, least):
    """Return the tokenizer that `tokenizers` learns, with padding as id 0."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=least, special_tokens=["<pad>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    return made


def merges(tokenizer):
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


@pytest.mark.parametrize(("size", "least"), [(300, 1), (900, 2), (3000, 3)])
def test_merges_and_ids_are_those_of_tokenizers(learned, prose, size, least):
    theirs = train(prose, size, least)
    found = learned("bpe", prose, size=size, min_count=least)
    assert found.state["merges"] == merges(theirs)
    assert found.tokens.size == theirs.get_vocab_size()
    assert found.encode(prose) == [each.ids for each in theirs.encode_batch(prose)]


def test_merges_by_hand(learned):
    # of "abab" and "ab": (a, b) three times, then (ab, ab) once; the ids of bytes are 1 + their place in GPT-2's order
    found = learned("bpe", ["abab", "ab"], size=260)
    assert found.state["merges"] == ["a b", "ab ab"]
    assert found.encode(["abab", "ab", "a", "ba"]) == [[258], [257], [1 + ORDER.index(97)], [1 + ORDER.index(98), 1 + ORDER.index(97)]]


def test_of_equally_frequent_pairs_the_one_of_smaller_ids_is_merged_first(learned):
    assert learned("bpe", ["xy", "ab", "bc"], size=258).state["merges"] == ["a b"]


def test_rare_pairs_are_not_merged(learned):
    assert learned("bpe", ["ab", "ab", "cd"], size=300, min_count=2).state["merges"] == ["a b"]


def test_the_lowest_rank_is_merged_first_from_the_left():
    tokens = open_tokens({"kind": "bpe", "lower": False, "merges": ["b c", "a b", "a a"]})
    assert [tokens.pieces([i])[0].decode() for i in tokens.encode("abcab")] == ["a", "bc", "ab"]
    assert [tokens.pieces([i])[0].decode() for i in tokens.encode("aaa")] == ["aa", "a"]


def test_two_merges_may_make_the_same_token():
    tokens = open_tokens({"kind": "bpe", "lower": False, "merges": ["a b", "b c", "ab c", "a bc"]})
    assert tokens.size == 1 + 256 + 3
    assert tokens.encode("abc") == [259]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("I'll we've it's they'd I'm can't you're", id="contractions"),
        pytest.param("I'LL 'tis 's' ''s '", id="what is none"),
        pytest.param("a  b   c\n\n\nd \n e\t\tf  ", id="blanks go with what follows, but the first ones"),
        pytest.param("x\u00a0y\u3000 z\u2003\u2003w", id="blanks that are not ASCII"),
        pytest.param("a1b22 ½² ٣٤ ⅷ", id="numbers of all kinds"),
        pytest.param("e\u0301 नमस्ते _x_ 🙂‍↔️", id="marks are no letters"),
        pytest.param("", id="nothing"),
    ],
)
def test_texts_are_cut_as_gpt_2_does(learned, prose, text):
    found = learned("bpe", [*prose, text, text], size=2000)
    theirs = found.theirs().encode(text)
    assert found.encode([text]) == [theirs.ids]
    assert found.tokens.decode(theirs.ids) == text


@given(text=ANY)
@ALWAYS
def test_any_text_has_the_ids_of_tokenizers_and_comes_back(learned, prose, text):
    found = _of_prose(learned, prose)
    (ids,) = found.encode([text])
    assert ids == found.theirs().encode(text).ids
    assert found.tokens.decode(ids) == text


_KEPT: list = []


def _of_prose(learned, prose):
    if not _KEPT:
        _KEPT.append(learned("bpe", prose, size=1500, min_count=2))
    return _KEPT[0]


@given(text=st.text("ab", min_size=40, max_size=400), merged=st.integers(257, 300))
@ALWAYS
def test_long_pieces_are_merged_like_short_ones(learned, text, merged):
    # a heap finds the merges of more than 48 bytes
    found = learned("bpe", [text[:200], text[:30], "ab" * 30], size=merged)
    theirs = found.theirs()
    assert found.encode([text, text * 3]) == [theirs.encode(text).ids, theirs.encode(text * 3).ids]


def test_a_piece_of_a_megabyte_is_encoded(learned):
    found = learned("bpe", ["a" * 64], size=264)
    (ids,) = found.encode(["a" * (1 << 20)])
    assert found.tokens.decode(ids) == "a" * (1 << 20)
    assert len(ids) == (1 << 20) // 64


def test_lower_case(learned, prose):
    found = learned("bpe", prose, size=600, lower=True)
    assert found.tokens.decode(found.tokens.encode("ÀB ǅ c")) == "àb ǆ c"
    assert found.encode(prose) == [each.ids for each in found.theirs().encode_batch(prose)]


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_gives_the_same(learned, prose, threads):
    texts = prose * 120
    one, many = learned("bpe", texts, 1, size=700), learned("bpe", texts, threads, size=700)
    assert many.state == one.state
    assert many.encode(texts, threads=threads) == one.encode(texts, threads=1)


def test_more_pieces_than_are_remembered_have_their_tokens(learned):
    # the memory of a thread holds 131,072 pieces
    texts = [" ".join(f"{n:x}" for n in range(start, start + 2000)) for start in range(0, 200_000, 2000)] * 2
    found = learned("bpe", texts[:3], size=400)
    ids = found.encode(texts, threads=1)
    assert ids[:100] == ids[100:]
    assert [found.tokens.decode(each) for each in ids[:100]] == texts[:100]


def test_texts_are_cut_and_filled_up(learned):
    found = learned("bpe", ["abab abab"], size=300)
    (whole,) = found.encode(["abab abab"])
    assert found.encode(["abab abab", ""], most=1, filled=1) == [whole[:1], [0]]
