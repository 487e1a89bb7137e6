"""`pe train --live` and `pe serve` as processes of their own under many connections: no request is lost that is right, no bit changes.

`PE_CROWD=10000` comes with so many.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pe_cli
from tests import needs
from tests.rotation import on_its_day
from tests.session.conftest import Bench

CROWD = int(os.environ.get("PE_CROWD", "120"))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
PE = (sys.executable, "-m", "pe_cli.cli.main")


@pytest.fixture(autouse=True)
def descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CROWD + 200
    if wanted > hard:
        needs.skip("open files", f"{wanted}, and {hard} are allowed (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


class Crowd:
    """Connections that say nothing, half of something, something wrong, or drip; nobody waits for one that is not let in."""

    def __init__(self, port: int, path: str, chance: random.Random) -> None:
        here, elsewhere = f"Host: 127.0.0.1:{port}\r\n", "elsewhere.example\r\n\r\n"
        kinds = (
            b"",
            b"GET /",
            f"GET {path} HTTP/1.1\r\n{here}".encode(),
            f"GET {path} HTTP/1.1\r\nHost: {elsewhere}".encode(),
            f"GET {path} HTTP/1.1\r\n{here}Origin: http://{elsewhere}".encode(),
            f"POST {path} HTTP/1.1\r\n{here}Content-Length: 1000000000000\r\n\r\n{{".encode(),
            b"\x00\xff" * 50,
            b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 50,
        )
        self._held: list[tuple[socket.socket, bytes]] = []
        self._spoke: set[int] = set()
        for _ in range(CROWD):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            self._held.append((one, chance.choice(kinds)))

    def drip(self) -> None:
        """Have each that is let in say its first words, or one byte more."""
        for i, (one, first) in enumerate(self._held):
            with contextlib.suppress(OSError):
                one.send(b"x" if i in self._spoke else first)
                self._spoke.add(i)

    @property
    def heard(self) -> int:
        """How many have said something."""
        return len(self._spoke)

    def close(self) -> int:
        """Return how many were let in or were at least heard by the system."""
        for one, _ in self._held:
            one.close()
        return len(self._spoke)


def asked(port: int, method: str, path: str, body: bytes | None = None, seconds: float = 60.0) -> tuple[int, bytes]:
    """Ask until there is an answer that is not "too many"."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
            try:
                connection.request(method, path, body)
                reply = connection.getresponse()
                found = reply.status, reply.read()
            finally:
                connection.close()
            if found[0] != 503 or time.monotonic() > end:
                return found
        assert time.monotonic() < end, "no answer"
        time.sleep(0.05)


def told(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError("it ended without a word of it")


@on_its_day(1, of=3)
def test_a_crowd_at_the_live_page_changes_no_bit_of_the_training(bench: Bench) -> None:
    long = ["-o", f"train.epochs={200 + CROWD // 10}", "-o", "output.checkpoint.every=100 steps"]
    whole = bench.train("whole", *long)
    line = [*PE, "train", bench.base / "run.yaml", "--live", "-o", f"output.dir={bench.base / 'crowded'}", *long]
    with subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        page = told(process, r"http://127\.0\.0\.1:(\d+)(/\S+)")
        crowd = Crowd(int(page[1]), page[2], random.Random(1))
        while process.poll() is None:
            crowd.drip()
            time.sleep(0.2)
        assert process.stdout is not None
        assert process.returncode == 0, process.stdout.read()[-2000:]
    assert crowd.close() >= 16
    (folder,) = (bench.base / "crowded").iterdir()
    assert bench.seen(folder) == bench.seen(whole)


LINE = """\
feeds: {x: {shape: [2]}, y: {shape: [1]}}
layers:
  guess: {type: fc, input: x, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss: {type: mean, x: error}
fetches: [loss]
"""
TABLE = """\
model: model.yaml
data:
  source: {reader: table, files: t.csv}
  columns: {a: {type: number, scale: none}, b: {type: number, scale: none}, y: {type: number, scale: none}}
feeds: {x: [a, b]}
train: {loss: loss, epochs: 1, batch_size: 10, optimizer: {type: SGD, learning_rate: 0.05}}
executor: {devices: 1}
"""


def test_who_asks_rightly_is_answered_in_a_crowd(bench: Bench) -> None:
    (bench.base / "t.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i + 1}\n" for i in range(40)))
    (bench.base / "run.yaml").write_text(TABLE)
    (bench.base / "model.yaml").write_text(LINE)
    folder = bench.train("runs")
    line = [*PE, "serve", folder, "--port", "0"]
    with (
        subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
        contextlib.ExitStack() as last,
    ):
        last.callback(process.kill)  # whoever leaves with an error would wait for it otherwise
        port = int(told(process, r"http://127\.0\.0\.1:(\d+)")[1])
        rows = json.dumps({"rows": [{"a": 1, "b": 2}]}).encode()
        before = asked(port, "POST", "/predict", rows)
        assert before[0] == 200, before
        crowd = Crowd(port, "/health", random.Random(2))
        end = time.monotonic() + 30
        while crowd.heard < 16 and time.monotonic() < end:
            crowd.drip()
            assert asked(port, "POST", "/predict", rows) == before
        assert crowd.close() >= 16
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
