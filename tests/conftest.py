"""What every test gets: no network, a seed that is written down, and libraries to compare with that compute on one thread."""

from __future__ import annotations

import os
import socket

# NumPy's and PyTorch's threads wait by spinning: on small arrays that takes more time than the tests, and processes run beside this one.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 - it reads them when it is imported
import pytest  # noqa: E402

_HERE = ("127.0.0.1", "::1", "localhost", "")


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
