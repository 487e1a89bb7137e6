"""The live report of a running training: served on the loopback interface only, to whoever has its secret address, read-only."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Thread
from pe_cli.io import strict_json
from pe_cli.io.history import read_run
from pe_cli.io.view.model_facts import Facts
from pe_cli.io.view.page import build_page, parts
from pe_cli.io.view.sections import memory
from pe_cli.session.http.connection import Connection
from pe_cli.session.http.framing import Head
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.replies import Refusal, Reply
from pe_cli.session.http.server import Server
from pe_cli.session.observer import Observer, Start

if TYPE_CHECKING:
    from pe_cli.session.benchmarks.plan_facts import Planned

#: Seconds between two pieces of news, and how many times longer than making one takes: making it holds the interpreter.
MIN_REST, REST_FACTOR = 1.0, 50.0
#: Seconds between two looks for news while somebody watches, after which a browser is written to without any, within which a request must
#: be whole, and within which those who watch must have taken the end.
LOOK, ALIVE, REQUEST, PARTING = 0.2, 15.0, 10.0, 2.0
#: Steps after the start or an earlier look before how one runs is looked at: the first make plans and touch new memory.
WARM = 3
#: Pages that may be open at a time.
MOST_WATCHERS = 8


@dataclass
class Watcher:
    """A page that is open.

    Args:
        sent: version of the news that it has; -1 for none.
        looks: at steps that it has.
        next: when it is told news again, seconds.
        written: when it was written to.
    """

    sent: int = -1
    looks: int = 0
    next: float = 0.0
    written: float = 0.0


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
        self.version = 0
        self.over = False
        self.watching: dict[Connection, Watcher] = {}
        self.looks = 0
        self._wanted = True
        self._ripe = WARM
        self._model = ""
        self._path: Path | None = None
        self._made: tuple[int, bytes] = -1, b""
        self.rest = MIN_REST
        self._thread: Thread | None = None
        limits = Limits(connections=4 * MOST_WATCHERS, memory=1 << 20, request=REQUEST, idle=ALIVE, grace=PARTING)
        try:
            self.server = Server(("127.0.0.1", port), self, limits)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise PeError(f"--live: port {port} can't be taken: {reason}", hint="leave out --live-port for a free one") from None

    @property
    def port(self) -> int:
        """Port of the page."""
        return self.server.address[1]

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    # --- what the loop says -------------------------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """Begin to serve."""
        self._path = Path(start.folder)
        self._model = start.model
        self._thread = Thread(target=self.server.run, name="live", daemon=True)
        self._thread.start()
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
        from pe_cli.session.benchmarks.plan_facts import step_timeline

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
        self.version += 1
        self.over = True
        self.close()

    def close(self) -> None:
        """Give the port back."""
        if self._thread is None:
            self.server.close()
            return
        self.server.call(self._end)
        self._thread.join(2 * PARTING)

    def _end(self) -> None:
        """Tell those who watch that it is over, and end."""
        for connection in list(self.watching):
            self._tell(connection, time.monotonic())
            connection.write(b"event: end\ndata: true\n\n")
            connection.leave()
        self.server.stop()

    # --- what browsers ask --------------------------------------------------------------------------------------------

    def html(self) -> bytes:
        """Return the whole page, and ask for a new look at a step."""
        assert self._path is not None
        self._wanted = True
        return build_page([read_run(self._path)], [self._facts], live=True).encode()

    def news(self) -> tuple[int, bytes]:
        """Return the newest version and what changed on the page, made once for all who watch."""
        assert self._path is not None
        version = self.version
        if self._made[0] != version:
            begin = time.perf_counter()
            self._made = version, strict_json.dumps(parts([read_run(self._path)])).encode()
            self.rest = max(MIN_REST, REST_FACTOR * (time.perf_counter() - begin))
        return self._made

    def look(self) -> bytes:
        """Return what the newest look at a step found, for pages that are open."""
        return strict_json.dumps({"memory": memory(self._facts), "timeline": self._facts.timeline}).encode()

    # --- what the server asks, whose thread does it -------------------------------------------------------------------

    def refused(self) -> None:
        """Do nothing: who is refused is no matter of the run."""

    def admit(self, head: Head) -> None:
        """Look at a request; see `App.admit`. The path names no file.

        Raises:
            Refusal: it is not answered.
        """
        rest = self._rest(head)
        if head.method != "GET":
            raise Refusal(405, "405", Allow="GET")
        if rest not in ("", "events"):
            raise Refusal(404, "404")
        if rest == "events" and len(self.watching) >= MOST_WATCHERS:
            raise Refusal(503, "503", Retry_After="15")

    def _rest(self, head: Head) -> str:
        """Return what stands behind the token.

        Raises:
            Refusal: the host is not this machine by name or number (a site may have its own name point here), or the token is not ours.
        """
        token, _, rest = head.path[1:].partition("/")
        known = hmac.compare_digest(token.encode(), self.token.encode()) and head.path.startswith(f"/{self.token}/")
        if not known or head.host.lower() not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            raise Refusal(403, "403")
        return rest

    def answer(self, head: Head, body: bytearray, connection: Connection) -> None:
        """Send the page, or news until the run or the browser ends (server-sent events)."""
        del body
        if self._rest(head) == "":
            connection.reply(Reply(200, self.html(), "text/html; charset=utf-8"))
            return
        connection.stream(Reply(200, kind="text/event-stream"))
        self.watching[connection] = Watcher(written=time.monotonic())
        connection.ended = lambda: self._gone(connection)
        if len(self.watching) == 1:
            self._look()

    def _gone(self, connection: Connection) -> None:
        self.watching.pop(connection, None)

    def _look(self) -> None:
        """Tell who watches what is new; nobody is woken while nobody does."""
        now = time.monotonic()
        for connection, watcher in list(self.watching.items()):
            if self.version != watcher.sent and now >= watcher.next:
                self._tell(connection, now)
            elif now - watcher.written > ALIVE:
                self._write(connection, b": still here\n\n", now)
        if self.watching and not self.over:
            self.server.loop.call_later(LOOK, self._look)

    def _tell(self, connection: Connection, now: float) -> None:
        watcher = self.watching[connection]
        watcher.sent, news = self.news()
        text = b"event: news\ndata: " + news + b"\n\n"
        if self.looks != watcher.looks:
            watcher.looks = self.looks
            text += b"event: look\ndata: " + self.look() + b"\n\n"
        watcher.next = now + self.rest
        self._write(connection, text, now)

    def _write(self, connection: Connection, text: bytes, now: float) -> None:
        """Write to a browser; one that has not taken what it was sent before is let go after a while."""
        if connection.write(text):
            self.watching[connection].written = now
        elif now - self.watching[connection].written > ALIVE:
            connection.abort()
