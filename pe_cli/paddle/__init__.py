"""The original's Python names over the same core: `import pe_cli.paddle.fluid as fluid`."""

from __future__ import annotations

import gc

from pe_cli.paddle import (
    autograd,
    callbacks,
    compat,
    dataset,
    device,
    distributed,
    distribution,
    fluid,
    incubate,
    io,
    linalg,
    metric,
    nn,
    optimizer,
    reader,
    regularizer,
    static,
    tensor,
    text,
    utils,
    vision,
)
from pe_cli.paddle.dynamic_mode import get_cuda_rng_state, grad, no_grad, set_cuda_rng_state, to_tensor
from pe_cli.paddle.fluid import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    ParamAttr,
    Tensor,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)
from pe_cli.paddle.fluid.decorators import batch
from pe_cli.paddle.fluid.flags import VERSION, get_flags, set_flags
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.tensor import create_parameter
from pe_cli.paddle.fluid.places import get_cudnn_version, get_device, set_device
from pe_cli.paddle.hapi.flops import flops
from pe_cli.paddle.hapi.model import Model
from pe_cli.paddle.hapi.summary import summary
from pe_cli.paddle.names_v2 import with_names
from pe_cli.paddle.reference_names import install, missing
from pe_cli.paddle.save_load import load, save

__version__ = VERSION


def enable_static() -> None:
    """Do nothing: graphs are always static here."""


def disable_static(place: object = None) -> None:
    """Refuse: there is no dynamic mode.

    Raises:
        NotThereYet: always.
    """
    from pe_cli.paddle.refused_names import DYNAMIC, Refused

    Refused("paddle.disable_static", DYNAMIC)()


def in_dynamic_mode() -> bool:
    """No: graphs are always static here."""
    return False


def seed(seed: int) -> None:
    """Set the seed of random ops of the default programs."""
    default_main_program().global_seed(seed)


_FUNCTIONS = with_names(tensor.functions())
globals().update(_FUNCTIONS)
vars(tensor).update(_FUNCTIONS)  # scripts write `paddle.tensor.triu`, too
install()
__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "Model", "ParamAttr", "Tensor", "autograd", "batch", "callbacks", "compat",
    "create_parameter", "dataset", "device", "disable_static", "distributed", "distribution", "enable_static",
    "flops", "fluid", "get_cuda_rng_state", "get_cudnn_version", "get_device", "get_flags", "grad", "in_dynamic_mode", "incubate", "io",
    "is_compiled_with_cuda", "is_compiled_with_xpu", "linalg", "load", "metric", "nn", "no_grad", "optimizer", "reader", "regularizer",
    "save", "seed",
    "set_cuda_rng_state", "set_device", "set_flags", "static", "summary", "tensor", "text", "to_tensor", "utils", "vision",
]  # fmt: skip
__getattr__ = missing("paddle", lambda: globals())
# What importing made stays: the collector need not go through these 100,000 objects again and again, which takes 0.15 s each time.
gc.freeze()
