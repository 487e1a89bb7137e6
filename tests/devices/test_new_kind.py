"""A kind of device takes one module: what its `DEVICE` says is what graphs, lowerings and memory go by."""

from __future__ import annotations

import sys
import types

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.devices.aligned_memory import Arena
from pe_cli.devices.cpu import CpuDevice
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from tests.execute.test_executor import classifier, train, values


class MeteredDevice(CpuDevice):
    """CPU devices that count the memory which they are asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def allocate(self, index: int, nbytes: int) -> Arena:
        """Return zeroed host memory."""
        self.asked += nbytes
        return super().allocate(index, nbytes)


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> MeteredDevice:
    module = types.ModuleType("pe_cli.devices.metered")
    module.DEVICE = MeteredDevice()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.DEVICE


def trained(kind: str) -> tuple[list[float], list[bytes]]:
    executor = Executor(classifier(), Scope([Place(kind, 0)]))
    for name, value in values().items():
        executor.scope.set(name, value)
    losses, weights = train(executor)
    return losses, [value.tobytes() for value in weights.values()]


def test_a_new_kind_of_device_runs_the_kernels_that_it_says(metered: MeteredDevice) -> None:
    assert trained("metered") == trained("cpu")
    assert metered.asked > 0


def test_a_kind_without_lowerings_is_refused(metered: MeteredDevice) -> None:
    metered.lowers = "metered"  # type: ignore[misc]
    with pytest.raises(PeError, match="cannot run on metered"):
        trained("metered")
