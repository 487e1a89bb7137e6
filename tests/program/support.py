"""Small programs for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from pe_cli.program.parse import parse_program

TWO_LAYERS = """\
program "net" seed 7
block 0
  var x: float32[batch, 4] is_data stop_gradient
  param w1: float32[4, 3]
  param w2: float32[3, 1] {"learning_rate": 0.5}
  forward mul(X=x, Y=w1) -> Out=h: float32[batch, 3]
  forward tanh(X=h) -> Out=a: float32[batch, 3] scope("hidden/")
  forward mul(X=a, Y=w2) -> Out=p: float32[batch, 1]
  forward mean(X=p) -> Out=loss: float32[1]
"""


def program_of(*lines: str) -> Program:
    """Return the program of these lines of block 0."""
    return parse_program("\n".join(['program ""', "block 0", *lines]))


def run(program: Program, values: dict[str, Any], fetches: list[str], feed: dict[str, Any] | None = None) -> list[Any]:
    """Return what a program computes from the values of its persistable variables."""
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope)
    for name, value in values.items():
        scope.set(name, np.asarray(value, program.global_block().var(name).dtype))
    found = executor.run(feed or {}, fetches).values
    return [found[0][name] for name in fetches]
