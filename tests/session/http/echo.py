"""A server that tells what it understood of a request, and what it sends on a socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from pe_cli.session.http.connection import Connection
from pe_cli.session.http.framing import Head
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.replies import Refusal, json_reply
from pe_cli.session.http.server import Server


class Echo:
    """Answers each request with what it was; those of `/held` when `free` is called."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.held: list[Connection] = []
        self.refusals = 0

    def admit(self, head: Head) -> None:
        if head.path == "/no":
            raise Refusal(404, "there is nothing")

    def answer(self, head: Head, body: bytearray, connection: Connection) -> None:
        self.heads.append(head)
        if head.path == "/fails":
            raise ValueError("a mistake of ours")
        if head.path == "/held":
            self.held.append(connection)
            return
        size = int(head.path[6:]) if head.path.startswith("/size/") else 0
        connection.reply(json_reply({"method": head.method, "path": head.path, "body": bytes(body).decode("latin-1"), "more": "x" * size}))

    def free(self) -> None:
        for connection in self.held:
            connection.reply(json_reply("held"))
        self.held.clear()

    def refused(self) -> None:
        self.refusals += 1


@contextlib.contextmanager
def running(app: Echo, **limits: float) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), app, Limits(**{"body": 1000, **limits}))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.call(app.free)
        server.call(server.stop)
        thread.join(20)
        assert not thread.is_alive()


def connected(server: Server, data: bytes = b"", timeout: float = 10) -> socket.socket:
    one = socket.create_connection(server.address, timeout=timeout)
    one.sendall(data)
    return one


def answers(server: Server, data: bytes, *, half: bool = False) -> list[int]:
    """Return the status of every answer to some bytes, up to the end that the server makes of the connection."""
    with connected(server, data) as one:
        if half:
            one.shutdown(socket.SHUT_WR)
        return statuses(one)


def statuses(one: socket.socket) -> list[int]:
    found, text = [], one.makefile("rb")
    while line := text.readline():
        assert line.startswith(b"HTTP/1.1 "), line
        found.append(int(line.split(b" ")[1]))
        length = 0
        while (field := text.readline()) not in (b"\r\n", b""):
            if field.lower().startswith(b"content-length:"):
                length = int(field.split(b":")[1])
        text.read(length)
    return found
