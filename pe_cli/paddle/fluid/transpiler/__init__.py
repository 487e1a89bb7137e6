"""transpiler: programs are cut for trainers and parameter servers."""

from __future__ import annotations

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
from pe_cli.paddle.fluid.transpiler.ps_dispatcher import HashName, RoundRobin

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
