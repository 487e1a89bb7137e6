"""distributed_lookup_table: rows of a table that servers hold."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Remote


@op(
    "distributed_lookup_table",
    traits=[Remote("look_up")],
    inputs="Ids* W",
    outputs="Outputs*",
    attrs={
        "table_names": Attr([], "name of each block of the table"),
        "height_sections": Attr([0], "rows of each block"),
        "endpoints": Attr([], "host:port of each block's server"),
        "trainer_id": Attr(0, "number of the trainer"),
        "padding_idx": Attr(-1, "id whose row is 0; -1 for none"),
        "lookup_table_version": Attr("lookup_table", "op that it stands for", ("lookup_table", "lookup_table_v2")),
    },
    differentiable="",
)
def distributed_lookup_table(
    ids: list[TensorType],
    w: TensorType,
    *,
    table_names: list[str],
    height_sections: list[int],
    endpoints: list[str],
    trainer_id: int,
    padding_idx: int,
    lookup_table_version: str,
) -> list[TensorType]:
    """Fetch the rows of ids from the servers that hold a table's blocks; the table is never here as a whole.

    Args:
        Ids: [..., 1] int64, for `lookup_table_v2` [...]; ids in [0, rows).
        W: [rows, width]; declared, without a value.

    Returns:
        Outputs: [..., width] for each Ids.

    Raises:
        PeError: `lookup_table` with ids whose last axis is not 1; while running, an id that is not in the table.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del table_names, height_sections, endpoints, trainer_id, padding_idx
    # The first version takes ids [..., 1] and leaves that axis out; the second one keeps all axes.
    cut = lookup_table_version == "lookup_table"
    for each in ids:
        if cut and (not each.shape or each.shape[-1] not in (1, -1)):
            raise PeError(f"distributed_lookup_table needs ids [..., 1], got {each}")
    return [TensorType((*(each.shape[:-1] if cut else each.shape), w.shape[-1]), w.dtype) for each in ids]
