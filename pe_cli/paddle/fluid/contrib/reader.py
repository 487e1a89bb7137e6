"""distributed_batch_reader: each of several trainers reads its own batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.errors import FluidValueError


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every few batches: trainer i of n takes batch i of each n; batches that are no whole turn are left out.

    The environment says which trainer this is: PADDLE_TRAINER_ID, of PADDLE_TRAINERS_NUM.

    Raises:
        FluidValueError: the trainer's number is not below their count; a ValueError.
    """
    count, mine = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")), int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= mine < count:
        raise FluidValueError(f"PADDLE_TRAINER_ID is {mine}, and there are {count} trainers")

    def batches() -> Iterator[Any]:
        turn: list[Any] = []
        for batch in batch_reader():
            turn.append(batch)
            if len(turn) == count:
                yield turn[mine]
                turn = []

    return batches


__all__ = ["distributed_batch_reader"]
