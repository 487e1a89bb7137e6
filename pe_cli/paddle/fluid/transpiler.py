"""DistributeTranspiler: its configuration; the process engine that it cuts programs for is not there yet."""

from __future__ import annotations

from typing import Any, NoReturn

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import NotThereYet
from pe_cli.program.ir import Program


class RoundRobin:
    """Deals blocks of parameters to servers in turn."""


class HashName:
    """Deals blocks of parameters to servers by a hash of their names."""


class DistributeTranspilerConfig:
    """How parameters are cut and dealt.

    Attributes:
        slice_var_up: cut parameters into blocks.
        split_method: RoundRobin or HashName.
        min_block_size: elements of a block, at least.
        mode: pserver or nccl2.
        sync_mode: servers wait for all trainers.
        print_log: without effect.
        wait_port: without effect.
    """

    _defaults: dict[str, Any] = {  # noqa: RUF012 (read only)
        "slice_var_up": True,
        "split_method": RoundRobin,
        "min_block_size": 8192,
        "mode": "pserver",
        "sync_mode": True,
        "print_log": False,
        "wait_port": True,
        "runtime_split_send_recv": False,
        "enable_dc_asgd": False,
    }

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            hint = did_you_mean(name, self._defaults) or ""
            raise AttributeError(f"DistributeTranspilerConfig has no '{name}'. {hint}".strip())
        self.__dict__[name] = value


def _not_yet(what: str) -> NoReturn:
    raise NotThereYet(f"{what}: the process engine is not there yet", hint="train on several devices of one process")


class DistributeTranspiler:
    """Cuts a program for several processes.

    Args:
        config: default: all defaults.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = config or DistributeTranspilerConfig()

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
        """Cut a program.

        Raises:
            NotThereYet: always, until the process engine is there.
        """
        _not_yet("DistributeTranspiler.transpile")

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Return the trainer's program; see `transpile`."""
        _not_yet("get_trainer_program")

    def get_pserver_program(self, endpoint: str) -> Program:
        """Return a server's program; see `transpile`."""
        _not_yet("get_pserver_program")

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Return a server's main and startup program; see `transpile`."""
        _not_yet("get_pserver_programs")

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """Return a server's startup program; see `transpile`."""
        _not_yet("get_startup_program")


def memory_optimize(
    input_program: Program, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = False
) -> None:
    """Accept the wish to reuse memory: every plan does, and never reuses what is fetched or persistable."""
    if print_log:
        print("memory_optimize: buffers are shared by liveness when a step is planned")  # noqa: T201 (asked for)


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Accept the wish to free variables early: a plan gives their bytes to later ones."""
