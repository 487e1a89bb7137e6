"""How programs are cut for trainers and parameter servers."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.paddle.errors import FluidValueError


class ServerRuntimeConfig:
    """Threads of a server; without effect: a server has one thread for each trainer."""

    def __init__(self) -> None:
        self._rpc_send_thread_num = 12
        self._rpc_get_thread_num = 12
        self._rpc_prefetch_thread_num = 12


class DistributeTranspilerConfig:
    """How parameters are cut and dealt, and how trainers and servers work together.

    Attributes:
        slice_var_up: cut parameters into blocks.
        split_method: RoundRobin, or HashName; None for RoundRobin.
        min_block_size: elements of a block, at least; 8192 or more.
        mode: pserver, nccl2 or collective.
        sync_mode: servers wait for all trainers.
        enable_dc_asgd: servers correct a gradient by how far the parameter has moved since its trainer took it.
        runtime_split_send_recv: gradients are cut when they are sent; needs sync_mode False.
        half_async: a trainer waits for its own queue of gradients.
        completely_not_async: servers wait for all trainers, whatever sync_mode says.
        geo_sgd_mode: trainers train by themselves and send what they have learned.
        geo_sgd_need_push_nums: steps between that.
        print_log: print which block goes where.
        wait_port: wait for the servers before a trainer's program is returned.
        nccl_comm_num, use_hierarchical_allreduce, hierarchical_allreduce_inter_nranks, collective_mode: of the modes without servers.
    """

    _defaults: dict[str, Any] = {  # noqa: RUF012 (read only)
        "slice_var_up": True,
        "split_method": None,
        "min_block_size": 8192,
        "enable_dc_asgd": False,
        "mode": "pserver",
        "print_log": False,
        "wait_port": True,
        "runtime_split_send_recv": False,
        "sync_mode": True,
        "half_async": False,
        "completely_not_async": False,
        "geo_sgd_mode": False,
        "geo_sgd_need_push_nums": 100,
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": 0,
        "collective_mode": None,
    }

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            hint = did_you_mean(name, self._defaults) or ""
            raise AttributeError(f"DistributeTranspilerConfig has no '{name}'. {hint}".strip())
        # The two exclude each other; whichever is set second is refused.
        other = {"runtime_split_send_recv": "sync_mode", "sync_mode": "runtime_split_send_recv"}.get(name)
        if other:
            if value is None:
                raise FluidValueError(f"{name} can't be None")
            if value and self.__dict__[other]:
                raise FluidValueError(f"{name} cannot be True while {other} is", hint=f"set {other} to False first")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"DistributeTranspilerConfig has no '{name}'. {did_you_mean(name, self._defaults) or ''}".strip())


__all__ = ["DistributeTranspilerConfig", "DistributedMode", "ServerRuntimeConfig"]
