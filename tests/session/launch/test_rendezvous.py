"""Processes that something else has started find each other, and let nobody else in."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import stat
import threading
import time

import pytest

from pe_cli.collectives.launcher_environment import SECRET
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.launch import rendezvous
from pe_cli.session.launch.cluster_environment import Member
from pe_cli.session.launch.external_launch import _started
from pe_cli.session.launch.rendezvous import joined, opened

LONG = 60.0


@pytest.fixture
def first(monkeypatch):
    """The first of three, with a port of its own and a secret."""
    monkeypatch.setenv(SECRET, "a secret of sixteen letters")
    with socket.create_server(("127.0.0.1", 0)) as free:
        return Member(0, 3, "srun", "address", f"127.0.0.1:{free.getsockname()[1]}")


def number(member, rank, **other):
    return dataclasses.replace(member, rank=rank, **other)


@contextlib.contextmanager
def others(folder, *members, **facts):
    """Let others come, each in a thread; give what each of them met."""
    found = [None] * len(members)

    def come(i, member):
        try:
            found[i], _ = joined(member, folder, LONG, **facts)
        except PeError as error:
            found[i] = error

    threads = [threading.Thread(target=come, args=each) for each in enumerate(members)]
    for thread in threads:
        thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [each.close() for each in found if isinstance(each, rendezvous.Channel)])
        yield found
        for thread in threads:
            thread.join(LONG)


@pytest.mark.parametrize("meet", ["address", "file"])
def test_all_come_and_hear_what_the_first_one_says(tmp_path, first, meet):
    first = dataclasses.replace(first, meet=meet, job="14.0.0")
    with others(tmp_path, number(first, 2), number(first, 1), port=7000) as found:
        with opened(first, tmp_path) as door:
            told = list(tmp_path.iterdir())
            assert [stat.S_IMODE(each.stat().st_mode) for each in told] == [0o600] * (meet == "file")
            door.wait(LONG)
            assert {rank: said["port"] for rank, (_, said) in door.came.items()} == {1: 7000, 2: 7000}
            door.tell(code=75)
            while None in found:
                time.sleep(0.01)
        for channel in found:
            assert channel.hear(time.monotonic() + LONG) == {"code": 75}
            with pytest.raises(EOFError):
                channel.hear(time.monotonic() + LONG)
    assert not list(tmp_path.iterdir()), "the file goes with the meeting"


def test_strangers_are_not_let_in_and_hold_nobody_up(tmp_path, first):
    port = int(first.address.rpartition(":")[2])
    with opened(first, tmp_path) as door, contextlib.ExitStack() as stack:
        for word in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PEH1" + b"\0" * 32 + b"\0" * 32, b'{"rank": 1, "size": 3}\n'):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stranger.sendall(word)
        with others(tmp_path, number(first, 1), number(first, 2)):
            door.wait(LONG)
        assert sorted(door.came) == [1, 2]


def test_who_has_another_secret_does_not_come_in(tmp_path, first, monkeypatch):
    with opened(first, tmp_path) as door:
        monkeypatch.setenv(SECRET, "another secret of sixteen letters")

        def wait():
            with contextlib.suppress(PeError):
                door.wait(3.0)

        waits = threading.Thread(target=wait)
        waits.start()
        with pytest.raises(PeError, match="process 1 of 3 has not found the first one for 1 seconds") as found:
            joined(number(first, 1), tmp_path, 1.0)
        assert found.value.code == ExitCode.PEER_LOST
        waits.join(LONG)
        assert not door.came


def test_addresses_that_others_can_reach_need_a_secret(tmp_path, monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)
    member = Member(0, 2, "an indexed Job", "address", "192.0.2.1:6174")
    with pytest.raises(PeError, match="can be reached from other machines, and its group has no secret") as found, opened(member, tmp_path):
        pass
    assert found.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("comes", "message"),
    [
        pytest.param([1, 1], "process 1 of 3 has come twice", id="one number twice"),
        pytest.param([0], "process 0 of 3 has come, and this is process 0 of 3", id="two first ones"),
        pytest.param([5], "process 5 of 3 has come", id="a number too high"),
        pytest.param(["7"], "process 7 of 3 has come", id="a number that is none"),
    ],
)
def test_processes_that_do_not_fit_end_all(tmp_path, first, comes, message):
    with others(tmp_path, *(number(first, rank) for rank in comes)), opened(first, tmp_path) as door:
        with pytest.raises(PeError, match=message) as found:
            door.wait(LONG)
        assert found.value.code == ExitCode.USAGE


def test_another_number_of_processes_is_named(tmp_path, first):
    come = others(tmp_path, number(first, 1, size=4))
    with come, opened(first, tmp_path) as door, pytest.raises(PeError, match="process 1 of 4 has come"):
        door.wait(LONG)


def test_who_does_not_come_is_named_and_the_others_hear_it(tmp_path, first):
    with others(tmp_path, number(first, 2)) as found, opened(first, tmp_path) as door:
        while not door.came:
            with contextlib.suppress(PeError):
                door.wait(0.5)
        with pytest.raises(PeError, match=r"process 1 of 3 has not come for 0\.1 seconds") as raised:
            door.wait(0.1)
        assert raised.value.code == ExitCode.PEER_LOST
        while None in found:
            time.sleep(0.01)
        assert found[0].hear(time.monotonic() + LONG)["exit"] == ExitCode.PEER_LOST


def test_one_that_is_started_again_takes_its_place(tmp_path, first):
    with opened(first, tmp_path) as door:
        with others(tmp_path, number(first, 1)):
            while not door.came:
                with contextlib.suppress(PeError):
                    door.wait(0.5)
        with others(tmp_path, number(first, 1), number(first, 2)):
            door.wait(LONG)


def test_a_port_in_use_is_named(tmp_path, first):
    port = int(first.address.rpartition(":")[2])
    with socket.create_server(("", port)), pytest.raises(PeError, match=f"cannot listen at port {port}: address already in use") as found:
        opened(first, tmp_path).__enter__()
    assert "MASTER_PORT" in found.value.hint
    assert found.value.code == ExitCode.USAGE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hosts": 1, "port": 2, "key": "zz"}', '{"hosts": [], "port": "x"}'])
def test_a_file_that_says_nothing_is_waited_for(tmp_path, first, text):
    member = dataclasses.replace(first, rank=1, meet="file", job="1.0.0")
    path = tmp_path / ".launch-1.0.0"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(PeError, match="has not found the first one") as found:
        joined(member, tmp_path, 0.1)
    assert found.value.code == ExitCode.PEER_LOST


def test_a_file_that_others_can_read_does_not_count(tmp_path, first):
    member = dataclasses.replace(first, meet="file", job="1.0.0")
    with opened(member, tmp_path):
        path = tmp_path / ".launch-1.0.0"
        path.chmod(0o644)
        with pytest.raises(FileNotFoundError):
            rendezvous._where(member, tmp_path)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to("elsewhere")
        with pytest.raises(OSError, match="symbolic links"):
            rendezvous._where(member, tmp_path)


@pytest.mark.parametrize("options", [None, [], ["--pgid", "$(id)"], ["--pgid", "a b"], ["x" * 100], ["--pgid"] * 65, [1]])
def test_a_proxy_gets_no_other_options_than_a_proxys(options, first):
    with pytest.raises(PeError, match="says no options of a proxy"):
        _started("/bin/false", options, "", first)
