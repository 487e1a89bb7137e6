"""One run, prepared: programs, devices, values and data, as every command uses them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from pe_cli.build.build import Built, build, load_and_build
from pe_cli.build.class_weights import CLASS_WEIGHTS
from pe_cli.collectives.protocol import Communicator
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import Place, TensorType
from pe_cli.data import Dataset, Feed, Loader, open_reader
from pe_cli.data.arrays import is_table
from pe_cli.data.fitted import Fitted
from pe_cli.data.loader import Share
from pe_cli.data.prepare import Prepared, select
from pe_cli.devices.nested import every_call
from pe_cli.devices.scope import Scope
from pe_cli.execute.arenas import Arenas
from pe_cli.execute.executor import Executor, threads_of
from pe_cli.execute.startup import run_startup
from pe_cli.execute.work import best_layout
from pe_cli.graph.replicate import shared_variables
from pe_cli.graph.sequences import declared_levels, resolve
from pe_cli.kernels import target
from pe_cli.kernels.instance import Instance
from pe_cli.kernels.lang import Kernel
from pe_cli.metrics.collect import Collector
from pe_cli.metrics.define import Declared
from pe_cli.ops.define.status import OutOfRangeError
from pe_cli.ops.define.traits import Random
from pe_cli.optim.accumulate import SHARE
from pe_cli.program.epochs import count_epochs, epochs_of
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.averages import Averages
from pe_cli.session.class_weights import class_weights
from pe_cli.session.devices import Resources, check_room
from pe_cli.session.drawing import augmentation, sample_weights
from pe_cli.session.epochs import steps_of_epoch
from pe_cli.session.located import Place as Origin
from pe_cli.session.located import locate
from pe_cli.session.observer import Observer
from pe_cli.session.seats import join_team, launched_team
from pe_cli.session.served import ServedValues, served_of
from pe_cli.session.shares import share_of
from pe_cli.session.sizes import check_sizes
from pe_cli.session.start import check_frozen, read_start
from pe_cli.session.targets import column_uses, labels, sources
from pe_cli.session.team import Team
from pe_cli.session.values import Values

Array = np.ndarray[Any, Any]
#: Samples of the data that a smoke run makes up.
SMOKE_SAMPLES = 256
#: Samples of a step where the run file has no train section.
DEFAULT_BATCH = 64
#: Samples of a smoke run's step, at least; one a device where there are more devices.
SMOKE_BATCH = 8
#: Size of a made-up axis whose size the model leaves open.
SMOKE_LENGTH = 4


class Job:
    """A run file, built and ready to be trained, evaluated or asked for predictions.

    Args:
        run: checked.
        observer: is told what happens.
        smoke: steps are small, and data whose files are absent is made up.
        built: its programs, where they are made already.
        places: devices; those that the run file asks for when None.
        team: processes that do this together; this one alone when None.
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
        team: Team | None = None,
        fitted: Fitted | None = None,
    ) -> None:
        target.use(run.executor.instructions)
        self.run = run
        self.team = team or Team()
        self.observer = observer if observer and self.team.leads else Observer()
        self.smoke = smoke
        self.built: Built = built or build(run.model, run)
        self.served = served_of(self.team, self.built, run)
        if self.served is not None:
            self.built = self.served.built
        if places is None:
            samples = run.train.batch_size if run.train else DEFAULT_BATCH
            heaviest = max(self.built.programs, key=lambda p: len(p.global_block().ops), default=self.built.eval)
            self.resources = self.team.resources(run, partial(best_layout, heaviest, samples))
        else:
            self.resources = Resources(tuple(places), 0, f"{len(places)} {places[0].kind}")
        self.places = self.resources.places
        self.scope = Scope(self.places)
        self._share()
        self.values = self.served.values(self.scope) if self.served is not None else Values(self.built, self.scope, self.team)
        self._datasets: dict[str, Dataset] = {}
        self.sources = sources(run)
        self.prepared = self._prepare(fitted)
        self._class_weights: Array | None = None
        self._made_up: set[str] = set()
        self._notes: list[str] = []
        self._told: set[str] = set()
        self._log: Callable[[str], None] = self._notes.append
        self._sample_rows: dict[str, np.ndarray[Any, Any] | None] = {}
        self._executors: dict[str, Executor] = {}
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
            launched: with these, where a launcher has started several; without servers.

        Raises:
            PeError: any mistake in it or in its model, all of them in one; or a device that is not there.
        """
        run, built = load_and_build(path, overrides)
        team = join_team(run) if join else launched_team(run) if launched else Team()
        with team.told():
            return cls(run, observer, smoke=smoke, built=built, team=team, fitted=fitted)

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

    def note(self, text: str) -> None:
        """Say what users should know: to them, and in the log of the run."""
        self._log(text)
        self.observer.note(text)

    def note_once(self, text: str) -> None:
        """Say what has not been said before."""
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
        if self.places[0].kind == "cpu":
            check_room(sum(v.type.nbytes for v in self.built.startup.list_vars() if v.persistable))
        threads = threads_of(self.resources.execution(self.run.exec_strategy), self.places)
        run_startup(self.built.startup, self.scope, self.run.executor.seed, self.observer.compiling, threads)
        return fresh and self.run.train is not None and self._start(self.run.train)

    def _start(self, section: TrainSection) -> bool:
        taken: Collection[str] = ()
        if section.init is not None:
            types = {v.name: v.type for v in self.built.eval.list_vars() if v.persistable and v.name in self.scope}
            start = read_start(section.init, self.run.path.parent, types)
            for name, value in start.values.items():
                self.scope.set(name, value)
            for line in start.lines():
                self.note(line)
            taken = start.values
        drawn = {n for op in self.built.startup.global_block().ops if op.definition.has(Random) for n in op.output_names()}
        drawn -= self.built.waiting.keys()
        frozen = [p.name for p in self.built.eval.global_block().parameters() if not p.trainable and p.name in drawn]
        by_group = [name for name in frozen if name in self.built.groups]
        check_frozen(frozen if section.init is not None else by_group, taken, self.run.at_of("train", "init" if section.init else "groups"))
        return section.init is not None

    def share(self) -> None:
        """Give servers, where there are some, the values that training begins with."""
        if isinstance(self.values, ServedValues):
            self.values.share()

    def release(self, times: Collection[str]) -> None:
        """Go on with the programs that train what was frozen until some times; values that are there stay.

        Args:
            times: that have come; those of the programs so far are among them.
        """
        if not any(str(period) in times for period in self.built.waiting.values()):
            return
        waiting = set(self.built.waiting)
        self.built = build(self.run.model, self.run, times)
        self.values = Values(self.built, self.scope, self.team)
        startup = self.built.startup
        fresh = [v.name for v in startup.list_vars() if v.persistable and v.name not in self.scope]
        if fresh:
            first = Scope([Place("cpu", 0)])
            run_startup(prune(startup, fresh), first, self.run.executor.seed, self.observer.compiling)
            self._share()
            self.scope.allocate({name: first.type(name) for name in fresh})
            for name in fresh:
                self.scope.set(name, first.get(name))
        for name, parameter in self.built.follows.items():
            if parameter in waiting - self.built.waiting.keys():
                self.scope.set(name, self.scope.get(parameter))

    def allocate(self) -> None:
        """Make room for the values that evaluation needs, where they are loaded and not initialised."""
        self.scope.allocate({v.name: v.type for v in self.built.eval.list_vars() if v.persistable})

    # --- data ---------------------------------------------------------------------------------------------------------

    def _prepare(self, fitted: Fitted | None) -> Prepared:
        types = {name: TensorType(kind.shape[1:], kind.dtype) for name, kind in self.built.feeds.items()}
        uses = column_uses(self.run, types)
        return Prepared(self.run.data, self.run.preparation, self.run.path.parent, uses, fitted, self.note)

    def refit(self, fitted: Fitted) -> None:
        """Use what the columns have learned in an earlier process; only before any data is opened."""
        assert not self._datasets
        self.prepared = self._prepare(fitted)

    @property
    def fitted(self) -> Fitted:
        """What the columns of the data have learned from the training rows.

        Raises:
            PeError: the training rows cannot be read.
        """
        return self.prepared.fitted

    def dataset(self, split: str) -> Dataset:
        """Open the data of a use (train, eval, ...), once.

        Raises:
            PeError: the run file has no such data, or it cannot be read (exit code 3).
        """
        if split not in self._datasets:
            self._datasets[split] = self._open(split)
        return self._datasets[split]

    def _open(self, split: str) -> Dataset:
        spec = self.run.data.get(split)
        if spec is None:
            if self.smoke:
                return self._make_up(split, "the run file has none")
            hint = did_you_mean(split, self.run.data) or f"the run file has {', '.join(self.run.data) or 'none'}"
            raise PeError(f"there is no data '{split}'", at=self.run.at_of("data"), hint=hint)
        try:
            return self.prepared.dataset(split)
        except PeError as error:
            if not self.smoke or error.code != ExitCode.DATA:
                raise
            return self._make_up(split, error.message)

    def made_up(self, split: str) -> bool:
        """Return whether a smoke run makes up the data of a split; opens it."""
        if self.smoke:
            self.dataset(split)
        return split in self._made_up

    def _make_up(self, split: str, why: str) -> Dataset:
        """Return data of the feeds' own names and types; class indices are 0 and 1."""
        self._made_up.add(split)
        self.note(f"data.{split}: made up, because {why}")
        fields: dict[str, Any] = {}
        levels = declared_levels(self.built.eval)
        # several sequences of a sample may have to go together, such as words and their tags: one length fits
        least = SMOKE_LENGTH if sum(map(bool, levels.values())) > 1 else 1
        for name, kind in self._types(self.built.programs or (self.built.eval,)).items():
            shape = [SMOKE_LENGTH if size < 0 else size for size in kind.shape]
            fields[name] = {"shape": shape, "dtype": kind.dtype}
            if kind.dtype in ("int64", "int32"):
                fields[name]["classes"] = 2
            if levels.get(name):
                fields[name]["lengths"] = [least, SMOKE_LENGTH]
        made = open_reader("synthetic", {"samples": SMOKE_SAMPLES, "fields": fields}, self.run.path.parent)
        assert not is_table(made), "the synthetic reader makes arrays"
        return made

    def _types(self, programs: Sequence[Program]) -> dict[str, TensorType]:
        """Return the per-sample types of the feeds that programs read."""
        found: dict[str, TensorType] = {}
        for program in programs:
            read = {n for op in program.global_block().ops for n in op.input_names()}
            data = [v for v in program.list_vars() if v.is_data and v.name in read and not v.type.known]
            found |= {v.name: TensorType(v.shape[1:], v.dtype) for v in data}
        return found

    def fed(self, split: str) -> Dataset:
        """Return the samples of a use with the fields that feeds take; rows that cannot be fed are not among them.

        Raises:
            PeError: see `dataset`.
        """
        dataset = self.dataset(split)
        if split in self._made_up:
            return dataset
        return select(dataset, [want for name, want in self.sources.items() if name in self.built.feeds])

    def constants(self) -> dict[str, Array]:
        """Return the feeds that have a value in the run file, which is the same at every step.

        Raises:
            PeError: a value does not have the shape of its feed; with its place.
        """
        found = {}
        for name, section in self.run.feeds.items():
            if section.value is not None:
                kind = self.built.feeds.get(name, TensorType((1,)))
                value = np.asarray(section.value, kind.numpy)
                try:
                    found[name] = np.broadcast_to(value, kind.shape).copy()
                except ValueError:
                    text = f"feed '{name}' is {kind}, its value has shape {list(value.shape)}"
                    raise PeError(text, at=section.at, hint="one number, or a list of that shape") from None
        made = {v.name: v.type for program in self.built.programs for v in program.list_vars() if v.name in (SHARE, CLASS_WEIGHTS)}
        if SHARE in made:
            found[SHARE] = np.ones(made[SHARE].shape, made[SHARE].numpy)
        if CLASS_WEIGHTS in made:
            kind = made[CLASS_WEIGHTS]
            found[CLASS_WEIGHTS] = self._weights_of_classes(kind.shape[0]).astype(kind.numpy)
        return found

    def _weights_of_classes(self, count: int) -> Array:
        if self._class_weights is None:
            if self.made_up("train"):
                return np.ones((count, 1))
            dataset = select(self.dataset("train"), [self.sources[name] for name in labels(self.run.model) if name in self.sources])
            self._class_weights = class_weights(self.run, dataset, count)
        return self._class_weights

    def feed(self, name: str) -> Feed:
        """Return how a feed of the model is made of its field."""
        return self._feed(name, "")

    def _feed(self, name: str, split: str) -> Feed:
        if split in self._made_up or name not in self.sources:
            return Feed(name)
        source, section = self.sources[name], self.run.feeds.get(name)
        if section is None:
            return Feed(source.field, at=source.at)
        reshape = None if section.reshape is None else tuple(section.reshape)
        return Feed(source.field, section.scale, section.shift, reshape, section.one_hot, section.dtype, section.at, section.places)

    def sample_rows(self, split: str) -> np.ndarray[Any, Any] | None:
        """Return which rows of its table the samples are that were last taken for predictions; None for all of them."""
        return self._sample_rows.get(split)

    def loader(
        self,
        split: str,
        programs: Program | Sequence[Program],
        batch_size: int,
        *,
        shuffle: bool | None = None,
        drop_last: bool = False,
        also: Sequence[str] = (),
        dataset: Dataset | None = None,
        share: Share | None = None,
    ) -> Loader:
        """Return batches of a split, or of a part of it, for the feeds that a program reads, or several do, and for those that are named.

        With shuffle None they are those that training takes: in its order, drawn and augmented as the run file says. Of a batch that
        several processes share, `share` says what this one takes.
        """
        programs = (programs,) if isinstance(programs, Program) else programs
        types = self._types(programs)
        for v in (self.built.eval.global_block().var(name) for name in also):
            types[v.name] = TensorType(v.shape[1:], v.dtype)
        spec = self.run.data.get(split)
        dataset = dataset or self.dataset(split)
        if split not in self._made_up:
            dataset = select(dataset, [self.sources[name] for name in types if name in self.sources])
            self._sample_rows[split] = getattr(dataset, "rows", None)
            for program in programs:
                check_sizes(program, self.sources, self.run.feeds, self.prepared.fitted.columns)
        feeds = {name: self._feed(name, split) for name in types}
        training = split == "train" and shuffle is None and split not in self._made_up
        return Loader(
            dataset,
            feeds,
            types,
            batch_size,
            shuffle=spec.shuffle if spec and shuffle is None else bool(shuffle),
            seed=self.run.executor.seed,
            drop_last=drop_last,
            prefetch=spec.section.prefetch if spec else 2,
            levels=declared_levels(self.built.eval),
            augment=augmentation(self.run, dataset, feeds, types) if training else None,
            weights=sample_weights(self.run, self.prepared, dataset) if training else None,
            share=share,
        )

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
            alone: whether its steps never run beside those of other executors; then it shares memory with those of which that is said, too.
        """
        if program in self.built.programs:
            self.count_epochs()
        if self.served is not None and program in (self.built.train, self.built.eval):
            served = self.served.executor(program, self.scope, self._executor, self.constants())
            return cast("Executor", served)  # it does what training and evaluation ask of executors
        return self._executor(program, alone=alone, peers=self.team.peers)

    def _executor(
        self,
        program: Program,
        levels: Mapping[str, int] | None = None,
        *,
        alone: bool = True,
        peers: Communicator | None = None,
        seed: int | None = None,
    ) -> Executor:
        made = Executor(
            program,
            self.scope,
            build=self.run.build_strategy,
            execution=self.resources.execution(self.run.exec_strategy),
            seed=self.run.executor.seed if seed is None else seed,
            progress=self.observer.compiling,
            watchdog=self.run.executor.watchdog,
            check_nan_inf=self.run.executor.check_nan_inf,
            constants=self.constants(),
            levels=levels,
            peers=peers,
            arenas=self._arenas if alone else None,
        )
        self._made.append(weakref.ref(made))
        return made

    def count_epochs(self) -> bool:
        """Turn what training programs have in epochs into their updates, and return whether they had any; opens the training data then.

        Raises:
            PeError: it is not known how many steps an epoch has, or the numbers do not fit together.
        """
        found = [epochs for program in self.programs for epochs in epochs_of(program)]
        if found:
            steps = steps_of_epoch(self, found[0].at)
            for phase in self.built.phases:
                count_epochs(phase.program, steps * phase.repeat)
        return bool(found)

    def kernels(self) -> dict[str, str]:
        """Return the native kernels of all plans: name and element types -> the hash of all that they were compiled from."""
        found = {}
        for executor in (e for ref in self._made if (e := ref()) is not None):
            for plan in executor.plans.values():
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
        known = self.built.eval.global_block().vars
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
        block = self.built.eval.global_block()
        found = [v for v in dict.fromkeys(self.built.fetches.values()) if block.var(v).shape[:1] == (-1,)]
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
        block = program.global_block()
        found = {}
        for name, variable in wanted.items():
            v = block.vars.get(variable)
            if v is not None and v.type.size == 1 and v.dtype.startswith("float"):
                found[name] = variable
        return found

    @property
    def trained_numbers(self) -> dict[str, str]:
        """What is averaged as metrics in training, of all phases: name as written -> variable; the losses first."""
        found = {name: variable for program in self.programs for name, variable in self.numbers(program).items()}
        return {name: found[name] for name in sorted(found, key=lambda n: n not in self.built.losses)}

    def evaluate(
        self, split: str = "eval", *, limit: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """Run the evaluation program over a split and return the mean of every number, weighted by what it is taken over, and the metrics.

        Args:
            split: of the run file's data.
            limit: batches at most; all when None.
            stop: asked after every batch; True leaves early, and there is no result.

        Raises:
            PeError: DATA, a metric cannot be computed of the values; USAGE, it would keep more of them than it may.
        """
        with self.values.averaged():
            return self._evaluate(split, limit, stop)

    def _evaluate(self, split: str, limit: int | None, stop: Callable[[], bool]) -> dict[str, float] | None:
        program = self.built.eval
        if "eval" not in self._executors:
            self._executors["eval"] = self.executor(program)
        executor = self._executors["eval"]
        names = self.numbers(program)
        totals, collector = Averages(), self.collector(split, limit)
        block = program.global_block()
        fed = [v for v in collector.variables if block.var(v).is_data]
        gathered = [v for v in collector.variables if v not in fed]
        fetches = list(dict.fromkeys([*names.values(), *gathered]))
        unread = set(fed) - self._types([program]).keys()
        share = share_of(self.team, len(self.places))
        loader = self.loader(split, program, self.batch_size, shuffle=False, also=fed, share=share)
        for i, feed in enumerate(loader.epoch(0)):
            if limit is not None and i >= limit:
                break
            read = {name: a for name, a in feed.items() if name not in unread} if unread else feed
            try:
                ran = executor.run(read, fetches, i, loader.size_of(i) if share else None)  # i: batches draw other noise
                found = self.team.joined(ran, list(names.values()))
            except OutOfRangeError as error:
                locate(error, feed, Origin(loader, 0, i, None if self.made_up(split) else self.run.data.get(split)))
                raise
            for name, variable in names.items():
                totals.add(name, *found.number(variable))
            collector.add(self.team.whole({v: feed[v] for v in fed}) | {v: found.merged(v, "concat") for v in gathered})
            if stop():
                return None
        return totals.take(names) | collector.results()

    def collector(self, split: str, limit: int | None = None) -> Collector:
        """Return what gathers the values of the metrics over a split, of so many batches at most.

        Raises:
            PeError: USAGE, they would take more memory than they may.
        """
        made = Collector(self._metrics(split), self.note_once)
        if not made.variables:
            return made
        block, sequences = self.built.eval.global_block(), resolve(self.built.eval).lods
        rows = len(self.fed(split)) if limit is None else min(len(self.fed(split)), limit * self.batch_size)
        made.expect({name: block.var(name).type for name in made.variables if name not in sequences}, rows)
        return made

    def _metrics(self, split: str) -> Sequence[Declared]:
        """Return the metrics of a split; none where a smoke run makes its data up, as numbers at random are no labels."""
        if self.built.metrics and self.made_up(split):
            self.note_once(f"metrics of data.{split} are left out: it is made up")
            return ()
        return self.built.metrics

    def predict(self, split: str, fetches: Sequence[str], *, limit: int | None = None) -> Iterator[dict[str, Array]]:
        """Yield the values of variables for each batch of a split, samples on axis 0.

        Only what the variables need is run, so labels are not asked for where nothing needs them. Feeds are variables too.

        Raises:
            PeError: there is no such variable, it is a parameter, which has no value per sample, or has sequences.
        """
        variables = {name: self.variable(name) for name in fetches}
        block = self.built.eval.global_block()
        for name, variable in variables.items():
            if block.var(variable).persistable:
                raise PeError(f"'{name}' is a parameter, which samples do not change", hint="it is in the checkpoint")
        fed = [v for v in dict.fromkeys(variables.values()) if block.var(v).is_data]
        wanted = [v for v in dict.fromkeys(variables.values()) if v not in fed]
        hows = {v: "concat" if block.var(v).shape[:1] == (-1,) else "mean" for v in wanted}
        program = prune(self.built.eval, wanted)
        lods = resolve(program).lods
        for name, variable in variables.items():
            if variable in lods or variable in declared_levels(self.built.eval):
                hint = "a layer of type sequence_pool makes one row of a sequence"
                raise PeError(f"'{name}' has sequences, and a prediction is one row per sample", hint=hint)
        executor, share = self.executor(program), share_of(self.team, len(self.places))
        loader = self.loader(split, program, self.batch_size, shuffle=False, also=fed, share=share)
        means = [v for v in wanted if hows[v] == "mean"]
        for i, feed in enumerate(loader.epoch(0)):
            if limit is not None and i >= limit:
                return
            found = self.team.whole({v: feed[v] for v in fed})
            if wanted:
                read = {name: a for name, a in feed.items() if name in executor.program.global_block().vars}
                ran = executor.run(read, wanted, i, loader.size_of(i) if share else None)
                result = self.team.joined(ran, means)
                found |= {v: result.last(v) if v in result.means else result.merged(v, hows[v]) for v in wanted}
            yield {name: found[variable] for name, variable in variables.items()}
