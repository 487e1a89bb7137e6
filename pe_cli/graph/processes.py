"""Several processes that train one model: what they cannot share yet."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy

YET = "not with several processes yet"


def check_processes(strategy: BuildStrategy) -> None:
    """Refuse what a process would do on its own.

    Raises:
        PeError: a wish of the strategy.
    """
    if strategy.reduce_strategy == "Reduce":
        raise PeError(f"reduce_strategy: Reduce: {YET}", hint="use AllReduce")
