"""What is said of texts that differ in nearly every row."""

from __future__ import annotations

import pytest

from pe_cli.session.starters.text_forms import what_texts_are


@pytest.mark.parametrize(("words", "said"), [
    (["10.0.0.7", "10.0.1.9"], "addresses of machines?"), (["3.8.5", "1.10.0"], "versions?"), (["2h 11m", "7h 2m"], "lengths of time?"),
    (["PT5H31M", "P1DT2H"], "lengths of time?"), (["2 days 01:00:00", "6 days 23:00:00"], "lengths of time?"),
    (["47\u00b050'15\"N", "58.8264\u00b0 S"], "coordinates?"), (["POINT (51.8 8.0)"], "coordinates?"), (["+49 780 850464"], "telephones"),
    (["562-595-2905"], "telephones"), (["118-54-4216"], "telephones"), (["13.04.2022", "18.2.21"], "dates of several forms?"),
    (["x7"], "an id?"),
])  # fmt: skip
def test_texts(words, said):
    assert said in what_texts_are(words)
