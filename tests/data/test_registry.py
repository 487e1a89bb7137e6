"""Opening readers: options, common options, discovery."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, PeErrors
from pe_cli.data import discover, open_reader, readers
from pe_cli.data.readers import synthetic
from pe_cli.data.registry import READERS, reader

FIELD = {"x": {"shape": [2]}}


def test_every_module_of_the_folder_registers_a_reader_of_its_name():
    modules = {module.name for module in pkgutil.iter_modules(readers.__path__)}
    assert modules == set(discover()) >= {"csv", "idx", "multi_slot", "npy", "npz", "synthetic", "table"}


@pytest.mark.parametrize(
    "name", sorted(discover()), ids=lambda name: f"{name} says what it reads and documents every option"
)
def test_docs(name):
    found = discover()[name]
    assert found.doc
    assert all(field.description for field in found.options.model_fields.values())
    assert found.options.model_json_schema()["additionalProperties"] is False


def test_registering_a_name_twice_is_a_bug():
    with pytest.raises(AssertionError, match="two readers are named synthetic"):
        importlib.reload(synthetic)


def test_two_packages_do_not_share_the_name_of_a_reader(monkeypatch):
    monkeypatch.setattr("pe_cli.data.registry.READERS", dict(READERS))

    def of(module: str):
        def found(options, origin):
            raise NotImplementedError

        found.__module__ = module
        return found

    register = reader("theirs", READERS["npy"].options)
    register(of("first.reading"))
    register(of("first.reading"))  # imported anew
    with pytest.raises(PeError, match="there is a reader 'theirs' already"):
        register(of("second.reading"))


def test_the_registry_alone_finds_all_readers_and_one_without_the_others():
    code = f"""
from pe_cli.data.registry import READERS, discover, find_reader
find_reader("npy")
assert list(READERS) == ["npy"]
assert len(discover()) == {len(discover())}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("kind", "options", "message", "hint"),
    [
        pytest.param("np", {}, "there is no reader 'np'", "did you mean", id="a close name is suggested"),
        pytest.param("parquet", {}, "no reader 'parquet'", "one of annotations, csv, ", id="all names where none is close"),
        pytest.param(
            "synthetic",
            {"fields": FIELD, "limitt": 3},
            "reader 'synthetic' has no option 'limitt'",
            "did you mean 'limit'?",
            id="a misspelt option is named",
        ),
        pytest.param(
            "table", {"file": "a.csv"}, "reader 'table' has no option 'file'", "did you mean 'files'?", id="misspelt, and not missing too"
        ),
        pytest.param(
            "npz", {}, "reader 'npz' needs the option 'file'", "add file: ...", id="a missing option is named"
        ),
        pytest.param(
            "synthetic", {"fields": FIELD, "limit": 0}, "limit must be at least 1, got 0", None, id="limit zero"
        ),
        pytest.param("synthetic", {"fields": FIELD, "limit": True}, "limit must be a whole number, got true", None, id="limit: true"),
        pytest.param("synthetic", {"fields": FIELD, "skip": -1}, "skip must be at least 0, got -1", None, id="a negative skip"),
    ],
)
def test_bad_options(read, kind, options, message, hint):
    with pytest.raises(PeError, match=message) as caught:
        read(kind, **options)
    assert not isinstance(caught.value, PeErrors)
    assert caught.value.code is ExitCode.USAGE
    assert str(caught.value.at) == "run.yaml:3:5"
    assert hint is None or hint in caught.value.hint


def test_all_wrong_options_come_in_one_error(read):
    with pytest.raises(PeErrors) as caught:
        read("csv", limit=0, hedder=True)
    assert [error.message.split("'")[-2] for error in caught.value.errors if "option" in error.message] == [
        "file",
        "hedder",
    ]
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"limit": 2}, [0, 1], id="limit takes the first samples"),
        pytest.param({"skip": 3}, [3, 4], id="skip leaves out the first samples"),
        pytest.param({"skip": 1, "limit": 2}, [1, 2], id="limit counts from the first that is used"),
        pytest.param({"limit": 99}, [0, 1, 2, 3, 4], id="a limit above the samples takes all"),
    ],
)
def test_limit_and_skip(read, tmp_path, options, expected):
    np.save(tmp_path / "x.npy", np.arange(5))
    data = read("npy", files={"x": "x.npy"}, **options)
    assert len(data) == len(expected)
    assert data.take(np.arange(len(data)))["x"].tolist() == expected


def test_skipping_everything_is_an_error(read, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5))
    with pytest.raises(PeError, match="skip: 5 leaves none of 5 samples") as caught:
        read("npy", files={"x": "x.npy"}, skip=5)
    assert caught.value.code is ExitCode.DATA


def test_a_limited_set_does_not_reach_past_its_end(read, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5))
    with pytest.raises(AssertionError, match="outside the window"):
        read("npy", files={"x": "x.npy"}, limit=2).take(np.array([2]))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("npz", {"file": "data.bin"}, id="npz"),
        pytest.param("csv", {"file": "data.bin"}, id="csv"),
        pytest.param("npy", {"files": {"x": "data.bin"}}, id="npy"),
        pytest.param("idx", {"files": {"x": "data.bin"}}, id="idx"),
    ],
)
class TestFiles:
    """Files that cannot be read, for every reader of files."""

    def test_missing_file(self, read, tmp_path, kind, options):
        with pytest.raises(PeError, match="no such file: ") as caught:
            read(kind, **options)
        assert str(tmp_path / "data.bin") in caught.value.message
        assert caught.value.code is ExitCode.DATA
        assert f"relative paths start at the config file's folder, {tmp_path}" in caught.value.hint

    def test_missing_file_with_a_neighbour_of_almost_that_name(self, read, tmp_path, kind, options):
        (tmp_path / "date.bin").touch()
        with pytest.raises(PeError) as caught:
            read(kind, **options)
        assert caught.value.hint == "did you mean 'date.bin'?"

    def test_folder(self, read, tmp_path, kind, options):
        (tmp_path / "data.bin").mkdir()
        with pytest.raises(PeError, match="is a folder, not a file"):
            read(kind, **options)

    def test_empty_file(self, read, tmp_path, kind, options):
        (tmp_path / "data.bin").touch()
        with pytest.raises(PeError) as caught:
            read(kind, **options)
        assert caught.value.code is ExitCode.DATA

    def test_garbage(self, read, tmp_path, kind, options):
        (tmp_path / "data.bin").write_bytes(bytes(range(255, 0, -1)) * 20)
        with pytest.raises(PeError) as caught:
            read(kind, **options)
        assert caught.value.code is ExitCode.DATA


@pytest.mark.parametrize("name", sorted(discover()))
@pytest.mark.parametrize("value", [5, -3, "x", [1], {"a": 1}, True, None, 1.5, [], {}, ["a", 3]], ids=str)
def test_no_option_of_a_reader_is_explained_in_words_of_a_library(name: str, value: object, tmp_path: Path) -> None:
    said = []
    for option in discover()[name].options.model_fields:
        with contextlib.suppress(PeError):
            try:
                open_reader(name, {option: value}, tmp_path)
            except PeError as error:
                said.append(str(error))
                raise
    assert not re.findall(r"Input should|Field required|constrained|valid (?:string|dictionary|integer)", " ".join(said))
