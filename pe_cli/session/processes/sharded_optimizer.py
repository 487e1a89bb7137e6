"""What processes divide: with `reduce_strategy: Reduce` each has the optimizer's state of its own rows, with `Shard` parameters, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.devices.scope import Scope
from pe_cli.graph.sharded_parameters import frozen_rows, sharded_parameters
from pe_cli.graph.sharded_updates import Owned, Rows, own_rows, own_startup, own_type
from pe_cli.io.table_pieces import Value
from pe_cli.session.processes.process_group import ProcessGroup

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Division:
    """What processes divide.

    Args:
        state: variables of the optimizer -> rows of each process.
        parameters: parameters -> rows of each process.
    """

    state: Mapping[str, Rows] = field(default_factory=dict)
    parameters: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, Rows]:
        """All variables that are divided, with the rows of each process."""
        return {**self.state, **self.parameters}

    def mine(self, name: str, whole: TensorType, rank: int) -> TensorType:
        """Return the type that a variable has in a process."""
        rows = self.state.get(name) or self.parameters.get(name)
        return whole if rows is None else own_type(whole, rows, rank)


def divided(run: RunSpec, built: Built, group: ProcessGroup) -> tuple[Built, Division]:
    """Return programs with the startup of this process, and the variables that processes divide.

    Where the run asks for nothing like it, that is the programs as they are, and none.
    """
    strategy = run.build_strategy.reduce_strategy
    if group.size == 1 or strategy == "AllReduce":
        return built, Division()
    found = [own_rows(program, group.rank, group.size) for program in built.programs]
    state = {name: rows for owned in found for name, rows in owned.state.items()}
    parameters = {**frozen_rows(built.programs, group.size), **_sharded(found)} if strategy == "Shard" else {}
    return replace(built, startup=own_startup(built.startup, {**state, **parameters}, group.rank)), Division(state, parameters)


def _sharded(found: Sequence[Owned]) -> dict[str, Rows]:
    """Return the updated parameters that can be sharded in all programs; one that two of them update with other rows is not."""
    made: dict[str, Rows] = {}
    refused: set[str] = set()
    for owned in found:
        able = sharded_parameters(owned.program, owned.rows)
        refused |= {name for name, rows in able.items() if made.setdefault(name, rows) != rows}
        refused |= owned.rows.keys() - able.keys()
    return {name: rows for name, rows in made.items() if name not in refused}


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

    def own(self, name: str, value: Value) -> Array:
        """Return the rows of this process; of what lies in files no others are read.

        Raises:
            PeError: DATA; the value has another shape.
        """
        kind, rows = self._scope.type(name), self._rows[name]
        wanted = [max(end for _, end in rows), *kind.shape[1:]]
        if [*value.shape] != wanted:
            raise PeError(f"'{name}' is {[*value.shape]} in the file and {wanted} in the model", code=ExitCode.DATA)
        begin, end = rows[self._team.rank]
        return value[begin:end]
