"""One run, prepared: programs, devices, values and data, as every command uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.build import Built, build
from pe_cli.config.nodes import to_data
from pe_cli.config.spec import DataSpec, RunSpec
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.data import Dataset, Feed, Loader, open_reader
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor, merge, run_startup
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.averages import Averages
from pe_cli.session.devices import resolve_places
from pe_cli.session.observer import Observer

Array = np.ndarray[Any, Any]
#: Samples of the data that a smoke run makes up.
SMOKE_SAMPLES = 256


class Job:
    """A run file, built and ready to be trained, evaluated or asked for predictions.

    Args:
        run: checked.
        observer: is told what happens.
        smoke: data whose files are absent is made up.
    """

    def __init__(self, run: RunSpec, observer: Observer | None = None, *, smoke: bool = False) -> None:
        self.run = run
        self.observer = observer or Observer()
        self.smoke = smoke
        self.built: Built = build(run.model, run)
        executor = run.executor
        self.places, self.devices = resolve_places(executor.place, executor.devices, executor.at_of("devices"))
        self.scope = Scope(self.places)
        self._datasets: dict[str, Dataset] = {}

    # --- values -------------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Run the startup program: initial values on every device."""
        run_startup(self.built.startup, self.scope, self.run.executor.seed, self.observer.compiling)

    def load(self, arrays: Mapping[str, Array], *, partial: bool = False) -> int:
        """Write values by name and return how many there were.

        Args:
            arrays: from a checkpoint or another file.
            partial: names on either side without a partner are left alone.

        Raises:
            PeError: names or shapes that do not fit (exit code 3).
        """
        known = [name for name in arrays if name in self.scope]
        unknown = [name for name in arrays if name not in self.scope]
        missing = [p.name for p in self.built.train.global_block().parameters() if p.name not in arrays]
        if not partial and missing:
            raise PeError(
                f"the file has no value for {_some(missing)}", code=ExitCode.DATA, hint="it belongs to another model"
            )
        if partial and not known:
            hint = did_you_mean(unknown[0], list(self.scope)) if unknown else None
            raise PeError(
                f"no name in the file is a variable of this model: {_some(unknown)}", code=ExitCode.DATA, hint=hint
            )
        for name in known:
            self.scope.set(name, arrays[name])
        return len(known)

    def state(self) -> dict[str, Array]:
        """Return a copy of every persistable variable."""
        return {name: self.scope.get(name) for name in self.scope}

    # --- data ---------------------------------------------------------------------------------------------------------

    def dataset(self, split: str) -> Dataset:
        """Open the data of a use (train, eval, ...), once.

        Raises:
            PeError: the run file has no such data, or it cannot be read (exit code 3).
        """
        if split not in self._datasets:
            if split not in self.run.data:
                hint = did_you_mean(split, self.run.data) or f"the run file has {', '.join(self.run.data) or 'none'}"
                raise PeError(f"there is no data '{split}'", at=self.run.at_of("data"), hint=hint)
            self._datasets[split] = self._open(self.run.data[split])
        return self._datasets[split]

    def _open(self, spec: DataSpec) -> Dataset:
        options = to_data(spec.options)
        try:
            return open_reader(spec.reader, options, self.run.path.parent, spec.reader_at)
        except PeError as error:
            if not self.smoke or error.code != ExitCode.DATA:
                raise
            self.observer.note(f"data.{spec.name}: made up, because {error.message}")
            return open_reader("synthetic", {"samples": SMOKE_SAMPLES, "fields": self._made_up()}, self.run.path.parent)

    def _made_up(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, kind in self._types(self.built.train).items():
            source = self._feed(name).from_
            fields[source] = {"shape": list(kind.shape), "dtype": kind.dtype}
            if kind.dtype in ("int64", "int32"):
                fields[source]["classes"] = 2
        return fields

    def _types(self, program: Program) -> dict[str, TensorType]:
        """Return the per-sample types of the feeds that a program reads."""
        read = {n for op in program.global_block().ops for n in op.input_names()}
        return {v.name: TensorType(v.shape[1:], v.dtype) for v in program.list_vars() if v.is_data and v.name in read}

    def _feed(self, name: str) -> Feed:
        section = self.run.feeds.get(name)
        if section is None:
            return Feed(name)
        reshape = None if section.reshape is None else tuple(section.reshape)
        return Feed(section.from_, section.scale, section.shift, reshape, section.one_hot, section.dtype, section.at)

    def loader(
        self, split: str, program: Program, batch_size: int, *, shuffle: bool | None = None, drop_last: bool = False
    ) -> Loader:
        """Return batches of a split for the feeds that a program reads."""
        types = self._types(program)
        section = self.run.data[split].section if split in self.run.data else None
        dataset = self.dataset(split)
        return Loader(
            dataset,
            {name: self._feed(name) for name in types},
            types,
            batch_size,
            shuffle=section.shuffle if section and shuffle is None else bool(shuffle),
            seed=self.run.executor.seed,
            drop_last=drop_last,
            prefetch=section.prefetch if section else 2,
        )

    @property
    def batch_size(self) -> int:
        """Samples of a step, over all devices."""
        return self.run.train.batch_size if self.run.train else 64

    # --- programs -----------------------------------------------------------------------------------------------------

    def executor(self, program: Program) -> Executor:
        """Return an executor of a program over this run's devices and values."""
        return Executor(
            program,
            self.scope,
            build=self.run.build_strategy,
            execution=self.run.exec_strategy,
            seed=self.run.executor.seed,
            progress=self.observer.compiling,
        )

    def numbers(self, program: Program) -> list[str]:
        """Return what is averaged as metrics: the loss, the model's fetches and the run's, where they are one float a step."""
        block = program.global_block()
        wanted = [self.built.loss, *self.run.model.fetches, *self.run.fetches]
        found = []
        for name in dict.fromkeys(n for n in wanted if n):
            v = block.vars.get(name)
            if v is not None and v.type.size == 1 and v.dtype.startswith("float"):
                found.append(name)
        return found

    def evaluate(self, split: str = "eval", *, limit: int | None = None) -> dict[str, float]:
        """Run the evaluation program over a split and return the sample-weighted mean of every number.

        Args:
            split: of the run file's data.
            limit: batches at most; all when None.
        """
        program = self.built.eval
        executor = self._kept("eval", program)
        names = self.numbers(program)
        totals = Averages()
        for i, feed in enumerate(self.loader(split, program, self.batch_size, shuffle=False).epoch(0)):
            if limit is not None and i >= limit:
                break
            values, sizes = executor.run(feed, names)
            for name in names:
                totals.add(name, float(merge([v[name] for v in values], sizes, "mean").item()), sum(sizes))  # type: ignore[union-attr]
        return totals.take(names)

    def predict(self, split: str, fetches: Sequence[str], *, limit: int | None = None) -> Iterator[dict[str, Array]]:
        """Yield the values of variables for each batch of a split, samples on axis 0.

        Only what the variables need is run, so labels are not asked for unless they are needed.
        """
        for name in fetches:
            self.built.eval.global_block().var(name)
        program = prune(self.built.eval, fetches)
        executor = self.executor(program)
        for i, feed in enumerate(self.loader(split, program, self.batch_size, shuffle=False).epoch(0)):
            if limit is not None and i >= limit:
                return
            values, sizes = executor.run(feed, fetches)
            out = {}
            for name in fetches:
                whole = self.built.eval.global_block().var(name).shape[:1] == (-1,)
                out[name] = np.asarray(merge([v[name] for v in values], sizes, "concat" if whole else "mean"))
            yield out

    def _kept(self, key: str, program: Program) -> Executor:
        kept: dict[str, Executor] = self.__dict__.setdefault("_executors", {})
        if key not in kept:
            kept[key] = self.executor(program)
        return kept[key]


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{n}'" for n in names[:3])
    return listed + (f" and {len(names) - 3} more" if len(names) > 3 else "")
