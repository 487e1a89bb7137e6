"""Files beside a checkpoint's arrays: `meta.json` lists them with their hashes, and can name nothing outside of its folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a checkpoint of step 10, with a file of two bytes outside of it."""
    (tmp_path / "other").write_text("no")
    checkpoint.write(tmp_path / "checkpoints", 10, {"w": np.zeros(2, "float32")}, {"step": 10})
    return tmp_path / "checkpoints" / "step-10"


def listed(folder: Path, name: str, content: bytes) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"files": {name: hashlib.sha256(content).hexdigest()}}))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("../../other", id="a path upwards"),
        pytest.param("/etc/hostname", id="a path from the root"),
        pytest.param("sub/file", id="a folder"),
        pytest.param(".hidden", id="a hidden file"),
        pytest.param("..", id="the folder above"),
        pytest.param("", id="nothing"),
        pytest.param("n" * 201, id="more letters than a run writes"),
        pytest.param("a b", id="a space"),
        pytest.param("a\n", id="the end of a line"),
    ],
)
def test_other_names_are_refused(folder: Path, name: str) -> None:
    listed(folder, name, b"no")
    with pytest.raises(PeError, match="lists no files as a run does") as caught:
        checkpoint.read_files(folder)
    assert caught.value.code == ExitCode.DATA


def test_a_list_in_place_of_names(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"files": ["words.txt"]}))
    with pytest.raises(PeError, match="lists no files as a run does"):
        checkpoint.read_files(folder)


@pytest.mark.parametrize("name", ["words.txt", "a-b_c.json", "n" * 200])
def test_ordinary_names_are_read(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"words")
    listed(folder, name, b"words")
    assert checkpoint.read_files(folder) == {name: b"words"}
    (folder / name).write_bytes(b"wordy")
    with pytest.raises(PeError, match="changed since it was written"):
        checkpoint.read_files(folder)
