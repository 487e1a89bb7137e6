"""Communicator: exchanges parameters with servers beside the training of a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.execute.servers import links
from pe_cli.execute.servers.learned import Learned, Shared
from pe_cli.execute.servers.training import SLACK
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.flags import deadline
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.fluid.transpiler.config import DistributedMode
from pe_cli.program.ir import Program


class Communicator:
    """Exchanges parameters with servers for a trainer's program.

    With GeoSgdTranspiler it sends what the trainer has learned every few steps; programs of DistributeTranspiler talk to servers by their
    own ops in each step, and starting it changes nothing for them.

    Args:
        program: of a trainer.
        mode: a `DistributedMode`; default: GEO where push variables are given, else HALF_ASYNC.
        kwargs: `push_vars` (of GeoSgdTranspiler.vars_info), `trainers` and `push_nums`, for GEO.
        envs: without effect.
        vars_info, trainers, geo_sgd_need_push_nums: the older places of those three.

    Raises:
        FluidTypeError: no program; a TypeError.
        FluidValueError: GEO without one of the three; a ValueError.
    """

    def __init__(
        self,
        program: Program,
        mode: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, Any] | None = None,
        vars_info: Mapping[str, Any] | None = None,
        trainers: int | None = None,
        geo_sgd_need_push_nums: int | None = None,
    ) -> None:
        if not isinstance(program, Program):
            raise FluidTypeError(f"Communicator takes a Program, got {type(program).__name__}")
        given = dict(kwargs or {})
        self._info = given.get("push_vars", vars_info)
        self._trainers = given.get("trainers", trainers)
        self._every = given.get("push_nums", geo_sgd_need_push_nums)
        self._program = program
        self.mode = mode if mode is not None else DistributedMode.GEO if self._info else DistributedMode.HALF_ASYNC
        self._running = False
        self._learned: Learned | None = None
        if self.mode == DistributedMode.GEO:
            missing = [n for n, v in (("push_vars", self._info), ("trainers", self._trainers), ("push_nums", self._every)) if not v]
            if missing:
                raise FluidValueError(f"Communicator in mode GEO needs {' and '.join(missing)}", hint="see GeoSgdTranspiler.vars_info")

    def start(self) -> None:
        """Begin; parameters are those of the scope, which the trainer's startup program has taken from servers.

        Raises:
            EnforceNotMet: parameters have no values yet, or a server is lost; a RuntimeError.
        """
        if self._running:
            return
        if self.mode == DistributedMode.GEO:
            self._learned = self._begun()
        self._program.communicator = self  # type: ignore[attr-defined]
        self._running = True

    def _begun(self) -> Learned:
        shared = [
            Shared(name, i["var_names"], [int(s) for s in i["sections"]], i["epmap"], i["is_sparse"] == ["True"])
            for name, i in (self._info or {}).items()
        ]
        block = self._program.global_block()
        most = 2 * sum(block.vars[p.name].type.nbytes for p in shared) + SLACK
        trainer = next((int(op.attrs["trainer_id"]) for op in block.ops if op.type == "send"), 0)
        endpoints = sorted({e for p in shared for e in p.servers})
        with raised_as(EnforceNotMet):
            servers = links.link(endpoints, trainer, most, self, deadline())
            return Learned(shared, int(self._trainers or 1), int(self._every or 1), global_scope().root(), servers)

    @property
    def learned(self) -> Learned | None:
        """What the trainer has learned, in mode GEO while this runs."""
        return self._learned if self._running else None

    def stop(self) -> None:
        """End; what the trainer has learned since the last exchange is sent.

        Raises:
            EnforceNotMet: a server is lost; a RuntimeError.
        """
        if not self._running:
            return
        self._running = False
        if self._learned is not None:
            with raised_as(EnforceNotMet):
                self._learned.finish()
        self._learned = None

    def is_running(self) -> bool:
        """Return whether it has been started and not stopped."""
        return self._running


__all__ = ["Communicator"]
