"""Strategies: how trainers and servers work together."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.communicator import KNOWN, LIMITS
from pe_cli.paddle.fluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig


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


class DistributedStrategy:
    """How trainers and servers work together."""

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()

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
            if name in LIMITS:
                self._trainer_runtime_config.runtime_configs[name] = str(value)

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Return the threads of a server, which have no effect: a server has one for each trainer."""
        return self._server_runtime_config

    def get_program_config(self) -> DistributeTranspilerConfig:
        """Return the transpiler's configuration."""
        return self._program_config


class SyncStrategy(DistributedStrategy):
    """Servers wait for all trainers."""


class AsyncStrategy(DistributedStrategy):
    """Servers apply every gradient as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._program_config.sync_mode = False
        self._program_config.runtime_split_send_recv = True


class HalfAsyncStrategy(AsyncStrategy):
    """The same; a trainer waits for its own gradients to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self._program_config.half_async = True


class GeoStrategy(DistributedStrategy):
    """Trainers train by themselves, and send what they have learned.

    Args:
        update_frequency: steps between that.

    Raises:
        FluidValueError: it is no positive number; a ValueError.
    """

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        if update_frequency < 1:
            raise FluidValueError(f"update_frequency must be at least 1 step, got {update_frequency}")
        self._program_config.sync_mode = False
        self._program_config.runtime_split_send_recv = True
        self._program_config.geo_sgd_mode = True
        self._program_config.geo_sgd_need_push_nums = update_frequency


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
