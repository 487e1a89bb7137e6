"""Tests of this folder run on a CUDA device, or on the test device where there is none: PTX on this CPU."""

from __future__ import annotations

import pytest

from pe_cli.devices import cuda_driver
from tests.cuda.ptx.device import PtxDriver, needs_compiler

_DRIVER: list[PtxDriver] = []


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `place: cuda` mean the test device where there is no other."""
    if cuda_driver.device_count():
        return
    needs_compiler()
    if not _DRIVER:  # one for all: a kernel is loaded once
        _DRIVER.append(PtxDriver(strict=True))
    _DRIVER[0].launches = 0
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: _DRIVER[0])
    monkeypatch.setattr(cuda_driver, "device_count", lambda: 1)
