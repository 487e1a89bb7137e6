"""The report's page while a run goes: served to this machine only, to whoever has the address, and read-only."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.io import strict_json
from pe_cli.io.history import read_run
from pe_cli.io.view.facts import Facts
from pe_cli.io.view.page import build_page, parts
from pe_cli.io.view.sections import memory
from pe_cli.session.limited import LimitedServer
from pe_cli.session.observer import Observer, Start

if TYPE_CHECKING:
    from pe_cli.session.planned import Planned

#: Seconds between two pieces of news, and how many times longer than making one takes: making it holds the interpreter.
MIN_REST, REST_FACTOR = 1.0, 50.0
#: Seconds after which a silent browser is written to, a request must be whole, and those who watch must have taken the end.
ALIVE, REQUEST, PARTING = 15.0, 10.0, 2.0
#: Steps after the start or an earlier look before how one runs is looked at: the first make plans and touch new memory.
WARM = 3
#: Pages that may be open at a time.
MOST_WATCHERS = 8


class Live(Observer):
    """Serves a run's page at http://127.0.0.1:PORT/TOKEN/ from its start to its end.

    Args:
        say: is told the address.
        facts: what the page tells of the step from the start; memory and a timeline come from a step that the run does.
        port: 0 takes a free one.

    Raises:
        PeError: the port can't be taken.
    """

    def __init__(self, say: Callable[[str], None], facts: Facts, port: int = 0) -> None:
        self._say = say
        self._facts = facts
        self.token = secrets.token_urlsafe(24)
        self.changed = threading.Condition()
        self.version = 0
        self.over = False
        self.watchers = 0
        self.looks = 0
        self._wanted = True
        self._ripe = WARM
        self._model = ""
        self._path: Path | None = None
        self._making = threading.Lock()
        self._made: tuple[int, bytes] = -1, b""
        self.rest = MIN_REST
        live = self

        class Bound(_Handler):
            page = live

        try:
            self._server = _Server(("127.0.0.1", port), Bound)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise PeError(f"--live: port {port} can't be taken: {reason}", hint="leave out --live-port for a free one") from None

    @property
    def port(self) -> int:
        """Port of the page."""
        return self._server.server_port

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    # --- what the loop says -------------------------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """Begin to serve."""
        self._path = Path(start.folder)
        self._model = start.model
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="live", daemon=True).start()
        self._say(f"live page, for this machine and this run only: {self.address}")

    def stepped(self, step: int, epoch: int, loss: float, samples: int) -> None:
        """Remember that there is news; who watches takes it later."""
        del step, epoch, loss, samples
        self.version += 1
        self._ripe -= 1

    def wants_plan(self) -> bool:
        """Whether the next step should be looked at: one at the start, and one whenever a page has been opened."""
        return self._wanted and self._ripe <= 0

    def planned(self, found: Sequence[Planned]) -> None:
        """Take memory, which stays as it is, and the timeline of a step."""
        from pe_cli.session.planned import step_timeline

        self._wanted, self._ripe = False, WARM
        memory = self._facts.memory or tuple(device for one in found for device in one.memory())
        self._facts = replace(self._facts, memory=memory, timeline=step_timeline(found, self._model))
        self.looks += 1

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Remember that there is news."""
        del step, epoch, values
        self.version += 1

    def ended(self, state: str) -> None:
        """Send the last news to who watches, and end."""
        del state
        with self.changed:
            self.version += 1
            self.over = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.watchers, PARTING)
        self.close()

    def close(self) -> None:
        """Give the port back."""
        if self._path is not None:
            self._server.shutdown()
        self._server.server_close()

    # --- what browsers ask --------------------------------------------------------------------------------------------

    def html(self) -> bytes:
        """Return the whole page, and ask for a new look at a step."""
        assert self._path is not None
        self._wanted = True
        return build_page([read_run(self._path)], [self._facts], live=True).encode()

    def news(self) -> tuple[int, bytes]:
        """Return the newest version and what changed on the page, made once for all who watch."""
        assert self._path is not None
        with self._making:
            version = self.version
            if self._made[0] != version:
                begin = time.perf_counter()
                self._made = version, strict_json.dumps(parts([read_run(self._path)])).encode()
                self.rest = max(MIN_REST, REST_FACTOR * (time.perf_counter() - begin))
            return self._made

    def look(self) -> bytes:
        """Return what the newest look at a step found, for pages that are open."""
        return strict_json.dumps({"memory": memory(self._facts), "timeline": self._facts.timeline}).encode()

    def wait(self, version: int, seconds: float) -> bool:
        """Wait until there is something newer than a version, at most so long; tell whether there is."""
        end = time.monotonic() + seconds
        with self.changed:
            # steps don't notify, because that takes a lock: look now and then
            while self.version == version and not self.over and time.monotonic() < end:
                self.changed.wait(0.2)
            return self.version != version

    def pause(self) -> None:
        """Let the run go on undisturbed for a while; its end wakes."""
        with self.changed:
            self.changed.wait_for(lambda: self.over, self.rest)


class _Server(LimitedServer):
    allow_reuse_address = False
    most = 2 * MOST_WATCHERS
    patience = REQUEST


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of two paths, and nothing else."""

    page: Live
    server: _Server
    timeout = REQUEST
    server_version = "pe"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer, if host and token are right; the path names no file."""
        self.server.whole(self.connection)
        if not self._may():
            self.send_error(403)
        elif self._rest() == "":
            self._send("text/html; charset=utf-8", self.page.html())
        elif self._rest() == "events":
            self._events()
        else:
            self.send_error(404)

    def _may(self) -> bool:
        """Whether the host is this machine by name or number (a site may have its own name point here), and the token is ours."""
        port = self.page.port
        hosts = self.headers.get_all("Host") or []
        host = len(hosts) == 1 and hosts[0].lower() in (f"127.0.0.1:{port}", f"localhost:{port}")
        token = self.path.split("/")[1] if self.path.startswith("/") else ""
        known = hmac.compare_digest(token.encode(errors="replace"), self.page.token.encode())
        return host and known and self.path.startswith(f"/{self.page.token}/")

    def _rest(self) -> str:
        return self.path.removeprefix(f"/{self.page.token}/")

    def _send(self, kind: str, body: bytes) -> None:
        self._head(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)

    def end_headers(self) -> None:
        """Add what keeps a page from being kept, framed, guessed at or told of."""
        for name, value in (
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
            ("Content-Security-Policy", "frame-ancestors 'none'"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ):  # fmt: skip
            self.send_header(name, value)
        super().end_headers()

    def _events(self) -> None:
        """Send news until the run or the browser ends (server-sent events)."""
        page = self.page
        with page.changed:
            full = page.watchers >= MOST_WATCHERS
            page.watchers += not full
        if full:
            self.send_error(503)
            return
        try:
            self._head("text/event-stream")
            self.end_headers()
            self._stream()
        finally:
            with page.changed:
                page.watchers -= 1
                page.changed.notify_all()

    def _stream(self) -> None:
        page, sent, looks = self.page, -1, 0
        while True:
            if page.wait(sent, ALIVE):
                sent, news = page.news()
                self.wfile.write(b"event: news\ndata: " + news + b"\n\n")
                if page.looks != looks:
                    looks = page.looks
                    self.wfile.write(b"event: look\ndata: " + page.look() + b"\n\n")
                page.pause()
            elif page.over:
                self.wfile.write(b"event: end\ndata: " + json.dumps(page.over).encode() + b"\n\n")
                return
            else:
                self.wfile.write(b": still here\n\n")
            self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in a word; a method that is not GET is 405."""
        del explain
        code = 405 if code == 501 else code
        body = f"{code}\n".encode()
        self.send_response(code, message)
        if code == 405:
            self.send_header("Allow", "GET")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on the terminal, where the run tells of itself."""
