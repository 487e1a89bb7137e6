"""send and send_barrier: a trainer sends gradients to servers, and says when it has sent all."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Remote

#: Of a variable that only orders ops.
CONTROL = TensorType((), "bool")
#: Where the original sends to by default: what only a communicator sends goes there, and no server is asked.
NOBODY = "127.0.0.1:6164"


@op(
    "send",
    traits=[Remote("give")],
    inputs="X* Rows?",
    outputs="Out",
    attrs={
        "epmap": Attr([NOBODY], "for each block, host:port of its server"),
        "sections": Attr([], "rows of each block, where X is cut when it is sent"),
        "send_varnames": Attr([], "name of each block, where X is cut when it is sent"),
        "trainer_id": Attr(0, "number of the trainer"),
        "merge_add": Attr(False, "values of several steps are added up, not averaged, where steps are merged before they are sent"),
        "use_send_handler": Attr(True, "servers apply it; false: it only counts steps"),
        "num": Attr(0, "number of blocks"),
    },
    differentiable="",
)
def send(x: list[TensorType], rows: TensorType | None, **attrs: object) -> TensorType:
    """Give each block of a gradient to the server that has the same block of the parameter.

    Args:
        X: the blocks, or one variable that is cut by `sections` when it is sent.
        Rows: row numbers, where X is row-sparse.

    Returns:
        Out: orders this op before others; it has no value.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del x, rows, attrs
    return CONTROL


@op(
    "send_barrier",
    traits=[Remote("wait")],
    inputs="X*",
    outputs="Out",
    attrs={
        "endpoints": Attr([], "host:port of all servers"),
        "trainer_id": Attr(0, "number of the trainer"),
        "half_async": Attr(False, "wait for what this trainer has queued, and for no other trainer"),
    },
    differentiable="",
)
def send_barrier(x: list[TensorType], **attrs: object) -> TensorType:
    """Tell all servers that this trainer has given its gradients of a step.

    Args:
        X: what the send ops before it give.

    Returns:
        Out: orders this op before others; it has no value.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del x, attrs
    return CONTROL
