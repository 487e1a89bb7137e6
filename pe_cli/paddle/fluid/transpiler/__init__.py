"""transpiler: programs are cut for trainers and parameter servers."""

from __future__ import annotations

from pe_cli.graph.servers.dispatch import HashName, RoundRobin
from pe_cli.paddle.fluid.transpiler import (
    distribute_transpiler,
    geo_sgd_transpiler,
    memory_optimization_transpiler,
    ps_dispatcher,
)
from pe_cli.paddle.fluid.transpiler.config import DistributedMode, DistributeTranspilerConfig, ServerRuntimeConfig
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from pe_cli.paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from pe_cli.paddle.fluid.transpiler.memory_optimization_transpiler import memory_optimize, release_memory

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "GeoSgdTranspiler",
    "HashName",
    "RoundRobin",
    "ServerRuntimeConfig",
    "distribute_transpiler",
    "geo_sgd_transpiler",
    "memory_optimization_transpiler",
    "memory_optimize",
    "ps_dispatcher",
    "release_memory",
]
