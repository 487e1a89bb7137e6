"""Building a program with layers, and running it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.layers.define.registry import discover
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Program, Variable

Array = np.ndarray[Any, Any]


class Layers:
    """Every layer function as an attribute; `sum` and `slice` under their own names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return discover()[name].fn


layers: Any = Layers()


@contextmanager
def programs() -> Iterator[tuple[Program, Program]]:
    """Make fresh main and startup programs the defaults."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 5
    with program_guard(main, startup):
        yield main, startup


def run(
    main: Program,
    startup: Program,
    feed: dict[str, Any],
    fetches: list[Variable | str],
    values: dict[str, Any] | None = None,
) -> list[np.ndarray]:
    """Return the fetches of one step, after the startup program and with some parameters set."""
    scope = Scope([Place("cpu", 0)])
    if startup.global_block().ops:
        run_startup(startup, scope, seed=5)
    executor = Executor(main, scope, seed=5)
    for name, value in (values or {}).items():
        scope.set(name, np.asarray(value, main.global_block().var(name).dtype))
    names = [v if isinstance(v, str) else v.name for v in fetches]
    found = executor.run(feed, names).values
    return [found[0][name] for name in names]


def evaluate(
    build: Callable[..., Any], inputs: Mapping[str, Array], learned: tuple[str, ...]
) -> tuple[Array, dict[str, Array]]:
    """Return a loss, and the gradients of its weighted sum with respect to some inputs; weights 1, 2, 3, ..."""
    with programs() as (main, startup):
        fed = {}
        for name, value in inputs.items():
            fed[name] = layers.data(name, list(value.shape[1:]), dtype=str(value.dtype))
            if name in learned:  # what is made of data alone has no gradient
                zero = layers.create_parameter([*value.shape[1:]], str(value.dtype), default_initializer=Constant(0.0))
                fed[name] = layers.elementwise_add(fed[name], zero, axis=1)
        out = build(**fed)
        feed, total = dict(inputs), out
        if out.shape[0] == -1:
            shape = (len(next(iter(inputs.values()))), *out.shape[1:])
            feed["weight"] = np.arange(1, 1 + np.prod(shape), dtype=out.dtype).reshape(shape)
            total = layers.reduce_sum(layers.elementwise_mul(out, layers.data("weight", list(out.shape[1:]), dtype=out.dtype)))
        found = gradients([total], [fed[name] for name in learned])
        values = run(main, startup, feed, [out, *found])
        return values[0], dict(zip(learned, values[1:], strict=True))
