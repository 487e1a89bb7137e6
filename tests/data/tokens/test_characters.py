"""Characters as tokens."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ALWAYS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=60))
@ALWAYS
def test_every_code_point_is_a_token_and_comes_back(learned, text):
    found = learned("characters", [text])
    counts = Counter(text)
    assert found.state["characters"] == sorted(counts, key=lambda c: (-counts[c], c))
    (ids,) = found.encode([text])
    assert len(ids) == len(text)
    assert found.tokens.decode(ids) == text


def test_characters_that_training_never_saw_are_unknown(learned):
    found = learned("characters", ["aab"])
    assert found.encode(["abc", ""]) == [[2, 3, 1], []]
    assert found.tokens.decode([2, 0, 1, 3]) == "a\ufffdb"


def test_a_tokenizer_json_of_it_gives_the_same_ids(learned, prose):
    found = learned("characters", prose[:200], size=40, lower=True)
    assert found.tokens.size == 40
    assert found.encode(prose) == [each.ids for each in found.theirs().encode_batch(prose)]


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_gives_the_same(learned, prose, threads):
    texts = prose * 120
    one, many = learned("characters", texts, 1), learned("characters", texts, threads)
    assert many.state == one.state
    assert many.encode(texts[:2000], threads=threads) == one.encode(texts[:2000], threads=1)
