"""Answers over HTTP: what `pe serve` says to which request, asked on this machine only."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.json_size import count
from pe_cli.session.serving.request_rows import MOST_ROWS, SPARE
from pe_cli.session.serving.service import Service


class Stub:
    """Answers a row with the double of its x; a batch with a bad row is refused whole, as a model would."""

    columns = {"x": SimpleNamespace(type="number")}  # noqa: RUF012 - as a predictor's
    text, image, windows = None, None, None
    separate, pictured, bytes = True, False, 8

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    def encode(self, rows: Any, where: str = "", failed: Any = None) -> Any:
        self._check(rows, where)
        if any(row["x"] == -13 for row in rows):
            raise PeError("a step fails")
        seen = self.notes(rows, ["x"])
        return Encoded([row["x"] for row in rows], {"x": seen} if seen else {})

    def _check(self, rows: Any, where: str) -> None:
        for i, row in enumerate(rows):
            if not isinstance(row.get("x"), int):
                raise PeError(f"{where}, row {i + 1}: x is no number", hint="send one")

    def notes(self, rows: Any, columns: Any) -> list[str]:
        assert list(columns) in (["x"], [])
        self._check(rows, "the request")
        return [f"{row['x']} in row {i + 1} was never seen" for i, row in enumerate(rows) if row["x"] > 99]

    def answers(self, encoded: Any, begin: int, end: int) -> list[dict[str, Any]]:
        self.hold.wait(10)
        self.batches.append(end - begin)
        return [{"y": 2 * x} for x in encoded[begin:end]]

    def schema(self) -> dict[str, Any]:
        return {"columns": {"x": {"type": "number"}}}


class Encoded(list):  # type: ignore[type-arg]
    def __init__(self, values: list[int], notes: dict[str, list[str]]) -> None:
        super().__init__(values)
        self.notes = notes


@contextlib.contextmanager
def serving(stub: Stub, **options: Any) -> Iterator[Service]:
    wishes = {"body": 2000, "memory": 64 << 20, "waiting": 3, "batch": 8, "patience": 0.0, **options}
    service = Service(stub, {"model": "double"}, ("127.0.0.1", 0), **wishes)  # type: ignore[arg-type]
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        stub.hold.set()
        service.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def served() -> Iterator[tuple[Stub, Service]]:
    stub = Stub()
    with serving(stub) as service:
        yield stub, service


def ask(service: Service, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection(*service.server.address, timeout=10)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        text = reply.read()
        kind = reply.headers["Content-Type"]
        return reply.status, json.loads(text) if kind == "application/json" else text, dict(reply.headers)
    finally:
        connection.close()


def test_rows_are_answered_in_order(served: tuple[Stub, Service]) -> None:
    _, service = served
    assert ask(service, "POST", "/predict", {"rows": [{"x": 1}, {"x": 5}]})[:2] == (200, {"rows": [{"y": 2}, {"y": 10}]})
    assert ask(service, "POST", "/predict", {"x": 4, "z": 1})[1] == {"rows": [{"y": 8}], "unread": ["z"]}
    assert ask(service, "POST", "/predict", {"rows": [{"x": i} for i in range(40)]})[1] == {"rows": [{"y": 2 * i} for i in range(40)]}


def test_what_can_be_looked_at(served: tuple[Stub, Service]) -> None:
    _, service = served
    status, page, headers = ask(service, "GET", "/")
    assert status == 200
    assert b"<form" in page
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"] or "default-src" in headers["Content-Security-Policy"]
    assert ask(service, "GET", "/schema")[1] == {"columns": {"x": {"type": "number"}}, "model": "double"}
    ask(service, "POST", "/predict", {"x": 1})
    assert ask(service, "GET", "/health")[1] == {"status": "ok", "model": "double", "requests": 1, "refused": 0}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        pytest.param("POST", "/predict", b"{", {}, 400, "no JSON", id="torn JSON"),
        pytest.param("POST", "/predict", b"[" * 900, {}, 400, "no JSON", id="deep JSON"),
        pytest.param("POST", "/predict", b'{"x": NaN}', {}, 400, "NaN is no JSON value", id="NaN"),
        pytest.param("POST", "/predict", b'{"x": ' + b"9" * 1900 + b"}", {}, 200, "", id="a long number"),
        pytest.param("POST", "/predict", b'{"x": "\xff"}', {}, 400, "no JSON", id="no UTF-8"),
        pytest.param("POST", "/predict", '{"x": 1}'.encode("utf-16"), {}, 400, "no JSON", id="UTF-16"),
        pytest.param("POST", "/predict", [1], {}, 400, 'send {"rows"', id="a list of numbers"),
        pytest.param("POST", "/predict", {"rows": []}, {}, 400, "there is no row", id="no row"),
        pytest.param("POST", "/predict", [], {}, 400, "there is no row", id="an empty list"),
        pytest.param("POST", "/predict", {"rows": [{"x": 1}, {"x": "a"}]}, {}, 400, "row 2: x is no number (send one)", id="a bad cell"),
        pytest.param("POST", "/predict", b"x" * 2001, {}, 413, "2000 bytes at most, got 2001", id="too long"),
        pytest.param("POST", "/predict", b"x", {"Content_Type": "text/html"}, 415, "is not taken", id="another type"),
        pytest.param("POST", "/predict", b"x", {"Content_Type": "image/png"}, 415, "takes rows, not a picture", id="a picture"),
        pytest.param("POST", "/predict", b"{}", {"Content_Length": "-3"}, 400, "one number of bytes", id="a bad length"),
        pytest.param("GET", "/predict", None, {}, 405, "does not take GET", id="GET of what is posted"),
        pytest.param("POST", "/health", b"", {}, 405, "does not take POST", id="POST of what is got"),
        pytest.param("DELETE", "/predict", None, {}, 405, "", id="another method"),
        pytest.param("GET", "/etc/passwd", None, {}, 404, "there is no /etc/passwd", id="another path"),
        pytest.param("GET", "/health", None, {"Host": "evil.example"}, 403, "127.0.0.1 and localhost", id="another host's name"),
        pytest.param("POST", "/predict", {"x": 1}, {"Origin": "http://evil.example"}, 403, "another site", id="a page elsewhere"),
        pytest.param("POST", "/predict", {"x": 1}, {"Origin": "null"}, 403, "another site", id="a page of no site"),
        pytest.param("POST", "/predict", {"x": 1}, {"Origin": "http://127.0.0.1:1"}, 403, "another site", id="a page of another port"),
        pytest.param("POST", "/predict", {"x": 1}, {"Sec_Fetch_Site": "cross-site"}, 403, "another site", id="a browser says so"),
        pytest.param("POST", "/predict", {"x": 1}, {"Sec_Fetch_Site": "same-site"}, 403, "another site", id="a site beside"),
        pytest.param("POST", "/predict", {"x": 1}, {"Sec_Fetch_Site": "none"}, 200, "", id="a person"),
    ],
)
def test_what_is_refused(served: tuple[Stub, Service], method, path, body, headers, status, message) -> None:
    _, service = served
    found = ask(service, method, path, body, **headers)
    assert found[0] == status
    assert message in found[1].get("error", "")
    assert ask(service, "GET", "/health")[1]["refused"] == (status != 200)


def test_its_own_page_and_that_of_a_proxy_may_ask() -> None:
    with serving(Stub(), names=["Models.example"]) as service:
        own = f"http://127.0.0.1:{service.server.address[1]}"
        assert ask(service, "POST", "/predict", {"x": 1}, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
        assert ask(service, "POST", "/predict", {"x": 1}, Origin="https://models.example", Host="models.example")[0] == 200
        assert ask(service, "POST", "/predict", {"x": 1}, Origin="https://models.example")[0] == 200
        assert ask(service, "POST", "/predict", {"x": 1}, Origin="https://other.example", Host="models.example")[0] == 403


def test_requests_that_wait_are_answered_together_and_too_many_come_again(served: tuple[Stub, Service]) -> None:
    stub, service = served
    stub.hold.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, service, "POST", "/predict", {"x": 0})
        while not service.batches._running:
            time.sleep(0.01)
        rest = []
        for i in (1, 2, 3):
            rest.append(pool.submit(ask, service, "POST", "/predict", {"x": i}))
            while service.batches.waiting < i:
                time.sleep(0.01)
        status, body, headers = ask(service, "POST", "/predict", {"x": 9})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "too many requests wait" in body["error"]
        assert ask(service, "GET", "/health")[0] == 200
        stub.hold.set()
        assert [found.result()[1]["rows"][0]["y"] for found in (first, *rest)] == [0, 2, 4, 6]
    assert stub.batches == [1, 3]


@pytest.mark.parametrize(("wrong", "said"), [("no", "the request, row 1: x is no number (send one)"), (-13, "a step fails")])
def test_a_wrong_request_does_not_spoil_those_beside_it(served: tuple[Stub, Service], wrong: Any, said: str) -> None:
    stub, service = served
    stub.hold.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, service, "POST", "/predict", {"x": 0})
        while not service.batches._running:
            time.sleep(0.01)
        rest = [pool.submit(ask, service, "POST", "/predict", {"x": x}) for x in (1, wrong, 3)]
        while service.batches.waiting < 3:
            time.sleep(0.01)
        stub.hold.set()
        assert first.result()[0] == 200
        good, bad, other = (found.result() for found in rest)
    assert (good[1], other[1]) == ({"rows": [{"y": 2}]}, {"rows": [{"y": 6}]})
    assert bad[:2] == (400, {"error": said})


def test_each_hears_of_its_own_values_that_training_never_saw(served: tuple[Stub, Service]) -> None:
    stub, service = served
    stub.hold.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(ask, service, "POST", "/predict", {"x": 100})
        while not service.batches._running:
            time.sleep(0.01)
        rest = [pool.submit(ask, service, "POST", "/predict", rows) for rows in ({"x": 1}, {"rows": [{"x": 2}, {"x": 200}]})]
        while service.batches.waiting < 2:
            time.sleep(0.01)
        stub.hold.set()
        notes = [found.result()[1].get("notes") for found in (first, *rest)]
    assert notes == [["100 in row 1 was never seen"], None, ["200 in row 2 was never seen"]]
    large = {"rows": [{"x": i} for i in range(95, 105)]}
    assert ask(service, "POST", "/predict", large)[1]["notes"] == [f"{i} in row {i - 94} was never seen" for i in range(100, 105)]


def test_many_rows_let_few_ones_pass() -> None:
    stub = Stub()
    with serving(stub, body=1 << 20, batch=4) as service, ThreadPoolExecutor(1) as pool:
        stub.hold.clear()
        large = pool.submit(ask, service, "POST", "/predict", {"rows": [{"x": i} for i in range(2000)]})
        while not service.batches._running:
            time.sleep(0.01)
        timer = threading.Timer(0.1, stub.hold.set)
        timer.start()
        assert ask(service, "POST", "/predict", {"x": 7})[1] == {"rows": [{"y": 14}]}
        assert stub.batches.index(1) < 4
        assert large.result()[1]["rows"] == [{"y": 2 * i} for i in range(2000)]


def test_an_answer_that_never_comes_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pe_cli.session.serving.service.PATIENCE", 0.2)
    monkeypatch.setattr("pe_cli.session.serving.service.LOOK", 0.05)
    stub = Stub()
    with serving(stub) as service:
        stub.hold.clear()
        status, body, headers = ask(service, "POST", "/predict", {"x": 0})
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "no answer in time" in body["error"]
        stub.hold.set()
        assert ask(service, "POST", "/predict", {"x": 2})[1] == {"rows": [{"y": 4}]}
    assert service.server.memory.used == 0


# --- bodies that are larger than they look ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(b'{"rows": [' + b"{}," * 30_000 + b"{}]}", 413, f"{MOST_ROWS} rows at most", id="empty rows"),
        pytest.param(b'{"x": 1' + b"".join(b',"c%d":0' % i for i in range(20_000)) + b"}", 413, "columns at most", id="columns"),
        pytest.param(b"[" * 90_000, 400, "nested 90000 deep", id="depth"),
        pytest.param(b'{"x": "' + b"[{:,\\\"" * 9000 + b'"}', 400, "x is no number", id="a text that looks so"),
        pytest.param(b'{"x": 1, "y": [' + b"1," * 40_000 + b"1]}", 200, "", id="a list that nobody reads"),
        pytest.param(b"\xf0\x9f\x98\x80" * 30_000, 400, "no JSON", id="no JSON"),
    ],
)
def test_what_a_body_holds_is_counted_first(body: bytes, status: int, message: str) -> None:
    with serving(Stub(), body=1 << 20) as service:
        found = ask(service, "POST", "/predict", body)
        assert found[0] == status, found
        assert message in found[1].get("error", "")


def test_what_takes_too_much_memory_is_refused_before_it_is_read() -> None:
    with serving(Stub(), body=4 << 20, memory=16 << 20) as service:
        found = ask(service, "POST", "/predict", b'{"x": 1, "y": [' + b"1," * 100_000 + b"1]}")
        assert found[0] == 413
        assert "--memory" in found[1]["error"]


def test_counting_is_right_over_the_ends_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"rows": [{"a": '"\\{[', "b": [1, [2]], "c": "\u00e9,"}] * 50}).encode()
    whole = count(body)
    assert (whole.objects, whole.members, whole.depth) == (51, 151, 5)
    for size in (1, 2, 7):
        monkeypatch.setattr("pe_cli.core.json_size._BLOCK", size)
        assert count(body) == whole


def test_a_row_may_have_some_columns_that_nobody_reads(served: tuple[Stub, Service]) -> None:
    assert SPARE >= 100
    _, service = served
    assert ask(service, "POST", "/predict", {"x": 1} | {f"c{i}": 0 for i in range(120)})[1]["rows"] == [{"y": 2}]
