"""A server of answers: requests wait in a queue, and one thread puts those that wait together into batches."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.io import strict_json
from pe_cli.session.limited import LimitedServer
from pe_cli.session.predictor import Predictor, Row

Answers = list[dict[str, Any]]
#: Seconds that a client may take for each part of its request.
REQUEST = 15.0
#: Seconds that a request waits for its answer.
PATIENCE = 60.0
#: Rows of one request at most.
MOST_ROWS = 10_000


class Batcher:
    """Takes rows from many threads and hands them to one, in batches.

    Args:
        answer: rows -> answers; called from one thread only.
        waiting: requests that may wait; more are refused.
        batch: rows of a batch, at most, unless one request has more.
        patience: seconds that a batch waits for more rows.
    """

    def __init__(self, answer: Callable[[Sequence[Row]], Answers], waiting: int, batch: int, patience: float) -> None:
        self._answer, self._batch, self._patience = answer, batch, patience
        self._queue: queue.Queue[tuple[Sequence[Row], Future[Answers]] | None] = queue.Queue(waiting)
        self._thread = Thread(target=self._work, name="answers", daemon=True)
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> Future[Answers]:
        """Queue rows.

        Raises:
            queue.Full: so many requests wait already.
        """
        future: Future[Answers] = Future()
        self._queue.put_nowait((rows, future))
        return future

    def close(self) -> None:
        """Answer what waits, and end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        last = False
        while not last:
            item = self._queue.get()
            if item is None:
                return
            items, count, end = [item], len(item[0]), time.monotonic() + self._patience
            while count < self._batch:
                try:
                    more = self._queue.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                items.append(more)
                count += len(more[0])
            self._answer_all(items)

    def _answer_all(self, items: Sequence[tuple[Sequence[Row], Future[Answers]]]) -> None:
        try:
            found = self._answer([row for rows, _ in items for row in rows])
        except BaseException as error:  # noqa: BLE001 - it is raised again, where the request waits
            if len(items) == 1:
                items[0][1].set_exception(error)
                return
            for item in items:  # one of them is wrong: each gets its own answer
                self._answer_all([item])
            return
        start = 0
        for rows, future in items:
            future.set_result(found[start : start + len(rows)])
            start += len(rows)


class Service:
    """What the handlers share.

    Args:
        predictor: answers rows.
        facts: model and checkpoint, for `/health`.
        limits: bytes of a body, requests that wait, rows of a batch, and seconds that a batch waits for more.
    """

    def __init__(
        self, predictor: Predictor, facts: dict[str, Any], *, body: int, waiting: int, batch: int, patience: float
    ) -> None:
        self.predictor, self.facts, self.body = predictor, facts, body
        self.lock = threading.Lock()
        self.requests = self.refused = 0
        self._one = threading.Lock()
        # rows of two requests could be taken for one series
        self.batcher = Batcher(self._rows, waiting, 1 if predictor.windows else batch, patience)

    def _rows(self, rows: Sequence[Row]) -> Answers:
        with self._one:
            return self.predictor.rows(rows, "the request")

    def picture(self, content: bytes) -> Answers:
        """Answer a picture; one at a time."""
        with self._one:
            return [self.predictor.picture(content)]

    def health(self) -> dict[str, Any]:
        """Return the answer of `/health`."""
        with self.lock:
            return {"status": "ok", **self.facts, "requests": self.requests, "refused": self.refused}


class RequestError(Exception):
    """A request that is refused: HTTP status, sentence, and headers that belong to it."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


class Server(LimitedServer):
    """Answers requests until it is closed.

    Args:
        address: host and port; port 0 takes a free one.
        service: what answers.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """

    most = 256
    patience = 4 * REQUEST

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        super().__init__(address, Handler)

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """Names that a request may call this host; None for any, where it serves other machines."""
        host, port = str(self.server_address[0]), self.server_port
        if not host.startswith("127.") and host != "::1":
            return None
        return tuple(f"{name}{end}" for name in (host, "localhost", "127.0.0.1") for end in ("", f":{port}"))


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /`, `/health` and `/schema`, and `POST /predict`."""

    server: Server
    timeout = REQUEST
    protocol_version = "HTTP/1.1"
    server_version = "pe"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer what can be looked at."""
        self._answer({"/": self._page, "/health": self._health, "/schema": self._schema}, "GET")

    def do_POST(self) -> None:
        """Answer rows, a text or a picture."""
        self._answer({"/predict": self._predict}, "POST")

    def handle_one_request(self) -> None:
        """Answer a request of a connection, which may bring others."""
        self.server.again(self.connection)
        super().handle_one_request()

    def _answer(self, known: dict[str, Callable[[], tuple[str, bytes]]], method: str) -> None:
        if method == "GET":
            self.server.whole(self.connection)
        path = self.path.partition("?")[0]
        try:
            self._check_host()
            if path not in known:
                others = {"/", "/health", "/schema", "/predict"}
                if path in others:
                    raise RequestError(405, f"{path} does not take {method}", Allow="GET" if method == "POST" else "POST")
                raise RequestError(404, f"there is no {path}; there are {', '.join(sorted(others))}")
            kind, body = known[path]()
        except RequestError as error:
            self._refuse(error)
            return
        self._send(200, kind, body, {})

    def _check_host(self) -> None:
        hosts = self.server.hosts
        if hosts is not None and (self.headers.get("Host") or "").lower() not in hosts:
            # a page of a site whose name was made to point here
            raise RequestError(403, "this server answers under 127.0.0.1 and localhost only")

    def _page(self) -> tuple[str, bytes]:
        return "text/html; charset=utf-8", resources.files("pe_cli.session").joinpath("serving.html").read_bytes()

    def _health(self) -> tuple[str, bytes]:
        return _json(self.server.service.health())

    def _schema(self) -> tuple[str, bytes]:
        predictor = self.server.service.predictor
        return _json(predictor.schema() | {"model": self.server.service.facts.get("model")})

    def _predict(self) -> tuple[str, bytes]:
        service = self.server.service
        body = self._body()
        kind = (self.headers.get("Content-Type") or "application/json").partition(";")[0].strip().lower()
        try:
            if kind.startswith("image/"):
                if service.predictor.image is None:
                    raise RequestError(415, "this model takes rows, not a picture alone: send JSON")
                found = service.picture(body)
                unread: list[str] = []
            else:
                rows = self._rows(kind, body)
                unread = sorted({name for row in rows for name in row} - set(service.predictor.columns))
                found = service.batcher.submit(rows).result(PATIENCE) if rows else []
        except queue.Full:
            raise RequestError(503, "too many requests wait: try again later", Retry_After="1") from None
        except TimeoutError:
            raise RequestError(503, "no answer in time: try again later", Retry_After="5") from None
        except PeError as error:
            raise RequestError(400, _said(error)) from None
        with service.lock:
            service.requests += 1
        return _json({"rows": found, **({"unread": unread[:100]} if unread else {})})

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length")
        if text is None:
            raise RequestError(411, "a request needs Content-Length", Connection="close")
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise RequestError(400, "Content-Length is no number of bytes", Connection="close")
        size = int(text)
        if size > self.server.service.body:
            raise RequestError(413, f"a body has {self.server.service.body} bytes at most, got {size}", Connection="close")
        body = self.rfile.read(size)
        self.server.whole(self.connection)
        if len(body) < size:
            raise RequestError(400, f"the body ended after {len(body)} bytes of {size}", Connection="close")
        return body

    def _rows(self, kind: str, body: bytes) -> list[Row]:
        predictor = self.server.service.predictor
        if kind == "text/plain" and predictor.text is not None:
            return [{predictor.text: body.decode("utf-8", "replace")}]
        if kind not in ("application/json", "text/json"):
            raise RequestError(415, f"Content-Type {kind} is not taken: send application/json")
        try:
            value = json.loads(body, parse_constant=_constant)
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f"no JSON: {error}") from None
        if isinstance(value, dict) and isinstance(value.get("rows"), list):
            value = value["rows"]
        elif isinstance(value, dict) and set(value) == {"text"} and predictor.text is not None:
            value = [{predictor.text: value["text"]}]
        elif isinstance(value, dict):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise RequestError(400, 'send {"rows": [{"column": cell, ...}, ...]}, or one row')
        if len(value) > MOST_ROWS:
            raise RequestError(413, f"a request has {MOST_ROWS} rows at most, got {len(value)}")
        return value

    # --- replies ------------------------------------------------------------------------------------------------------

    def _refuse(self, error: RequestError) -> None:
        with self.server.service.lock:
            self.server.service.refused += 1
        _, body = _json({"error": str(error)})
        # what was not read of a body would be taken for the next request
        self.close_connection = True
        self._send(error.status, "application/json", body, error.headers)

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers.items()):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """Add what keeps answers from being kept, framed, guessed at or read by other sites."""
        for name, value in (
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
            ("Content-Security-Policy", "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):  # fmt: skip
            self.send_header(name, value)
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the library refuses: a method that is not known is 405."""
        del explain
        self._refuse(RequestError(405 if code == 501 else code, message or "refused", **({"Allow": "GET, POST"} if code == 501 else {})))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on the terminal; `/health` counts."""


def _json(value: object) -> tuple[str, bytes]:
    return "application/json", strict_json.dumps(value).encode()


def _constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON value; null stands for a missing cell")


def _said(error: PeError) -> str:
    """Return the message of an error, without places in files that the client does not have."""
    return "; ".join(f"{inner.message}{f' ({inner.hint})' if inner.hint else ''}" for inner in error.each[:20])
