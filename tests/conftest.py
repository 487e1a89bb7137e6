"""What every test gets: no network, a seed that is written down, and libraries to compare with that compute on one thread."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

# NumPy's and PyTorch's threads wait by spinning: on small arrays that takes more time than the tests, and processes run beside this one.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 - it reads them when it is imported
import pytest  # noqa: E402

from tests import needs  # noqa: E402

# Programs and plans are many small objects that stay: to look for cycles among them as often as Python does takes 6% of the time.
gc.set_threshold(20_000, 10, 10)

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "pe_cli"
#: Folders of tests that start processes, or run CUDA kernels on the CPU: some take as long as a thousand others.
LONG = frozenset({"benchmarks", "cli", "collectives", "cuda", "fuzz", "session"})
_HERE = ("127.0.0.1", "::1", "localhost", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make peers` asks for."""
    parser.addoption(needs.OPTION, action="store_true", help="run only the tests that the run before has skipped for want of something")


def pytest_configure(config: pytest.Config) -> None:
    """Count what is skipped for want of something."""
    config.pluginmanager.register(needs.SkippedForWant(config), "skipped-for-want")
    config.pluginmanager.register(OnlyExamples(), "only-examples")


class OnlyExamples:
    """Leaves out modules of the package that show no example: to look for one, pytest imports each and goes through all that it holds."""

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Return whether a file of the package has nothing to run."""
        if collection_path.suffix != ".py" or PACKAGE not in collection_path.parents:
            return None
        return True if b">>> " not in collection_path.read_bytes() else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return a process more than there are cores: tests that wait for processes of theirs, or for a time, leave a core idle."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each of several workers that collect all tests begin with another module.

    pytest rewrites a module's assertions once, and keeps what it has made: workers that go the same way side by side all do it. What cannot
    be imported here fails again, and is told, where it is collected.
    """
    given = getattr(session.config, "workerinput", None)
    if given is None or session.config.args != session.config.getini("testpaths"):
        return
    names = [".".join(path.relative_to(HERE.parent).with_suffix("").parts) for path in sorted(HERE.rglob("test_*.py"))]
    begin = len(names) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for name in names[begin:] + names[:begin]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each of several workers begin with what takes long and end with what is short.

    A worker first gets a run of neighbours as long as that of any other, and later half of what another one has still to do, from its
    end: were those long tests, then in the end one worker would go on alone with them.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    long: list[list[pytest.Item]] = [[] for _ in range(workers)]
    short: list[pytest.Item] = []
    modules = [list(tests) for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    number = 0
    for tests in modules:
        if HERE not in tests[0].path.parents or LONG.isdisjoint(tests[0].path.relative_to(HERE).parts):
            short += tests
        else:
            long[number % workers] += tests
            number += 1
    left, ordered = len(items), []
    for k, tests in enumerate(long):
        share = left // (workers - k)  # as xdist divides them
        left -= share
        count = max(0, share - len(tests))
        ordered += tests + short[:count]
        short = short[count:]
    items[:] = ordered + short


def pytest_collection_finish() -> None:
    """Let the garbage collector forget what the collection of twenty thousand tests has made: a third of a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to other machines; sockets within this one are left alone."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: object) -> None:
        here = self.family == socket.AF_UNIX or (isinstance(address, tuple) and address[0] in _HERE)
        if not here:
            raise AssertionError(f"a test wants to connect to {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs that name no seed have other ones in every test, but the same ones in every run."""
    monkeypatch.setattr("pe_cli.execute.seeds.unforeseen", random.Random(request.node.nodeid).randbytes)


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator that is the same in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 256 KiB, or skip where this process may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True).returncode:
        needs.skip("the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
