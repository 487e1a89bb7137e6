"""static: the static-graph interface of PaddlePaddle 2.x, the same classes as fluid's."""

from __future__ import annotations

from pe_cli.paddle import names_v2
from pe_cli.paddle.fluid import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    Executor,
    ParallelExecutor,
    Program,
    Scope,
    Variable,
    WeightNormParamAttr,
    append_backward,
    cpu_places,
    cuda_places,
    data,
    default_main_program,
    default_startup_program,
    device_guard,
    global_scope,
    gradients,
    load,
    load_program_state,
    name_scope,
    program_guard,
    save,
    scope_guard,
    set_program_state,
)
from pe_cli.paddle.fluid.layers import Print, auc
from pe_cli.paddle.fluid.layers import accuracy as _accuracy
from pe_cli.paddle.fluid.layers.py_func import py_func
from pe_cli.paddle.fluid.layers.tensor import create_global_var, create_parameter
from pe_cli.paddle.fluid.optimizer import ExponentialMovingAverage
from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.static import nn
from pe_cli.paddle.static.inference import load_inference_model, save_inference_model
from pe_cli.paddle.static.serialized import (
    InputSpec,
    deserialize_persistables,
    deserialize_program,
    load_from_file,
    normalize_program,
    save_to_file,
    serialize_persistables,
    serialize_program,
)

accuracy = names_v2.with_names({"accuracy": _accuracy})["accuracy"]
__all__ = [
    "BuildStrategy", "CompiledProgram", "ExecutionStrategy", "Executor", "ExponentialMovingAverage", "InputSpec", "ParallelExecutor",
    "Print", "Program", "Scope", "Variable", "WeightNormParamAttr", "accuracy",
    "append_backward", "auc", "cpu_places", "create_global_var", "create_parameter", "cuda_places", "data",
    "default_main_program", "default_startup_program", "deserialize_persistables", "deserialize_program", "device_guard",
    "global_scope", "gradients", "load", "load_from_file", "load_inference_model", "load_program_state", "name_scope", "nn",
    "normalize_program", "program_guard", "py_func", "save", "save_inference_model", "save_to_file", "scope_guard",
    "serialize_persistables", "serialize_program", "set_program_state",
]  # fmt: skip
__getattr__ = missing("paddle.static", lambda: globals())
