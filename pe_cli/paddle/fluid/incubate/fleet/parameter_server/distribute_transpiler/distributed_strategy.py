"""Strategies: how trainers and servers work together."""

from __future__ import annotations

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.transpiler.config import DistributeTranspilerConfig


class DistributedStrategy:
    """How trainers and servers work together."""

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()

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


__all__ = ["AsyncStrategy", "DistributedStrategy", "GeoStrategy", "HalfAsyncStrategy", "StrategyFactory", "SyncStrategy"]
