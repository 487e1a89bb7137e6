"""Connections that know no secret: they are sent away in time, hold nothing, and keep nobody waiting who knows it."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time

import numpy as np
import pytest

from pe_cli.collectives.servers import admission, frames
from pe_cli.collectives.servers.admission import SECONDS, STRANGERS, Admission
from pe_cli.collectives.servers.client import Servers, reach
from pe_cli.collectives.servers.frames import Message
from pe_cli.collectives.servers.handshake import GREETING, NONCE
from pe_cli.collectives.servers.service import Service, listen
from tests.collectives.servers.untrusted_peers import HUGE, coming, framed, heard

KEY = b"k" * 32
CROWD = int(os.environ.get("PE_CROWD", "300"))


class Serving:
    """A service in a thread, that gives back what it is asked."""

    def __init__(self, trainers=1, seconds=20.0):
        listener = listen("127.0.0.1:0")
        self.endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        self.service = Service(self.endpoint, trainers, seconds, 1 << 20, key=KEY, listener=listener)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.service.run(lambda request: request.reply(request.message), lambda: None)
        except BaseException as error:  # noqa: BLE001 (looked at by the test)
            self.error = error

    def stranger(self):
        """Return a connection."""
        host, _, port = self.endpoint.rpartition(":")
        return socket.create_connection((host, int(port)), 5)

    def train(self, steps=20):
        """Train; return after how many seconds the trainer was there, and how long its slowest question took."""
        begun = time.monotonic()
        servers = Servers([self.endpoint], 0, 20.0, 1 << 20, key=KEY)
        there, slowest = time.monotonic() - begun, 0.0
        for i in range(steps):
            sent, begun = np.arange(1000) + i, time.monotonic()
            found = servers.ask({self.endpoint: Message("pull", {"step": i}, {"a": sent})}, "asks")[self.endpoint]
            slowest = max(slowest, time.monotonic() - begun)
            assert found.number("step") == i
            np.testing.assert_array_equal(found.arrays["a"], sent)
        servers.leave()
        self.thread.join(20)
        assert not self.thread.is_alive()
        assert self.error is None
        return there, slowest


def ends(connection):
    """Return whether the other end closes a connection within a second more than strangers have, and close it."""
    connection.settimeout(SECONDS + 1)
    with connection, contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return True


def test_the_frame_that_no_memory_has_does_no_harm():
    """An array of no elements and huge axes, which numpy refuses with an error of its own."""
    serving = Serving()
    held = []
    for _ in range(40):
        held.append(serving.stranger())
        held[-1].sendall(framed(HUGE))
    there, _ = serving.train()
    assert there < 1
    assert all(ends(each) for each in held)


def test_a_trainer_that_sends_it_is_lost_alone_with_its_connection():
    serving = Serving()
    for _ in range(40):  # each knows the secret, and says nothing that is right
        with reach(serving.endpoint, time.monotonic() + 5, key=KEY) as one:
            one.sendall(framed(HUGE))
            assert ends(one)
    serving.train()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="nothing"),
        pytest.param([GREETING], id="the first bytes"),
        pytest.param([GREETING, b"", *[b"x"] * 20], id="a byte now and then"),
        pytest.param([GREETING + bytes(NONCE)], id="a whole greeting, and no proof"),
        pytest.param([b"P"], id="one byte"),
    ],
)
def test_a_stranger_is_there_for_so_many_seconds(monkeypatch, words):
    assert SECONDS == 2.0
    monkeypatch.setattr(admission, "SECONDS", 0.5)
    serving = Serving()
    with serving.stranger() as one:
        begun = time.monotonic()

        def drip():
            with contextlib.suppress(OSError):
                for word in words:
                    one.sendall(word)
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        assert ends(one)
        assert 0.4 < time.monotonic() - begun < SECONDS
    serving.train(1)


def test_what_is_wrong_is_sent_away_at_its_first_byte():
    serving = Serving()
    for text in (b"G", b"\0", b"PEPS", b"PEH2", framed(b"[" * 100_000)):
        with serving.stranger() as one:
            begun = time.monotonic()
            one.sendall(text)
            assert ends(one)
            assert time.monotonic() - begun < SECONDS / 2
    assert serving.service._admission.turned_away == 5
    serving.train(1)


def test_many_strangers_have_few_places_and_a_trainer_has_one():
    """They come at once and say nothing; the oldest make room for others."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    serving = Serving()
    held = []
    for _ in range(3 * STRANGERS):
        held.append(serving.stranger())
    until = time.monotonic() + 5
    while len(serving.service._admission._strangers) > STRANGERS and time.monotonic() < until:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) - before <= len(held) + STRANGERS + 5  # noqa: PTH208
    there, _ = serving.train()
    assert there < 1
    assert all(ends(each) for each in held)
    assert not serving.service._admission._strangers


def test_who_greets_stays_longer_than_who_says_nothing_and_one_host_does_not_push_out_another():
    door = Admission(listen("127.0.0.1:0"), "h:1", KEY, lambda connection: True)
    pairs = [socket.socketpair() for _ in range(6)]
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.1"]
    strangers = [admission._Stranger(s, host, 0.0, admission.Handshake(KEY, "h:1")) for (s, _), host in zip(pairs, hosts, strict=True)]
    strangers[0].handshake.take(GREETING + bytes(NONCE))
    door._strangers.update({each.connection.fileno(): each for each in strangers})
    order = []
    while door._strangers:
        order.append(strangers.index(door._last_choice()))
        door._turn_away(strangers[order[-1]])
    assert order == [2, 3, 1, 4, 5, 0]
    door.close()
    for each in (each for pair in pairs for each in pair):
        each.close()


def test_a_server_with_few_open_files_lets_trainers_in():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    serving = Serving()
    held = [serving.stranger() for _ in range(STRANGERS // 2)]
    until = time.monotonic() + 5
    while len(serving.service._admission._strangers) < len(held) and time.monotonic() < until:
        time.sleep(0.01)
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    connection = serving.stranger()  # its other end is taken by the server after this
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    try:
        connection.settimeout(5)
        connection.sendall(GREETING + bytes(NONCE))
        assert connection.recv(4) == GREETING
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in (*held, connection):
        each.close()
    serving.train(1)


def test_a_thread_that_does_not_begin_costs_one_connection(monkeypatch):
    serving = Serving()
    with monkeypatch.context() as patch:
        patch.setattr("pe_cli.collectives.servers.service.Thread.start", lambda thread: (_ for _ in ()).throw(RuntimeError("no threads")))
        with reach(serving.endpoint, time.monotonic() + 5, key=KEY) as one:
            assert ends(one)
    assert not serving.service._sockets
    serving.train(1)


def test_who_is_let_in_and_says_nothing_has_few_places_too(monkeypatch):
    monkeypatch.setattr("pe_cli.collectives.servers.service.OTHERS", 3)
    serving = Serving()
    held = [reach(serving.endpoint, time.monotonic() + 5, key=KEY) for _ in range(4)]
    with reach(serving.endpoint, time.monotonic() + 5, key=KEY) as one:
        assert ends(one)
    for each in held:
        each.close()
    until = time.monotonic() + 5
    while serving.service._sockets and time.monotonic() < until:
        time.sleep(0.01)
    serving.train(1)


def test_a_bug_of_a_thread_is_told(monkeypatch):
    def fails(source, most):
        raise ZeroDivisionError("a bug")

    serving = Serving()
    with reach(serving.endpoint, time.monotonic() + 5, key=KEY) as one:
        frames.write(one, Message("hello", {"trainer": 0}))
        assert frames.read(one, 0).kind == "done"
        monkeypatch.setattr("pe_cli.collectives.servers.service.frames.read", fails)
        frames.write(one, Message("alive"))
        serving.thread.join(20)
    assert "trainer 0 is lost: a message of it met a bug of pe" in str(serving.error)
    assert "ZeroDivisionError: a bug" in str(serving.error)


def test_a_crowd_keeps_no_trainer_waiting():
    serving = Serving()
    with coming(serving.endpoint, CROWD, heard(KEY, serving.endpoint)) as made:
        until = time.monotonic() + 20
        while not serving.service._admission._strangers and time.monotonic() < until:
            time.sleep(0.01)
        delays, until = [], time.monotonic() + 1 + CROWD / 1000
        while len(delays) < 10 or time.monotonic() < until:
            begun = time.monotonic()
            reach(serving.endpoint, begun + 20, key=KEY).close()
            delays.append(time.monotonic() - begun)
        there, slowest = serving.train(200)
    print(f"connections {made}; s of a connection {max(delays):.3f}, of a trainer's {there:.3f}, of a question {slowest:.3f}")  # noqa: T201
    assert made[0] > CROWD / 2
    assert max(delays) < 1
    assert there < 1
    assert slowest < 1
