"""fleet: one script for trainers and parameter servers; a role says which of them the process is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.execute.servers import connections
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, raised_as
from pe_cli.paddle.fluid import io
from pe_cli.paddle.fluid.communicator import Communicator
from pe_cli.paddle.fluid.executor import Executor
from pe_cli.paddle.fluid.framework import default_startup_program
from pe_cli.paddle.fluid.incubate.fleet.base.role_maker import RoleMakerBase
from pe_cli.paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    DistributedStrategy,
    StrategyFactory,
    SyncStrategy,
)
from pe_cli.paddle.fluid.places import CPUPlace
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.fluid.server_values import rows_of
from pe_cli.paddle.fluid.transpiler.config import DistributedMode, DistributeTranspilerConfig
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from pe_cli.paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler


class FleetTranspiler:
    """Trains one model by workers and servers.

    Attributes:
        main_program: of this process; after `minimize`.
        startup_program: of this process; after `minimize`.
    """

    def __init__(self) -> None:
        self._role: RoleMakerBase | None = None
        self._transpiler: DistributeTranspiler | None = None
        self._communicator: Communicator | None = None
        self._envs: dict[str, str] = {}
        self._executor: Executor | None = None
        self._whole: Any = None  # the program before it was cut
        self.main_program: Any = None
        self.startup_program: Any = None

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Say what this process is.

        Raises:
            FluidTypeError: no role maker; a TypeError.
        """
        if not isinstance(role_maker, RoleMakerBase):
            raise FluidTypeError(f"fleet.init takes a role maker, got {role_maker!r:.60}")
        role_maker.generate_role()
        self._role = role_maker
        self._executor = Executor(CPUPlace())

    @property
    def role(self) -> RoleMakerBase:
        """What this process is.

        Raises:
            EnforceNotMet: `init` comes first; a RuntimeError.
        """
        if self._role is None:
            raise EnforceNotMet("fleet does not know what this process is", hint="call fleet.init first")
        return self._role

    def is_worker(self) -> bool:
        """Return whether this process trains."""
        return self.role.is_worker()

    def is_server(self) -> bool:
        """Return whether this process is a server."""
        return self.role.is_server()

    def is_first_worker(self) -> bool:
        """Return whether this process is worker 0."""
        return self.role.is_first_worker()

    def worker_index(self) -> int:
        """Return the number of this worker."""
        return self.role.worker_index()

    def worker_num(self) -> int:
        """Return the number of workers."""
        return self.role.worker_num()

    def worker_endpoints(self, to_string: bool = False) -> Any:
        """Return host:port of all workers where the role knows them, as a list or as a text with commas."""
        found = self.role.get_trainer_endpoints()
        return ",".join(found) if to_string else found

    def server_index(self) -> int:
        """Return the number of this server."""
        return self.role.server_index()

    def server_num(self) -> int:
        """Return the number of servers."""
        return self.role.server_num()

    def server_endpoints(self, to_string: bool = False) -> Any:
        """Return host:port of all servers, as a list or as a text with commas."""
        found = self.role.get_pserver_endpoints()
        return ",".join(found) if to_string else found

    def split_files(self, files: list[str]) -> list[str]:
        """Return this worker's share of files: parts of equal size in order, the first ones a file larger.

        Raises:
            FluidTypeError: no list; a TypeError.
        """
        if not isinstance(files, list):
            raise FluidTypeError(f"split_files takes a list of files, got {type(files).__name__}")
        workers, index = self.worker_num(), self.worker_index()
        size, more = divmod(len(files), workers)
        begin = index * size + min(index, more)
        return files[begin : begin + size + (index < more)]

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> TranspilerOptimizer:
        """Return an optimizer whose `minimize` cuts the program.

        Args:
            optimizer: any.
            strategy: of `StrategyFactory`, or a DistributeTranspilerConfig; default: sync.
        """
        return TranspilerOptimizer(self, optimizer, strategy)

    def cut(self, loss: Any, startup: Any, config: DistributeTranspilerConfig, envs: Mapping[str, str] | None = None) -> None:
        """Cut the program of a loss for this process; `minimize` calls this. envs: of the Communicator."""
        self._envs = dict(envs or {})
        role = self.role
        kind = GeoSgdTranspiler if config.geo_sgd_mode else DistributeTranspiler
        made = self._transpiler = kind(config)
        # Before the transpiler, which edits the program in place.
        self._whole = loss.block.program.clone()
        worker = role.worker_index() if role.is_worker() else 0
        servers = self.server_endpoints(to_string=True)
        made.transpile(worker, loss.block.program, servers, role.worker_num(), config.sync_mode, startup)
        if role.is_server():
            endpoint = role.get_pserver_endpoints()[role.server_index()]
            self.main_program, self.startup_program = made.get_pserver_programs(endpoint)
        else:
            # Servers may start later: `init_worker` is what waits for them.
            self.main_program, self.startup_program = made.get_trainer_program(wait_port=False), startup
            self._whole.remote_values = getattr(self.main_program, "remote_values", None)

    @property
    def transpiler(self) -> DistributeTranspiler:
        """What has cut the program.

        Raises:
            EnforceNotMet: `minimize` comes first; a RuntimeError.
        """
        if self._transpiler is None:
            raise EnforceNotMet("fleet has no program", hint="call minimize of fleet.distributed_optimizer first")
        return self._transpiler

    def init_worker(self) -> None:
        """Wait for the servers; with geo, take first values from them and begin to share; with async, begin to send beside the training."""
        self.transpiler.wait_for_servers()
        config = self.transpiler.config
        if config.geo_sgd_mode:
            self._run(self.startup_program)
            given = {
                "push_vars": getattr(self.transpiler, "vars_info", {}),
                "trainers": self.worker_num(),
                "push_nums": config.geo_sgd_need_push_nums,
            }
            self._communicator = Communicator(self.main_program, DistributedMode.GEO, given)
            self._communicator.start()
        elif self._envs and not config.sync_mode and config.runtime_split_send_recv and not config.half_async:
            self._communicator = Communicator(self.main_program, DistributedMode.ASYNC, envs=self._envs)
            self._communicator.start()

    def init_server(self, model_dir: str | None = None, **more: Any) -> None:
        """Give parameters their first values.

        Args:
            model_dir: where a worker has saved parameters and state of optimizers, of a training with any number of servers.
            more: without effect.
        """
        self._run(self.startup_program)
        if model_dir is not None:
            self._load(model_dir)

    def _load(self, folder: str) -> None:
        """Take the rows that this server has of saved parameters, and of the state of their updates where that was saved, too."""
        scope, parameters = global_scope().root(), self.transpiler.updates.parameters
        for each in self.transpiler.kept(self.role.get_pserver_endpoints()[self.role.server_index()]):
            file = Path(folder) / each.whole
            # A parameter without a file is an error that reading tells; state without one keeps its first value.
            if each.whole in parameters or file.is_file():
                scope.write(each.name, rows_of(file, each))

    def run_server(self) -> None:
        """Serve until the last worker stops."""
        self._run(self.main_program)

    def stop_worker(self) -> None:
        """Stop: servers end after the last worker."""
        if self._communicator is not None:
            self._communicator.stop()
        if self._executor is not None:
            with raised_as(EnforceNotMet):
                connections.leave(self.server_endpoints(), self.worker_index())
            self._executor.close()

    def _run(self, program: Any) -> None:
        assert self.transpiler is not None, "minimize makes it"
        assert self._executor is not None, "init makes it"
        self._executor.run(program)

    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None, **more: Any) -> None:
        """Write the variables of a worker's program that live between steps, and what servers have; see `io.save_persistables`."""
        io.save_persistables(executor, dirname, main_program or self.main_program)

    def save_inference_model(
        self,
        executor: Any,
        dirname: Any,
        feeded_var_names: Any,
        target_vars: Any,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> list[str]:
        """Write the part of the program that targets need, as it was before `minimize` cut it, with the tables of servers.

        It then runs in one process. The first worker writes the tables; other arguments as of `io.save_inference_model`.

        Raises:
            EnforceNotMet: `minimize` comes first, or a server is lost; a RuntimeError.
        """
        whole = main_program or (self.transpiler and self._whole)
        return io.save_inference_model(dirname, feeded_var_names, target_vars, executor, whole, None, None, export_for_deployment)


class TranspilerOptimizer:
    """An optimizer whose `minimize` cuts the program for workers and servers.

    Args:
        fleet: it.
        optimizer: any.
        strategy: see `FleetTranspiler.distributed_optimizer`.

    Raises:
        FluidTypeError: another strategy; a TypeError.
    """

    def __init__(self, fleet: FleetTranspiler, optimizer: Any, strategy: Any = None) -> None:
        strategy = strategy if strategy is not None else SyncStrategy()
        if not isinstance(strategy, (DistributedStrategy, DistributeTranspilerConfig)):
            raise FluidTypeError(f"strategy must be one of StrategyFactory or a DistributeTranspilerConfig, got {strategy!r:.60}")
        self._fleet, self._optimizer = fleet, optimizer
        self._envs: dict[str, str] = {}
        self._config: Any = strategy
        if isinstance(strategy, DistributedStrategy):
            self._config = strategy.get_program_config()
            self._envs = strategy.get_trainer_runtime_config().get_communicator_flags()

    def minimize(
        self, losses: Any, scopes: Any = None, startup_programs: Any = None, parameter_list: Any = None, no_grad_set: Any = None
    ) -> Any:
        """Append gradients and updates of a loss, then cut the program.

        Args:
            losses: one loss, also as a list of one.
            scopes: without effect.
            startup_programs: one, also as a list of one; default: the default startup program.
            parameter_list, no_grad_set: as of any optimizer.

        Returns:
            What the optimizer's `minimize` returns.
        """
        loss = losses[0] if isinstance(losses, (list, tuple)) else losses
        startup = startup_programs[0] if isinstance(startup_programs, (list, tuple)) else startup_programs
        startup = startup if startup is not None else default_startup_program()
        found = self._optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        self._fleet.cut(loss, startup, self._config, self._envs)
        return found


fleet = FleetTranspiler()
__all__ = ["FleetTranspiler", "StrategyFactory", "TranspilerOptimizer", "fleet"]
