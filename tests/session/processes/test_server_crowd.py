"""Trainers and parameter servers as processes of their own among strangers: no trainer waits, no bit changes, and no secret is told.

`PE_CROWD=10000` comes with so many.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pe_cli
from pe_cli.collectives.servers.client import reach, wait_for_servers
from pe_cli.collectives.servers.secret import group_key
from pe_cli.core.errors import ExitCode, PeError
from tests.collectives.servers.untrusted_peers import coming, heard
from tests.rotation import on_its_day
from tests.session.conftest import Bench

CROWD = int(os.environ.get("PE_CROWD", "200"))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
PE = (sys.executable, "-m", "pe_cli.cli.main")
SECRET = "only these processes know this text"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def told(line: str) -> Iterator[dict[str, str]]:
    """Yield the environment of every process whose command line holds a text."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, facts = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if line.encode() in words:
            yield dict(fact.split("=", 1) for fact in facts.decode(errors="replace").split("\0") if "=" in fact)


def commands() -> str:
    """Return the command lines of all processes, as every user of a machine can read them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


class Started:
    """The processes of a training with one server and one trainer, which leave the bits of one process.

    Args:
        how: `launch` or `one by one`.
        into: folder of the run, which no other one has.
        endpoint: host:port of the server.
    """

    def __init__(self, how: str, bench: Bench, into: Path, endpoint: str, *more: str) -> None:
        served = f"distributed={{mode: parameter_server, servers: 1, min_block_size: 4, endpoints: ['{endpoint}']}}"
        options = [bench.base / "run.yaml", "--quiet", "-o", served, "-o", f"output.dir={into}", *more]
        self._into, self._endpoint, self._launched = into, endpoint, how == "launch"
        if how == "launch":
            lines = [([*PE, "launch", "-n", "2", *map(str, options)], {})]
        else:
            told_ = {"PE_SIZE": "2", "PE_GROUP_SECRET": SECRET}
            lines = [([*PE, "train", *map(str, options)], {**told_, "PE_RANK": str(rank)}) for rank in range(2)]
        self.processes = [
            subprocess.Popen(line, env=ENVIRONMENT | given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for line, given in lines
        ]

    @property
    def runs(self) -> bool:
        """Whether none has ended."""
        return all(process.poll() is None for process in self.processes)

    def key(self, monkeypatch: pytest.MonkeyPatch) -> bytes:
        """Return the key that they have, as soon as they have been started."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for facts in told(str(self._into)):
                if "PE_RANK" in facts and "PE_GROUP_SECRET" in facts:
                    assert facts["PE_GROUP_SECRET"] not in commands()
                    monkeypatch.setenv("PE_GROUP_SECRET", facts["PE_GROUP_SECRET"])
                    return group_key([self._endpoint], facts.get("PE_GROUP", ""))
            time.sleep(0.05)
        raise AssertionError("nobody was started")

    def end(self) -> list[str]:
        """Wait for all; return what they said."""
        said = [process.communicate(timeout=300)[1] for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(said), said
        return said


@on_its_day(2, of=3)
@pytest.mark.parametrize("how", ["launch", "one by one"])
def test_strangers_keep_no_trainer_waiting_and_change_no_bit(bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    long = ("-o", f"train.epochs={15 + CROWD // 50}", "-o", "output.checkpoint.every=20 steps", "-o", "executor.peer_timeout=60")
    alone = bench.train("alone", *long)
    endpoint = free_port()
    started = Started(how, bench, bench.base / "crowded", endpoint, *long)
    key = started.key(monkeypatch)
    wait_for_servers([endpoint], 60)
    delays: list[float] = []
    with coming(endpoint, CROWD, heard(key, endpoint)) as made:
        while started.runs:
            begun = time.monotonic()
            try:
                reach(endpoint, begun + 3, key=key).close()
            except PeError:
                if started.runs:
                    raise
                break
            delays.append(time.monotonic() - begun)
            time.sleep(0.02)
        started.end()
    print(f"{how}: {made[0]} connections; a trainer's takes {max(delays):.3f} s at most, of {len(delays)}")  # noqa: T201
    assert made[0] > CROWD / 4
    assert delays
    assert max(delays) < 1
    (crowded,) = (bench.base / "crowded").iterdir()
    assert bench.seen(crowded) == bench.seen(alone)


def test_one_process_with_another_secret_is_told_so_and_the_server_names_it(bench: Bench, tmp_path: Path) -> None:
    endpoint = free_port()
    served = f"distributed={{mode: parameter_server, servers: 1, endpoints: ['{endpoint}'], secret: secret}}"
    line = [*PE, "train", bench.base / "run.yaml", "--quiet", "-o", served, "-o", "executor.peer_timeout=5"]
    (bench.base / "secret").write_text("a text that the server knows")
    (bench.base / "secret").chmod(0o600)
    facts = {"PE_SIZE": "2"}
    server = subprocess.Popen(map(str, line), env=ENVIRONMENT | facts | {"PE_RANK": "1"}, stderr=subprocess.PIPE, text=True)
    other = ENVIRONMENT | facts | {"PE_RANK": "0", "PE_GROUP_SECRET": "a text that only the trainer knows"}
    trainer = subprocess.run(list(map(str, line)), env=other, stderr=subprocess.PIPE, text=True, check=False)
    assert trainer.returncode == ExitCode.USAGE
    assert f"server {endpoint}: it serves another group of processes, or has another secret" in trainer.stderr
    said = server.communicate(timeout=60)[1]
    assert server.returncode == ExitCode.PEER_LOST
    assert "trainer 0 has not come for 5 s" in said
    assert "connections that did not show that they know the secret of this group: 1" in said


def test_a_server_that_others_can_reach_needs_a_secret(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PE_SIZE", "2")
    monkeypatch.setenv("PE_RANK", "1")
    away = "distributed={mode: parameter_server, servers: 1, endpoints: ['0.0.0.0:6174']}"
    assert bench.run("train", bench.base / "run.yaml", "-o", away) == ExitCode.USAGE
    assert "server 0.0.0.0:6174 can be reached from other machines, and its group has no secret" in bench.err
    assert "hint: give all processes the same one: as the variable PE_GROUP_SECRET" in bench.err
