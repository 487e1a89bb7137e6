"""Training parameters of any shape on gradients that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.optim.optimizer import Optimizer
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]


class Matrices:
    """A loss that is the sum of all feeds `g_<name>` times parameters, so that the feed is the gradient, and an optimizer.

    Args:
        optimizer: minimizes the loss.
        devices: each gets the whole feed.
        parameters: first values.
    """

    def __init__(self, optimizer: Optimizer, devices: int = 1, **parameters: Array) -> None:
        self.main, self.startup = Program("main"), Program("startup")
        block, parts = self.main.global_block(), []
        for name, value in parameters.items():
            kind = TensorType(value.shape, str(value.dtype))
            NumpyArray(value)(block.create_parameter(name, kind), self.startup.global_block())
            block.create_var(f"g_{name}", kind, is_data=True, stop_gradient=True)
            block.append_op("elementwise_mul", {"X": name, "Y": f"g_{name}"}, {"Out": f"product_{name}"})
            block.append_op("reduce_sum", {"X": f"product_{name}"}, {"Out": f"part_{name}"}, {"reduce_all": True})
            parts.append(f"part_{name}")
        block.append_op("sum", {"X": parts}, {"Out": "loss"})
        self.ops, self.pairs = optimizer.minimize(block.var("loss"), self.startup)
        self.scope = Scope([Place("cpu", i) for i in range(devices)])
        self.executor = Executor(self.main, self.scope, seed=1)
        run_startup(self.startup, self.scope, 1)
        self.steps = 0

    def step(self, fetches: Sequence[str] = (), **gradients: Array) -> dict[str, Array]:
        """Run one step with these gradients and return what is fetched."""
        values = self.executor.run({f"g_{n}": g for n, g in gradients.items()}, list(fetches), self.steps).values
        self.steps += 1
        return values[0]

    def value(self, name: str) -> Array:
        """Return a copy of a value."""
        return self.scope.get(name)
