"""Many connections, slow ones, full memory, mistakes and ends: who asks rightly is answered soon, and nobody is reset."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pe_cli.session.http.limits import Limits
from pe_cli.session.http.server import Server
from tests.session.http.echo import Echo, connected, running, statuses

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@contextlib.contextmanager
def several(server: Server, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(server.address, timeout=10))
            with contextlib.suppress(OSError):
                held[-1].sendall(data)
        yield held
    finally:
        for one in held:
            one.close()


def asked(server: Server, path: str = "/", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def dripped(held: list[socket.socket]) -> None:
    for one in held:
        with contextlib.suppress(OSError):
            one.send(b"x")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET / HTTP/1.1\r\nX-", id="drip a head"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n", id="drip a body"),
        pytest.param(GET, id="keep alive"),
    ],
)
def test_300_slow_clients_keep_nobody_waiting(data: bytes) -> None:
    with running(Echo()) as server, several(server, 300, data) as held:
        times = []
        for _ in range(5):
            dripped(held)
            begin = time.monotonic()
            assert asked(server)[0] == 200
            times.append(time.monotonic() - begin)
        assert max(times) < 1.0
        assert len(server.open) <= 256


def test_who_is_slow_is_told_so_and_not_reset() -> None:
    with running(Echo(), connections=4) as server, several(server, 4, b"GET / HTTP/1.1\r\nX-") as held:
        for _ in range(50):
            if len(server.open) == 4 and all(one.held for one in server.open):
                break
            time.sleep(0.02)
        assert asked(server)[0] == 200
        text = held[0].makefile("rb").read()
        assert text.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in text


def test_over_full_with_requests_that_are_being_answered_it_says_when_to_come_again() -> None:
    app = Echo()
    with running(app, connections=3) as server, several(server, 3, b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n") as held:
        while len(app.held) < 3:
            time.sleep(0.01)
        with connected(server, GET) as one:
            text = one.makefile("rb").read()
        assert text.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in text
        server.call(app.free)
        for one in held:
            assert one.recv(12) == b"HTTP/1.1 200"


def test_a_request_has_to_be_whole_in_time_however_its_bytes_come() -> None:
    with running(Echo(), request=0.5, idle=0.5) as server:
        with several(server, 3, b"GET / HTTP/1.1\r\nX-") as held:
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                dripped(held)
                time.sleep(0.1)
            assert {one.makefile("rb").read().split(b" ")[1] for one in held} == {b"408"}
        with connected(server) as silent:
            assert silent.recv(1) == b""


def test_who_takes_no_answer_is_let_go_and_its_memory_counted() -> None:
    with running(Echo(), request=0.5, memory=64 << 20) as server:
        with several(server, 4, b"GET /size/8000000 HTTP/1.1\r\nHost: a\r\n\r\n") as held:
            end = time.monotonic() + 5
            while server.memory.used < 8_000_000 and time.monotonic() < end:
                time.sleep(0.02)
            assert server.memory.used > 8_000_000
            while server.open and time.monotonic() < end:
                time.sleep(0.05)
            assert not server.open
            assert held
        assert server.memory.used == 0


def test_bodies_take_no_more_memory_than_there_is_and_the_largest_makes_room() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n"
    with running(Echo(), body=300_000, memory=1 << 20) as server, several(server, 6, head + b"x" * 200_000) as held:
        most, end = 0, time.monotonic() + 3
        while time.monotonic() < end and len(server.leaving) < 2:
            most = max(most, server.memory.used)
            time.sleep(0.01)
        assert most <= 1 << 20
        refused = [one for one in held if (one.settimeout(0.2) or one) and _starts(one) == b"HTTP/1.1 503"]
        assert len(refused) >= 2
        assert asked(server, "/", b"small")[0] == 200


def _starts(one: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return one.recv(12)
    return b""


def test_a_refused_body_is_answered_though_all_of_it_comes() -> None:
    with running(Echo()) as server:
        status, text = asked(server, "/", b"x" * 5_000_000)
        assert status == 413
        assert b"1000 bytes at most" in text
        assert asked(server, "/no", b"x" * 900)[0] == 404


def test_who_waits_for_leave_to_send_a_body_gets_it() -> None:
    with running(Echo()) as server:
        with connected(server, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n") as one:
            assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            one.sendall(b"hi")
            assert b'"body": "hi"' in one.recv(1000)
        with connected(server, b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n") as one:
            assert one.recv(12) == b"HTTP/1.1 404"


def test_a_mistake_of_ours_ends_one_request() -> None:
    with running(Echo()) as server:
        assert asked(server, "/fails") == (500, b'{"error": "this is a bug of pe: ValueError; please report it with what was sent"}')
        assert asked(server)[0] == 200


def test_requests_that_come_at_once_are_answered_in_order() -> None:
    with running(Echo()) as server, connected(server, b"".join(GET.replace(b" / ", b" /%d " % i) for i in range(50))) as one:
        one.shutdown(socket.SHUT_WR)
        text = one.makefile("rb").read()
        assert [int(part.split(b'"')[0]) for part in text.split(b'"path": "/')[1:]] == list(range(50))


def test_who_asks_fast_leaves_time_for_others() -> None:
    with running(Echo()) as server, several(server, 20, GET * 500), ThreadPoolExecutor(1) as pool:
        begin = time.monotonic()
        assert pool.submit(asked, server).result(10)[0] == 200
        assert time.monotonic() - begin < 2


@pytest.mark.parametrize("times", [1, 2])
def test_at_the_end_what_is_in_flight_is_answered_and_at_once_where_it_is_told_twice(times: int) -> None:
    app = Echo()
    server = Server(("127.0.0.1", 0), app, Limits(body=1000))
    thread = threading.Thread(target=server.run)
    thread.start()
    with several(server, 8, b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n") as held, connected(server, GET) as idle:
        assert idle.recv(12) == b"HTTP/1.1 200"
        while len(app.held) < 8:
            time.sleep(0.01)
        for _ in range(times):
            server.call(server.stop)
        time.sleep(0.6 if times == 1 else 0)
        if times == 1:
            server.call(app.free)
            assert [statuses(one) for one in held] == [[200]] * 8
        thread.join(10)
        assert not thread.is_alive()
        with pytest.raises(OSError, match="refused"):
            connected(server)


def test_what_is_being_sent_at_the_end_is_heard() -> None:
    app = Echo()
    server = Server(("127.0.0.1", 0), app, Limits(body=1000))
    thread = threading.Thread(target=server.run)
    thread.start()
    with connected(server, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab") as one:
        while not server.open or not next(iter(server.open)).held:
            time.sleep(0.01)
        server.call(server.stop)
        time.sleep(0.4)
        one.sendall(b"cd")
        assert json.loads(one.makefile("rb").read().rpartition(b"\r\n")[2])["body"] == "abcd"
    thread.join(10)
    assert not thread.is_alive()


def test_where_few_files_may_be_open_there_are_fewer_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (100, 100))
    with running(Echo()) as server, several(server, 60, b"GET / HTTP/1.1\r\nX-"):
        begin = time.monotonic()
        assert asked(server)[0] == 200
        assert time.monotonic() - begin < 1.0
        assert len(server.open) <= 25
        assert len(server.leaving) <= 25
