"""Exports the data's side of a model: from raw columns to feeds, and from outputs to names and units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pe_cli import __version__
from pe_cli.config.nodes import to_data
from pe_cli.core.encoding import (
    TEXT,
    Affine,
    Around,
    Cast,
    Exponential,
    Fed,
    HyperbolicSine,
    Lane,
    Names,
    Source,
    Step,
    Told,
)
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.array_dataset import is_table
from pe_cli.data.column_usage import ColumnUsage
from pe_cli.data.dataset import field_dtype
from pe_cli.data.feed import Feed, check_feed
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.data.raw_cells import MISSING
from pe_cli.program.prune import prune
from pe_cli.session.evaluation.decision_steps import told_of
from pe_cli.session.evaluation.output_meaning import Answer, answers
from pe_cli.session.job import Job

#: What is said where the data has to be there and is not.
_HINT = "bring the data back, or write the model alone with --raw"


class Exporting:
    """What stands around a model.

    Args:
        job: with the values of a checkpoint and what its columns have learned.
        targets: variables that are the model's outputs.
    """

    def __init__(self, job: Job, targets: Sequence[str]) -> None:
        self.job, self.targets = job, list(targets)
        program = job.built.eval
        read = prune(job.built.eval, self.targets).vars
        self.feeds = [name for name, v in read.items() if v.is_data and name in job.built.feeds]
        self._types = {name: TensorType(program.var(name).shape[1:], program.var(name).dtype) for name in self.feeds}
        self._kinds: dict[str, tuple[str, TensorType]] = {}

    # --- what --raw leaves out ------------------------------------------------------------------------------------------

    def left_out(self) -> list[str]:
        """Return what the model alone does not do, a phrase each."""
        found = []
        for name in self.feeds:
            section, want = self.job.run.feeds.get(name), self.job.data.sources.get(name)
            said = []
            if section is not None:
                plain = Feed("")
                given = {key: getattr(section, key) for key in ("scale", "shift", "one_hot", "reshape", "dtype")}
                said += [f"{key} {value}" for key, value in given.items() if value != getattr(plain, key)]
            columns = [self.job.data.fitted.columns[n] for n in (want.names if want else ()) if n in self.job.data.fitted.columns]
            said += [f"{column.type} {column.name}" for column in columns]
            if said:
                found.append(f"{name} ({', '.join(said)})")
        told = [answer for answer in self._answers() if answer.column is not None]
        return found + [f"{'classes' if answer.classes else 'units'} of {answer.variable}" for answer in told]

    # --- the data's side -------------------------------------------------------------------------------------------------

    def around(self, checkpoint: str) -> Around:
        """Return the data's side.

        Args:
            checkpoint: where the values come from, for the model's metadata.

        Raises:
            PeError: the data has to be looked into, and is not there; or a feed does not fit it.
        """
        if not self.job.data.prepared.given:
            self._with_hint(self._fit)
        valued = [name for name in self.feeds if name not in self.job.data.sources]
        constants = {name: value for name, value in (self.job.data.constants() if valued else {}).items() if name in valued}
        fed = {name: self._fed(name) for name in self.feeds if name in self.job.data.sources}
        outputs = self._outputs()
        return Around(fed, outputs, constants, self._missing(), self._facts(fed, outputs, checkpoint))

    def _fit(self) -> None:
        """Fit the columns on the training rows, where the values come without fitted columns."""
        prepared = self.job.data.prepared
        if "train" in self.job.run.data and (prepared.wishes.columns or is_table(prepared.sources.opened("train"))):
            prepared.fit()

    @staticmethod
    def _with_hint(read: Callable[[], Any]) -> Any:
        """Return what a function reads from the data; where that fails, say that a model alone needs none."""
        try:
            return read()
        except PeError as error:
            if error.code == ExitCode.DATA:
                error.hint = _HINT
            raise

    def _fed(self, name: str) -> Fed:
        """Return how a feed is made."""
        want, target = self.job.data.sources[name], self._types[name]
        feed = self.job.data.feed(name)
        lanes = [lane for column in want.names for lane in self._lanes(column, name, want)]
        dtypes = [lane.kind.dtype for lane in lanes]
        joined = dtypes[0] if len(set(dtypes)) == 1 else "float64" if "float64" in dtypes else "float32"
        shape = lanes[0].kind.shape
        if len(lanes) > 1:
            shape = (*shape[:-1], sum(lane.kind.shape[-1] for lane in lanes))
        conversion = check_feed(name, feed, {feed.from_: TensorType(shape, joined)}, target)
        return Fed(tuple(lanes), joined, conversion.steps())

    def _lanes(self, column: str, feed: str, want: ColumnUsage) -> tuple[Lane, ...]:
        """Return what a column of a feed is made of."""
        found = self.job.data.fitted.columns.get(column)
        plain = len(want.names) == 1 and replace(self.job.data.feed(feed), from_="") == Feed("")
        target = self._types[feed]
        if found is None:
            return (Lane(Source(column, self._field_type(column), "as in the file")),)
        # a number by itself that fills a feed of more is an array in every sample
        wide = found.type == "number" and len(want.names) == 1 and target.size != 1 and self.job.data.feed(feed).one_hot is None
        array = self._field_type(found.sources[0]) if wide else None
        lanes = found.lanes(array)
        if lanes is not None:
            return tuple(self._apart(lane) for lane in lanes)
        if not plain:
            raise PeError(
                f"feed '{feed}' changes column '{column}', and ONNX cannot say how type {found.type} is encoded",
                at=want.at,
                hint="write the model alone with --raw",
            )
        said = f"column '{column}', encoded as pe's type {found.type} does it"
        return (Lane(Source(column, target, said, raw=False)),)

    def _apart(self, lane: Lane) -> Lane:
        """Return a value under another name, where its own is taken: the column is read as another type elsewhere, too."""
        source = lane.source
        known = (source.column, source.kind)
        name = "text" if source.kind.dtype == TEXT else source.kind.dtype
        while self._kinds.setdefault(source.name, known) != known:
            source = replace(source, part=f"{lane.source.part}.{name}" if lane.source.part else name)
            name += "_"
        return replace(lane, source=source)

    def _field_type(self, name: str) -> TensorType:
        """Return the type of a sample of a field that holds arrays; the data is opened for that."""
        use = next((use for use in ("train", "eval", "test", "predict") if use in self.job.run.data), None)
        opened = None if use is None else self._with_hint(lambda: self.job.data.prepared.sources.opened(use))
        if opened is not None and not is_table(opened) and name in opened.fields:
            kind: TensorType = opened.fields[name]
            return kind
        array = opened.cells(name).array() if opened is not None and is_table(opened) and name in opened.names else None
        dtype = None if array is None else field_dtype(array.dtype)
        if array is None or dtype is None:
            raise PeError(f"the data has no field '{name}'", hint=_HINT, code=ExitCode.DATA)
        return TensorType(tuple(int(size) for size in array.shape[1:]), dtype)

    def _missing(self) -> tuple[str, ...]:
        """Return the texts that stand for a missing cell in the training data."""
        spec = self.job.run.data.get("train")
        options: Any = to_data(spec.options) if spec is not None else {}
        table = options.get("table")
        given = options.get("missing", table.get("missing") if isinstance(table, dict) else None)
        return tuple(given) if isinstance(given, list) else () if spec and spec.reader == "csv" else MISSING

    # --- outputs ----------------------------------------------------------------------------------------------------------

    def _answers(self) -> list[Answer]:
        program = self.job.built.eval
        return [answer for answer in answers(self.job, self.targets) if len(program.var(answer.variable).shape) == 2]

    def _outputs(self) -> tuple[Told, ...]:
        meant = {answer.variable: answer for answer in self._answers()}
        found = []
        for target in self.targets:
            answer = meant.get(target)
            units: tuple[Step, ...] = ()
            if answer is not None and answer.column is not None and not answer.classes:
                units = self._units(answer.column, self.job.built.eval.var(target).dtype)
            if answer is None or not answer.classes or answer.lengths or answer.spelled:
                found.append(Told(target, target, units))
                if answer is not None and answer.classes and answer.spelled and not answer.lengths:
                    found.append(Told(f"{target}_label", target, (Names(answer.classes),)))
                continue
            found += told_of(answer, self.job.built.eval)
        return tuple(found)

    @staticmethod
    def _units(column: FittedColumn, dtype: str) -> tuple[Step, ...]:
        steps = column.units()
        return (Cast("float64"), *steps, Cast(dtype)) if steps else ()

    # --- facts -------------------------------------------------------------------------------------------------------------

    def _facts(self, fed: Mapping[str, Fed], outputs: Sequence[Told], checkpoint: str) -> dict[str, str]:
        inputs = {
            source.name: {
                "column": source.column, "dtype": source.kind.dtype, "shape": ["batch", *source.kind.shape], "meaning": source.said,
            }
            for source in (lane.source for made in fed.values() for lane in made.lanes)
        }  # fmt: skip
        classes = {one.name.removesuffix("_label"): list(step.words) for one in outputs for step in one.steps if isinstance(step, Names)}
        classes |= {answer.variable: list(answer.classes) for answer in self._answers() if answer.several}
        read = {name for feed in fed for name in self.job.data.sources[feed].names}
        columns = {
            name: {"type": column.type, "options": dict(column.options)}
            for name, column in self.job.data.fitted.columns.items()
            if name in read or column.target
        }
        facts: dict[str, Any] = {"pe.version": __version__, "pe.checkpoint": checkpoint}
        facts |= {"pe.inputs": inputs, "pe.columns": columns}
        if classes:
            facts["pe.classes"] = classes
        decided = {a.variable: a.decision.to_json() | {"steps": len(a.decision.steps)} for a in self._answers() if a.decision is not None}
        if decided:
            facts["pe.decision"] = decided
        undone = (Affine, Exponential, HyperbolicSine)
        units = {one.name: "of the file" for one in outputs if any(isinstance(step, undone) for step in one.steps)}
        if units:
            facts["pe.units"] = units
        tokenizers = {name: found for name in read if (found := self._tokenizer(name)) is not None}
        if tokenizers:
            facts["pe.tokenizer"] = tokenizers
        return {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in facts.items()}

    def _tokenizer(self, name: str) -> object:
        column = self.job.data.fitted.columns.get(name)
        return None if column is None else column.kind.tokenizer(column.checked, column.state)

    def beside(self, around: Around) -> bytes | None:
        """Return the file beside the model: what columns have learned, where an input is not the cell as it is; else None."""
        if all(lane.source.raw for fed in around.feeds.values() for lane in fed.lanes):
            return None
        names = {name for feed in around.feeds for name in self.job.data.sources[feed].names}
        columns = {name: column for name, column in self.job.data.fitted.columns.items() if name in names}
        value = {key.removeprefix("pe."): _parsed(text) for key, text in around.facts.items()}
        value["columns"] = {
            name: {"type": column.type, "options": dict(column.options), "state": column.state} for name, column in columns.items()
        }
        return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _parsed(text: str) -> object:
    return json.loads(text) if text.startswith("{") else text
