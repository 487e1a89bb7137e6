"""DistributeTranspiler: a program becomes one for trainers and one for each parameter server."""

from __future__ import annotations

from typing import Any

from pe_cli.collectives.servers.client import wait_for_servers
from pe_cli.collectives.servers.secret import group_key
from pe_cli.graph.servers.blocks import add
from pe_cli.graph.servers.server_program import Kept, ServerProgram, backup
from pe_cli.graph.servers.slicing import Piece, VarBlock, same_or_split_var, slice_variable
from pe_cli.graph.servers.startup import server_startup
from pe_cli.graph.servers.trainer_program import (
    Cut,
    Job,
    TrainerEdits,
    count_steps,
    cut,
    deal,
    edit_startup,
    leave_out_of_startup,
    remote_tables,
)
from pe_cli.graph.servers.update_ops import Updates
from pe_cli.paddle.errors import EnforceNotMet, FluidError, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.flags import deadline
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program
from pe_cli.paddle.fluid.server_values import RemoteValues
from pe_cli.paddle.fluid.transpiler.config import DistributedMode, DistributeTranspilerConfig, ServerRuntimeConfig
from pe_cli.paddle.fluid.transpiler.ps_dispatcher import PSDispatcher, RoundRobin
from pe_cli.paddle.fluid.variable import Variable
from pe_cli.program import ir
from pe_cli.program.ir import Program, Role

#: Elements of a block, at least, of a configuration.
SMALLEST = 8192


class TranspilerRefusal(FluidError, AssertionError):
    """A configuration that the original asserts away."""


class DistributeTranspiler:
    """Cuts a program for trainers and parameter servers.

    Parameters are cut into blocks of whole rows and dealt to servers. Trainers compute gradients and send them; servers update.

    Args:
        config: default: all defaults.

    Attributes:
        param_grad_ep_mapping: host:port -> {"params": variables, "grads": variables}, of each server.

    Raises:
        TranspilerRefusal: min_block_size below 8192, or split_method that is no PSDispatcher; an AssertionError.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = config if config is not None else DistributeTranspilerConfig()
        if self.config.split_method is None:
            self.config.split_method = RoundRobin
        self.server_config = ServerRuntimeConfig()
        self.distributed_mode = DistributedMode.SYNC
        if self.config.min_block_size < SMALLEST:
            found = self.config.min_block_size
            raise TranspilerRefusal(f"config.min_block_size must be at least {SMALLEST} elements, got {found}")
        # By the base, as the original looks: any class of a script that inherits from it is taken.
        if PSDispatcher not in getattr(self.config.split_method, "__bases__", ()):
            hint = "RoundRobin or HashName, of fluid.transpiler.ps_dispatcher"
            raise TranspilerRefusal(f"config.split_method must be a PSDispatcher, got {self.config.split_method!r}", hint=hint)
        self.param_grad_ep_mapping: dict[str, dict[str, list[ir.Variable]]] = {}

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Cut a program, in place.

        Args:
            trainer_id: number of this trainer, from 0.
            program: default: the default main program; after it, its gradients go to servers.
            pservers: host:port of all servers, with commas.
            trainers: number of trainers.
            sync_mode: servers wait for all trainers.
            startup_program: default: the default startup program.
            current_endpoint: without effect with servers.

        Raises:
            FluidTypeError: trainers is no number; a TypeError.
            FluidValueError: arguments that do not fit one another, or mode nccl2 or collective; a ValueError.
            TranspilerRefusal: enable_dc_asgd with sync_mode; an AssertionError.
        """
        if self.config.mode != "pserver":
            raise FluidValueError(
                f"mode {self.config.mode}: operator gen_nccl_id has not been registered",
                hint="leave the transpiler out: mpiexec starts the trainers, and ParallelExecutor(num_trainers=N) sums",
            )
        if self.config.geo_sgd_mode:
            raise FluidValueError("geo_sgd_mode is of another transpiler", hint="use fluid.transpiler.GeoSgdTranspiler")
        if self.config.enable_dc_asgd and sync_mode:
            raise TranspilerRefusal("enable_dc_asgd corrects gradients that come late, and none does with sync_mode")
        self.origin_program = default_main_program() if program is None else program
        # Gradients of tables with a decay are whole for one process; servers take rows, so the update is appended anew.
        undone = getattr(self.origin_program, "undone", None)
        if undone is not None:
            undone.again()
        self.startup_program = default_startup_program() if startup_program is None else startup_program
        # Before anything is cut: servers initialise whole parameters from it.
        self.origin_startup_program = self.startup_program.clone()
        self.pserver_endpoints = endpoints_of(pservers)
        self.trainer_id, self.trainer_num, self.sync_mode = checked_trainer(trainer_id, trainers), trainers, sync_mode
        config = self.config
        late = config.runtime_split_send_recv
        sync = bool(sync_mode) or config.completely_not_async
        self.distributed_mode = DistributedMode.SYNC if sync else DistributedMode.ASYNC if late else DistributedMode.HALF_ASYNC
        self._job = Job(trainer_id, int(trainers), self.pserver_endpoints, sync, late and not sync, config.half_async)
        with raised_as(FluidValueError):
            self._updates = Updates(self.origin_program)
        self._cut = cut(self._updates, self._job, config.min_block_size, config.slice_var_up)
        # Tables that only servers hold are never sent whole.
        self._cut.remote |= remote_tables(self.origin_program, self._updates)
        self._deal()
        TrainerEdits(self.origin_program, self._updates, self._job, self._cut).send()
        if not sync:
            count_steps(self.startup_program, self._updates, self._job)
            # Cloned again, since the counter of steps is part of what servers start with.
            self.origin_startup_program = self.startup_program.clone()
        edit_startup(self.startup_program, self._cut, self._job, self._cut.remote)
        self._map()

    def _deal(self) -> None:
        seed = None if self.config.slice_var_up else self.origin_program.random_seed
        deal(self._cut, self.config.split_method(self.pserver_endpoints), seed)
        if self.config.print_log:
            for p in self._cut.dealt:
                print(f"{p.name}: {p.type} -> {self._cut.server[p.name]}")  # noqa: T201 (asked for)

    def _map(self) -> None:
        """Say which server has what, as variables of the trainer's program."""
        block = self.origin_program.global_block()
        for endpoint in self.pserver_endpoints:
            pieces = self._cut.at(endpoint)
            grads: list[ir.Variable] = [Variable(block, p.sent, p.type) for p in pieces]
            self.param_grad_ep_mapping[endpoint] = {"params": [block.vars[p.name] for p in pieces], "grads": grads}

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Return the trainer's program: the one that was cut, without its updates.

        Args:
            wait_port: wait until all servers listen, unless the configuration says no.

        Raises:
            FluidValueError: `transpile` comes first; a ValueError.
            EnforceNotMet: a server does not listen in time; a RuntimeError.
        """
        self._check_transpiled("get_trainer_program")
        leave_out_of_startup(self.startup_program, self._updates, self._cut)
        TrainerEdits(self.origin_program, self._updates, self._job, self._cut).leave_out()
        here = frozenset(set(self._updates.parameters) - self._cut.remote)
        types = {name: facts.type for name, facts in self._updates.facts.items()}
        # Asked when something is saved: making the servers' programs takes time that most trainers never need.
        remote = RemoteValues(self.trainer_id, lambda: {e: self.kept(e) for e in self.pserver_endpoints}, types, here)
        self.origin_program.remote_values = remote  # type: ignore[union-attr]
        if wait_port and self.config.wait_port:
            self.wait_for_servers()
        return self.origin_program

    def kept(self, endpoint: str) -> list[Kept]:
        """Return the variables that a server keeps between steps."""
        return self._server(endpoint)[1]

    @property
    def updates(self) -> Updates:
        """The updates of the program, as it was before `transpile`."""
        return self._updates

    @property
    def found(self) -> Cut:
        """The pieces of all parameters, and where they are."""
        return self._cut

    def wait_for_servers(self) -> None:
        """Wait until all servers listen.

        Raises:
            EnforceNotMet: one does not in time, is of another group, or needs a secret that there is not; a RuntimeError.
        """
        with raised_as(EnforceNotMet):
            wait_for_servers(self.pserver_endpoints, deadline(), group_key(self.pserver_endpoints))

    def get_pserver_program(self, endpoint: str) -> Program:
        """Return the program of a server.

        Args:
            endpoint: its host:port.

        Raises:
            FluidValueError: `transpile` comes first, or there is no such server; a ValueError.
            EnforceNotMet: enable_dc_asgd with a row-sparse gradient; a RuntimeError.
        """
        self._check_transpiled("get_pserver_program", endpoint)
        return self._server(endpoint)[0]

    def _server(self, endpoint: str) -> tuple[Program, list[Kept]]:
        """Return the program of a server, and what it keeps between steps."""
        compensates = self.config.enable_dc_asgd and not self._job.sync
        seed = self.origin_program.random_seed
        with raised_as(EnforceNotMet):
            made = ServerProgram(self._updates, self._job, self._cut, endpoint, self.distributed_mode, compensates, seed)
        return made.program, made.kept

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Return the program and the startup program of a server; see `get_pserver_program`."""
        main = self.get_pserver_program(endpoint)
        return main, self.get_startup_program(endpoint, main)

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """Return the startup program of a server.

        Args:
            endpoint: its host:port.
            pserver_program: its program; default: another one is made.
            startup_program: default: the one that was there when `transpile` was called.
        """
        self._check_transpiled("get_startup_program", endpoint)
        main = pserver_program if pserver_program is not None else self.get_pserver_program(endpoint)
        origin = startup_program if startup_program is not None else self.origin_startup_program
        made = server_startup(origin, main, self._server(endpoint)[1])
        if self.config.enable_dc_asgd and not self._job.sync:
            for p in self._cut.at(endpoint):
                for i in range(self._job.trainers):
                    names = {"X": [p.name]}, {"Out": [backup(p.name, i)]}
                    add(made.global_block(), "assign", *names, role=Role.FORWARD)
        return made

    def _check_transpiled(self, what: str, endpoint: str | None = None) -> None:
        if not hasattr(self, "_cut"):
            raise FluidValueError(f"{what}: nothing has been cut yet", hint="call transpile first")
        if endpoint is not None and endpoint not in self.pserver_endpoints:
            known = ", ".join(self.pserver_endpoints)
            raise FluidValueError(f"{what}: there is no server '{endpoint}'", hint=f"one of {known}")


def checked_trainer(trainer_id: int, trainers: Any) -> int:
    """Return the number of a trainer.

    Raises:
        FluidTypeError: trainers is no number; a TypeError.
        FluidValueError: there is no such trainer; a ValueError.
    """
    if isinstance(trainers, bool) or not isinstance(trainers, int):
        raise FluidTypeError(f"trainers is the number of trainers, got {trainers!r}")
    if trainers < 1 or not 0 <= trainer_id < trainers:
        raise FluidValueError(f"trainer_id must be in [0, {trainers}), got {trainer_id}")
    return trainer_id


def endpoints_of(pservers: str) -> list[str]:
    """Return the servers of a text `host:port,host:port`.

    Raises:
        FluidValueError: one has no port, or stands there twice; a ValueError.
    """
    found = [part.strip() for part in str(pservers).split(",") if part.strip()]
    for each in found:
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise FluidValueError(f"'{each}' is no server", hint="host:port, such as 127.0.0.1:6174")
    if not found or len(set(found)) < len(found):
        raise FluidValueError(f"pservers '{pservers}' names {'a server twice' if found else 'no server'}")
    return found


__all__ = [
    "Cut",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "Piece",
    "TranspilerRefusal",
    "VarBlock",
    "endpoints_of",
    "same_or_split_var",
    "slice_variable",
]
