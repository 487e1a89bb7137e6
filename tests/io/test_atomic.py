"""A file is there whole, or as it was; errors say whose fault it is."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import append_files, atomic
from tests import needs


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 64 KiB, or skip where this process may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        needs.skip("the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fail(error: int):
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(error, os.strerror(error))

    return refuse


def test_a_written_file_reads_back(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "a.txt", "grün\n")
    assert (tmp_path / "a.txt").read_bytes() == "grün\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_the_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic.write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    atomic.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_straight() -> None:
    atomic.write_text(Path(os.devnull), "gone")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        pytest.param("write", errno.ENOSPC, ExitCode.DEVICE, id="disk full while writing"),
        pytest.param("write", errno.EDQUOT, ExitCode.DEVICE, id="quota exceeded while writing"),
        pytest.param("fsync", errno.ENOSPC, ExitCode.DEVICE, id="disk full while flushing"),
        pytest.param("fsync", errno.EIO, ExitCode.DEVICE, id="disk failing"),
        pytest.param("open", errno.EMFILE, ExitCode.DEVICE, id="too many open files"),
        pytest.param("open", errno.ENFILE, ExitCode.DEVICE, id="too many open files in the system"),
        pytest.param("rename", errno.ENOSPC, ExitCode.DEVICE, id="disk full while renaming"),
        pytest.param("open", errno.EROFS, ExitCode.USAGE, id="read-only file system"),
        pytest.param("open", errno.EACCES, ExitCode.USAGE, id="no permission"),
    ],
)
def test_a_failure_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int, code: ExitCode
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail(error))
        with pytest.raises(PeError) as caught:
            atomic.write_text(target, "brand new")
    assert caught.value.code == code
    assert str(target) in caught.value.message
    assert os.strerror(error).lower() in caught.value.message
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert "unchanged" in (caught.value.hint or "")
    assert ("disk" in caught.value.hint) is (code is ExitCode.DEVICE and error not in (errno.EMFILE, errno.ENFILE))
    assert ("ulimit -n" in caught.value.hint) is (error == errno.EMFILE)


def test_a_full_disk_says_how_much_was_wanted(tiny_disk: Path) -> None:
    target = tiny_disk / "big"
    atomic.write_text(target, "small")
    with pytest.raises(PeError, match="100000 bytes wanted") as caught:
        atomic.write_bytes(target, bytes(100_000))
    assert caught.value.code == ExitCode.DEVICE
    assert target.read_text() == "small"
    assert [p.name for p in tiny_disk.iterdir()] == ["big"]


def test_appending_to_a_full_disk_cuts_back_to_whole_lines(tiny_disk: Path) -> None:
    target = tiny_disk / "lines"
    append_files.append_line(target, "first")
    with pytest.raises(PeError) as caught:
        append_files.append_line(target, "x" * 100_000)
    assert caught.value.code == ExitCode.DEVICE
    assert target.read_text() == "first\n"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        pytest.param("missing/a.txt", "create the folder", id="missing folder"),
        pytest.param("file/a.txt", "file where a folder is needed", id="file in place of a folder"),
        pytest.param("folder", "not a folder", id="folder in place of a file"),
        pytest.param("n" * 300, "shorter name", id="name too long"),
    ],
)
def test_an_unusable_path_is_the_users_mistake(tmp_path: Path, path: str, hint: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PeError) as caught:
        atomic.write_text(tmp_path / path, "x")
    assert caught.value.code == ExitCode.USAGE
    assert hint in (caught.value.hint or "")
    assert "Errno" not in caught.value.render()


def test_an_error_of_the_block_passes_and_leaves_nothing(tmp_path: Path) -> None:
    def fill() -> None:
        with atomic.temporary(tmp_path / "a.npz") as draft:
            assert draft.suffix == ".npz"
            draft.write_text("half")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fill()
    assert not list(tmp_path.iterdir())


def test_a_torn_line_is_ended_before_the_next(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    target.write_text('{"a": 1}\n{"a": ')
    append_files.append_line(target, '{"a": 3}')
    assert target.read_text() == '{"a": 1}\n{"a": \n{"a": 3}\n'


def test_only_old_leftovers_of_dead_writers_are_removed(tmp_path: Path) -> None:
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    mine, theirs, young = atomic.temporary_name(), f".tmp-{dead}-0123abcd.json", f".tmp-{dead}-89abcdef"
    for name in (mine, theirs, young, ".tmp-notes"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / theirs, (0, 0))
    os.utime(tmp_path / mine, (0, 0))
    atomic.clean_temporaries(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {mine, young, ".tmp-notes"}
