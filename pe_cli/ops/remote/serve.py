"""listen_and_serv, ref_by_trainer_id: what a parameter server does."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Remote


@op(
    "listen_and_serv",
    traits=[Remote("serve")],
    inputs="X*",
    outputs="",
    attrs={
        "endpoint": Attr("", "host:port of this server"),
        "Fanin": Attr(1, "number of trainers"),
        "distributed_mode": Attr(0, "0 sync, 1 async, 2 half-async, 3 geo", (0, 1, 2, 3)),
        "optimize_blocks": Attr([], "numbers of the blocks that update parameters, of the learning rate's too"),
        "grad_to_block_id": Attr([], "gradient:number of the block that it is for"),
        "sparse_grad_to_param": Attr([], "row-sparse gradient:parameter"),
        "lr_decay_block_id": Attr(-1, "number of the block that makes the learning rate; -1 for none"),
        "pserver_id": Attr(-1, "number of this server; -1 with geo, where it has no effect"),
        "dc_asgd": Attr(False, "gradients are corrected by how far the parameter has moved since the trainer took it"),
        "rpc_get_thread_num": Attr(12, "threads that answer requests for parameters"),
        "rpc_send_thread_num": Attr(12, "threads that take gradients"),
        "rpc_prefetch_thread_num": Attr(12, "threads that answer requests for rows"),
        "checkpint_block_id": Attr(-1, "number of the block that saves; -1 for none"),
    },
    differentiable="",
)
def listen_and_serv(x: list[TensorType], **attrs: object) -> tuple[TensorType, ...]:
    """Serve parameters to trainers until the last of them leaves.

    Args:
        X: gradients that trainers give.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del x, attrs
    return ()


@op("ref_by_trainer_id", traits=[Remote("choose")], inputs="X* TrainerId", differentiable="")
def ref_by_trainer_id(x: list[TensorType], trainer_id: TensorType) -> TensorType:
    """Choose the variable of the trainer whose gradient is applied.

    Args:
        X: one variable for each trainer, all of one type.
        TrainerId: [1] int64; which.

    Returns:
        Out: type of each X; X[TrainerId].

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8, delay-compensated asynchronous SGD (Zheng et al. 2017).
    """
    del trainer_id
    return x[0]
