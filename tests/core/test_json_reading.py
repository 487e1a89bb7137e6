"""What is no JSON, though Python's parser takes some of it; what is JSON is read as Python reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli.core.json_reading import loads, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip


@given(value=VALUES, escaped=st.booleans())
@settings(deadline=None)
def test_json_is_read_as_python_reads_it(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    assert loads(text) == loads(text.encode()) == parse(text) == value


@pytest.mark.parametrize(("text", "said"), [
    ("NaN", "NaN is no JSON value"), ("[-Infinity]", "-Infinity is no JSON value"), ("1e999", "1e999 is larger than a number can be"),
    ('{"a": -1.5e400}', "-1.5e400 is larger"), ("[" * 100_000, "nested too deeply"), ("{", "Expecting"), ("1 2", "Extra data"),
])  # fmt: skip
def test_what_is_no_json(text, said):
    for read in (loads, parse):
        with pytest.raises(ValueError, match=said):
            read(text)


@pytest.mark.parametrize("text", [b"\xff\xfe1\x00", rb'"\ud800"', rb'{"\udc00": 1}', b'"\xff"'])
def test_what_is_no_text(text):
    with pytest.raises(ValueError, match=r"codec can't"):
        loads(text)


def test_pairs_of_halves_are_characters_and_a_mark_at_the_start_is_none():
    assert loads(b'\xef\xbb\xbf"\\ud83d\\ude00"') == "\U0001f600"
