"""The lock on a folder: who may tell that nobody has it any more."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import time
from pathlib import Path

import pytest

from pe_cli.io import lock
from pe_cli.io.lock import is_free, locked


def test_who_looks_sees_whether_it_is_held(tmp_path: Path) -> None:
    with locked(tmp_path) as mark:
        assert is_free(tmp_path, mark) is False
        with pytest.raises(BlockingIOError):
            locked(tmp_path).__enter__()
    assert is_free(tmp_path, mark) is True
    assert isinstance(mark, str)
    assert re.fullmatch("[0-9a-f]{16}", mark), "it names nobody"
    with locked(tmp_path) as again:
        assert again == mark


def test_who_looks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(tmp_path) as mark:
        pass
    looks = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    assert is_free(tmp_path, mark) is True, "two may look at once"
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looks))  # the look is over
    with locked(tmp_path) as again:
        assert again == mark


def test_another_machine_or_another_folder_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder) as mark:
        pass
    shutil.copytree(folder, tmp_path / "copy")
    assert is_free(tmp_path / "copy", mark) is None
    assert is_free(tmp_path / "gone", mark) is None
    assert [is_free(folder, other) for other in (None, 5, "", "0" * 16)] == [None] * 4
    folder.rename(tmp_path / "moved")
    assert is_free(tmp_path / "moved", mark) is True, "a folder that is moved is the same"
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "elsewhere")
        assert is_free(tmp_path / "moved", mark) is None
    boot = tmp_path / "boot_id"
    boot.write_text("7f0c\n")
    monkeypatch.setattr(lock, "_BOOT", boot)
    assert is_free(tmp_path / "moved", mark) is None, "the machine was started again"


def test_a_machine_that_does_not_tell_its_start_is_not_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(lock, "_BOOT", boot)
    with locked(tmp_path) as mark:
        assert mark is None
    boot.write_text("\n")
    with locked(tmp_path) as mark:
        assert mark is None
    assert is_free(tmp_path, None) is None


def test_a_file_system_without_locks_lets_everybody_in_and_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(tmp_path) as mark:
        pass

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path) as first, locked(tmp_path) as second:
        assert (first, second) == (None, None)
    assert is_free(tmp_path, mark) is None
