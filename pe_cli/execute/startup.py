"""Initial values: a program that runs once, before the first step."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.protocol import device
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program


def run_startup(
    program: Program,
    scope: Scope,
    seed: int,
    progress: Callable[[int, int, str], None] | None = None,
    threads: int = 1,
) -> None:
    """Run a startup program on the CPU, and copy its values to every device that has a replica."""
    scope.allocate({v.name: v.type for v in program.persistables()})
    # Initializers run on the CPU even for cards, so that all kinds of devices begin with the same bits.
    here = device(scope.places[0].kind).is_host
    first = scope.of_first() if here else Scope([Place("cpu", 0)])
    Executor(program, first, seed=seed, progress=progress, execution=ExecutionStrategy(num_threads=threads)).run({})
    if here:
        scope.copy_first()
    else:
        for name in first:
            scope.set(name, first.get(name))
