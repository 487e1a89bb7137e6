"""What the data tests share: opening a reader in a temporary folder."""

from __future__ import annotations

import threading

import pytest

from pe_cli.core.errors import Span
from pe_cli.data import open_reader

AT = Span("run.yaml", 3, 5)


@pytest.fixture
def read(tmp_path):
    """Open a reader whose files are in tmp_path: read("npy", files={...})."""
    return lambda kind, **options: open_reader(kind, options, tmp_path, AT)


@pytest.fixture(autouse=True)
def _no_leaked_threads():
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert left == []
