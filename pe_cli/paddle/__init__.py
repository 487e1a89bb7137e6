"""The original's Python names over the same core: `import pe_cli.paddle.fluid as fluid`."""

from __future__ import annotations

from pe_cli.paddle import distribution, fluid, nn, optimizer, reader, static, tensor
from pe_cli.paddle.fluid import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    ParamAttr,
    Tensor,
    is_compiled_with_cuda,
)
from pe_cli.paddle.fluid.decorators import batch
from pe_cli.paddle.fluid.flags import VERSION
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.names import missing

__version__ = VERSION


def enable_static() -> None:
    """Do nothing: graphs are always static here."""


def disable_static(place: object = None) -> None:
    """Refuse: there is no dynamic mode.

    Raises:
        NotThereYet: always.
    """
    from pe_cli.paddle.errors import NotThereYet

    raise NotThereYet("disable_static: the dynamic mode is not there", hint="leave it out")


def in_dynamic_mode() -> bool:
    """No: graphs are always static here."""
    return False


def seed(seed: int) -> None:
    """Set the seed of random ops of the default programs."""
    default_main_program().global_seed(seed)


globals().update(tensor.functions())
__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "ParamAttr", "Tensor", "batch", "disable_static", "distribution", "enable_static",
    "fluid", "in_dynamic_mode", "is_compiled_with_cuda", "nn", "optimizer", "reader", "seed", "static", "tensor",
]  # fmt: skip
__getattr__ = missing("paddle", lambda: globals())
