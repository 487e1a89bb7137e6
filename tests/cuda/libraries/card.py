"""A device of the tests that has libraries: the driver over a library that runs kernels on this CPU, and a cache that holds nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pe_cli.core.types import Place
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_libraries import loaded_libraries, measured_choice
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import discover
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.ops import support

Stream = Callable[[Callable[[], Any], float], int]


class Kept:
    """A cache that holds nothing yet."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self.bodies.get(key)

    def store(self, key: str, body: bytes) -> None:
        self.bodies[key] = body


def with_library(
    monkeypatch: pytest.MonkeyPatch, name: str, made: Callable[[Stream], Any], precision: str = "float32", **more: Any
) -> tuple[Library, Any]:
    """Let `place: cuda` be a device with a library, and ops of tests run on it.

    Args:
        monkeypatch: of the test.
        name: of the library.
        made: makes its functions, for a stream.
        precision: of products.
        more: of executors.

    Returns:
        The driver's library and the other.
    """
    needs_compiler()
    discover()
    below = Library([], memory=1 << 28)
    driver, library = LearningDriver(below), made(below.enqueue)
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "device_count", lambda: 1)
    monkeypatch.setattr(loaded_libraries, "installed", lambda: {name: loaded_libraries.Installed("1.2.3", library)})
    monkeypatch.setattr(measured_choice, "cache", Kept())
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))
    monkeypatch.setattr(support, "Executor", partial(Executor, libraries=frozenset({name}), precision=precision, **more))
    return below, library
