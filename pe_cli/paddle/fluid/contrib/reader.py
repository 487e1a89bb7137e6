"""distributed_batch_reader: each of several trainers reads its own batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.fluid.data_sets import this_trainer


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every few batches: trainer i of n takes batch i of each n; batches that are no whole turn are left out.

    The environment says which trainer this is: PADDLE_TRAINER_ID, of PADDLE_TRAINERS_NUM.

    Raises:
        FluidValueError: the trainer's number is not below their count; a ValueError.
    """
    count, mine = this_trainer()

    def batches() -> Iterator[Any]:
        turn: list[Any] = []
        for batch in batch_reader():
            turn.append(batch)
            if len(turn) == count:
                yield turn[mine]
                turn = []

    return batches


__all__ = ["distributed_batch_reader"]
