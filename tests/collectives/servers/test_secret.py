"""Where the secret of a group comes from, who may read it, and where there has to be one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.collectives.servers.secret import group_key
from pe_cli.core.errors import ExitCode, PeError

HERE, AWAY = ["127.0.0.1:6174"], ["127.0.0.1:6174", "192.0.2.7:6174"]
LONG = "a text that only they know"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Give a user who has started nothing yet."""
    monkeypatch.delenv("PE_GROUP_SECRET", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "home"


def kept(path, text=LONG, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_variable_counts_before_the_file_and_the_file_before_the_users_own(tmp_path, monkeypatch):
    own, file = group_key(HERE), group_key(HERE, file=kept(tmp_path / "secret"))
    monkeypatch.setenv("PE_GROUP_SECRET", "another text that they know")
    given = group_key(AWAY, file=tmp_path / "secret")
    assert len({own, file, given}) == 3
    assert given == group_key(HERE)
    monkeypatch.setenv("PE_GROUP_SECRET", LONG + "\n")
    assert group_key(AWAY) == file, "it is the text that counts, wherever it stands"
    assert {len(own), len(file), len(given)} == {32}


def test_each_start_has_its_own_key():
    assert group_key(HERE, "job 1") != group_key(HERE, "job 2")
    assert group_key(HERE, "job 1") == group_key(["localhost:1"], "job 1")


@pytest.mark.parametrize("endpoint", ["192.0.2.7:6174", "0.0.0.0:80", "[::]:80", "198.51.100.1:1"])
def test_servers_that_others_can_reach_need_a_secret(endpoint):
    with pytest.raises(PeError, match="can be reached from other machines, and its group has no secret") as found:
        group_key([*HERE, endpoint])
    assert found.value.code == ExitCode.USAGE
    assert "PE_GROUP_SECRET" in str(found.value.hint)
    assert "distributed.secret" in str(found.value.hint)


def test_the_hint_makes_a_secret_that_is_taken(tmp_path):
    with pytest.raises(PeError) as found:
        group_key(AWAY)
    command = "(umask" + str(found.value.hint).partition("(umask")[2].partition(" makes")[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert len(group_key(AWAY, file=tmp_path / "FILE")) == 32


def test_the_users_own_secret_is_made_once_for_nobody_else_to_read(home):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from pe_cli.collectives.servers.secret import group_key; print(group_key({HERE}).hex())"],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        )
        for _ in range(3)
    ]  # fmt: skip
    keys = {process.communicate()[0].strip() for process in processes}
    assert keys == {group_key(HERE).hex()}
    (file,) = (home / ".cache/pe").iterdir()
    assert file.name == "group-secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().strip()) == 64


@pytest.mark.parametrize("harm", ["mode", "owner", "folder", "empty"])
def test_a_secret_of_the_user_that_others_know_does_not_count(home, tmp_path, monkeypatch, harm):
    first = group_key(HERE)
    file = home / ".cache/pe/group-secret"
    if harm == "mode":
        file.chmod(0o644)
    elif harm == "empty":
        file.write_text("")
    elif harm == "owner":
        monkeypatch.setattr("os.geteuid", lambda made=os.geteuid: made() + 1 if made() else 4711)
        file.chmod(0o640)
    else:
        file.unlink()
        file.mkdir()
    if harm == "owner":
        with pytest.raises(PeError, match="can be kept nowhere"):  # files that it makes belong to somebody else, too
            group_key(HERE)
        return
    second = group_key(HERE)
    assert second != first
    assert second == group_key(HERE)
    (folder,) = (tmp_path / "tmp").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_have_made_holds_no_secret(home, tmp_path):
    home.mkdir()
    (home / ".cache").write_text("no folder")
    (tmp_path / "tmp" / f"pe-{os.geteuid()}").mkdir()
    (tmp_path / "tmp" / f"pe-{os.geteuid()}").chmod(0o755)
    with pytest.raises(PeError, match="can be kept nowhere") as found:
        group_key(HERE)
    assert "PE_GROUP_SECRET" in str(found.value.hint)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: None, "no such file", id="not there"),
        pytest.param(lambda path: path.mkdir(), "must be a file of this user|is a directory", id="a folder"),
        pytest.param(os.mkfifo, "must be a file of this user", id="a pipe, which nobody waits for"),
        pytest.param(lambda path: kept(path, mode=0o644), "nobody else can read, and has mode 644", id="for all to read"),
        pytest.param(lambda path: kept(path, mode=0o640), "has mode 640", id="for a group to read"),
        pytest.param(lambda path: kept(path, "short\n"), "holds 5 characters, and a secret has 16 at least", id="short"),
    ],
)
def test_a_file_that_holds_no_secret_is_named(tmp_path, make, message):
    make(tmp_path / "secret")
    with pytest.raises(PeError, match=message) as found:
        group_key(HERE, file=tmp_path / "secret")
    assert found.value.code == ExitCode.USAGE
    assert str(tmp_path / "secret") in found.value.message
    assert found.value.hint


def test_a_short_variable_is_named(monkeypatch):
    monkeypatch.setenv("PE_GROUP_SECRET", "123456789012345")
    with pytest.raises(PeError, match="PE_GROUP_SECRET holds 15 characters, and a secret has 16 at least"):
        group_key(HERE)
