"""ParallelExecutor: a program on all GPUs, or on as many CPU devices as CPU_NUM says."""

from __future__ import annotations

import warnings
from typing import Any

from pe_cli.paddle.errors import FluidTypeError
from pe_cli.paddle.fluid.compiler import DataParallel, default_places
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.scope import Scope, global_scope
from pe_cli.paddle.fluid.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.program.ir import Program


class ParallelExecutor:
    """Runs one program on several devices, splitting every batch.

    Args:
        use_cuda: on GPUs instead of CPU devices.
        loss_name: name of the loss (or the variable); needed where the program has gradient ops.
        main_program: default: the default main program.
        share_vars_from: an executor that has run before, whose variables this one uses.
        exec_strategy: how the graph is scheduled; default: all defaults.
        build_strategy: how it is built; default: all defaults.
        num_trainers: processes that mpiexec has started, each with this script; gradients are means over the batches of all.
        trainer_id: number of this process among them, the one that mpiexec gave it.
        scope: default: the global scope.

    Raises:
        FluidTypeError: share_vars_from is no ParallelExecutor; a TypeError.
        FluidValueError: the loss is missing or unknown, CPU_NUM is no number, or mpiexec has started another number of trainers; a
            ValueError.
        EnforceNotMet: a trainer never comes; a RuntimeError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (fluid's arguments)
        self,
        use_cuda: bool,
        loss_name: Any = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            raise FluidTypeError(f"share_vars_from must be a ParallelExecutor, got {type(share_vars_from).__name__}")
        share = share_vars_from._runner if share_vars_from else None
        self._scope = scope or global_scope()
        program = default_main_program() if main_program is None else main_program
        if not isinstance(program, Program):
            raise FluidTypeError(f"main_program must be a Program, got {type(program).__name__}")
        places = default_places(use_cuda)
        # The strategy carries them to the runner; one that was given is changed, as in the original.
        if num_trainers != 1:
            build_strategy = build_strategy or BuildStrategy()
            build_strategy.num_trainers, build_strategy.trainer_id = num_trainers, trainer_id
        self._runner: DataParallel = DataParallel(program, places, loss_name, build_strategy, exec_strategy, share)

    def run(self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True) -> list[Any]:
        """Run one step; all ops run, whatever is fetched.

        Args:
            fetch_list: variables or names.
            feed: a dict of name -> batch, split over the devices, the remainder to the later ones; or a list with a
                dict for each device.
            feed_dict: the old name of feed.
            return_numpy: arrays; otherwise LoDTensors.

        Returns:
            For every entry of fetch_list the devices' values joined along axis 0: a scalar on 2 devices is [2].

        Raises:
            FluidValueError: a list of another length, neither dict nor list, fewer samples than devices, an unknown or
                missing name, or a shape that does not fit; a ValueError.
            FluidTypeError: an element of the list is no dict, or a wrong element type; a TypeError.
        """
        if feed is None and feed_dict is not None:
            warnings.warn("feed_dict is deprecated, use feed", DeprecationWarning, stacklevel=2)
            feed = feed_dict
        return self._runner.run(self._scope, feed, fetch_list, return_numpy)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self._runner.places)

    def drop_local_exe_scopes(self) -> None:
        """Free temporaries now; the next run makes them again."""
        self._scope.root().drop_temporaries(self._runner.program, self._runner.setting.key)
