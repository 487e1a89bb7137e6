"""fluid: the static-graph interface of PaddlePaddle 1.3 to 1.8, on this project's core."""

from __future__ import annotations

from pe_cli.paddle.fluid import (
    average,
    backward,
    clip,
    communicator,
    compiler,
    contrib,
    core,
    data_feeder,
    dygraph,
    evaluator,
    executor,
    framework,
    incubate,
    initializer,
    install_check,
    io,
    layers,
    lod_tensor,
    metrics,
    nets,
    optimizer,
    parallel_executor,
    param_attr,
    profiler,
    regularizer,
    transpiler,
    unique_name,
    wrapped_decorator,
)
from pe_cli.paddle.fluid.async_executor import AsyncExecutor
from pe_cli.paddle.fluid.backward import append_backward, gradients
from pe_cli.paddle.fluid.clip import set_gradient_clip
from pe_cli.paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from pe_cli.paddle.fluid.data_feed_desc import DataFeedDesc
from pe_cli.paddle.fluid.data_feeder import DataFeeder
from pe_cli.paddle.fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from pe_cli.paddle.fluid.executor import Executor, global_scope, scope_guard
from pe_cli.paddle.fluid.flags import VERSION, get_flags, require_version, set_flags
from pe_cli.paddle.fluid.framework import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    in_dygraph_mode,
    name_scope,
    program_guard,
)
from pe_cli.paddle.fluid.input import data, embedding, one_hot
from pe_cli.paddle.fluid.io import load, load_program_state, save, set_program_state
from pe_cli.paddle.fluid.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    Tensor,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from pe_cli.paddle.fluid.parallel_executor import ParallelExecutor
from pe_cli.paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from pe_cli.paddle.fluid.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    device_guard,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)
from pe_cli.paddle.fluid.scope import Scope
from pe_cli.paddle.fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    memory_optimize,
    release_memory,
)
from pe_cli.paddle.reference_names import missing

__version__ = VERSION
__all__ = [
    "AsyncExecutor", "BuildStrategy", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "CompiledProgram", "DataFeedDesc",
    "DataFeeder", "DatasetFactory", "DistributeTranspiler", "DistributeTranspilerConfig", "ExecutionStrategy",
    "Executor", "InMemoryDataset", "LoDTensor", "LoDTensorArray", "ParallelExecutor", "ParamAttr", "Program",
    "QueueDataset", "Scope", "Tensor", "Variable", "WeightNormParamAttr", "append_backward", "average", "backward", "clip",
    "communicator", "compiler", "contrib", "core",
    "cpu_places", "create_lod_tensor", "create_random_int_lodtensor", "cuda_pinned_places", "cuda_places", "data",
    "data_feeder", "default_main_program", "default_startup_program", "device_guard", "dygraph", "embedding", "evaluator", "executor",
    "framework", "get_flags", "global_scope", "gradients", "in_dygraph_mode", "incubate", "initializer", "install_check", "io",
    "is_compiled_with_cuda", "is_compiled_with_xpu", "layers", "load", "load_program_state", "lod_tensor", "memory_optimize", "metrics",
    "name_scope", "nets", "one_hot", "optimizer", "parallel_executor", "param_attr", "profiler", "program_guard",
    "regularizer", "release_memory", "require_version", "save", "scope_guard", "set_flags", "set_gradient_clip",
    "set_program_state", "transpiler", "unique_name", "wrapped_decorator",
]  # fmt: skip
__getattr__ = missing("fluid", lambda: globals())
