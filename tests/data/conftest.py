"""What the data tests share: opening a reader in a temporary folder."""

from __future__ import annotations

import threading

import pytest

from pe_cli.core.errors import Span
from pe_cli.core.threads import IDLE
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
    # those that decode pictures, and a few that are kept, wait for more until the process ends
    left = [t.name for t in threading.enumerate() if t not in before and not t.name.startswith(("pictures", IDLE))]
    assert left == []
