"""Communicator: exchanges parameters with servers beside the training of a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.execute.servers import connections
from pe_cli.execute.servers.gradient_queue import GradientQueue
from pe_cli.execute.servers.local_updates import LocalUpdates, Shared
from pe_cli.execute.servers.trainer import SLACK, most_of
from pe_cli.graph.servers.trainer_parts import parts
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.flags import deadline
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.fluid.transpiler.config import DistributedMode
from pe_cli.program.ir import Program

#: Limits of mode ASYNC with their defaults, in the order of `GradientQueue`, and other names that the original knows.
LIMITS = {"communicator_max_merge_var_num": 20, "communicator_send_queue_size": 20, "communicator_min_send_grad_num_before_recv": 20}
KNOWN = (
    "communicator_independent_recv_thread",
    "communicator_thread_pool_size",
    "communicator_send_wait_times",
    "communicator_merge_sparse_grad",
    "communicator_is_sgd_optimizer",
)


class Communicator:
    """Exchanges parameters with servers for a trainer's program.

    With GeoSgdTranspiler, mode GEO, it sends what the trainer has learned every few steps. In mode ASYNC a thread sends the gradients of
    a program of DistributeTranspiler and takes parameters, while the trainer goes on: gradients of several steps become one, and steps
    compute with parameters that are some steps old. In modes SYNC and HALF_ASYNC each step waits for its own gradients, and starting it
    changes nothing.

    Args:
        program: of a trainer.
        mode: a `DistributedMode`; default: GEO where push variables are given, else HALF_ASYNC.
        kwargs: `push_vars` (of GeoSgdTranspiler.vars_info), `trainers` and `push_nums`, for GEO.
        envs: for ASYNC, as whole numbers: `communicator_max_merge_var_num` (steps whose gradients become one, at most; 20),
            `communicator_send_queue_size` (steps that may wait; 20), `communicator_min_send_grad_num_before_recv` (steps between two times
            that parameters are taken; 20). The environment's FLAGS_communicator_... count where one is not given. Others are known
            (`KNOWN`) and have no effect: one thread asks all servers at once.
        vars_info, trainers, geo_sgd_need_push_nums: the older places of those three.

    Raises:
        FluidTypeError: no program; a TypeError.
        FluidValueError: GEO without one of the three, or envs with an unknown name or no positive number; a ValueError.
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
        # The original changed from keyword arguments to a dictionary with other names; both forms are read.
        self._info = given.get("push_vars", vars_info)
        self._trainers = given.get("trainers", trainers)
        self._every = given.get("push_nums", geo_sgd_need_push_nums)
        self._program = program
        self.mode = mode if mode is not None else DistributedMode.GEO if self._info else DistributedMode.HALF_ASYNC
        self._running = False
        self._learned: LocalUpdates | None = None
        self._outbox: GradientQueue | None = None
        self._limits = {name: _limit(name, dict(envs or {})) for name in LIMITS}
        unknown = [name for name in envs or {} if name not in (*LIMITS, *KNOWN)]
        if unknown:
            raise FluidValueError(f"Communicator: envs has no '{unknown[0]}'", hint=did_you_mean(unknown[0], (*LIMITS, *KNOWN)))
        if self.mode == DistributedMode.GEO:
            missing = [n for n, v in (("push_vars", self._info), ("trainers", self._trainers), ("push_nums", self._every)) if not v]
            if missing:
                raise FluidValueError(f"Communicator in mode GEO needs {' and '.join(missing)}", hint="see GeoSgdTranspiler.vars_info")

    def start(self) -> None:
        """Begin; parameters are those of the scope, which the trainer's startup program has taken from servers, tables those of servers.

        Raises:
            EnforceNotMet: parameters have no values yet, or a server is lost; a RuntimeError.
        """
        if self._running:
            return
        if self.mode == DistributedMode.GEO:
            self._learned = self._begun()
        elif self.mode == DistributedMode.ASYNC:
            self._outbox = self._sending()
        self._program.communicator = self  # type: ignore[attr-defined]
        self._running = True

    def _begun(self) -> LocalUpdates:
        shared = [
            Shared(name, i["var_names"], [int(s) for s in i["sections"]], i["epmap"], i["is_sparse"] == ["True"])
            for name, i in (self._info or {}).items()
        ]
        block = self._program.global_block()
        # What an answer may be as most: values and rows of all shared parameters, so that a peer cannot make the trainer allocate more.
        most = 2 * sum(block.vars[p.name].type.nbytes for p in shared) + SLACK
        trainer = next((int(op.attrs["trainer_id"]) for op in block.ops if op.type == "send"), 0)
        endpoints = sorted({e for p in shared for e in p.servers})
        with raised_as(EnforceNotMet):
            servers = connections.link(endpoints, trainer, most, self, deadline())
            learned = LocalUpdates(shared, int(self._trainers or 1), int(self._every or 1), global_scope().root(), servers)
            # A trainer begins with the parameters of the servers, not with its own first values.
            learned.adopt()
        return learned

    def _sending(self) -> GradientQueue:
        cut = parts(self._program)
        if not cut.endpoints:
            raise EnforceNotMet("the program has no servers to send to", hint="DistributeTranspiler makes such programs")
        with raised_as(EnforceNotMet):
            servers = connections.link(cut.endpoints, cut.trainer, most_of(self._program), self, deadline())
            return GradientQueue(servers, *(self._limits[name] for name in LIMITS))

    @property
    def outbox(self) -> GradientQueue | None:
        """What sends gradients, in mode ASYNC while this runs."""
        return self._outbox if self._running else None

    @property
    def learned(self) -> LocalUpdates | None:
        """What the trainer has learned, in mode GEO while this runs."""
        return self._learned if self._running else None

    def stop(self) -> None:
        """End; what the trainer has learned since the last exchange, and gradients that wait, are sent.

        Raises:
            EnforceNotMet: a server is lost; a RuntimeError.
        """
        if not self._running:
            return
        # Before waiting for what is on its way: a step that runs meanwhile must not queue anything more.
        self._running = False
        with raised_as(EnforceNotMet):
            if self._learned is not None:
                self._learned.finish()
            if self._outbox is not None:
                self._outbox.close()
        self._learned = self._outbox = None

    def is_running(self) -> bool:
        """Return whether it has been started and not stopped."""
        return self._running


def _limit(name: str, given: Mapping[str, Any]) -> int:
    """Return a limit that is given, or that the environment has, or the default."""
    text = str(given.get(name, os.environ.get(f"FLAGS_{name}", LIMITS[name])))
    if not text.isdigit() or int(text) < 1:
        raise FluidValueError(f"Communicator: {name} must be a positive whole number, got {text!r}")
    return int(text)


__all__ = ["Communicator"]
