"""Programs that DistributeTranspiler has cut, run: trainers and parameter servers over TCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.ops.define.traits import Remote
from pe_cli.paddle.fluid import feeding, running
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.fluid.parameter_server import links
from pe_cli.paddle.fluid.parameter_server.serving import serve
from pe_cli.paddle.fluid.parameter_server.training import step
from pe_cli.paddle.fluid.scope import Scope
from pe_cli.program.ir import Program


def is_remote(program: Program) -> bool:
    """Return whether a program talks to other processes."""
    return any(op.definition.has(Remote) for op in program.global_block().ops)


def run(
    program: Program, scope: Scope, setting: running.Setting, feed: Any, names: Sequence[str], owner: Any
) -> dict[str, LoDTensor]:
    """Run a program that talks to other processes, once; a server's ends with the last trainer.

    Args:
        program: of a trainer or a server.
        scope: values that live between steps.
        setting: devices.
        feed: name -> value.
        names: what is fetched.
        owner: the executor, whose `close` lets go of servers.

    Returns:
        Name -> value.

    Raises:
        EnforceNotMet: a server or trainer is lost, or a step fails; a RuntimeError.
    """
    listen = [op for op in program.global_block().ops if op.type == "listen_and_serv"]
    if listen:
        serve(program, listen[0], scope, setting)
        return {}
    return step(program, scope, setting, feeding.check(program, feed), names, owner)


def close(owner: Any) -> None:
    """Let go of the servers that an executor has talked to."""
    links.close(owner)
