"""Answers of a trained model over HTTP: what `pe serve` says to which request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from importlib import resources
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.evaluation.predictor import Predictor, Row
from pe_cli.session.http.connection import Connection
from pe_cli.session.http.framing import Head
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.replies import Refusal, Reply, json_reply
from pe_cli.session.http.server import Server
from pe_cli.session.serving.large_requests import LargeRequests, Work
from pe_cli.session.serving.request_batching import Ask, Batches, as_json, said
from pe_cli.session.serving.request_encoding import Encoded
from pe_cli.session.serving.request_rows import SMALL, needs, read_rows, unread, with_pixels

#: Seconds that a request waits for its answer, and between two looks at who has waited so long.
PATIENCE, LOOK = 60.0, 1.0
#: Bytes of a body that is so small that what its values take need not be counted, and how many each byte of it takes at most.
TINY, EACH = 4 << 10, 80
#: Bytes that each byte of a body takes while it is counted.
COUNTING = 3
_PATHS = {"/": "GET", "/health": "GET", "/schema": "GET", "/predict": "POST"}
_POLICY = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
_ORIGIN = re.compile(r"https?://([^/]+)", re.IGNORECASE)


@dataclass
class Pending:
    """A request that has no answer yet.

    Args:
        connection: that waits for it.
        since: when it came, seconds of the loop.
        kind: of its body.
        body: of it; empty when its rows have been read.
        rows: of it, where they were read before there was room for them.
        memory: bytes that are counted for it among the small ones.
        work: what is done for it among the large ones.
        unread: columns of its rows that the model does not read.
        notes: what became of its pictures.
        last: what the batches are asked.
    """

    connection: Connection
    since: float
    kind: str
    body: bytearray
    rows: list[Row] = field(default_factory=list)
    memory: int = 0
    work: Work | None = None
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    last: Ask | None = None

    def ask(self, rows: Sequence[Row], cost: int, encoded: Encoded | None = None) -> Ask:
        """Return what the batches are asked."""
        notes = [] if encoded is None else [text for texts in encoded.notes.values() for text in texts]
        self.last = Ask(rows if encoded is None else (), self, cost, encoded, notes=notes)
        return self.last

    def forget(self) -> None:
        """Drop references to it, so that its memory is freed at once and not by the garbage collector."""
        if self.last is not None and self.last.error is not None:
            # A traceback holds frames, and frames hold the rows of the request.
            self.last.error.__traceback__ = None
        self.last = self.work = None
        self.rows = []


class Service:
    """Answers `GET /`, `/health` and `/schema`, and `POST /predict`.

    Args:
        predictor: answers rows.
        facts: model and checkpoint, for `/health`.
        address: host and port to listen at; port 0 takes a free one.
        body: bytes of a body.
        memory: bytes of all requests together.
        waiting: requests that may wait.
        batch: rows of a batch, and `patience` the seconds that it waits for more.
        names: of hosts, under which the server is known besides this machine's own.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """

    def __init__(  # noqa: PLR0913 - one argument per option
        self, predictor: Predictor, facts: dict[str, Any], address: tuple[str, int], *, body: int, memory: int, waiting: int,
        batch: int, patience: float, names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.predictor, self.facts = predictor, facts
        self.answered = self.not_answered = 0
        self._waiting = waiting
        # Connections hold a part of the memory, large requests another: neither can take all.
        self.server = Server(address, self, Limits(body=body, memory=3 * memory // 8))
        self.batches = Batches(predictor, self.server, batch, patience, self._send)
        self._large = LargeRequests(memory // 2)
        self._pending: dict[int, Pending] = {}
        self._looking = False
        self._names = {name.lower() for name in names}
        host, port = self.server.address
        own = {host, "localhost", "127.0.0.1", "[::1]"}
        here = host.startswith("127.") or host == "::1"
        # Only a server of this machine alone checks hosts: pages of other sites could reach it through the browser of who runs it.
        self._hosts = {f"{name}{end}" for name in own for end in ("", f":{port}")} | self._names if here else None

    def run(self, signals: Sequence[int] = ()) -> None:
        """Answer until one of some signals, or `stop`."""
        try:
            self.server.run(signals)
        finally:
            self.close()

    def stop(self) -> None:
        """End when all requests are answered; from any thread."""
        self.server.call(self.server.stop)

    def close(self) -> None:
        """End the threads."""
        self.server.close()
        self._large.close()
        self.batches.close()

    # --- what the server asks -----------------------------------------------------------------------------------------

    def refused(self) -> None:
        """Count a request that is refused."""
        self.not_answered += 1

    def admit(self, head: Head) -> None:
        """Look at a request before its body is read; see `App.admit`.

        Raises:
            Refusal: it is not answered.
        """
        if self._hosts is not None and head.host.lower() not in self._hosts:
            # a page of a site whose name was made to point here
            raise Refusal(403, "this server answers under 127.0.0.1 and localhost only; --name adds another name")
        if head.path not in _PATHS:
            raise Refusal(404, f"there is no {head.path[:100]}; there are {', '.join(sorted(_PATHS))}")
        if head.method != _PATHS[head.path]:
            raise Refusal(405, f"{head.path} does not take {head.method}", Allow=_PATHS[head.path])
        # A GET changes nothing and tells nothing secret; a POST of another site's page would use the model.
        if head.method == "POST":
            self._check_site(head)
            self._check_kind(head)

    def _check_site(self, head: Head) -> None:
        """Refuse what a page of another site asks in a browser's place."""
        origin, site = head.fields.get("origin"), head.fields.get("sec-fetch-site", "none")
        found = None if origin is None else _ORIGIN.fullmatch(origin)
        host = found[1].lower() if found else ""
        if site not in ("same-origin", "none") or (origin is not None and host not in {head.host.lower(), *self._names}):
            raise Refusal(403, "a page of another site may not ask; --name adds a name under which this server is known")

    def _check_kind(self, head: Head) -> None:
        kind = _kind(head)
        if kind.startswith("image/"):
            if self.predictor.image is None:
                raise Refusal(415, "this model takes rows, not a picture alone: send JSON")
        elif kind not in ("application/json", "text/json") and not (kind == "text/plain" and self.predictor.text is not None):
            raise Refusal(415, f"Content-Type {kind[:100]} is not taken: send application/json")

    def answer(self, head: Head, body: bytearray, connection: Connection) -> None:
        """Answer a request, now or later; see `App.answer`."""
        if head.path == "/predict":
            self._predict(_kind(head), body, connection)
            return
        looked: Callable[[], Reply] = {"/": _page, "/health": self.health, "/schema": self._schema}[head.path]
        # A page is read only where it is asked for.
        connection.reply(looked())

    def health(self) -> Reply:
        """Return how the server is."""
        counts = {"requests": self.answered, "refused": self.not_answered}
        return json_reply({"status": "ok", **self.facts, **counts})

    def _schema(self) -> Reply:
        return json_reply(self.predictor.schema() | {"model": self.facts.get("model")})

    # --- predictions --------------------------------------------------------------------------------------------------

    def _predict(self, kind: str, body: bytearray, connection: Connection) -> None:
        # Refused at once, with the time to come back: a queue without an end answers everybody too late.
        if self.batches.waiting + self._large.waiting >= self._waiting:
            raise Refusal(503, "too many requests wait: try again later", Retry_After="1")
        pending = Pending(connection, self.server.loop.time(), kind, body)
        # This thread also listens: it reads small bodies itself, and gives what takes long to the thread of large ones.
        if len(body) > SMALL or self.predictor.pictured:
            self._later(pending, COUNTING * len(body), self._count)
            return
        # The most that so few bytes can become is known; of more bytes their values are counted first.
        cost = EACH * len(body) if len(body) <= TINY else needs(body, self.predictor)
        if not self.server.memory.fits(cost):
            raise Refusal(503, "too many requests wait: try again later", Retry_After="1")
        rows = read_rows(kind, body, self.predictor)
        if not self.batches.fits(len(rows)):
            pending.rows = rows
            self._later(pending, cost, self._read)
            return
        pending.memory = cost
        # Counted from here on, until the answer is handed over.
        self.server.memory.take(cost)
        self._wait(pending)
        pending.unread = unread(rows, self.predictor.columns)
        self.batches.submit(pending.ask(rows, cost))

    def _later(self, pending: Pending, cost: int, begin: Callable[[Pending], None]) -> None:
        """Have something done for a request by the thread of large ones."""

        def guarded() -> None:
            try:
                begin(pending)
            except BaseException as error:  # noqa: BLE001 - it is told to who asked
                # Back on the loop's thread: replies are written by it alone.
                self.server.call(self._send, [Ask((), pending, error=error)])

        self._wait(pending)
        if pending.work is not None:
            self._large.ended(pending.work)
        pending.work = Work(cost, guarded)
        self._large.submit(pending.work)

    def _count(self, pending: Pending) -> None:
        """Find out what a large body takes, and go on when there is so much.

        Raises:
            Refusal: it would take too much memory.
        """
        limit, size = self._large.limit, len(pending.body)
        # A picture of few bytes may have many pixels, so each is allowed what one may take at most.
        pictures = self._picture if self.predictor.pictured else 0
        cost = size + pictures + (0 if pending.kind.startswith("image/") else needs(pending.body, self.predictor))
        if cost > limit:
            said = f"to read this takes {cost >> 20} MiB, and {limit >> 20} are there for it"
            raise Refusal(413, f"{said}: send fewer rows, or raise --memory")
        self.server.call(self._later, pending, cost, self._read)

    @property
    def _picture(self) -> int:
        """Bytes that a picture may take while it is decoded."""
        return self._large.limit * 3 // 4

    def _read(self, pending: Pending) -> None:
        """Read the rows of a large request, and hand them to the batches; many are encoded first."""
        rows = pending.rows
        if pending.kind.startswith("image/"):
            rows = [{self.predictor.image or "": pending.body}]
        elif not rows:
            rows = read_rows(pending.kind, pending.body, self.predictor)
        # The text is not needed any more, and its rows take several times as much.
        pending.body, pending.rows = bytearray(), []
        pending.unread = unread(rows, self.predictor.columns)
        if self.predictor.pictured:
            rows, pending.notes = with_pixels(rows, self.predictor, self._picture)
        encoded = None if self.batches.fits(len(rows)) else self.predictor.encode(rows, "the request")
        ask = pending.ask(rows, pending.work.cost if pending.work else 0, encoded)
        self.server.call(self.batches.submit, ask)

    def _wait(self, pending: Pending) -> None:
        self._pending[id(pending)] = pending
        if not self._looking:
            self._looking = True
            self.server.loop.call_later(LOOK, self._look)

    # A request without an answer is refused after a while, whoever holds it.
    def _look(self) -> None:
        """Give up what has waited for too long."""
        end = self.server.loop.time() - PATIENCE
        for pending in self._pending.values():
            if pending.since < end:
                # A batch may have it already: its rows are left out where the batch has not begun.
                if pending.last is not None:
                    pending.last.given_up = True
                pending.connection.reply(Refusal(503, "no answer in time: try again later", Retry_After="5").reply())
        self._looking = bool(self._pending)
        if self._looking:
            self.server.loop.call_later(LOOK, self._look)

    def _send(self, asks: Sequence[Ask]) -> None:
        """Send answers; who waits no more has none."""
        for ask in asks:
            pending: Pending = ask.owner
            # Given back whether it was answered or refused.
            self.server.memory.take(-pending.memory)
            if pending.work is not None:
                self._large.ended(pending.work)
            del self._pending[id(pending)]
            reply = _reply(ask, pending)
            pending.forget()
            self.answered += reply.status == 200
            self.not_answered += reply.status != 200
            pending.connection.reply(reply)


def _reply(ask: Ask, pending: Pending) -> Reply:
    """Return the answer to a request."""
    error = ask.error
    if error is None:
        return Reply(200, as_json(ask, {"unread": pending.unread, "notes": [*pending.notes, *ask.notes]}))
    if isinstance(error, Refusal):
        return error.reply()
    if isinstance(error, PeError):
        return json_reply({"error": said(error)}, 400)
    if isinstance(error, MemoryError):
        return Refusal(503, "too little memory: try again later", Retry_After="5").reply()
    return json_reply({"error": f"a bug of pe: {type(error).__name__}; please report it"}, 500)


def _kind(head: Head) -> str:
    return head.fields.get("content-type", "application/json").partition(";")[0].strip().lower()


def _page() -> Reply:
    page = resources.files("pe_cli.session.serving").joinpath("serving.html").read_bytes()
    return Reply(200, page, "text/html; charset=utf-8", _POLICY)
