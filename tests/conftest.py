"""What every test gets: no network, a seed that is written down, and libraries to compare with that compute on one thread."""

from __future__ import annotations

import gc
import os
import socket

# NumPy's and PyTorch's threads wait by spinning: on small arrays that takes more time than the tests, and processes run beside this one.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 - it reads them when it is imported
import pytest  # noqa: E402

_HERE = ("127.0.0.1", "::1", "localhost", "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return a process more than there are cores: tests that wait for processes of theirs, or for a time, leave a core idle."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


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


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator that is the same in every run."""
    return np.random.default_rng(20240229)
