"""The live page: who gets it, what it answers, and that it ends with the run."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pe_cli.core.errors import PeError
from pe_cli.io.view.model_facts import Facts, MemoryFacts, MemoryRow
from pe_cli.session.live_report import MOST_WATCHERS, WARM, Live
from pe_cli.session.observer import Start
from tests.io.runs import make_run, ordinary
from tests.session.conftest import Bench


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path, metrics=ordinary(), state="running")


@pytest.fixture
def live(folder: Path, said: list[str]) -> Iterator[Live]:
    made = Live(said.append, Facts())
    made.started(Start("m", 1, "1 cpu", 10, 1, str(folder)))
    yield made
    if not made.over:
        made.ended("done")


def ask(live: Live, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.request(method, path, headers={"Connection": "close", **headers})
    return connection.getresponse()


def test_the_page_is_there_for_who_has_the_address(live: Live, said: list[str]) -> None:
    assert live.address in said[0]
    assert len(live.token) >= 32
    answer = ask(live, f"/{live.token}/")
    page = answer.read().decode()
    assert answer.status == 200
    assert "max eval/acc" in page
    assert '"live": true' in page
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")
    assert "Python" not in (answer.getheader("Server") or "")


@pytest.mark.parametrize(
    "path",
    ["/", "/events", "/{near}/", "/{token}x/", "/{token}", "/%00/", "/../{token}/", "/?{token}/"],
)
def test_without_the_token_nothing_is_told(live: Live, path: str) -> None:
    near = live.token[:-1] + ("a" if live.token[-1] != "a" else "b")
    raw = path.format(token=live.token, near=near)
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as s:
        s.sendall(f"GET {raw} HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nConnection: close\r\n\r\n".encode())
        answer = s.makefile("rb").read()
    assert answer.split(b" ")[1] == b"403"
    assert answer.endswith(b'\r\n\r\n{"error": "403"}')


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", "127.0.0.1.evil:{port}"]
)
def test_another_host_is_refused_even_with_the_token(live: Live, host: str) -> None:
    assert ask(live, f"/{live.token}/", Host=host.format(port=live.port)).status == 403


def test_two_hosts_or_none_are_refused(live: Live) -> None:
    good = f"Host: 127.0.0.1:{live.port}\r\n"
    for hosts in ("", good + "Host: evil\r\n"):
        with socket.create_connection(("127.0.0.1", live.port), timeout=10) as s:
            s.sendall(f"GET /{live.token}/ HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
            assert s.makefile("rb").read().split(b" ")[1] == b"400"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_only_reading_is_allowed(live: Live, method: str) -> None:
    answer = ask(live, f"/{live.token}/", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET")


@pytest.mark.parametrize(
    "name", ["status.json", "../status.json", "..%2fstatus.json", "%2e%2e/", "/etc/passwd", "events/../", "events/"]
)
def test_no_path_names_a_file(live: Live, name: str) -> None:
    answer = ask(live, f"/{live.token}/{name}")
    assert (answer.status, answer.read()) == (404, b'{"error": "404"}')


def test_it_listens_on_this_machine_only(live: Live) -> None:
    assert live.server.address[0] == "127.0.0.1"
    assert live.server.socket.family == socket.AF_INET


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, object]]:
    name = ""
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_news_come_while_it_goes_and_the_end_at_once(live: Live, folder: Path) -> None:
    stream = events(ask(live, f"/{live.token}/events"))
    name, first = next(stream)
    assert name == "news"
    assert isinstance(first, dict)
    assert "running" in first["summary"]
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 30, "epoch": 3, "split": "eval", "loss": 0.1, "acc": 0.95}\n')
    live.recorded(30, 3, {"eval/acc": 0.95})
    name, second = next(stream)
    assert "0.95" in second["summary"]  # type: ignore[index]
    assert 30 in second["data"]["m-acc"]["lines"][0]["x"]  # type: ignore[index]
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "done"}))
    begin = time.monotonic()
    ending = threading.Thread(target=live.ended, args=("done",))
    ending.start()
    rest = list(stream)
    ending.join(10)
    assert time.monotonic() - begin < 5
    assert [n for n, _ in rest] == ["news", "end"]
    assert '"state done"' in rest[0][1]["summary"]  # type: ignore[index]
    with pytest.raises(OSError, match="refused"):
        ask(live, f"/{live.token}/")


def test_a_step_only_counts(live: Live) -> None:
    begin = time.perf_counter()
    for step in range(10_000):
        live.stepped(step, 0, 0.5, 8)
    assert (time.perf_counter() - begin) / 10_000 < 20e-6


def test_not_everybody_may_watch_at_a_time(live: Live) -> None:
    streams = [ask(live, f"/{live.token}/events") for _ in range(MOST_WATCHERS)]
    for answer in streams:
        next(events(answer))
    assert ask(live, f"/{live.token}/events").status == 503
    # who goes away makes room
    streams[0].close()
    deadline = time.monotonic() + 10
    while len(live.watching) == MOST_WATCHERS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(live.watching) < MOST_WATCHERS


def test_a_port_that_is_taken_is_told(live: Live) -> None:
    with pytest.raises(PeError, match=f"port {live.port} can't be taken"):
        Live(print, Facts(), live.port)


# --- a step that is looked at -----------------------------------------------------------------------------------------


class Seen:
    """A step as the loop tells of it, with what a page needs."""

    def __init__(self, step: int, lanes: bool = True) -> None:
        self.step, self.lanes = step, lanes

    def memory(self) -> tuple[MemoryFacts, ...]:
        return (MemoryFacts("cpu:0", (MemoryRow("parameters", 2048, 0, 0),), 2048, 0, "sgd"),)

    def timeline(self, name: str) -> dict[str, object] | None:
        lane = {"name": name, "events": [[0, 1, 0, 0]]}
        return {"names": [f"step {self.step}"], "roles": ["step"], "lanes": [lane]} if self.lanes else None


def steps(live: Live, count: int) -> list[bool]:
    """Do steps as the loop does, and return before which of them the page wanted to look."""
    wanted = []
    for step in range(count):
        wanted.append(live.wants_plan())
        if wanted[-1]:
            live.planned([Seen(step)])  # type: ignore[arg-type]
        live.stepped(step + 1, 0, 0.5, 8)
    return wanted


def test_one_step_is_looked_at_and_another_when_a_page_is_opened(live: Live) -> None:
    assert steps(live, 10) == [False] * WARM + [True] + [False] * (9 - WARM)
    assert "2.0 KiB" in ask(live, f"/{live.token}/").read().decode()
    assert steps(live, 10).count(True) == 1
    ask(live, f"/{live.token}/nonsense")
    assert steps(live, 10).count(True) == 0


def test_a_page_that_is_open_gets_what_was_seen(live: Live) -> None:
    page = ask(live, f"/{live.token}/").read().decode()
    assert '<section id="timelines" hidden>' in page
    stream = events(ask(live, f"/{live.token}/events"))
    assert next(stream)[0] == "news"
    steps(live, WARM + 1)
    found = next(value for name, value in stream if name == "look")
    assert "cpu:0: 2.0 KiB" in found["memory"]  # type: ignore[index]
    assert found["timeline"]["names"] == ["step 3"]  # type: ignore[index]
    assert found["timeline"]["lanes"][0]["name"] == "m"  # type: ignore[index]
    page = ask(live, f"/{live.token}/").read().decode()
    assert '<section id="timelines">' in page
    assert '"names": ["step 3"]' in page


@pytest.mark.parametrize(
    ("options", "timed"),
    [
        pytest.param([], True, id="one device"),
        pytest.param(["executor.devices=2"], True, id="two devices"),
        pytest.param(["train.accumulate=2", "train.batch_size=4"], False, id="gradients in parts"),
        pytest.param(["exec_strategy.num_iteration_per_run=2"], False, id="two iterations a step"),
    ],
)
def test_what_a_run_does_is_seen_and_not_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, options: list[str], timed: bool
) -> None:
    given = [part for option in options for part in ("-o", option)]
    whole = bench.seen(bench.train("whole", *given))
    pages: list[bytes] = []
    ended = Live.ended

    def look(self: Live, state: str) -> None:
        pages.append(self.look())
        ended(self, state)

    monkeypatch.setattr(Live, "ended", look)
    assert bench.seen(bench.train("live", "--live", *given)) == whole
    (page,) = map(json.loads, pages)
    assert "cpu:0" in page["memory"]
    assert ("cpu:1" in page["memory"]) == (options == ["executor.devices=2"])
    assert "parameters" in page["memory"]
    if not timed:
        assert page["timeline"] is None
        return
    assert f"step {WARM + 1}" in page["timeline"]["names"]
    assert {"step", "forward", "backward", "optimize"} <= set(page["timeline"]["roles"])


def test_strangers_make_room_for_who_has_the_address(live: Live) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    held = [socket.create_connection(("127.0.0.1", live.port), timeout=5) for _ in range(100)]
    for one in held:
        with contextlib.suppress(OSError):
            one.sendall(b"GET /")
    begin = time.monotonic()
    assert ask(live, f"/{live.token}/").status == 200
    assert time.monotonic() - begin < 2
    assert len(live.server.open) <= 4 * MOST_WATCHERS
    assert len(os.listdir("/proc/self/fd")) - before <= len(held) + 4 * MOST_WATCHERS + 64 + 8  # noqa: PTH208
    for one in held:
        one.close()


def test_nobody_wakes_the_server_while_nobody_watches(live: Live) -> None:
    ask(live, f"/{live.token}/").read()
    end = time.monotonic() + 10
    while (live.server.open or live.server.leaving) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.6)
    assert not live.server.loop._scheduled  # type: ignore[attr-defined]


def test_a_watcher_that_takes_nothing_is_let_go(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pe_cli.session.live_report.ALIVE", 0.5)
    monkeypatch.setattr(live, "news", lambda: (live.version, b'"' + b"x" * (4 << 20) + b'"'))
    live.rest = 0.0
    with socket.create_connection(("127.0.0.1", live.port), timeout=5) as one:
        one.sendall(f"GET /{live.token}/events HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n\r\n".encode())
        end = time.monotonic() + 10
        while not live.watching and time.monotonic() < end:
            time.sleep(0.02)
        while live.watching and time.monotonic() < end:
            live.stepped(1, 0, 0.5, 8)
            time.sleep(0.05)
        assert not live.watching
