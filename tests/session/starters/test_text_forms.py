"""What is said of texts that differ in nearly every row."""

from __future__ import annotations

import pytest

from pe_cli.session.starters.text_forms import numbers_unread, what_texts_are


@pytest.mark.parametrize(("words", "said"), [
    (["10.0.0.7", "10.0.1.9"], "addresses of machines?"), (["3.8.5", "1.10.0"], "versions?"), (["2h 11m", "7h 2m"], "lengths of time?"),
    (["PT5H31M", "P1DT2H"], "lengths of time?"), (["2 days 01:00:00", "6 days 23:00:00"], "lengths of time?"),
    (["47\u00b050'15\"N", "58.8264\u00b0 S"], "coordinates?"), (["POINT (51.8 8.0)"], "coordinates?"), (["+49 780 850464"], "telephones"),
    (["562-595-2905"], "telephones"), (["118-54-4216"], "telephones"), (["13.04.2022", "18.2.21"], "dates of several forms?"),
    (["28 5/16", "3 1/2"], "fractions?"), (["21\u00bd", "\u00bc"], "fractions?"), (["5'11\"", "6' 2"], "feet and inches?"),
    (["1.2K", "$3M"], "by a letter?"), (["408 \u00b1 3", "7.5 +/- 1"], "their errors?"), (["124-147", "3 \u2013 9"], "ranges?"),
    (["x7"], "an id?"),
])  # fmt: skip
def test_texts(words, said):
    assert said in what_texts_are(words)


@pytest.mark.parametrize(("words", "said"), [
    (["1 1/2", "3", "2 3/4", "1/4"], "fractions?"), (["3M", "900", "4.4K"], "by a letter?"), (["<5", "<2", "7"], "sign of bounds?"),
    (["18-24", "25-34"], ""), (["IV", "II"], ""), (["red", "1/2"], ""), (["2019/20", "2020/21"], ""), (["10K run", "5K run"], ""),
])  # fmt: skip
def test_classes_that_may_be_numbers(words, said):
    assert said in numbers_unread(words)
    assert bool(said) == bool(numbers_unread(words))
