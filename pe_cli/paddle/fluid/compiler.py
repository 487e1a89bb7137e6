"""CompiledProgram, and what it shares with ParallelExecutor: a program run on several devices."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.collectives.protocol import Summing
from pe_cli.core.errors import did_you_mean
from pe_cli.graph.passes import customized_gradient
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import feeding, run_step
from pe_cli.paddle.fluid.feed_shapes import fitted
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.fluid.places import CUDAPlace, core_places, cpu_places, cuda_places
from pe_cli.paddle.fluid.prepared import Setting
from pe_cli.paddle.fluid.reader import next_feed
from pe_cli.paddle.fluid.scope import Places, Scope
from pe_cli.paddle.fluid.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.paddle.fluid.trainers import share_first_values, trainers
from pe_cli.program.ir import Program, Role, Variable


class DataParallel:
    """A program on devices.

    Args:
        program: training or evaluation.
        places: devices.
        loss: variable or name of the loss; needed where the program has gradient ops.
        build: strategy of the graph; frozen here.
        execution: strategy of the schedule; frozen here.
        share: another one, which must have run before, whose variables this one uses.
        checks_loss: one device needs no loss.

    Raises:
        FluidValueError: the loss is missing or unknown, or trainers (`build.num_trainers`) are not those that mpiexec has started; a
            ValueError.
    """

    def __init__(
        self,
        program: Program,
        places: Places,
        loss: Any = None,
        build: BuildStrategy | None = None,
        execution: ExecutionStrategy | None = None,
        share: DataParallel | None = None,
        *,
        checks_loss: bool = True,
    ) -> None:
        self.program = program
        self.places = places
        self.share: DataParallel | None = share
        self.loss = loss_of(program, loss) if checks_loss else None
        build, execution = build or BuildStrategy(), execution or ExecutionStrategy()
        build.freeze()
        execution.freeze()
        self.times = execution.num_iteration_per_run
        # Executors that share variables have the same copies of parameters on their devices, which the key of the first names.
        shared = share.setting.key[1] if share else None
        self.setting: Setting = Setting(
            places, build.core(), execution.core(len(places)), shared=shared, peers=_peers(build)
        )
        self._customized: tuple[int, Program] | None = None
        self.has_run = False
        if build.debug_graphviz_path:
            write_pictures(program, self.setting)

    def run(self, scope: Scope, feed: Any, fetch_list: Any, return_numpy: bool, merge: bool = True) -> list[Any]:
        """Run one step and return one value for every entry of the fetch list.

        Raises:
            FluidValueError: a feed or fetch that does not fit; a ValueError.
            FluidTypeError: a list feed with an element that is no dict, or a wrong element type; a TypeError.
            EnforceNotMet: a variable without a value, or an op fails; a RuntimeError.
        """
        if self.share is not None and not self.share.has_run:
            hint = "run the executor whose variables are shared once before this one"
            raise EnforceNotMet("share_vars_from has not run yet: there are no variables to share", hint=hint)
        # A program without gradients may be fed fewer samples than there are devices; a training step may not, since its gradients are
        # divided by all.
        partial = not run_step.has_backward(self.program)
        given = self._given(feed)
        program = self._fitted(given)
        declared = program if program is not self.program else self._fed_program()
        parts = feeding.parts_of(declared, given, len(self.places), partial=partial)
        wanted = run_step.wanted_of(self.program, fetch_list)
        self._warn_of_copies(scope.root())
        fed = self.setting if len(parts) == len(self.places) else replace(self.setting, places=self.places[: len(parts)])
        # Once, before the first step: processes may have drawn other first values.
        if self.setting.peers is not None and not self.has_run and self.share is None:
            share_first_values(self.setting.peers, self.program, scope.root())
        with raised_as(EnforceNotMet):
            for _ in range(max(1, self.times)):
                # num_iteration_per_run repeats the step with the same feed; the values of the last one are fetched.
                values = run_step.run(program, scope, fed, parts, run_step.names_of(wanted), plain=return_numpy)
        self.has_run = True
        return run_step.in_order(wanted, lambda n: _fetched(n, [v[n] for v in values], return_numpy, merge))

    def _given(self, feed: Any) -> Any:
        """Return what is fed: the next batch of the program's readers where the caller gives none."""
        return next_feed(self.program) if feed is None or (isinstance(feed, dict) and not feed) else feed

    def _fitted(self, feed: Any) -> Program:
        """Return the program with the types that follow from what each device is fed, where variables take any sizes."""
        feeds = feed if isinstance(feed, (list, tuple)) else [feed] if len(self.places) == 1 else []
        if not feeds or not all(isinstance(each, Mapping) for each in feeds) or self.setting.build.gradient_scale_strategy == "Customized":
            return self.program
        made = fitted(self.program, feeds[0])
        # One program is for all devices: those that are fed other sizes are told what it declares.
        return made if all(fitted(self.program, each) is made for each in feeds[1:]) else self.program

    def _fed_program(self) -> Program:
        """Return the program that says what is fed: with a customized scale the loss's gradient is."""
        # Customized: the script feeds the gradient of the loss itself, so the op that fills it with 1 is taken out.
        if self.setting.build.gradient_scale_strategy != "Customized":
            return self.program
        version = getattr(self.program, "version", 0)
        if self._customized is None or self._customized[0] != version:
            self._customized = version, customized_gradient.run(self.program, ())[0]
        return self._customized[1]

    def _warn_of_copies(self, root: Scope) -> None:
        # Remembered at the scope, since the executor that evaluates is another one.
        if run_step.has_backward(self.program):
            root.trained_on = self.setting.key
        elif len(self.places) > 1 and self.share is None and root.trained_on and not self.has_run:
            warnings.warn(
                "this executor evaluates what another one trains, without share_vars_from: its variables follow the "
                "scope here, but in PaddlePaddle only those of device 0 do",
                UserWarning,
                stacklevel=4,
            )


def _peers(build: BuildStrategy) -> Summing | None:
    """Return the trainers of a strategy, None for one.

    Raises:
        FluidValueError: what they cannot do together; a ValueError.
    """
    if build.num_trainers > 1 and build.reduce_strategy == "Reduce":
        raise FluidValueError("num_trainers above 1 needs reduce_strategy AllReduce", hint="Reduce over processes: pe train, of a run file")
    return trainers(build.num_trainers, build.trainer_id)


def loss_of(program: Program, loss: Any) -> str | None:
    """Return the name of the loss: that where gradients start, whatever variable is named, as scripts name one that it is made of.

    Raises:
        FluidValueError: it is missing though the program has gradient ops, or unknown; a ValueError.
    """
    # Gradients start at the ops with the role of the loss.
    starts = [n for op in program.global_block().ops if op.role is Role.LOSS for n in op.input_names()]
    if loss is None:
        if run_step.has_backward(program):
            hint = f"loss_name='{starts[0]}'" if starts else "loss_name=loss.name"
            raise FluidValueError("the program has gradient ops, but loss_name is missing", hint=hint)
        return None
    name = loss.name if isinstance(loss, Variable) else loss
    known = program.global_block().vars
    if not isinstance(name, str) or name not in known:
        raise FluidValueError(f"loss_name: there is no variable {name!r}", hint=did_you_mean(str(name), known))
    if starts and name not in starts:
        warnings.warn(f"loss_name is '{name}', but the program's gradients start at '{starts[0]}', which is taken", stacklevel=3)
        return starts[0]
    return name


def _fetched(name: str, values: Sequence[LoDTensor], return_numpy: bool, merge: bool) -> Any:
    if not merge:
        return [run_step.as_fetched(name, v, return_numpy) for v in values]
    try:
        joined = run_step.merged([v.array for v in values])
    except ValueError:
        shapes = ", ".join(str(v.shape()) for v in values)
        message = f"the devices' values cannot be joined along axis 0: {shapes}"
        raise FluidValueError(message, hint="return_merged=False") from None
    # Level by level, the lengths of all devices one after the other.
    levels = zip(*(v.recursive_sequence_lengths() for v in values), strict=True)
    lengths = [[n for part in level for n in part] for level in levels]
    return run_step.as_fetched(name, LoDTensor(joined, lengths), return_numpy)


def write_pictures(program: Program, setting: Setting) -> None:
    """Write the graph as dot text: as it is, after passes, and over all devices.

    Raises:
        FluidValueError: the folder is not there; a ValueError.
    """
    from pe_cli.graph.compile import Purpose, compile_program
    from pe_cli.graph.dot import to_dot

    rank, size = (setting.peers.rank, setting.peers.size) if setting.peers else (0, 1)
    stages = compile_program(program, Purpose(setting.places, setting.build, size, rank=rank))
    for stage, name in (("original", "ssa"), ("fused", "fused"), ("multi_devices", "multi_device")):
        path = Path(f"{setting.build.debug_graphviz_path}_{stage}_graph")
        try:
            path.write_text(to_dot(stages.stage(name), title=stage), encoding="utf-8")
        except OSError as error:
            raise FluidValueError(f"debug_graphviz_path: {path}: {error.strerror}") from None


def default_places(use_cuda: bool) -> Places:
    """Return all GPUs, or as many CPU devices as CPU_NUM says."""
    return core_places(cuda_places() if use_cuda else cpu_places())


class CompiledProgram:
    """A program with wishes on how its graph is built; `Executor.run` takes it.

    Args:
        program_or_graph: a program.
        build_strategy: default: all defaults.

    Raises:
        FluidTypeError: no program; a TypeError.
    """

    def __init__(self, program_or_graph: Any, build_strategy: BuildStrategy | None = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise FluidTypeError(f"CompiledProgram takes a Program, got {type(program_or_graph).__name__}")
        self._program = program_or_graph
        self._build = build_strategy
        self._execution: ExecutionStrategy | None = None
        self._loss: Any = None
        self._share: CompiledProgram | None = None
        self._given_places: list[Any] | None = None
        self._parallel = False
        self._runner: DataParallel | None = None

    def with_data_parallel(
        self,
        loss_name: Any = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Ask for several devices.

        Args:
            loss_name: needed for training.
            build_strategy: goes before the constructor's.
            exec_strategy: default: all defaults.
            share_vars_from: a training program whose variables an evaluation program uses.
            places: default: by the executor's place all GPUs, or CPU_NUM.

        Returns:
            Itself.

        Raises:
            FluidTypeError: share_vars_from is no data-parallel CompiledProgram; a TypeError.
            FluidValueError: called twice; a ValueError.
        """
        if self._parallel:
            raise FluidValueError("with_data_parallel was called already")
        if share_vars_from is not None and not (
            isinstance(share_vars_from, CompiledProgram) and share_vars_from._parallel
        ):
            kind = type(share_vars_from).__name__
            raise FluidTypeError(f"share_vars_from must be a data-parallel CompiledProgram, got {kind}")
        self._parallel = True
        self._loss, self._execution, self._share = loss_name, exec_strategy, share_vars_from
        self._build = build_strategy or self._build
        if places is not None:
            self._given_places = list(places) if isinstance(places, (list, tuple)) else [places]
        return self

    def with_inference_optimize(self, config: Any = None) -> CompiledProgram:
        """Ask for prediction: what the plan does for every program is all there is to do.

        Returns:
            Itself.

        Raises:
            FluidValueError: with_data_parallel was called; a ValueError.
        """
        if self._parallel:
            raise FluidValueError("a data-parallel program cannot be optimized for inference")
        return self

    def with_servers(self, place: Any) -> Program:
        """Return the program, of a trainer whose parameters are on servers; `Executor.run` runs it on one device.

        Raises:
            FluidValueError: several devices are asked for; a ValueError.
        """
        places = self._given_places or (default_places(isinstance(place, CUDAPlace)) if self._parallel else [place])
        if len(places) != 1:
            message = f"a trainer with parameter servers has one device, and {len(places)} are asked for"
            raise FluidValueError(message, hint="set CPU_NUM=1, and start more trainers")
        return self._program

    def run_on(
        self, place: Any, scope: Scope, feed: Any, fetch_list: Any, return_numpy: bool, merge: bool
    ) -> list[Any]:
        """Run one step; `Executor.run` calls this."""
        if self._runner is None:
            self._runner = self._made(place)
        return self._runner.run(scope, feed, fetch_list, return_numpy, merge)

    def _made(self, place: Any) -> DataParallel:
        if not self._parallel:
            return DataParallel(self._program, core_places([place]), build=self._build, checks_loss=False)
        share = None
        if self._share is not None:
            if self._share._runner is None:
                hint = "run the training program once before this one"
                raise EnforceNotMet("share_vars_from has not run yet: there are no variables to share", hint=hint)
            share = self._share._runner
        places = core_places(self._given_places) if self._given_places else default_places(isinstance(place, CUDAPlace))
        return DataParallel(self._program, places, self._loss, self._build, self._execution, share)


__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]
