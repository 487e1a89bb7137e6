"""What an .npz gathers before it is written, and files that are cut back to an earlier length."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import append_files, npz_spool
from pe_cli.io.fetches import cut, open_writer


def read(path: Path) -> dict[str, list[float]]:
    with np.load(path) as arrays:
        return {name: arrays[name].tolist() for name in arrays.files}


def write(path: Path, steps: range, closed: bool = True) -> list[dict[str, int]]:
    """Write `step` samples at every step; return the positions after each."""
    writer = open_writer(path, append=True)
    positions = []
    for step in steps:
        writer.write(step, {"x": np.full(step, step, np.float32)})
        positions.append(writer.position())
    if closed:
        writer.close()
    return positions


@pytest.mark.parametrize("closed", [True, False], ids=["closed before", "killed before"])
@pytest.mark.parametrize("stays", [0, 1, 2, 3])
def test_an_npz_is_cut_back_to_any_position_and_goes_on(tmp_path: Path, closed: bool, stays: int) -> None:
    path = tmp_path / "x.npz"
    positions = [{"writes": 0, "samples": 0}, *write(path, range(1, 4), closed)]
    assert cut(path, positions[stays]) == ""
    assert cut(path, positions[stays]) == "", "twice is as good as once"
    write(path, range(stays + 1, 5))
    assert read(path) == {"step": [1, 2, 3, 4], "x": [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]}
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_a_record_that_a_kill_tore_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    positions = write(path, range(1, 4), closed=False)
    hidden = npz_spool.path_of(path)
    hidden.write_bytes(hidden.read_bytes()[:-5])
    assert cut(path, positions[1]) == ""
    write(path, range(3, 4))
    assert read(path)["step"] == [1, 2, 3]


def test_a_damaged_record_that_is_needed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    positions = write(path, range(1, 4), closed=False)
    npz_spool.path_of(path).write_bytes(b"[1, 2]\nrest")
    with pytest.raises(PeError, match="does not begin with its names") as caught:
        cut(path, positions[1])
    assert caught.value.code == ExitCode.DATA


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    assert "earlier values are missing" in cut(path, {"writes": 2, "samples": 3})
    other = tmp_path / "x.csv"
    other.write_text("step,x\n")
    assert "shorter than it was" in cut(other, {"bytes": 100})


def test_what_had_no_writer_goes(tmp_path: Path) -> None:
    for name in ("x.npz", "x.csv"):
        write(tmp_path / name, range(1, 3))
        assert cut(tmp_path / name, None) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("size", "left", "whole"), [(2, b"ab", True), (5, b"abcde", True), (7, b"abcde", False)])
def test_a_file_is_cut_and_never_lengthened(tmp_path: Path, size: int, left: bytes, whole: bool) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcde")
    assert append_files.cut(path, size) is whole
    assert path.read_bytes() == left
    assert append_files.length(tmp_path / "absent") == 0


def test_an_npz_that_could_not_be_written_keeps_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    writer = open_writer(path, append=True)
    writer.write(1, {"x": np.ones(2, np.float32)})

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(PeError, match="no space left"):
            writer.close()
    writer.close()  # whoever cleans up calls it again
    assert not path.exists()
    write(path, range(2, 3))
    assert read(path)["step"] == [1, 2]
