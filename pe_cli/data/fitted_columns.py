"""Fitted columns: what they learned from the training rows, saved as `data.json` and, for long lists, in files beside it.

The state of every column, as JSON that people can read. A list of more than `LONG` values lies in a file of its own
(`vocabulary-<column>-<number>.json`), and `{"file": name}` stands in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pe_cli.config.pydantic_messages import wanted
from pe_cli.core import json_reading
from pe_cli.core.encoding import ChannelsFirst, Count, Lane, Reshape, Step
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, State, discover
from pe_cli.metrics.decisions import Decision

FORMAT = 1
NAME, DECISION = "data.json", "decision.json"
#: Values of a list that stay in `data.json`.
LONG = 100
#: Bytes of all files together that are read.
LIMIT = 1 << 30
_SAFE = re.compile(r"[^\w.-]+", re.ASCII)
#: A list of plain values, which is written in one line.
_SHORT = re.compile(r"\[[^\[\]{}\"]*\]")


@dataclass(frozen=True)
class FittedColumn:
    """A column, fitted.

    Args:
        name: in the config.
        type: of it, resolved where it was inferred.
        options: as declared or inferred, without `type`.
        state: what it has learned.
        target: whether the model was taught it.
        inner: the columns that it is made of.
    """

    name: str
    type: str
    options: Mapping[str, Any]
    state: State
    target: bool = False
    inner: tuple[FittedColumn, ...] = ()

    @property
    def kind(self) -> ColumnType[Any]:
        """The column type."""
        return discover()[self.type]

    @cached_property
    def checked(self) -> ColumnOptions:
        """The options, checked."""
        return self.kind.options.model_validate(dict(self.options))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the indices, none for a column without classes."""
        return self.inner[0].classes if len(self.inner) == 1 else self.kind.classes(self.state)

    @property
    def several(self) -> bool:
        """Whether a cell may have any number of its classes."""
        return self.kind.several(self.checked)

    def join(self, names: Sequence[str]) -> str:
        """Return the cell that has some of its classes; see `ColumnType.join`."""
        return self.kind.join(self.checked, names)

    @property
    def counts(self) -> bool:
        """Whether its field says how often each class is in a cell."""
        return self.kind.counts(self.checked)

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns of the table that it reads."""
        inner = [source for column in self.inner for source in column.sources]
        return tuple(dict.fromkeys([*self.kind.sources(self.name, self.checked), *inner]))

    def decode(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn what a model predicts for this column back into the units of the file; see `ColumnType.decode`.

        Raises:
            PeError: the model gives another number of values per row than the column has.
        """
        if not self.inner:
            return self.kind.decode(self.checked, self.state, values)
        if np.size(values) % (len(values) * len(self.inner) or 1):
            raise _error(f"column '{self.name}' has {len(self.inner)} numbers per row, and the model says {np.shape(values)[1:]}", None)
        flat = np.asarray(values).reshape(len(values), -1, len(self.inner))
        decoded = [column.decode(flat[:, :, i : i + 1]) for i, column in enumerate(self.inner)]
        return np.concatenate(decoded, axis=2).reshape(np.shape(values))

    def labels(self, count: int) -> list[str]:
        """Return a name for each predicted number."""
        if self.classes and count == len(self.classes):
            return [f"{self.name}_{name}" for name in self.classes]
        of = [column.name for column in self.inner] or [self.name]
        if count % len(of):
            return [f"{self.name}_{i + 1}" for i in range(count)]
        return of if count == len(of) else [f"{name}_{i + 1}" for i in range(count // len(of)) for name in of]

    def units(self) -> tuple[Step, ...]:
        """Return `decode` of numbers as steps; see `ColumnType.units`."""
        if len(self.inner) == 1:
            return self.inner[0].units()
        return self.kind.units(self.checked, self.state)

    def lanes(self, array: TensorType | None = None) -> tuple[Lane, ...] | None:
        """Return how raw cells become the field, as steps; see `ColumnType.lanes`."""
        if not self.inner:
            return self.kind.lanes(self.name, self.checked, self.state, array)
        found: list[Lane] = []
        for column in self.inner:
            lanes = column.lanes()
            # Steps that change the number of numbers cannot be put side by side.
            if lanes is None or any(isinstance(step, (Count, Reshape, ChannelsFirst)) for lane in lanes for step in lane.steps):
                return None
            found += [_in_rows(lane, self.state["steps"]) for lane in lanes]
        if isinstance(self.options["of"], str) and len(found) == 1 and found[0].kind.shape[1:] == (1,):
            found = [replace(found[0], steps=(*found[0].steps, Reshape(found[0].kind.shape[:1])))]
        return tuple(found)

    def with_inner(self, columns: Mapping[str, FittedColumn]) -> FittedColumn:
        """Return it with the columns that it is made of.

        Raises:
            PeError: DATA; one is not there.
        """
        names = self.kind.made_of(self.checked)
        absent = next((name for name in names if name not in columns or columns[name].inner), None)
        if absent is not None:
            said = f"column '{self.name}' is made of '{absent}', which is none that has learned"
            raise _error(said, "take another checkpoint of the run")
        return replace(self, inner=tuple(columns[name] for name in names))


def _in_rows(lane: Lane, rows: int) -> Lane:
    """Return a lane for several rows of a series at once."""
    source = lane.source
    kind = TensorType((rows, *source.kind.shape), source.kind.dtype)
    return replace(lane, source=replace(source, kind=kind, said=f"{source.said}; {rows} rows, the oldest first"))


@dataclass
class Fitted:
    """What all columns of a run have learned.

    Args:
        columns: by name.
        split: what is kept of the split; see `pe_cli.data.row_split.describe`.
        decision: what was chosen on the evaluation rows, of the newest evaluation.
    """

    columns: dict[str, FittedColumn] = field(default_factory=dict)
    split: Mapping[str, object] | None = None
    decision: Decision | None = None

    def to_files(self) -> dict[str, bytes]:
        """Return the files of a checkpoint's folder: name -> content."""
        files: dict[str, bytes] = {}
        columns = {}
        # Long lists go to files of their own, so that `data.json` stays readable.
        for name, found in self.columns.items():
            state = _moved(found.state, name, files)
            columns[name] = {"type": found.type, "target": found.target, "options": dict(found.options), "state": state}
        value = {"format": FORMAT, "columns": columns, **({"split": self.split} if self.split else {})}
        if self.decision is not None:
            files[DECISION] = _dumps(self.decision.to_json())
        return {NAME: _dumps(value), **files}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], where: str) -> Fitted:
        """Read what `to_files` made.

        Args:
            files: name -> content; untrusted.
            where: folder, for messages.

        Raises:
            PeError: DATA; it is damaged, or not what a run leaves.
        """
        path = f"{where}/{NAME}"
        value = _loads(files.get(NAME, b""), path)
        if not isinstance(value, dict) or value.get("format") != FORMAT or not isinstance(value.get("columns"), dict):
            raise _error(f"{path}: not what a run has learned from its data", "use the version of pe that wrote it")
        columns = {}
        for name, found in value["columns"].items():
            columns[name] = _column(name, found, files, where)
        # Columns that are made of others get them when all are there, as the file has any order.
        columns = {name: column.with_inner(columns) for name, column in columns.items()}
        split = value.get("split")
        return cls(columns, split if isinstance(split, dict) else None, _decision(files, where))


def _decision(files: Mapping[str, bytes], where: str) -> Decision | None:
    """Return the decision that lies beside a checkpoint, which is untrusted."""
    if DECISION not in files:
        return None
    path = f"{where}/{DECISION}"
    try:
        return Decision.from_json(_loads(files[DECISION], path))
    except ValidationError as failure:
        detail = failure.errors(include_url=False)[0]
        said = f"{path}: {'.'.join(map(str, detail['loc']))} {wanted(detail, detail['input'])[0]}"
        raise _error(said, "take another checkpoint of the run") from None


def _moved(value: Any, name: str, files: dict[str, bytes]) -> Any:
    """Return a state with its long lists of texts in files beside."""
    if isinstance(value, dict):
        return {key: _moved(inner, name, files) for key, inner in value.items()}
    if isinstance(value, list) and len(value) > LONG:
        kind = "vocabulary" if isinstance(value[0], str) else "numbers"
        # The number keeps names apart that differ in characters which file names may not have.
        file = f"{kind}-{_SAFE.sub('-', name)[:80]}-{len(files)}.json"
        files[file] = _dumps(value, rows=True)
        return {"file": file}
    return value


def _put_back(value: Any, files: Mapping[str, bytes], where: str) -> Any:
    if isinstance(value, dict) and set(value) == {"file"}:
        name = value["file"]
        if not isinstance(name, str) or name not in files:
            raise _error(f"{where}/{name}: no such file, and {NAME} names it", "copy the whole folder of the checkpoint")
        return _loads(files[name], f"{where}/{name}")
    if isinstance(value, dict):
        return {key: _put_back(inner, files, where) for key, inner in value.items()}
    return value


def _column(name: str, value: Any, files: Mapping[str, bytes], where: str) -> FittedColumn:
    path = f"{where}/{NAME}"
    kinds = discover()
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in kinds:
        kind = value.get("type") if isinstance(value, dict) else value
        raise _error(f"{path}: column '{name}' has no type that is known: {kind!r}", did_you_mean(str(kind), kinds))
    kind = kinds[value["type"]]
    state = _put_back(value.get("state"), files, where)
    options = value.get("options", {})
    try:
        kind.options.model_validate(options)
        if kind.learned is not None:
            # A file may have been edited: what a type learned is checked like an option of a config.
            kind.learned.model_validate(state)
    except ValidationError as failure:
        detail = failure.errors(include_url=False)[0]
        place = ".".join(str(part) for part in detail["loc"])
        said, _ = wanted(detail, detail["input"])
        raise _error(f"{path}: column '{name}': {place} {said}", "take another checkpoint of the run") from None
    if not isinstance(state, dict):
        raise _error(f"{path}: column '{name}' has no state", "take another checkpoint of the run")
    return FittedColumn(name, value["type"], options, state, value.get("target") is True)


def _dumps(value: Any, rows: bool = False) -> bytes:
    if rows:
        return ("[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]\n").encode()
    text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
    return (_SHORT.sub(lambda found: " ".join(found[0].split()), text) + "\n").encode()


def _loads(data: bytes, path: str) -> Any:
    try:
        return json_reading.loads(data)
    except ValueError as error:
        raise _error(f"{path}: not whole JSON: {error}", "take another checkpoint of the run") from None


def _error(message: str, hint: str | None) -> PeError:
    return PeError(message, hint=hint, code=ExitCode.DATA)
