"""Role makers: what a process of a training is, from arguments or from the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import endpoints_of
from pe_cli.paddle.reference_names import missing


class Role:
    """What a process does."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """What a process is.

    Attributes:
        role: WORKER or SERVER.
        current_id: its number among those.
        workers: number of workers.
        servers: host:port of all servers.
        trainers: host:port of all workers, where somebody has said so.
    """

    role: int = Role.WORKER
    current_id: int = 0
    workers: int = 1
    servers: Sequence[str] = ()
    trainers: Sequence[str] = ()

    def generate_role(self) -> None:
        """Look up what the process is; nothing to do where arguments say so."""

    def is_worker(self) -> bool:
        """Return whether the process trains."""
        return self.role == Role.WORKER

    def is_server(self) -> bool:
        """Return whether the process is a server."""
        return self.role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Return whether the process is worker 0."""
        return self.is_worker() and self.current_id == 0

    def worker_num(self) -> int:
        """Return the number of workers."""
        return self.workers

    def server_num(self) -> int:
        """Return the number of servers."""
        return len(self.servers)

    def worker_index(self) -> int:
        """Return the number of this worker."""
        return self.current_id

    def server_index(self) -> int:
        """Return the number of this server."""
        return self.current_id

    def get_pserver_endpoints(self) -> list[str]:
        """Return host:port of all servers."""
        return list(self.servers)

    def get_trainer_endpoints(self) -> list[str]:
        """Return host:port of all workers, where somebody has said so."""
        return list(self.trainers)

    def to_string(self) -> str:
        """Return what the process is, in a line."""
        return f"role: {self.role}, current_id: {self.current_id}, workers: {self.workers}, servers: {','.join(self.servers)}"


class UserDefinedRoleMaker(RoleMakerBase):
    """A role from arguments.

    Args:
        current_id: number of this process among those of its role.
        role: Role.WORKER or Role.SERVER.
        worker_num: number of workers.
        server_endpoints: host:port of all servers.

    Raises:
        FluidTypeError: an argument of another type; a TypeError.
        FluidValueError: numbers that do not fit; a ValueError.
    """

    def __init__(
        self, current_id: int = 0, role: int = Role.WORKER, worker_num: int = 0, server_endpoints: Sequence[str] | None = None
    ) -> None:
        if not isinstance(server_endpoints, (list, tuple)):
            raise FluidTypeError(f"server_endpoints must be a list of host:port, got {server_endpoints!r}")
        if role not in (Role.WORKER, Role.SERVER):
            raise FluidTypeError(f"role must be Role.WORKER or Role.SERVER, got {role!r}")
        # Python's bool is an int: True would pass for process 1.
        if isinstance(current_id, bool) or not isinstance(current_id, int) or not isinstance(worker_num, int):
            raise FluidTypeError(f"current_id and worker_num must be whole numbers, got {current_id!r} and {worker_num!r}")
        count = worker_num if role == Role.WORKER else len(server_endpoints)
        if worker_num < 1 or not 0 <= current_id < count:
            raise FluidValueError(f"current_id must be in [0, {count}), got {current_id}", hint="worker_num is at least 1")
        self.current_id, self.role, self.workers = current_id, role, worker_num
        self.servers = endpoints_of(",".join(server_endpoints))


class PaddleCloudRoleMaker(RoleMakerBase):
    """A role from the environment.

    It is read from TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINERS_NUM, and PADDLE_TRAINER_ID, or POD_IP and PADDLE_PORT.
    PADDLE_TRAINER_ENDPOINTS may name the workers.

    Args:
        is_collective: only False: without servers, use mpiexec.

    Raises:
        FluidValueError: is_collective; a ValueError.
    """

    def __init__(self, is_collective: bool = False) -> None:
        if is_collective:
            raise FluidValueError("PaddleCloudRoleMaker: is_collective is not there", hint="use mpiexec and executor.processes: auto")
        self._known = False

    def generate_role(self) -> None:
        """Read the environment, once.

        Raises:
            FluidValueError: a variable is missing, or does not fit; a ValueError.
        """
        if self._known:
            return
        role = _variable("TRAINING_ROLE")
        if role not in ("TRAINER", "PSERVER"):
            raise FluidValueError(f"TRAINING_ROLE must be PSERVER or TRAINER, got {role!r}")
        self.servers = endpoints_of(_variable("PADDLE_PSERVERS_IP_PORT_LIST"))
        self.workers = _number("PADDLE_TRAINERS_NUM")
        # An empty text splits into one empty name, which is no worker.
        self.trainers = [each for each in os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if each]
        if role == "TRAINER":
            self.role, self.current_id = Role.WORKER, _number("PADDLE_TRAINER_ID")
        else:
            # The environment gives a server no number: its place in the list is its number, the same in all processes.
            endpoint = f"{_variable('POD_IP')}:{_variable('PADDLE_PORT')}"
            if endpoint not in self.servers:
                raise FluidValueError(f"POD_IP and PADDLE_PORT say {endpoint}, which is not in PADDLE_PSERVERS_IP_PORT_LIST")
            self.role, self.current_id = Role.SERVER, list(self.servers).index(endpoint)
        self._known = True


def _variable(name: str) -> str:
    if name not in os.environ:
        raise FluidValueError(f"the environment has no {name}", hint="start with a launcher, or use UserDefinedRoleMaker")
    return os.environ[name]


def _number(name: str) -> int:
    text = _variable(name)
    if not text.isdigit():
        raise FluidValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)


__getattr__ = missing("fluid.incubate.fleet.base.role_maker", lambda: globals())
__all__ = ["PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedRoleMaker"]
