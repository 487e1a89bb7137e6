"""A web server on this machine's loopback that gives files, and has the faults that it is told to have."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Served:
    """What the server has and does.

    Args:
        files: path -> content.
        faults: of the next requests, in order; the last one stays when it ends with "for ever".
        asked: (path, status, bytes sent) of every request.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    address: str = ""

    def fault(self) -> str:
        """Return the fault of this request; empty for none."""
        if not self.faults:
            return ""
        return self.faults[0].removesuffix(" for ever") if self.faults[0].endswith("for ever") else self.faults.pop(0)


class _Handler(http.server.BaseHTTPRequestHandler):
    served: Served

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        fault, path = self.served.fault(), self.path.partition("?")[0]
        body = self.served.files.get(path)
        if fault.isdecimal() or body is None:
            return self._answer(int(fault) if fault else 404, {"Retry-After": "0"}, b"", path)
        if fault.startswith("to "):
            return self._answer(302, {"Location": fault[3:]}, b"", path)
        if fault == "silent":
            threading.Event().wait(0.15)
            return None
        tag = f'"{hash(body)}"'
        if self.headers.get("If-None-Match") == tag:
            return self._answer(304, {}, b"", path)
        start = 0
        if self.headers.get("If-Range") == tag:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        headers = {"ETag": tag, "Content-Length": str(len(body) - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if fault == "no length":
            del headers["Content-Length"]
        part = body[start:]
        if fault == "half":
            part = part[: len(part) // 2]
        return self._answer(206 if start else 200, headers, part, path)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, path: str) -> None:
        self.served.asked.append((path, status, len(body)))  # before the client has the answer, and looks
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


@pytest.fixture
def served() -> Iterator[Served]:
    """A server, and what it has been asked."""
    found = Served()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"served": found}))
    server.daemon_threads = False  # so that `server_close` waits for them
    found.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
