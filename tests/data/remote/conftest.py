"""What tests of files elsewhere have in common: a server, and no waiting between tries."""

from __future__ import annotations

import pytest

from pe_cli.data.remote import file_cache
from tests.data.remote.file_server import served

__all__ = ["served"]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_cache, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
