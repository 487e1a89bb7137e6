"""fluid.layers.lstm: layers of LSTMs over sequences of one length, time first."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


def lstm(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> Any:
    """Run LSTM layers over [time, batch, width]; returns outputs, last h and last c.

    Raises:
        FluidValueError: more steps than max_len; a ValueError.
        NotThereYet: a seed of its own for dropout.
    """
    if input.shape[0] > max_len:
        raise FluidValueError(f"lstm: input {input} has more than max_len={max_len} steps")
    if dropout_prob and seed not in (-1, 0):
        raise NotThereYet(f"lstm: seed={seed} is not there yet", hint="set the program's random_seed")
    attr = ParamAttr(initializer=default_initializer)
    return call(
        "lstm", input, hidden_size, num_layers, dropout_prob, is_bidirec, init_h=init_h, init_c=init_c, time_major=True,
        weight_ih_attr=attr, weight_hh_attr=attr, is_test=is_test, name=name,
    )  # fmt: skip


__all__ = ["lstm"]
