"""One run, prepared: programs, devices, values and data, as every command uses them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pe_cli.build.build import Built, build, load_and_build
from pe_cli.collectives.protocol import Summing
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.types import Place
from pe_cli.data.fitted_columns import Fitted
from pe_cli.devices.nested_tapes import every_call
from pe_cli.devices.protocol import device
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor, threads_of
from pe_cli.execute.memory.arenas import Arenas
from pe_cli.execute.plan.dynamic_sizes import executor_of
from pe_cli.execute.plan.thread_layout import best_layout
from pe_cli.execute.startup import run_startup
from pe_cli.graph.replicate import shared_variables
from pe_cli.graph.sharded_updates import drawn_values
from pe_cli.kernels.compiler import target
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.language import Kernel
from pe_cli.program.epoch_attributes import count_epochs, epochs_of
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.data.head_classes import counted, counted_into
from pe_cli.session.data.job_data import JobData
from pe_cli.session.device_choice import Resources, check_room, libraries_of
from pe_cli.session.observer import Observer
from pe_cli.session.processes.group_choice import join_group, launched_group
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.processes.sharded_optimizer import divided
from pe_cli.session.training.initial_values import check_frozen, start_of
from pe_cli.session.training.steps_per_epoch import steps_of_epoch
from pe_cli.session.training.variable_values import Values

if TYPE_CHECKING:
    from pe_cli.session.processes.server_training import ServerTraining

Array = np.ndarray[Any, Any]
#: Samples of a step where the run file has no train section.
DEFAULT_BATCH = 64
#: Samples of a smoke run's step, at least; one per device where there are more devices.
SMOKE_BATCH = 8


class Job:
    """A run file, built and ready to be trained, evaluated or asked for predictions.

    Args:
        run: checked.
        observer: is told what happens.
        smoke: steps are small, and data whose files are absent is made up.
        built: its programs, where they are made already.
        places: devices; those that the run file asks for when None.
        group: processes that do this together; this one alone when None.
        fitted: what the columns of the data have learned in training; they learn it from the training rows when None.
    """

    def __init__(
        self,
        run: RunSpec,
        observer: Observer | None = None,
        *,
        smoke: bool = False,
        built: Built | None = None,
        places: Sequence[Place] | None = None,
        group: ProcessGroup | None = None,
        fitted: Fitted | None = None,
    ) -> None:
        target.use(run.executor.instructions)  # before anything compiles
        self.run = run = counted(run) if built is None else run
        self.group = group or ProcessGroup()
        self.observer = observer if observer and self.group.leads else Observer()
        self.smoke = smoke
        self.built: Built = built or build(run.model, run)
        self.served = _served(self.group, self.built, run)
        if self.served is not None:
            self.built = self.served.built
        self.built, self._divided = divided(run, self.built, self.group)
        if places is None:
            samples = run.train.batch_size if run.train else DEFAULT_BATCH
            heaviest = max(self.built.programs, key=lambda p: len(p.top_ops), default=self.built.eval)
            self.resources = self.group.resources(run, partial(best_layout, heaviest, samples))
        else:
            self.resources = Resources(tuple(places), 0, f"{len(places)} {places[0].kind}")
        self.places = self.resources.places
        self.scope = Scope(self.places)
        self._share()
        self.values = self.served.values(self.scope) if self.served is not None else self._values()
        self.data = JobData(self.group.dealt(run), self.built, fitted, smoke=smoke, note=self.note)
        self._notes, self._told = list[str](), set[str]()
        self._log: Callable[[str], None] = self._notes.append
        self._made: list[weakref.ref[Executor]] = []
        self._arenas = Arenas()

    @classmethod
    def open(
        cls,
        path: Path | str,
        overrides: Sequence[str] = (),
        observer: Observer | None = None,
        *,
        smoke: bool = False,
        join: bool = False,
        launched: bool = False,
        fitted: Fitted | None = None,
    ) -> Job:
        """Read a run file and prepare it.

        Args:
            path, overrides: of the run file.
            observer, smoke, fitted: see `Job`.
            join: with the other processes that it asks for.
            launched: with these, where a launcher has started several; none of them is a server.

        Raises:
            PeError: any mistake in it or in its model, all of them in one; or a device that is not there.
        """
        run, built = load_and_build(path, overrides, counted_into)
        group = join_group(run) if join else launched_group(run) if launched else ProcessGroup()
        with group.told():
            return cls(run, observer, smoke=smoke, built=built, group=group, fitted=fitted)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The training programs: one for each phase of a step, in order.

        Raises:
            PeError: the run file says nothing of training.
        """
        if not self.built.phases:
            raise PeError(
                "the run file has no train section",
                at=self.run.at,
                hint="add train: {loss, epochs, batch_size, optimizer}",
            )
        return self.built.programs

    @property
    def program(self) -> Program:
        """The training program of the first phase, which is all of a step where there are no others; errors as of `programs`."""
        return self.programs[0]

    def _share(self) -> None:
        """Tell the scope what all devices use one copy of."""
        for program in self.built.programs or (self.built.eval,):
            self.scope.share(shared_variables(program, self.places, self.run.build_strategy))

    def _values(self) -> Values:
        return Values(self.built, self.scope, self.group, self._divided)

    def note(self, text: str) -> None:
        """Print a remark for users, and write it into the log of the run."""
        self._log(text)
        self.observer.note(text)

    def note_once(self, text: str) -> None:
        """Print a remark that has not been printed before."""
        if text not in self._told:
            self._told.add(text)
            self.note(text)

    def log_to(self, log: Callable[[str], None]) -> None:
        """Write notes with this function, first those that were said before there was a log."""
        for text in self._notes:
            log(text)
        self._log = log

    # --- values -------------------------------------------------------------------------------------------------------

    def initialise(self, *, fresh: bool = True) -> bool:
        """Run the startup program: initial values on every device; then take those that `train.init` names.

        Args:
            fresh: no checkpoint will be loaded over them.

        Returns:
            Whether there were others than the startup program's.

        Raises:
            PeError: see `read_start` and `check_frozen`.
        """
        if device(self.places[0].kind).is_host:
            check_room(sum(v.type.nbytes for v in self.built.startup.persistables()))
        threads = threads_of(self.resources.execution(self.run.exec_strategy), self.places)
        run_startup(self.built.startup, self.scope, self.run.executor.seed, self.observer.compiling, threads)
        return fresh and self.run.train is not None and self._start(self.run.train)

    def _start(self, section: TrainSection) -> bool:
        taken: Collection[str] = ()
        if section.init is not None:
            start = start_of(section.init, self.run.path.parent, self.built)
            for name, value in start.values.items():
                self.values.put(name, value)
            for line in start.lines():
                self.note(line)
            taken = start.values
        drawn = drawn_values(self.built.startup) - self.built.waiting.keys()
        frozen = [p.name for p in self.built.eval.parameters() if not p.trainable and p.name in drawn]
        said = "init" if section.init else "adapt" if section.adapt else "groups"
        whole = said != "groups" or (section.by_depth is not None and section.by_depth.freeze > 0)
        by_config = frozen if whole else [name for name in frozen if name in self.built.groups]
        check_frozen(by_config, taken, self.run.at_of("train", said))
        return section.init is not None

    def share(self) -> None:
        """Give servers, where there are some, the values that training begins with."""
        self.values.share()

    def release(self, times: Collection[str], *, kept: bool = True) -> None:
        """Go on with the programs that train what was frozen until some times; values that are there stay.

        Args:
            times: that have come; those of the programs so far are among them.
            kept: also those that processes divide, which they then divide anew, all at once; not where a checkpoint's come over them.
        """
        if not any(str(period) in times for period in self.built.waiting.values()):
            return
        waiting = set(self.built.waiting)
        made, division = divided(self.run, build(self.run.model, self.run, times), self.group)
        anew = [name for name in self.scope if name in self._divided.rows or name in division.rows]
        before = {name: self.values.get(name) for name in anew} if kept else {}
        self.scope.forget(anew)
        self.built, self._divided = made, division
        self.data.built = made
        self.values = self._values()
        startup = self.built.startup
        fresh = [v.name for v in startup.persistables() if v.name not in self.scope]
        if fresh:
            first = Scope([Place("cpu", 0)])
            run_startup(prune(startup, fresh), first, self.run.executor.seed, self.observer.compiling)
            self._share()
            self.scope.allocate({name: first.type(name) for name in fresh})
            for name in fresh:
                self.scope.set(name, first.get(name))
        for name, value in before.items():
            self.values.put(name, value)
        for name, parameter in self.built.follows.items():
            if parameter in waiting - self.built.waiting.keys():
                self.values.copy(parameter, name)

    def allocate(self) -> None:
        """Make room for the values that evaluation needs, where they are loaded and not initialised."""
        self.scope.allocate({v.name: self._divided.mine(v.name, v.type, self.group.rank) for v in self.built.eval.persistables()})

    @property
    def step_size(self) -> int:
        """Samples of a training step: of all parts of all its batches."""
        return self.batch_size * self.shares

    @property
    def shares(self) -> int:
        """Pieces of `batch_size` samples that a training step is made of: parts that are accumulated, of every batch of its phases."""
        return (self.run.train.accumulate if self.run.train else 1) * self.built.batches

    @property
    def batch_size(self) -> int:
        """Samples of a batch, over all devices."""
        wanted = self.run.train.batch_size if self.run.train else DEFAULT_BATCH
        return min(wanted, max(SMOKE_BATCH, len(self.places))) if self.smoke else wanted

    # --- programs -----------------------------------------------------------------------------------------------------

    def executor(self, program: Program, *, alone: bool = True) -> Executor:
        """Return an executor of a program over this run's devices and values.

        Args:
            program: training, evaluation or a part of one.
            alone: its steps never run at the same time as those of other executors made so: these share memory for temporaries.
        """
        if program in self.built.programs:
            self.count_epochs()
        if self.served is not None and program in (self.built.train, self.built.eval):
            served = self.served.executor(program, self.scope, partial(self._executor, alone=alone), self.data.constants())
            return cast("Executor", served)  # it does what training and evaluation ask of executors
        return self._executor(program, alone=alone, peers=self.group.sums)

    def _executor(
        self, program: Program, levels: Mapping[str, int] | None = None, *, alone: bool = True, peers: Summing | None = None,
        seed: int | None = None,
    ) -> Executor:  # fmt: skip
        wishes = self.run.executor
        made = executor_of(
            program,
            self.scope,
            build=self.run.build_strategy,
            execution=self.resources.execution(self.run.exec_strategy),
            seed=wishes.seed if seed is None else seed,
            progress=self.observer.compiling,
            watchdog=wishes.watchdog,
            check_nan_inf=wishes.check_nan_inf,
            constants=self.data.constants(),
            levels=levels,
            peers=peers,
            arenas=self._arenas if alone else None,
            precision=wishes.precision,
            libraries=libraries_of(self.places[0].kind, wishes.libraries),
            deterministic=wishes.deterministic,
            sharded=self._divided.parameters,
        )
        self._made.append(weakref.ref(made))
        return made

    def count_epochs(self) -> bool:
        """Turn what training programs have in epochs into their updates, and return whether they had any; opens the training data then.

        Raises:
            PeError: it is not known how many steps an epoch has, or the numbers do not fit together.
        """
        found = [epochs for program in self.programs for epochs in epochs_of(program)]
        # Steps are counted before the first plan is made, because attributes of ops depend on them.
        if found:
            steps = steps_of_epoch(self, found[0].at)
            for phase in self.built.phases:
                count_epochs(phase.program, steps * phase.repeat)
            if self.served is not None:  # without phases
                self.served.count_epochs(steps)
        return bool(found)

    def kernels(self) -> dict[str, str]:
        """Return the kernels of all plans and the calls of libraries, each with the hash of all that it is made of."""
        found: dict[str, str] = {}
        for executor in (e for ref in self._made if (e := ref()) is not None):
            for plan in executor.all_plans():
                found.update(plan.step.chosen)
                for c in every_call([call for task in plan.tasks for call in task.calls]):
                    if isinstance(c.kernel, Kernel):
                        instance = Instance(c.kernel, c.dtype, c.second)
                        found[instance.line] = instance.key
        return dict(sorted(found.items()))

    def variable(self, name: str) -> str:
        """Return the variable that a name of the files stands for.

        Raises:
            PeError: there is none.
        """
        found = self.built.fetches.get(name, name)
        known = self.built.eval.vars
        if found not in known:
            named = ", ".join(self.built.fetches)
            hint = did_you_mean(name, known) or f"the model's fetches are {named or 'none'}; pe check CONFIG lists all variables"
            raise PeError(f"there is no variable '{name}'", hint=hint)
        return found

    def outputs(self) -> list[str]:
        """Return the variables of the model's fetches that have a value for every sample.

        Raises:
            PeError: there is none.
        """
        program = self.built.eval
        found = [v for v in dict.fromkeys(self.built.fetches.values()) if program.var(v).shape[:1] == (-1,)]
        if not found:
            raise PeError("no fetch of the model has a value for every sample", hint="name variables with --fetch")
        return found

    def numbers(self, program: Program) -> dict[str, str]:
        """Return what is averaged as metrics, name as written -> variable.

        That is the losses, the model's fetches and the run's, where they are one float per step; in training the learning rate too. Of
        what several phases have, a phase's program gives what `Built.phase_of` says.
        """
        wanted = {**self.built.losses, **self.built.fetches}
        phase = next((phase for phase in self.built.phases if phase.program is program), None)
        if phase is not None:
            wanted = {name: variable for name, variable in wanted.items() if self.built.phase_of(variable) is phase}
            wanted |= {name: variable for name, variable in phase.recorded.items() if name not in wanted}
        found = {}
        for name, variable in wanted.items():
            v = program.find_var(variable)
            if v is not None and v.type.size == 1 and v.dtype.startswith("float"):
                found[name] = variable
        return found

    @property
    def trained_numbers(self) -> dict[str, str]:
        """What is averaged as metrics in training, of all phases: name as written -> variable; the losses first."""
        found = {name: variable for program in self.programs for name, variable in self.numbers(program).items()}
        return {name: found[name] for name in sorted(found, key=lambda n: n not in self.built.losses)}


def _served(group: ProcessGroup, built: Built, run: RunSpec) -> ServerTraining | None:
    """Return what stands between a trainer and its servers; None where there are none."""
    if not run.has_servers:
        return None
    from pe_cli.session.processes.server_training import served_of

    return served_of(group, built, run)
