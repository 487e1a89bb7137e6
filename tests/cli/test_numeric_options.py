"""Options of readers and columns that take numbers, checked with data behind them, are given numbers that nothing can be counted with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pe_cli.data.column import discover as discover_columns
from pe_cli.data.registry import discover as discover_readers
from tests.cli.conftest import ROOT, Pe

#: Far beyond 64 bits, and the greatest number that a count may be: where that is fine, what is made of it must be, too.
VALUES = [f"1{'0' * 30}", str(2**53)]
SOURCES = {
    "csv": "file: data/iris.csv, label: species",
    "table": "files: data/people.csv",
    "npz": "file: data/digits.npz, fields: {image: train_image, label: train_label}",
}


def numeric(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the options that take numbers, each with how one is written."""
    for key, value in model.model_json_schema(by_alias=True).get("properties", {}).items():
        kinds = [value, *value.get("anyOf", [])]
        if any(one.get("type") in ("integer", "number") for one in kinds):
            yield key, "{}"
        if any(one.get("type") == "array" for one in kinds):
            yield key, "[{0}, {0}]"


READERS = [(name, *option) for name, kind in sorted(discover_readers().items()) for option in numeric(kind.options)]
COLUMNS = [(name, *option) for name, kind in sorted(discover_columns().items()) for option in numeric(kind.options)]


def check(pe: Pe, config: str, key: str, options: str) -> None:
    found = pe("check", ROOT / "configs" / config, "-o", f"{key}={{{options}}}")
    assert found.code in (0, 2, 3, 5), found.err
    assert "bug of pe" not in found.err
    assert (found.code == 0) == ("error: " not in found.err)


@pytest.mark.parametrize(("name", "option", "form"), READERS, ids=lambda part: part)
def test_options_of_readers(name: str, option: str, form: str, pe: Pe) -> None:
    for value in VALUES:
        options = f"reader: {name}, {SOURCES.get(name, 'file: data/digits.npz')}, {option}: {form.format(value)}"
        check(pe, "digits.yaml", "data.train", options)


@pytest.mark.parametrize(("name", "option", "form"), COLUMNS, ids=lambda part: part)
def test_options_of_columns(name: str, option: str, form: str, pe: Pe) -> None:
    for value in VALUES:
        check(pe, "people.yaml", "data.columns.age", f"type: {name}, {option}: {form.format(value)}")
