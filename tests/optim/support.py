"""Training one parameter on gradients that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.optim.optimizer import Optimizer
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Program, Variable

Array = np.ndarray[Any, Any]


def linear(parameters: Mapping[str, tuple[Array, Mapping[str, Any]]]) -> tuple[Program, Program, Variable]:
    """Return programs whose loss is the sum of all feeds `g_<name>` times parameters: the feed is the gradient.

    Args:
        parameters: name -> first value (a vector) and facts of `Parameter`.
    """
    main, startup = Program("main"), Program("startup")
    block = main.global_block()
    parts = []
    for name, (value, facts) in parameters.items():
        kind = TensorType((value.size, 1), str(value.dtype))
        parameter = block.create_parameter(name, kind, **facts)
        NumpyArray(value.reshape(-1, 1))(parameter, startup.global_block())
        block.create_var(f"g_{name}", TensorType((1, value.size), str(value.dtype)), is_data=True, stop_gradient=True)
        block.append_op("mul", {"X": f"g_{name}", "Y": name}, {"Out": f"part_{name}"})
        parts.append(f"part_{name}")
    block.append_op("sum", {"X": parts}, {"Out": "total"})
    block.append_op("mean", {"X": "total"}, {"Out": "loss"})
    return main, startup, block.var("loss")


class Training:
    """A program with an optimizer, ready to step.

    Args:
        optimizer: minimizes the loss.
        parameters: as for `linear`.
        devices: each gets the whole feed.
    """

    def __init__(self, optimizer: Optimizer, devices: int = 1, **parameters: Any) -> None:
        given = {n: v if isinstance(v, tuple) else (v, {}) for n, v in parameters.items()}
        self.main, self.startup, loss = linear(given)
        self.optimizer = optimizer
        self.ops, self.pairs = optimizer.minimize(loss, self.startup)
        self.scope = Scope([Place("cpu", i) for i in range(devices)])
        self.executor = Executor(self.main, self.scope, seed=1)
        run_startup(self.startup, self.scope, 1)
        self.steps = 0

    def step(self, fetches: Sequence[str] = (), **gradients: Array) -> dict[str, Array]:
        """Run one step with these gradients and return what is fetched on the first device."""
        feed = {f"g_{n}": g.reshape(1, -1) for n, g in gradients.items()}
        values = self.executor.run(feed, list(fetches), self.steps).values
        self.steps += 1
        return values[0]

    def value(self, name: str, device: int = 0) -> Array:
        """Return a copy of a parameter's value on a device, as a vector."""
        return self.scope.get(name, device).ravel()
