"""Hashes of what a run read: told when it is otherwise, and not computed twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import input_hashes
from pe_cli.kernels.compiler import cache
from tests.session.conftest import Bench


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("hashes")
    monkeypatch.setattr(cache, "folder", lambda: place)
    monkeypatch.setattr(cache, "trusted", lambda: True)
    return place


def recorded(folder: Path) -> dict:
    return json.loads((folder / "inputs.json").read_text())


def test_a_run_says_what_it_read_and_which_kernels_ran(bench: Bench) -> None:
    folder = bench.train("runs")
    data = bench.base / "data.npz"
    facts = {"bytes": data.stat().st_size, "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
    found = recorded(folder)
    assert found["files"] == {str(data): facts}
    assert any(name.startswith("pe_cli.ops.") for name in found["kernels"])
    assert all(len(key) == 32 for key in found["kernels"].values())


def test_data_that_is_otherwise_is_told_by_verify_and_when_a_run_goes_on(bench: Bench) -> None:
    folder = bench.train("runs", "--max-steps", 4, code=ExitCode.STOPPED)
    data = bench.base / "data.npz"
    with np.load(data) as arrays:
        values = {name: arrays[name] + 1 for name in arrays.files}
    np.savez(data, **values)
    assert bench.run("verify", folder, "--quiet") == ExitCode.DIFFERENT
    assert f"note: {data} has other content than it had" in bench.out
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert f"data: {data} has other content than it had" in (folder / "log.txt").read_text()
    fifo = bench.base / "fifo"
    os.mkfifo(fifo)
    text = (folder / "inputs.json").read_text()
    (folder / "inputs.json").write_text(text.replace(str(data), str(fifo)))
    assert input_hashes.changed(input_hashes.RunFolder(folder), [data]) == []  # the pipe is named by the run alone, and nobody waits for it


def test_a_file_is_hashed_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    first = input_hashes.Hashes()
    before = first.of(path)
    first.keep()
    opened: list[Path] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *rest, **given: opened.append(self) or real(self, *rest, **given))
    assert input_hashes.Hashes().of(path) == before
    assert path not in opened
    path.write_bytes(b"2")
    os.utime(path, (1, 1))
    assert input_hashes.Hashes().of(path)["sha256"] == hashlib.sha256(b"2").hexdigest()
    assert path in opened


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"PATH": [1]}', '{"PATH": [1, 2, 3]}'])
def test_what_is_remembered_may_be_damaged(tmp_path: Path, own_cache: Path, text: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    (own_cache / "data-hashes.json").write_text(text.replace("PATH", str(path)))
    assert input_hashes.Hashes().of(path)["sha256"] == hashlib.sha256(b"1").hexdigest()


def test_a_folder_counts_by_names_and_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for name, size in (("cats/1.png", 3), ("dogs/2.png", 4)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    before = input_hashes.Hashes().of(folder)
    assert before["files"] == 2
    assert input_hashes.Hashes().of(folder) == before
    (folder / "dogs/2.png").rename(folder / "dogs/3.png")
    assert input_hashes.Hashes().of(folder) != before
