"""Files of `paddle.Model`: parameters by their paths in the network, and what the optimizer keeps by its names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.data.dataset import Array
from pe_cli.io.fluid import pickled_arrays
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import io as files
from pe_cli.paddle.fluid.framework import Program, program_guard
from pe_cli.paddle.fluid.saved_values import is_parameter, read_values, value_of, write_bytes
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.nn.layer import Layer


def paths_of(network: Layer, program: Program) -> dict[str, Any]:
    """Return path -> parameter of a program, by all paths that lead to it."""
    with program_guard(program):
        return network.state_dict()


def write(path: str, network: Layer, program: Program, trained: bool) -> None:
    """Write PATH.pdparams, and PATH.pdopt where the program trains and its optimizer keeps something.

    Args:
        path: without an ending.
        network: whose parameters these are.
        program: that has them.
        trained: whether it trains.
    """
    scope = global_scope().root()
    _write(Path(f"{path}.pdparams"), {at: value_of(p, scope) for at, p in paths_of(network, program).items()})
    kept = {v.name: value_of(v, scope) for v in files.get_program_persistable_vars(program) if not is_parameter(v)}
    if trained and kept:
        _write(Path(f"{path}.pdopt"), kept)


def _write(path: Path, values: Mapping[str, Array]) -> None:
    # The original's files have no arrays without axes.
    write_bytes(path, pickled_arrays.write({name: value.reshape(value.shape or (1,)) for name, value in values.items()}))


def read(path: str, network: Layer, program: Program, *, skip_mismatch: bool, reset_optimizer: bool) -> None:
    """Give a program the values of files that `write` or the original wrote; parameters may have their own names there, too.

    Args:
        path: without an ending.
        network: whose parameters these are.
        program: that has them.
        skip_mismatch: leave parameters as they are that the file lacks or that have another shape there.
        reset_optimizer: leave what the optimizer keeps as it is.

    Raises:
        FluidValueError: there is no such file, or it lacks a parameter or has it in another shape; a ValueError.
    """
    saved, kept = Path(f"{path}.pdparams"), Path(f"{path}.pdopt")
    state = read_values(saved)
    found: dict[str, Array] = {}
    for at, parameter in paths_of(network, program).items():
        value = next((np.asarray(state[name]) for name in (at, parameter.name) if name in state), None)
        fits = value is not None and value.shape == tuple(parameter.shape)
        if value is not None and fits:
            found[parameter.name] = value
        elif not skip_mismatch:
            what = "no value" if value is None else f"a value of shape {list(value.shape)}"
            raise FluidValueError(f"{saved} has {what} for {at}, {list(parameter.shape)}", hint="skip_mismatch=True leaves it as it is")
    if kept.is_file() and not reset_optimizer:
        names = {v.name for v in files.get_program_persistable_vars(program) if not is_parameter(v)}
        found |= {name: np.asarray(value) for name, value in read_values(kept).items() if name in names}
    files.set_program_state(program, found)
