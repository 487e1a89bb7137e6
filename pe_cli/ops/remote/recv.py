"""recv, fetch_barrier and fake_init: a trainer receives parameters from servers, and says when it has received all."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Remote


@op(
    "recv",
    traits=[Remote("take")],
    inputs="X*",
    outputs="Out*",
    attrs={
        "epmap": Attr([], "for each block, host:port of its server"),
        "recv_varnames": Attr([], "name of each block, where Out is put together when it is taken"),
        "trainer_id": Attr(0, "number of the trainer"),
    },
    differentiable="",
)
def recv(x: list[TensorType], **attrs: object) -> list[TensorType]:
    """Take blocks of a parameter from the servers that have them.

    Args:
        X: what the op gives that this one waits for.

    Returns:
        Out: the blocks, of declared types, or one variable that is put together of the blocks `recv_varnames`.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del x, attrs
    return []


@op(
    "fetch_barrier",
    traits=[Remote("taken")],
    inputs="X*",
    outputs="Out*",
    attrs={
        "endpoints": Attr([], "host:port of all servers"),
        "trainer_id": Attr(0, "number of the trainer"),
    },
    differentiable="",
)
def fetch_barrier(x: list[TensorType], **attrs: object) -> list[TensorType]:
    """Tell all servers that this trainer has taken the parameters of a step.

    Args:
        X: what the op gives that this one waits for.

    Returns:
        Out: what was taken, or a variable that only orders ops.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del x, attrs
    return []


@op(
    "fake_init",
    traits=[Remote("stand_in")],
    outputs="Out",
    attrs={"shape": Attr([], "sizes of the variable"), "dtype": Attr("float32", "its element type")},
    differentiable="",
)
def fake_init(*, shape: list[int], dtype: str) -> TensorType:
    """Stand for the first values of a table that only servers hold.

    Returns:
        Out: of that type; it has no value.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    return TensorType(tuple(shape), dtype)
