"""Programs that DistributeTranspiler has cut, run: trainers and parameter servers over TCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.servers.secret import group_key
from pe_cli.execute.servers import connections
from pe_cli.execute.servers.server import listen_of, serve
from pe_cli.execute.servers.trainer import Step, most_of
from pe_cli.graph.servers.trainer_parts import Parts, parts
from pe_cli.ops.define.traits import Remote
from pe_cli.paddle.errors import EnforceNotMet, raised_as
from pe_cli.paddle.fluid import feeding, run_step
from pe_cli.paddle.fluid.flags import deadline
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.fluid.prepared import Setting
from pe_cli.paddle.fluid.scope import Scope
from pe_cli.program.ir import Program

Array = np.ndarray[Any, Any]


class ScopeHost:
    """A scope, and the devices that work on its values.

    Args:
        scope: values that live between steps.
        setting: devices.
    """

    def __init__(self, scope: Scope, setting: Setting) -> None:
        self._scope, self._setting = scope.root(), setting
        self.has_value, self.read, self.write = self._scope.has_value, self._scope.read, self._scope.write
        self.put, self.rows = self._scope.put, self._scope.rows

    def run(self, program: Program, fed: Mapping[str, Any], fetches: Sequence[str]) -> Mapping[str, Any]:
        """Run a program once; see `Host.run`."""
        given = {name: run_step.tensor_of(value) for name, value in fed.items()}
        (found,) = run_step.run(program, self._scope, self._setting, [given], fetches)
        return {name: run_step.leveled(value) for name, value in found.items()}


def is_remote(program: Program) -> bool:
    """Return whether a program talks to other processes."""
    return any(op.definition.has(Remote) for op in program.global_block().ops)


def run(
    program: Program, scope: Scope, setting: Setting, feed: Any, names: Sequence[str], owner: Any
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
    host = ScopeHost(scope, setting)
    with raised_as(EnforceNotMet):
        if any(op.type == "listen_and_serv" for op in program.global_block().ops):
            serve(program, host, deadline(), key=group_key([listen_of(program).attrs["endpoint"]]))
            return {}
        fed = {name: run_step.leveled(value) for name, value in feeding.check(program, feed).items()}
        cut = parts(program)
        if not cut.endpoints:
            found = _alone(program, cut, Step(program, cut, host, None), fed, names)
        else:
            servers = connections.link(cut.endpoints, cut.trainer, most_of(program), owner, deadline())
            outbox = getattr(getattr(program, "communicator", None), "outbox", None)
            found = Step(program, cut, host, servers, outbox=outbox).run(fed, names)
    return {name: run_step.tensor_of(value) for name, value in found.items()}


def _alone(program: Program, cut: Parts, made: Step, fed: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Run a step of a trainer that updates by itself, and count it."""
    communicator = getattr(program, "communicator", None)
    learned = getattr(communicator, "learned", None)
    if learned is None:
        hint = "make a fluid.communicator.Communicator of it, and start it after the startup program"
        raise EnforceNotMet("the program's parameters are shared by a Communicator, and none is running", hint=hint)
    found = made.run(fed, names)
    ids: dict[str, list[Array]] = {}
    for op in cut.talk:
        # Several lookups may read one table: the ids of all of them count.
        for name, table in zip(op.inputs.get("X", ()), op.attrs["send_varnames"], strict=True):
            ids.setdefault(table, []).append(made.array(name))
    learned.step(ids)
    return found


def close(owner: Any) -> None:
    """Let go of the servers that an executor has talked to."""
    connections.close(owner)
