"""What columns have learned, as files."""

from __future__ import annotations

import json

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.fitted_columns import NAME, Fitted, FittedColumn

NUMBER = {"fill": 2.0, "shift": [1.0], "divisor": [3.0], "dtype": "float32", "low": 0.0, "high": 9.0, "missing": 1}


def classes(count):
    return {"classes": [f"c{i}" for i in range(count)], "counts": [1] * count, "unknown": True, "missing": True, "rare": 0}


def fitted(count=3):
    return Fitted(
        {
            "age": FittedColumn("age", "number", {"scale": "standard", "missing": "mean"}, NUMBER),
            "Straße/1": FittedColumn("Straße/1", "category", {}, classes(count), target=True),
        },
        {"rows": 5, "parts": {"train": 4, "eval": 1}, "sha256": "x"},
    )


@pytest.mark.parametrize("count", [3, 5000])
def test_files_and_back(count):
    before = fitted(count)
    files = before.to_files()
    after = Fitted.from_files(files, "step-1")
    assert after == before
    assert len(files) == (1 if count == 3 else 3)
    assert all(name == NAME or name.isascii() for name in files)
    assert json.loads(files[NAME])["columns"]["age"]["state"]["shift"] == [1.0]


def test_what_a_column_says_of_itself():
    found = fitted().columns["Straße/1"]
    assert found.classes == ("<unknown>", "<missing>", "c0", "c1", "c2")
    assert found.sources == ("Straße/1",)


def edited(change):
    files = fitted(500).to_files()
    value = json.loads(files[NAME])
    change(value, files)
    return files | {NAME: json.dumps(value).encode()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda v, f: v.update(format=2), "not what a run has learned", id="another format"),
        pytest.param(lambda v, f: v.update(columns=[]), "not what a run has learned", id="no columns"),
        pytest.param(lambda v, f: v["columns"]["age"].update(type="numbr"), "column 'age' has no type that is known: 'numbr'", id="a type"),
        pytest.param(lambda v, f: v["columns"]["age"]["state"].update(shift="1"), "'age': shift must be a list", id="text for numbers"),
        pytest.param(lambda v, f: v["columns"]["age"]["state"].pop("fill"), "column 'age': fill is missing", id="a missing key"),
        pytest.param(lambda v, f: v["columns"]["age"]["options"].update(scale="wide"), "column 'age': scale", id="a wrong option"),
        pytest.param(lambda v, f: v["columns"].update(age=3), "column 'age' has no type", id="no column"),
        pytest.param(
            lambda v, f: v["columns"]["Straße/1"]["state"].update(classes={"file": "other.json"}), "other.json: no such file", id="a file"
        ),
        pytest.param(lambda v, f: v["columns"]["Straße/1"]["state"].update(classes={"file": [1]}), "no such file", id="a list as a name"),
        pytest.param(lambda v, f: v["columns"].update({"\udc13": v["columns"]["age"]}), "surrogates not allowed", id="no text"),
    ],
)
def test_edited_files_are_refused(change, message):
    with pytest.raises(PeError) as caught:
        Fitted.from_files(edited(change), "step-1")
    assert message in caught.value.message
    assert caught.value.code == ExitCode.DATA


@pytest.mark.parametrize("text", [b"", b"{", b"[1", b'{"format": NaN}', b"[" * 100_000], ids=["empty", "cut", "cut list", "NaN", "deep"])
def test_what_is_no_json(text):
    with pytest.raises(PeError) as caught:
        Fitted.from_files({NAME: text}, "step-1")
    assert caught.value.code == ExitCode.DATA
