"""What the user wishes of graph building and execution. Facts of the machine are in `Cluster`, never mixed in."""

from __future__ import annotations

from dataclasses import dataclass

from pe_cli.core.types import Place


@dataclass(frozen=True)
class BuildStrategy:
    """How the multi-device graph is built. Names, meanings and defaults are fluid's; `data_layout` is our own.

    Args:
        data_layout: `auto` runs image operators channels-last inside, `keep` as the model writes them.
    """

    reduce_strategy: str = "AllReduce"
    gradient_scale_strategy: str = "CoeffNumDevice"
    memory_optimize: bool = True
    debug_graphviz_path: str = ""
    data_layout: str = "auto"


@dataclass(frozen=True)
class ExecutionStrategy:
    """How the graph is scheduled.

    Args:
        num_threads: native threads, no unit; 0 means one per device, but no more than cores.
        num_iteration_per_drop_scope: steps between drops of cached plans' temporaries.
    """

    num_threads: int = 0
    num_iteration_per_drop_scope: int = 100


@dataclass(frozen=True)
class Cluster:
    """Facts: the devices of this process, and this process among its peers."""

    places: tuple[Place, ...] = (Place("cpu", 0),)
    rank: int = 0
    size: int = 1
