"""Files of hosts, and the processes on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.core.errors import PeError
from pe_cli.session.launch.hosts import Host, divided, hosts_of, read_hosts


def test_a_file_has_names_slots_and_comments(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# desk\nlocalhost\n127.0.0.1:2   # two\n\n127.0.0.2 slots = 3\n")
    assert read_hosts(path) == [Host("localhost"), Host("127.0.0.1", 2), Host("127.0.0.2", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "no host in it", id="empty"),
        pytest.param("localhost:two\n", ":1: 'localhost:two' is no host", id="slots that are no number"),
        pytest.param("localhost; rm -rf\n", "is no host", id="a command"),
        pytest.param("nosuch.invalid\n", "host nosuch.invalid is not known", id="a name that does not resolve"),
        pytest.param("localhost:99999\n", "is no host", id="too many slots"),
        pytest.param(f"localhost:{'9' * 5000}\n", "is no host", id="a number of 5,000 digits"),
        pytest.param("127.0.0.1\n" * 4097, ":4097: more than 4096 hosts", id="too many hosts"),
        pytest.param("#" * (1 << 23), "bytes", id="a file of 8 MiB"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(PeError) as found:
        read_hosts(path)
    assert message in found.value.message
    assert found.value.hint
    assert found.value.code == 2


@pytest.mark.parametrize(
    ("hosts", "count", "expected"),
    [
        ([Host("a"), Host("b")], 4, ["a", "a", "b", "b"]),
        ([Host("a"), Host("b")], 3, ["a", "a", "b"]),
        ([Host("a"), Host("b"), Host("c")], 2, ["a", "b"]),
        ([Host("a", 1), Host("b", 3)], 3, ["a", "b", "b"]),
    ],
)
def test_processes_go_to_hosts_in_their_order(hosts, count, expected):
    assert divided(hosts, count) == expected


def test_hosts_may_be_named_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hosts_of("localhost,127.0.0.1:3") == ([Host("localhost"), Host("127.0.0.1", 3)], None)
    assert hosts_of("localhost") == ([Host("localhost")], None)
    (tmp_path / "desk").write_text("127.0.0.2:2\n")
    assert hosts_of("desk") == ([Host("127.0.0.2", 2)], Path("desk"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("nosuch/hosts", "no such file of hosts", id="a path"),
        pytest.param("a b,c", "--hosts a b,c: 'a b' is no host", id="a blank"),
        pytest.param(",", "no host in it", id="nothing"),
        pytest.param("nosuch.invalid", "host nosuch.invalid is not known", id="a name that does not resolve"),
        pytest.param("localhost," * 5000, "more than 4096 hosts", id="too many"),
    ],
)
def test_names_that_are_no_hosts_are_refused(text, message):
    with pytest.raises(PeError, match=message) as found:
        hosts_of(text)
    assert found.value.code == 2
    assert found.value.hint


def test_too_few_slots_are_named():
    with pytest.raises(PeError, match="the hosts have 3 slots for 4 processes"):
        divided([Host("a", 2), Host("b", 1)], 4)
