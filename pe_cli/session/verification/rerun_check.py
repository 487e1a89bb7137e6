"""Trains a recorded run again and compares every recorded value, without writing to the run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import checkpoint, strict_json
from pe_cli.io.regular_files import open_regular
from pe_cli.io.run_folder import RunFolder, State
from pe_cli.io.tensors import data_error, read_npz
from pe_cli.program.ir import Operator
from pe_cli.session.job import Job
from pe_cli.session.observer import Observer
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.kept_outputs import Outputs, files_of
from pe_cli.session.training.resume import Resume, read
from pe_cli.session.training.run_writer import RunWriter
from pe_cli.session.training.state import Progress

#: Keys of a line of metrics that say which it is.
_PLACE = ("step", "epoch", "split")


@dataclass(frozen=True)
class Difference:
    """The first value that is not what was recorded.

    Args:
        step: steps done then.
        what: names the value.
        op: that computes it; empty where none does.
        before, now: of the element.
    """

    step: int
    what: str
    op: str
    before: str
    now: str

    def __str__(self) -> str:
        by = f" ({self.op})" if self.op else ""
        return f"step {self.step}: {self.what}{by} was {self.before}, it is {self.now}"


class DifferentError(Exception):
    """Ends a training whose bits are others.

    Args:
        difference: what was found.
    """

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference

    def told(self, path: Path) -> PeError:
        """Return it as an error of a command that counts on the run being repeated."""
        hint = "pe verify tells what is otherwise here than where it was trained"
        return PeError(f"{path}: it does not come out as it was recorded: {self.difference}", hint=hint, code=ExitCode.DIFFERENT)


@dataclass
class Seen:
    """What was compared: numbers of metrics, checkpoints and their variables, fetched values."""

    numbers: int = 0
    checkpoints: list[int] = field(default_factory=list)
    variables: int = 0
    fetched: int = 0


class RerunCheck(RunWriter):
    """A run writer that writes nothing: it compares what it is given with what a run has recorded.

    Args:
        job: that is trained again.
        folder: of the recorded run, which is not written to.
        fetched: names of the fetches that went to files.
        observer: is told of metrics.
    """

    def __init__(self, job: Job, folder: RunFolder, fetched: Collection[str], observer: Observer) -> None:
        self._job, self._run, self.folder, self._observer = job, job.run, folder, observer
        self._section = self._run.output.checkpoint
        self.at, self.averages = Progress(), Averages()
        self._measures = self._measuring()
        self.seen = Seen()
        self._left = checkpoint.steps(folder.checkpoints) if folder.checkpoints.is_dir() else []
        self._lines: dict[tuple[object, ...], dict[str, object]] = {}
        for line in folder.metrics():
            self._lines[tuple(line.get(key) for key in _PLACE)] = line
        self._names = {name: self._run.fetches[name] for name in fetched}
        self._saved: tuple[int, int, int, bool] | None = None
        self._first = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Nobody is kept out: the run is only read. What is fetched goes to a folder that is gone at the end."""
        with tempfile.TemporaryDirectory(prefix="pe-verify-") as place:
            self._place = RunFolder(Path(place))
            self._place.fetches.mkdir()
            self.outputs = Outputs(self._place, self._names)
            yield

    def open(self, resume: Resume | None) -> None:
        """Begin where it is asked for: at a checkpoint of the run, or anew.

        Raises:
            PeError: DATA, the checkpoint is damaged, or not there.
        """
        if resume is not None:
            assert resume.step is not None, "it is asked for"
            found = read(self.folder, resume.step)
            self._job.release(found.progress.released)
            self._job.values.restore(found.arrays)
            self.at, self.averages = found.progress, found.averages
            self._saved, self._first = self._now(), self.at.step
        self._left = [step for step in self._left if step > self._first]

    def close(self, state: State) -> None:
        """Compare what was fetched."""
        self.outputs.close()
        for name, file in files_of(self._names).items():
            self._compare_fetched(name, self._place.fetches / file, self.folder.fetches / file)

    def abandon(self, why: BaseException) -> None:
        """Nothing is written."""
        self.outputs.abandon()

    def log(self, text: str) -> None:
        """The run is not written to."""

    def watch(self, loss: float) -> None:
        """The run has said it, where there was something to say."""
        self._measures.watch(self.at, loss)

    def newest(self) -> str:
        """Return a clause: a loss that is no number was recorded, too."""
        return f"the run ended so as well where its log says so: {self.folder.log_path}"

    def save_due(self) -> bool:
        """What was saved by the clock is looked at by its step."""
        return False

    # --- comparing ----------------------------------------------------------------------------------------------------

    def write(self, use: str, values: Mapping[str, float]) -> None:
        """Compare metrics with the line that was recorded for this place."""
        if not values:
            return
        here = {"step": self.at.step, "epoch": self.at.epoch, "split": use}
        # Numbers as a file gives them back, which knows no float32.
        given: dict[str, Any] = {**here, **{n: strict_json.loads(strict_json.dumps(v)) for n, v in values.items()}}
        line = self._lines.get(tuple(given[key] for key in _PLACE))
        if line is None:
            # Behind the last line that was recorded nothing is missing: the run ended there.
            if self._lines and self.at.step <= max(int(str(step)) for step, *_ in self._lines):
                self._differ(f"{use}: metrics", "", "not recorded", "recorded")
            return
        for name, value in given.items():
            if line.get(name) != value:
                self._differ(f"{use}/{name}", self._maker(self._job.trained_numbers.get(name, "")), line.get(name), value)
            self.seen.numbers += name not in _PLACE
        self._observer.recorded(self.at.step, self.at.epoch, {f"{use}/{n}": v for n, v in values.items()})

    def check(self) -> None:
        """Compare the variables where the run has a checkpoint of this step.

        Raises:
            PeError: DATA; the checkpoint is damaged, or of another model.
            DifferentError: a bit is another one.
        """
        if self.at.step not in self._left:
            return
        self._left.remove(self.at.step)
        recorded, _ = checkpoint.load(checkpoint.folder_of(self.folder.checkpoints, self.at.step))
        state = self._job.values.state()
        if set(state) != set(recorded):
            raise data_error(f"{self.folder.path}: its checkpoints have other variables than its model")
        for name in _in_order(self._job.built.ops, recorded):
            place = first_difference(recorded[name], state[name])
            if place is not None:
                at = list(place) if place else ""
                self._differ(f"{name}{at}", self._maker(name), recorded[name][place], state[name][place])
            self.seen.variables += 1
        self.seen.checkpoints.append(self.at.step)

    def save(self, best: bool = False) -> None:
        """Nothing is saved: `check` has compared it."""
        self._is_new(best)

    def _compare_fetched(self, name: str, ours: Path, theirs: Path) -> None:
        if not (ours.is_file() and theirs.is_file()):
            return
        before, now = (tables_by_step(p) if p.suffix != ".npz" else arrays_by_step(p, self._first, self.at.step) for p in (theirs, ours))
        for step, value in now.items():
            if step in before and before[step] != value:
                self._differ(f"fetch {name}", self._maker(self._job.variable(name)), "something else", "other values", step)
            self.seen.fetched += step in before

    def _maker(self, variable: str) -> str:
        """Return the type of the op that writes a variable last."""
        return next((op.type for op in reversed(self._job.built.ops) if variable in op.output_names()), "")

    def _differ(self, what: str, op: str, before: object, now: object, step: int | None = None) -> None:
        raise DifferentError(Difference(self.at.step if step is None else step, what, op, _exact(before), _exact(now)))


def _exact(value: object) -> str:
    return repr(value.item()) if isinstance(value, np.generic) else str(value)


def _in_order(ops: Sequence[Operator], names: Collection[str]) -> list[str]:
    """Return names in the order in which ops write them, the others first: what comes first explains the rest."""
    written = [n for op in ops for n in op.output_names() if n in names]
    return list(dict.fromkeys([*(n for n in names if n not in written), *written]))


def first_difference(a: np.ndarray, b: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first element whose bits differ; None where none does, () for arrays of other types."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return ()
    # Bits, and no numbers: a NaN is the same as itself, and -0 is another than 0.
    if a.tobytes() == b.tobytes():
        return None
    size = a.dtype.itemsize
    bits = [np.ascontiguousarray(v).reshape(-1).view(np.uint8).reshape(-1, size) for v in (a, b)]
    flat = int(np.flatnonzero((bits[0] != bits[1]).any(1))[0])
    return tuple(int(i) for i in np.unravel_index(flat, a.shape))


def tables_by_step(path: Path) -> dict[int, bytes]:
    """Return the lines of a table of fetched values, those of each step together.

    Raises:
        PeError: DATA; a line does not begin with a step, or the file is none.
    """
    found: dict[int, bytes] = {}
    csv, number = path.suffix == ".csv", 1
    try:
        with open_regular(path) as lines:
            for number, line in enumerate(lines, 1):
                if csv and number == 1:
                    continue
                step = int(line.partition(b",")[0] if csv else dict(strict_json.loads(line))["step"])  # type: ignore[call-overload]
                found[step] = found.get(step, b"") + line
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise data_error(f"{path}, line {number}: not a row of fetched values: {error}") from None
    return found


def arrays_by_step(path: Path, first: int, last: int) -> dict[int, bytes]:
    """Return the values that an .npz of fetched values holds of the steps after `first`, up to `last`.

    The file has the samples of all steps one behind the other, and does not say where those of a step end. So where steps have
    different numbers of samples and not all steps are asked for, there is one entry of all samples, if the steps that are asked for
    are the last ones; else none.

    Raises:
        PeError: DATA; the file is damaged, or tells no steps.
    """
    rows = read_npz(path)
    if "step" not in rows or not rows["step"].size or not all(v.ndim for v in rows.values()):
        raise data_error(f"{path}: no fetched values of steps")
    steps = rows.pop("step").tolist()
    wanted = [i for i, step in enumerate(steps) if first < step <= last]
    if all(len(v) % len(steps) == 0 for v in rows.values()):
        cut = {i: [slice(len(v) * i // len(steps), len(v) * (i + 1) // len(steps)) for v in rows.values()] for i in wanted}
        return {steps[i]: b"".join(v[part].tobytes() for v, part in zip(rows.values(), cut[i], strict=True)) for i in wanted}
    return {steps[-1]: b"".join(v.tobytes() for v in rows.values())} if len(wanted) == len(steps) else {}
