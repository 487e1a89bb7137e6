"""Building a program with layers, and running it once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.layers.define.registry import discover
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Variable


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
