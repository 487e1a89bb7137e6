"""What every test gets: no network, and a seed that is written down."""

from __future__ import annotations

import socket

import numpy as np
import pytest

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
