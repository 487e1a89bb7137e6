"""Strategies: how trainers and servers work together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.communicator import KNOWN, LIMITS
from pe_cli.paddle.fluid.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.paddle.fluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig

Kind = TypeVar("Kind")


class TrainerRuntimeConfig:
    """Limits of what a trainer sends beside its training, with AsyncStrategy; see `Communicator`.

    Attributes:
        runtime_configs: name -> whole number, as a text; begins with FLAGS_ of the environment, or else CPU_NUM, or else 1.
    """

    def __init__(self) -> None:
        threads = os.environ.get("CPU_NUM", "1")
        self.runtime_configs = {name: os.environ.get(f"FLAGS_{name}", threads) for name in LIMITS}

    def get_communicator_flags(self) -> dict[str, str]:
        """Return the limits."""
        return dict(self.runtime_configs)


def changed(what: str, now: Kind, given: Mapping[str, object] | Kind) -> Kind:
    """Return what takes the place of a part of a strategy: another one, or this one with some attributes set.

    Raises:
        FluidTypeError: neither a dict nor one of its kind; a TypeError.
        FluidValueError: it has no such attribute; a ValueError.
    """
    if isinstance(given, type(now)):
        return given
    if not isinstance(given, Mapping):
        raise FluidTypeError(f"{what} takes a dict or a {type(now).__name__}, got {type(given).__name__}")
    for name, value in given.items():
        if not hasattr(now, name):
            raise FluidValueError(f"{what}: {type(now).__name__} has no '{name}'")
        setattr(now, name, value)
    return now


class DistributedStrategy:
    """How trainers and servers work together."""

    #: Fields of the transpiler's configuration that make the strategy what it is, whatever else is set.
    mode: Mapping[str, object] = {}

    def __init__(self) -> None:
        self._program_config: DistributeTranspilerConfig = changed("mode", DistributeTranspilerConfig(), self.mode)
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Return the limits of what a trainer sends beside its training."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: Mapping[str, object] | TrainerRuntimeConfig) -> None:
        """Set limits of what a trainer sends beside its training.

        Raises:
            FluidTypeError: neither names with numbers nor a TrainerRuntimeConfig; a TypeError.
            FluidValueError: an unknown name; a ValueError.
        """
        if isinstance(config, TrainerRuntimeConfig):
            self._trainer_runtime_config = config
            return
        if not isinstance(config, Mapping):
            raise FluidTypeError(f"set_trainer_runtime_config takes a dict or a TrainerRuntimeConfig, got {type(config).__name__}")
        for name, value in config.items():
            if name not in (*LIMITS, *KNOWN):
                raise FluidValueError(f"a trainer's runtime has no '{name}'", hint=did_you_mean(name, (*LIMITS, *KNOWN)))
            # Other names that the original knows are taken, and have no effect.
            if name in LIMITS:
                self._trainer_runtime_config.runtime_configs[name] = str(value)

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Return the threads of a server, which have no effect: a server has one for each trainer."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: Mapping[str, object] | ServerRuntimeConfig) -> None:
        """Set the threads of a server; see `changed` for what may be given, here and below."""
        self._server_runtime_config = changed("set_server_runtime_config", self._server_runtime_config, config)

    def get_program_config(self) -> DistributeTranspilerConfig:
        """Return the transpiler's configuration."""
        return self._program_config

    def set_program_config(self, config: Mapping[str, object] | DistributeTranspilerConfig) -> None:
        """Set the transpiler's configuration, but for what makes this strategy what it is."""
        found = changed("set_program_config", self._program_config, config)
        found.sync_mode = found.runtime_split_send_recv = False  # the two exclude each other, whichever is set first
        self._program_config = changed("mode", found, self.mode)

    def get_execute_strategy(self) -> ExecutionStrategy:
        """Return how graphs are scheduled, for `CompiledProgram.with_data_parallel`."""
        return self._execute_strategy

    def set_execute_strategy(self, config: Mapping[str, object] | ExecutionStrategy) -> None:
        """Set how graphs are scheduled."""
        self._execute_strategy = changed("set_execute_strategy", self._execute_strategy, config)

    def get_build_strategy(self) -> BuildStrategy:
        """Return how graphs are built, for `CompiledProgram.with_data_parallel`."""
        return self._build_strategy

    def set_build_strategy(self, config: Mapping[str, object] | BuildStrategy) -> None:
        """Set how graphs are built."""
        self._build_strategy = changed("set_build_strategy", self._build_strategy, config)


class SyncStrategy(DistributedStrategy):
    """Servers wait for all trainers."""

    mode: Mapping[str, object] = {"geo_sgd_mode": False, "runtime_split_send_recv": False, "sync_mode": True, "half_async": False}


class AsyncStrategy(DistributedStrategy):
    """Servers apply every gradient as it comes."""

    mode: Mapping[str, object] = {"geo_sgd_mode": False, "sync_mode": False, "runtime_split_send_recv": True, "half_async": False}


class HalfAsyncStrategy(DistributedStrategy):
    """The same; a trainer waits for its own gradients to be sent."""

    mode: Mapping[str, object] = {"geo_sgd_mode": False, "sync_mode": False, "runtime_split_send_recv": True, "half_async": True}


class GeoStrategy(DistributedStrategy):
    """Trainers train by themselves, and send what they have learned.

    Args:
        update_frequency: steps between that.

    Raises:
        FluidValueError: it is no positive number; a ValueError.
    """

    mode: Mapping[str, object] = {"geo_sgd_mode": True, "sync_mode": False, "runtime_split_send_recv": True, "half_async": False}

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        if update_frequency < 1:
            raise FluidValueError(f"update_frequency must be at least 1 step, got {update_frequency}")
        self.set_program_config({"geo_sgd_need_push_nums": update_frequency})


class StrategyFactory:
    """Makes strategies."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """Return: servers wait for all trainers."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """Return: servers apply gradients as they come; a trainer waits for its own."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """Return: servers apply gradients as they come."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """Return: trainers train by themselves, and exchange what they have learned every so many steps."""
        return GeoStrategy(update_frequency)


__all__ = [
    "AsyncStrategy", "DistributedStrategy", "GeoStrategy", "HalfAsyncStrategy", "StrategyFactory", "SyncStrategy", "TrainerRuntimeConfig",
]  # fmt: skip
