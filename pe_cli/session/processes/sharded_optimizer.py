"""Optimizer state that processes share out: with `reduce_strategy: Reduce` each has the state of its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.scope import Scope
from pe_cli.graph.sharded_updates import Rows, own_rows, own_startup
from pe_cli.session.processes.process_group import ProcessGroup

Array = np.ndarray[Any, Any]


def divided(run: RunSpec, built: Built, group: ProcessGroup) -> tuple[Built, dict[str, Rows]]:
    """Return programs with the startup of this process, and the variables that processes divide, with the rows of each.

    Where the run asks for nothing like it, that is the programs as they are, and none.
    """
    if group.size == 1 or run.build_strategy.reduce_strategy != "Reduce":
        return built, {}
    found: dict[str, Rows] = {}
    for program in built.programs:
        found |= own_rows(program, group.rank, group.size).state
    return replace(built, startup=own_startup(built.startup, found, group.rank)), found


class ShardedOptimizer:
    """Sharded variables in a scope: this process holds some rows of each.

    Args:
        rows: variable -> rows of each process.
        scope: with the rows of this one.
        group: the processes; all of them ask the same, in the same order.
    """

    def __init__(self, rows: Mapping[str, Rows], scope: Scope, group: ProcessGroup) -> None:
        self._rows, self._scope, self._team = rows, scope, group

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def whole(self, name: str) -> Array:
        """Return the rows of all processes."""
        found = [arrays[name] for arrays in self._team.arrays({name: self._scope.get(name)})]
        # Ranks in the order of their first row, which is not the order of ranks: rows are dealt in the order of the tree.
        ranks = sorted(range(len(found)), key=lambda rank: self._rows[name][rank])
        return np.concatenate([found[rank] for rank in ranks])

    def own(self, name: str, value: Array) -> Array:
        """Return the rows of this process.

        Raises:
            PeError: DATA; the value has another shape.
        """
        kind, rows = self._scope.type(name), self._rows[name]
        wanted = [max(end for _, end in rows), *kind.shape[1:]]
        if [*value.shape] != wanted:
            raise PeError(f"'{name}' is {[*value.shape]} in the file and {wanted} in the model", code=ExitCode.DATA)
        begin, end = rows[self._team.rank]
        return value[begin:end]
