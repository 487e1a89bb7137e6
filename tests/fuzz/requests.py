"""Requests of HTTP from a grammar, right and nearly right, one after the other; and what is made of them, on no network.

What is taken is compared with what h11 alone reads of the same bytes: it takes more, and never something else.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable

import h11

from pe_cli.session.http.connection import Connection, Phase
from pe_cli.session.http.framing import MOST_HEAD, Head
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.memory import Memory
from pe_cli.session.http.replies import Reply
from pe_cli.session.http.server import PIECE, Server

BODY = 4000
_METHODS = ("GET", "GET", "POST", "POST", "POST", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "CONNECT", "get", "G@T", "")
_TARGETS = ("/", "/", "/a?b", "/" + "x" * 300, "*", "http://a/x", "http://b/", "a:80", "x", "/#f", "/\xe9", "/a b", "")
_VERSIONS = ("HTTP/1.1",) * 8 + ("HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "http/1.1", "HTTP/1.11", "")
_NAMES = ("Content-Length", "content-length", "CONTENT-LENGTH", "Content-Length ", " Content-Length", "Content_Length", "Content-Length\t")
_CODINGS = ("chunked", "chunked", "Chunked", " chunked ", "chunked, chunked", "identity", "gzip, chunked", "\x0bchunked", "chunked\0", "")
_OTHERS = (
    "Connection: close", "Connection: keep-alive, x", "Connection: upgrade\r\nUpgrade: h2c", "Expect: 100-continue", "Expect: x", "X: ",
    "X: a\r\n b", "X: \x01", "X", ": y", "X : y", "Host: b", "Origin: http://a", "Trailer: X", "X: \xff", "TE: trailers", "X:" + "y" * 500,
)  # fmt: skip


def stream(draw: random.Random) -> bytes:
    """Return some requests, mostly right ones."""
    made = b"".join(_request(draw) for _ in range(draw.randint(1, 3)))
    if draw.random() < 0.2 and made:
        at = draw.randrange(len(made))
        new = draw.choice([b"\r", b"\n", b"\r\n", b"\0", b" ", b":", b"0", b"\r\n\r\n", b"\x80", b""])
        made = made[:at] + new + made[at + draw.randint(0, 2) :]
    return made


def _request(draw: random.Random) -> bytes:
    odd = draw.random() < 0.4

    def pick(choices: tuple[str, ...], usual: int = 1) -> str:
        return draw.choice(choices) if odd else choices[draw.randrange(usual)]

    def end() -> str:
        return draw.choice(["\n", "\r", "\r\r\n", "\n\r\n"]) if odd and draw.random() < 0.05 else "\r\n"

    body = draw.randbytes(draw.choice([0, 1, 5, 200])) if draw.random() < 0.5 else b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    method, fields, chunked = pick(_METHODS, 8), [], draw.random() < 0.4
    fields += ["Host: a"] * draw.choice([1] * 9 + [0, 2] if odd else [1])
    if chunked:
        fields.append(f"Transfer-Encoding:{draw.choice(['', ' '])}{pick(_CODINGS, 3)}")
    if (not chunked and (method in ("POST", "PUT") or odd)) or (odd and draw.random() < 0.3):
        length = str(len(body))
        odd_lengths = (length, str(len(body) + 1), "0", f"+{length}", f"{length},{length}", f"0{length}", "-1", "1e1", "9" * 30, "", "5001")
        fields += [f"{pick(_NAMES, 3)}: {pick(odd_lengths)}"] * draw.choice([1] * 9 + [2] if odd else [1])
    elif not chunked:
        body = b""
    fields += [draw.choice(_OTHERS) for _ in range(draw.choice([0, 0, 1, 2]) if odd else 0)]
    draw.shuffle(fields)
    head = f"{method} {pick(_TARGETS, 3)} {pick(_VERSIONS, 8)}{end()}" + "".join(field + end() for field in fields) + end()
    return head.encode("latin-1") + (_chunks(draw, body, odd) if chunked else body)


def _chunks(draw: random.Random, body: bytes, odd: bool) -> bytes:
    made = b""
    while body:
        size = draw.randint(1, len(body))
        wrong = [f"{size + 1:x}", f"{size:x} ", f"0x{size:x}", "-1", ""] if odd else []
        said = draw.choice([f"{size:x}", f"{size:X}", f"00{size:x}", *wrong])
        extension = draw.choice(["", "", ";a=b", *([";a\n", ";\r", ";" + "x" * 300, " ;a"] if odd else [])])
        made += f"{said}{extension}\r\n".encode() + body[:size] + (draw.choice([b"\r\n", b"\n", b"", b"x\r\n"]) if odd else b"\r\n")
        body = body[size:]
    trailers = ["", "", "X: y\r\n", *(["Content-Length: 5\r\n", "X: y\n", "GET / HTTP/1.1\r\n", " a\r\n"] if odd else [])]
    return made + f"0\r\n{draw.choice(trailers)}\r\n".encode()


class _Loop:
    """Time that stands still, and what is to be called."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def time(self) -> float:
        return 0.0

    def call_soon(self, function: Callable[..., object], *given: object) -> None:
        self.calls.append((function, given))

    call_later = call_soon


class _Transport:
    """A client that takes all at once."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.paused = self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write_eof(self) -> None:
        self.closed = True

    close = abort = write_eof


class Heard(Server):
    """A server of one connection on no network, which notes what it is asked."""

    def __init__(self) -> None:
        self.app, self.limits, self.memory, self.most = self, Limits(body=BODY), Memory(1 << 20), 1
        self.scratch = memoryview(bytearray(PIECE))
        self.open, self.leaving, self.stopping, self._ticking, self.loop = {}, {}, False, True, _Loop()  # type: ignore[assignment]
        self.asked: list[tuple[str, bytes]] = []
        self.refusals = 0

    def admit(self, head: Head) -> None:
        assert head.path.startswith("/") or head.path == "*"

    def answer(self, head: Head, body: bytearray, connection: Connection) -> None:
        self.asked.append((head.method, bytes(body)))
        connection.reply(Reply(200, b"answer"))

    def refused(self) -> None:
        self.refusals += 1


def heard(data: bytes, piece: Callable[[], int]) -> tuple[list[tuple[str, bytes]], bytes]:
    """Return what a server takes of some bytes, in pieces, and what it sends."""
    server, transport = Heard(), _Transport()
    connection = Connection(server)
    connection._transport = transport  # type: ignore[assignment]
    assert server.came(connection)
    at = 0
    while at < len(data) and not transport.closed:
        size = min(piece(), PIECE)
        part = data[at : at + size]
        at += len(part)
        connection.get_buffer(-1)[: len(part)] = part
        connection.buffer_updated(len(part))
        assert connection.held <= MOST_HEAD + BODY + PIECE
        while server.loop.calls:
            function, given = server.loop.calls.popleft()  # type: ignore[attr-defined]
            function(*given)
    assert transport.closed or connection.phase in (Phase.IDLE, Phase.READING)
    replies = transport.sent.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"").count(b"HTTP/1.1 ")
    assert replies == len(server.asked) + server.refusals
    assert server.refusals <= 1
    if server.refusals:
        assert transport.closed
        assert b"Connection: close" in transport.sent[transport.sent.rindex(b"HTTP/1.1 ") :]
    connection.connection_lost(None)
    assert server.memory.used == 0
    return server.asked, bytes(transport.sent)


def read_by_h11(data: bytes) -> list[tuple[str, bytes]]:
    """Return the requests that h11 alone sees in some bytes; empty lines before requests are left out."""
    found: list[tuple[str, bytes]] = []
    while data:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        try:
            _read_on(connection, found)
            return found
        except h11.ProtocolError as error:
            if "no request line" not in str(error):
                return found
            data = connection.trailing_data[0]
    return found


def _read_on(connection: h11.Connection, found: list[tuple[str, bytes]]) -> None:
    """Read all requests that a connection has got."""
    method, body = "", b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            method, body = event.method.decode(), b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            found.append((method, body))
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        else:
            return


def check(data: bytes) -> None:
    """Look at what is made of some bytes, at once and in pieces.

    Raises:
        AssertionError: it is wrong.
    """
    whole, sent = heard(data, lambda: PIECE)
    draw = random.Random(zlib.crc32(data))
    pieces, told = heard(data, lambda: draw.choice([1, 2, 3, 50]))
    assert pieces == whole
    assert told.count(b"Connection: close") == sent.count(b"Connection: close"), "one ends as the other does"
    known = read_by_h11(data)
    assert whole == known[: len(whole)], (whole, known)
