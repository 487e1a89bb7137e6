"""Answers over HTTP: one server, asked on this machine only."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pe_cli.core.errors import PeError
from pe_cli.session.serving import Batcher, Server, Service


class Stub:
    """Answers a row with the double of its x; a batch with a bad row is refused whole, as a model would."""

    columns = {"x": None}  # noqa: RUF012 - as a predictor's
    text, image, windows = None, None, None

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    def rows(self, rows: Any, where: str = "") -> list[dict[str, Any]]:
        self.hold.wait(10)
        self.batches.append(len(rows))
        for i, row in enumerate(rows):
            if not isinstance(row.get("x"), int):
                raise PeError(f"{where}, row {i + 1}: x is no number", hint="send one")
        return [{"y": 2 * row["x"]} for row in rows]

    def schema(self) -> dict[str, Any]:
        return {"columns": {"x": {"type": "number"}}}


@pytest.fixture
def served():
    stub = Stub()
    service = Service(stub, {"model": "double"}, body=1000, waiting=3, batch=8, patience=0.01)  # type: ignore[arg-type]
    server = Server(("127.0.0.1", 0), service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub, server
    stub.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()
    service.batcher.close()


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        text = reply.read()
        kind = reply.headers["Content-Type"]
        return reply.status, json.loads(text) if kind == "application/json" else text, dict(reply.headers)
    finally:
        connection.close()


def test_rows_are_answered_in_order(served) -> None:
    _, server = served
    assert ask(server, "POST", "/predict", {"rows": [{"x": 1}, {"x": 5}]})[:2] == (200, {"rows": [{"y": 2}, {"y": 10}]})
    assert ask(server, "POST", "/predict", {"x": 4, "z": 1})[1] == {"rows": [{"y": 8}], "unread": ["z"]}
    assert ask(server, "POST", "/predict", {"rows": []})[1] == {"rows": []}


def test_what_can_be_looked_at(served) -> None:
    _, server = served
    status, page, headers = ask(server, "GET", "/")
    assert status == 200
    assert b"<form" in page
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert ask(server, "GET", "/schema")[1] == {"columns": {"x": {"type": "number"}}, "model": "double"}
    ask(server, "POST", "/predict", {"x": 1})
    assert ask(server, "GET", "/health")[1] == {"status": "ok", "model": "double", "requests": 1, "refused": 0}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        pytest.param("POST", "/predict", b"{", {}, 400, "no JSON", id="torn JSON"),
        pytest.param("POST", "/predict", b"[" * 900, {}, 400, "no JSON", id="deep JSON"),
        pytest.param("POST", "/predict", b'{"x": NaN}', {}, 400, "NaN is no JSON value", id="NaN"),
        pytest.param("POST", "/predict", [1], {}, 400, 'send {"rows"', id="a list of numbers"),
        pytest.param("POST", "/predict", {"rows": [{"x": 1}, {"x": "a"}]}, {}, 400, "row 2: x is no number (send one)", id="a bad cell"),
        pytest.param("POST", "/predict", b"x" * 1001, {}, 413, "1000 bytes at most, got 1001", id="too long"),
        pytest.param("POST", "/predict", b"x", {"Content_Type": "text/html"}, 415, "is not taken", id="another type"),
        pytest.param("POST", "/predict", b"x", {"Content_Type": "image/png"}, 415, "takes rows, not a picture", id="a picture"),
        pytest.param("POST", "/predict", b"{}", {"Content_Length": "-3"}, 400, "is no number of bytes", id="a bad length"),
        pytest.param("GET", "/predict", None, {}, 405, "does not take GET", id="GET of what is posted"),
        pytest.param("POST", "/health", b"", {}, 405, "does not take POST", id="POST of what is got"),
        pytest.param("DELETE", "/predict", None, {}, 405, "", id="another method"),
        pytest.param("GET", "/etc/passwd", None, {}, 404, "there is no /etc/passwd", id="another path"),
        pytest.param("GET", "/health", None, {"Host": "evil.example"}, 403, "127.0.0.1 and localhost", id="another host's name"),
    ],
)
def test_what_is_refused(served, method, path, body, headers, status, message) -> None:
    _, server = served
    found = ask(server, method, path, body, **headers)
    assert found[0] == status
    assert message in found[1]["error"]
    assert ask(server, "GET", "/health")[1]["refused"] == 1


def test_requests_that_wait_are_answered_together(served) -> None:
    stub, server = served
    stub.hold.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, server, "POST", "/predict", {"x": 0})
        while server.service.batcher._queue.qsize() or not first.running():
            pass
        threading.Event().wait(0.2)  # it is with the model now
        rest = [pool.submit(ask, server, "POST", "/predict", {"x": i}) for i in (1, 2, 3)]
        while server.service.batcher._queue.qsize() < 3:
            threading.Event().wait(0.01)
        status, body, headers = ask(server, "POST", "/predict", {"x": 9})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "too many requests wait" in body["error"]
        stub.hold.set()
        assert [found.result()[1]["rows"][0]["y"] for found in (first, *rest)] == [0, 2, 4, 6]
    assert stub.batches == [1, 3]


def test_a_wrong_request_does_not_spoil_those_beside_it() -> None:
    stub = Stub()
    stub.hold.clear()
    batcher = Batcher(lambda rows: stub.rows(rows, "it"), 9, 9, 0.2)
    good, bad, other = (batcher.submit([{"x": x}]) for x in (1, "no", 3))
    stub.hold.set()
    assert good.result(5) == [{"y": 2}]
    assert other.result(5) == [{"y": 6}]
    with pytest.raises(PeError, match="it, row 1: x is no number"):
        bad.result(5)
    batcher.close()


def test_a_client_that_sends_half_is_let_go(served, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = served
    monkeypatch.setattr("pe_cli.session.serving.Handler.timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        assert client.recv(100) == b""
    assert ask(server, "GET", "/health")[0] == 200


def test_a_trained_model_answers_as_predict_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.main import run as run_command_line
    from pe_cli.session.predictor import Predictor

    lines = ["a,kind,y"] + [f"{i},{'odd' if i % 2 else 'even'},{3 * i + (i % 2) * 50}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "m.yaml").write_text(
        "feeds: {x: {shape: [3]}, y: {shape: [1]}}\nlayers:\n  guess: {type: fc, input: x, size: 1}\n"
        "  error: {type: square_error_cost, input: guess, label: y}\n  loss: {type: mean, x: error}\nfetches: [loss]\n"
    )
    (tmp_path / "c.yaml").write_text(
        "model: m.yaml\ndata:\n  source: {reader: table, files: t.csv}\n  columns:\n    a: {type: number, scale: standard}\n"
        "    kind: {type: category, encode: one_hot, missing: error, unknown: error}\n    y: {type: number, scale: standard}\n"
        "feeds: {x: [a, kind]}\ntrain: {loss: loss, epochs: 200, batch_size: 40, optimizer: {type: Adam, learning_rate: 0.05}}\n"
        f"executor: {{devices: 1}}\noutput: {{dir: {tmp_path / 'runs'}, checkpoint: {{every: 200 epochs}}}}\n"
    )
    assert run_command_line(["train", str(tmp_path / "c.yaml"), "--quiet"]) == 0
    folder = next((tmp_path / "runs").iterdir())
    predictor = Predictor(open_trained(folder, (), None)[0])
    found = predictor.rows([{"a": 10, "kind": "even"}, {"a": "11", "kind": "odd"}])
    assert [row["y"] for row in found] == pytest.approx([30, 83], abs=2)  # in the units of the file
    assert predictor.schema()["columns"]["kind"] == {"type": "category", "classes": ["even", "odd"]}
    bad = (({"a": 1}, "there is no column 'kind'"), ({"a": [1], "kind": "odd"}, "not a list"), ({"a": 1, "kind": "o"}, "'o'"))
    for row, message in bad:
        with pytest.raises(PeError, match=message):
            predictor.rows([row])
    capfd.readouterr()
