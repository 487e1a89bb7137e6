"""Evaluation and prediction: the programs of a job are run over a split of its data, and what they give is gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.execute.executor import Executor
from pe_cli.graph.lod_resolution import resolve
from pe_cli.metrics.collection import Collector
from pe_cli.metrics.define import Declared
from pe_cli.ops.define.status import OutOfRangeError
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.data.row_locator import RowPlace as Origin
from pe_cli.session.data.row_locator import locate_row
from pe_cli.session.evaluation.decision_thresholds import Counts, Decider
from pe_cli.session.evaluation.joined import how_joined
from pe_cli.session.evaluation.unbatching import SequenceEnds, unbatch
from pe_cli.session.processes.batch_shares import share_of
from pe_cli.session.training.averages import Averages

if TYPE_CHECKING:
    from pe_cli.session.job import Job

Array = np.ndarray[Any, Any]


class Evaluator:
    """Runs a job's evaluation over its data.

    Args:
        job: whose programs, values and data it uses.

    Attributes:
        decider: of the newest evaluation, where the run file decides something.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.decider: Decider | None = None
        self._executor: Executor | None = None
        self._program: Program | None = None

    def evaluate(
        self, split: str = "eval", *, limit: int | None = None, stop: Callable[[], bool] = lambda: False, deciding: bool = False
    ) -> dict[str, float] | None:
        """Run the evaluation program over a split and return the mean of every number, weighted by what it is taken over, and the metrics.

        Args:
            split: of the run file's data.
            limit: batches at most; all when None.
            stop: asked after every batch; True leaves early, and there is no result.
            deciding: choose by these rows what the run file decides, and keep it with what the columns have learned.

        Raises:
            PeError: DATA, a metric cannot be computed of the values; USAGE, it would keep more of them than it may.
        """
        with self.job.values.averaged():
            return self._evaluate(split, limit, stop, deciding)

    def _evaluate(self, split: str, limit: int | None, stop: Callable[[], bool], deciding: bool) -> dict[str, float] | None:
        program = self.job.built.eval
        if self._executor is None or self._program is not program:  # processes may divide its parameters anew with other programs
            self._executor, self._program = self.job.executor(program), program
        executor = self._executor
        names = self.job.numbers(program)
        totals, collector = Averages(), self.collector(split, limit)
        decider = self._decider(split)
        read_by_all = dict.fromkeys([*collector.variables, *(decider.variables if decider else ())])
        # What is fed is taken from the batch itself; only what ops make is fetched.
        fed = [v for v in read_by_all if program.var(v).is_data]
        gathered = [v for v in read_by_all if v not in fed]
        fetches = list(dict.fromkeys([*names.values(), *gathered]))
        # What metrics alone read is loaded with the batch, and not given to the program, which has no variable for it.
        unread = set(fed) - self.job.data.types([program]).keys()
        share = share_of(self.job.group, len(self.job.places))
        loader = self.job.data.loader(split, program, self.job.batch_size, shuffle=False, also=fed, share=share)
        for i, feed in enumerate(loader.epoch(0)):
            if limit is not None and i >= limit:
                break
            read = {name: a for name, a in feed.items() if name not in unread} if unread else feed
            try:
                ran = executor.run(read, fetches, i, loader.size_of(i) if share else None)  # i: batches draw other noise
                found = self.job.group.joined(ran, list(names.values()))
            except OutOfRangeError as error:
                locate_row(error, feed, Origin(loader, 0, i, None if self.job.data.made_up(split) else self.job.run.data.get(split)))
                raise
            for name, variable in names.items():
                totals.add(name, *found.number(variable))
            values = self.job.group.whole({v: feed[v] for v in fed}) | {v: found.merged(v, "concat") for v in gathered}
            collector.add(values)
            if decider is not None:
                decider.add(values)
            if stop():
                return None
        self.decider = decider
        decided = decider.decide() if decider is not None and deciding else {}
        return decided | totals.take(names) | collector.results()

    def decided(self) -> list[str]:
        """Return sentences on what is decided, and on what that does to the rows of the newest evaluation."""
        decision = self.job.data.fitted.decision
        return [] if decision is None or self.decider is None else self.decider.told(decision)

    def counts(self) -> list[Counts]:
        """Return what the thresholds that were chosen in training do to the rows of the newest evaluation."""
        decision = self.job.data.fitted.decision
        return [] if decision is None or self.decider is None else self.decider.counts(decision)

    def _decider(self, split: str) -> Decider | None:
        """Return what decides on the rows of a split; None where nothing is to be decided, or where a smoke run makes its data up."""
        wanted = self.job.built.deciding
        return None if wanted is None or self.job.data.made_up(split) else Decider(self.job, wanted, split)

    def collector(self, split: str, limit: int | None = None) -> Collector:
        """Return the collector of metric values over a split, limited to a number of batches.

        Raises:
            PeError: USAGE, they would take more memory than they may.
        """
        made = Collector(self._metrics(split), self.job.note_once)
        if not made.variables:
            return made
        model, sequences = self.job.built.eval, resolve(self.job.built.eval).lods
        rows = len(self.job.data.fed(split)) if limit is None else min(len(self.job.data.fed(split)), limit * self.job.batch_size)
        # Values with sequences are left out: how many rows they have is known only when they are there.
        made.expect({name: model.var(name).type for name in made.variables if name not in sequences}, rows)
        return made

    def _metrics(self, split: str) -> Sequence[Declared]:
        """Return the metrics of a split; none where a smoke run makes its data up, as numbers at random are no labels."""
        if self.job.built.metrics and self.job.data.made_up(split):
            self.job.note_once(f"metrics of data.{split} are left out: it is made up")
            return ()
        return self.job.built.metrics

    def predict(self, split: str, fetches: Sequence[str], *, limit: int | None = None) -> Iterator[dict[str, Array]]:
        """Yield the values of variables for each batch of a split, samples on axis 0; those with sequences as an array of arrays of rows.

        Only what the variables need is run, so labels are not asked for where nothing needs them. Feeds are variables too.

        Raises:
            PeError: there is no such variable, it is a parameter, which has no value per sample, or has sequences of sequences.
        """
        variables = {name: self.job.variable(name) for name in fetches}
        model = self.job.built.eval
        for name, variable in variables.items():
            if model.var(variable).persistable:
                raise PeError(f"'{name}' is a parameter, which samples do not change", hint="it is in the checkpoint")
        fed = [v for v in dict.fromkeys(variables.values()) if model.var(v).is_data]
        wanted = [v for v in dict.fromkeys(variables.values()) if v not in fed]
        hows = {v: how_joined(v, model.var(v).shape) for v in wanted}
        program = prune(self.job.built.eval, wanted)
        executor, share = self.job.executor(program), share_of(self.job.group, len(self.job.places))
        loader = self.job.data.loader(split, program, self.job.batch_size, shuffle=False, also=fed, share=share)
        means, ends = [v for v in wanted if hows[v] == "mean"], SequenceEnds(self.job, executor, variables)
        for i, feed in enumerate(loader.epoch(0)):
            if limit is not None and i >= limit:
                return
            found = self.job.group.whole({v: feed[v] for v in fed})
            if wanted:
                read = {name: a for name, a in feed.items() if name in executor.program.vars}
                ran = executor.run(read, wanted, i, loader.size_of(i) if share else None)
                result = self.job.group.joined(ran, means)
                found |= {v: result.last(v) if v in result.means else result.merged(v, hows[v]) for v in wanted}
            lengths = self.job.group.whole(ends.lengths(feed))
            found |= {v: unbatch(found[v], rows) for v, rows in lengths.items()}
            yield {name: found[variable] for name, variable in variables.items()}
