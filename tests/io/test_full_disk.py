"""When the disk is full or read-only, the error says so and what was there is still there."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import checkpoint
from pe_cli.io.fetches import open_writer
from pe_cli.io.run_folder import RunFolder
from tests import needs


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(disk: Path) -> None:
    checkpoint.write(disk / "c", 1, {"w": np.ones(100)}, {})
    checkpoint.mark(disk / "c", "last", 1)
    with pytest.raises(PeError, match="800000 bytes wanted") as caught:
        checkpoint.write(disk / "c", 2, {"w": np.ones(100_000)}, {})
    assert caught.value.code == ExitCode.DEVICE
    assert "step-2" in caught.value.message
    assert ".tmp-" not in caught.value.render()
    assert "the steps 1 are unchanged" in (caught.value.hint or "")
    assert {p.name for p in (disk / "c").iterdir()} == {"step-1", "last"}
    assert checkpoint.load(disk / "c")[1]["step"] == 1


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".jsonl"])
def test_fetches_that_do_not_fit_leave_the_earlier_file(disk: Path, suffix: str) -> None:
    path = disk / f"out{suffix}"
    with open_writer(path) as writer:
        writer.write(1, {"x": np.ones(3)})
    before = path.read_bytes()

    def fill() -> None:
        with open_writer(path) as writer:
            for step in range(100):
                writer.write(step, {"x": np.random.default_rng(step).normal(size=1000)})

    with pytest.raises(PeError, match="bytes wanted") as caught:
        fill()
    assert caught.value.code == ExitCode.DEVICE
    assert str(path) in caught.value.message
    assert path.read_bytes() == before
    assert [p.name for p in disk.iterdir()] == [path.name]


def test_a_read_only_disk_is_the_users_mistake(disk: Path) -> None:
    checkpoint.write(disk / "c", 1, {}, {})
    remount(disk, "ro")
    try:
        for write in (
            lambda: checkpoint.write(disk / "c", 2, {}, {}),
            lambda: checkpoint.mark(disk / "c", "last", 1),
            lambda: RunFolder.create(disk, "run", "", "", {}),
            lambda: open_writer(disk / "a.npz"),
            lambda: open_writer(disk / "new" / "a.csv"),
        ):
            with pytest.raises(PeError, match="read-only") as caught:
                write()
            assert caught.value.code == ExitCode.USAGE
        assert checkpoint.load(disk / "c")[1]["step"] == 1
    finally:
        remount(disk, "rw")


def test_a_folder_without_permission_is_the_users_mistake(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        needs.skip("a folder that this process may not write to")
    with pytest.raises(PeError, match="permission denied") as caught:
        checkpoint.write(tmp_path / "c", 1, {}, {})
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("call", ["write", "fsync", "mkdir", "rename"])
def test_any_call_may_find_the_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    checkpoint.write(tmp_path / "c", 1, {"w": np.ones(3)}, {})

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(PeError, match="no space left") as caught:
            checkpoint.write(tmp_path / "c", 2, {"w": np.ones(3)}, {})
    assert caught.value.code == ExitCode.DEVICE
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["step-1"]
    assert checkpoint.load(tmp_path / "c")[1]["step"] == 1


def test_why_a_run_has_failed_is_written_where_nothing_else_can_be(disk: Path) -> None:
    folder = RunFolder.create(disk, "run", "", "", {})
    folder.status(step=7, warning="a sentence that is longer than the one which says why")
    with pytest.raises(OSError, match="No space left"):
        (disk / "others").write_bytes(bytes(1 << 20))
    with pytest.raises(PeError, match="no space left"):
        folder.status(step=8)
    folder.status(state="failed", warning="", error="the disk is full")
    status = folder.read_status()
    assert (status["state"], status["step"], status["error"]) == ("failed", 7, "the disk is full")
    assert [p.name for p in folder.path.iterdir() if p.name.startswith(".")] == []
