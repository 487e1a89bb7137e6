"""Which texts of a column are taken for one class."""

from __future__ import annotations

import pytest

from pe_cli.session.starters.spellings import spellings_of


@pytest.mark.parametrize(("words", "same"), [
    pytest.param(["yes", "Yes", "YES"], {"YES": ("Yes", "yes")}, id="capitals"),
    pytest.param(["Köln", "Ko\u0308ln"], {"Köln": ("Ko\u0308ln",)}, id="composed characters"),
    pytest.param(["\u200bBonn", "Bonn", "Bo\u00adnn"], {"Bonn": ("Bo\u00adnn", "\u200bBonn")}, id="invisible characters"),
    pytest.param(["New  York", "New York"], {"New York": ("New  York",)}, id="blanks"),
    pytest.param(["1", "1.0", "2", "2.00"], {"1": ("1.0",), "2": ("2.00",)}, id="whole numbers"),
    pytest.param(["01", "1"], {}, id="codes with zeros in front"),
    pytest.param(["1.5", "1.50"], {"1.5": ("1.50",)}, id="decimals"),
    pytest.param(["Aa", "aA", "AA"], {}, id="alleles"),
    pytest.param(["Maße", "Masse"], {}, id="another word"),
    pytest.param(["si", "Si", "no", "NO"], {"Si": ("si",), "NO": ("no",)}, id="short words for yes and no"),
    pytest.param(["m", "M"], {}, id="single letters"),
])  # fmt: skip
def test_texts(words, same):
    found = spellings_of(words, [len(words)] * len(words))
    assert {name: tuple(sorted(others)) for name, others in found.same.items()} == same


def test_letters_that_differ_in_capitals_alone_are_told():
    found = spellings_of(["m", "M", "f"], [1, 2, 3])
    assert found.note("sex", "x").startswith("'sex' has classes that differ in capitals alone, such as 'M', 'm': where")


def test_more_texts_than_a_config_should_list_are_counted():
    found = spellings_of([f"word {i}{c}" for i in range(60) for c in ("", " ", "\u200b")], [1] * 180)
    assert found.same == {}
    assert "120 texts in all, too many for a config" in found.note("c", "x")
