"""Bytes that are read in one way only: shapes of requests that smuggle another through a proxy, and right ones in any pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pe_cli.session.http.framing import MOST_CHUNKS, Framing, FramingError, Head
from pe_cli.session.http.server import Server
from tests.session.http.echo import Echo, answers, running
from tests.session.http.shapes import HOST, RIGHT, WRONG


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Echo()) as found:
        yield found


def read(framing: Framing, data: bytes) -> list[tuple[Head, bytes]]:
    framing.give(data)
    found: list[tuple[Head, bytes]] = []
    while isinstance(head := framing.next(), Head):
        body = framing.next()
        if body is None:
            break
        found.append((head, bytes(body)))
    return found


@pytest.mark.parametrize("name", WRONG)
def test_what_could_be_read_in_two_ways_is_refused_once_and_closed(server: Server, name: str) -> None:
    app = server.app
    assert isinstance(app, Echo)
    before = len(app.heads)
    (status,) = answers(server, WRONG[name])
    assert status in (400, 405, 413, 417, 431, 501, 505)
    assert len(app.heads) == before, "no part of it is a request"


def test_there_are_enough_of_them() -> None:
    assert len(WRONG) >= 40


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_answered(server: Server, name: str) -> None:
    data, count = RIGHT[name]
    assert answers(server, data, half=True) == [200] * count


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "HTTP/1.0"])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_pieces_change_nothing(name: str, size: int) -> None:
    data, count = RIGHT[name]
    whole = read(Framing(1000), data)
    framing = Framing(1000)
    head, found = None, []
    for start in range(0, len(data), size):
        framing.give(data[start : start + size])
        while (event := framing.next()) is not None:
            if isinstance(event, Head):
                head = event
            else:
                found.append((head, bytes(event)))
    assert found == whole
    assert len(found) == count
    assert not framing.begun


@pytest.mark.parametrize("name", WRONG)
def test_pieces_of_what_is_wrong_are_refused_too(name: str) -> None:
    framing = Framing(1000)
    with pytest.raises(FramingError):  # noqa: PT012 - which byte is too many does not matter
        for byte in WRONG[name]:
            framing.give(bytes([byte]))
            while isinstance(framing.next(), Head):
                pass
        raise AssertionError("all of it was taken")


def test_fields_are_told() -> None:
    ((head, body),) = read(Framing(9), b"POST /a/b?c=d HTTP/1.1\r\nHost: A:1\r\nX-Y: 1\r\nx-y: 2\r\nContent-Length: 2\r\n\r\nhi")
    assert (head.method, head.path, head.host, head.fields["x-y"], head.length, head.keeps) == ("POST", "/a/b", "A:1", "1, 2", 2, True)
    assert body == b"hi"


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [("1.1", "", True), ("1.1", "Connection: Close\r\n", False), ("1.1", "Connection: x, close\r\n", False), ("1.0", "", False)],
)
def test_how_long_a_connection_lasts(version: str, connection: str, keeps: bool) -> None:
    framing = Framing(0)
    framing.give(f"GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n".encode())
    head = framing.next()
    assert isinstance(head, Head)
    assert head.keeps is keeps


def test_a_body_that_is_too_long_is_refused_before_it_is_read() -> None:
    framing = Framing(10)
    framing.give(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 11\r\n\r\n")
    with pytest.raises(FramingError, match="10 bytes at most, got 11"):
        framing.next()
    framing = Framing(10)
    framing.give(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n3\r\n")
    assert isinstance(framing.next(), Head)
    with pytest.raises(FramingError, match="10 bytes at most"):
        framing.next()


def test_tiny_chunks_are_few() -> None:
    framing = Framing(10_000)
    framing.give(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * (MOST_CHUNKS + 2))
    assert isinstance(framing.next(), Head)
    with pytest.raises(FramingError) as found:
        framing.next()
    assert found.value.status == 413


def test_what_a_client_says_twice_is_read_as_before() -> None:
    data = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nhi"
    assert read(Framing(5), data * 3) == read(Framing(5), data) * 3
