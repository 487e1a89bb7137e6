"""Fetched values as files: .npz for arrays, .csv for tables, .jsonl for everything that reads lines.

A file appears whole, when its writer is closed. With `append` nothing is lost when the process is killed: a table grows
line by line under its final name, and an .npz gathers in a hidden file beside it (`npz_spool.py`). `position` and `cut` take
both back to where they were at a checkpoint.
"""

from __future__ import annotations

import abc
import contextlib
import csv
import io
import itertools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.io import append_files as growing
from pe_cli.io import atomic, npz_spool, strict_json
from pe_cli.io.tensors import data_error

Values = Mapping[str, np.ndarray]
#: The column that says at which step a row was fetched.
STEP = "step"


def open_writer(path: Path, *, append: bool = False) -> FetchWriter:
    """Open a writer for fetched values; the suffix says which.

    Args:
        path: *.npz, *.csv or *.jsonl; its folder is created where missing.
        append: go on behind what the file holds, tables in place; False replaces it when closed.

    Raises:
        PeError: USAGE, an unknown suffix or a folder that can't be written; DATA, the file to go on with is damaged.
    """
    kinds: dict[str, type[FetchWriter]] = {".npz": _Npz, ".csv": _Csv, ".jsonl": _Jsonl}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise PeError(
            f"cannot write fetches to {path}: unknown suffix '{path.suffix}'",
            hint=did_you_mean(path.suffix, kinds) or f"one of {', '.join(kinds)}",
        )
    atomic.make_folder(path.parent)
    return kind(path, append)


def cut(path: Path, position: Mapping[str, int] | None) -> str:
    """Take a file that is appended to back to an earlier position.

    Args:
        path: as for `open_writer`.
        position: of `FetchWriter.position`; None when there was no writer yet: then the file goes.

    Returns:
        A sentence on what is missing from it, empty when nothing is.

    Raises:
        PeError: USAGE or DEVICE, it can't be written; DATA, it is damaged.
    """
    # An .npz is not appended to: its records lie in a spool beside it until the file is closed.
    npz = path.suffix.lower() == ".npz"
    if position is None:
        for file in (path, npz_spool.path_of(path)) if npz else (path,):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise atomic.write_error(error, file) from None
        return ""
    whole = npz_spool.cut(path, position) if npz else growing.cut(path, position["bytes"])
    return "" if whole else f"{path}: shorter than it was at the checkpoint: earlier values are missing"


class FetchWriter(abc.ABC):
    """Where fetched values go. As a context manager it closes after success and discards after a failure.

    Args:
        path: the file, as the user named it.
        append: whether to go on behind what it holds.
    """

    def __init__(self, path: Path, append: bool) -> None:
        self.path = path
        self.append = append
        self._draft = contextlib.ExitStack()

    @property
    def growing(self) -> Path:
        """The file that an addition goes to."""
        return self.path

    @abc.abstractmethod
    def write(self, step: int, values: Values) -> None:
        """Add the values of one step.

        Args:
            step: number of steps done.
            values: name -> [samples, ...] or a scalar (); one sample among values with more is repeated in tables. Of sequences an array
                of arrays, [samples] of [rows, ...].

        Raises:
            PeError: USAGE, the values don't fit the file's format; DEVICE, the disk is full or failed.
        """

    @abc.abstractmethod
    def position(self) -> dict[str, int]:
        """Return where a file that is appended to ends now, for `cut`."""

    def close(self) -> None:
        """Finish the file; a second call does nothing.

        Raises:
            PeError: DEVICE, the disk is full or failed.
        """
        # `pop_all` empties the stack first, so that a second call finds nothing to do.
        with self._draft.pop_all():
            self._finish()

    def discard(self) -> None:
        """Stop without finishing: an earlier file stays as it was; lines that were appended stay too."""
        # An exception is how a context manager learns that its file is not wanted.
        with contextlib.suppress(_DiscardedError), self._draft.pop_all():
            raise _DiscardedError

    @abc.abstractmethod
    def _finish(self) -> None:
        """Do what is left before the file gets its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _DiscardedError(Exception):
    """Leaves the block of a temporary file, which removes it."""


class _Npz(FetchWriter):
    """Stacks everything along the sample axis; `step` has one element per write. Kept in memory, or with append on disk.

    Of sequences `name` has the rows of all samples, and `name.lengths` how many each has.
    """

    def __init__(self, path: Path, append: bool) -> None:
        super().__init__(path, append)
        self._parts: dict[str, list[np.ndarray]] = {}
        self._first: dict[str, np.ndarray] = {}
        self._spool = npz_spool.Spool(path) if append else None
        if self._spool is not None:
            for record in self._spool.records():
                for name, value in record.items():
                    self._first.setdefault(name, value[:0])
        # Taken now, so that a folder that can't be written is known before the work, not after it.
        self._file: Path | None = self._draft.enter_context(atomic.temporary(path))

    def write(self, step: int, values: Values) -> None:
        _check_names(values)
        samples: dict[str, np.ndarray] = {}
        for name, value in values.items():
            samples[name] = np.concatenate(value) if value.dtype == object else np.atleast_1d(value)
            # Sequences of a batch differ in length: rows are stacked, and lengths stand beside them.
            if value.dtype == object:
                samples[f"{name}.lengths"] = np.array([len(rows) for rows in value], np.int64)
        for name, value in samples.items():
            # Types are fixed by the first write; a later one that differs is refused while its cause is still known.
            first = self._first.setdefault(name, value[:0])
            if (first.dtype, first.shape[1:]) != (value.dtype, value.shape[1:]):
                raise PeError(
                    f"{self.path}: '{name}' was {first.dtype} {_per_sample(first)}, now it is {value.dtype} "
                    f"{_per_sample(value)}: an .npz stacks samples of one shape",
                    hint="write a .jsonl, whose lines may differ",
                )
        record = {STEP: np.array([step], np.int64), **samples}
        if self._spool is not None:
            self._spool.add(record)
            return
        for name, value in record.items():
            # Copied, because fetched arrays may be views of memory that the next step overwrites.
            self._parts.setdefault(name, []).append(value.copy())

    @property
    def growing(self) -> Path:
        return npz_spool.path_of(self.path)

    def position(self) -> dict[str, int]:
        assert self._spool is not None, "only what is appended has a position"
        return self._spool.position()

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        if self._spool is not None:
            for record in self._spool.records():
                for name, value in record.items():
                    self._parts.setdefault(name, []).append(value)
        try:
            # np.savez can't store an array that is called "file".
            with zipfile.ZipFile(file, "w") as archive:
                for name, parts in self._parts.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                        np.lib.format.write_array(stream, np.concatenate(parts), allow_pickle=False)
        except OSError as error:
            wanted = sum(part.nbytes for parts in self._parts.values() for part in parts)
            raise atomic.write_error(error, self.path, wanted=wanted) from None

    def close(self) -> None:
        open_ = self._file is not None
        super().close()
        if self._spool is not None and open_:  # not after a close that failed: then the records are all there is
            self._spool.remove()


class _Table(FetchWriter):
    """Writes the lines of one step at once and keeps none."""

    def __init__(self, path: Path, append: bool) -> None:
        super().__init__(path, append)
        if append:
            self._file = path
            # A line that a killed process left half is removed, or the next line would be joined to it.
            growing.cut_torn_line(path)
        else:
            self._file = self._draft.enter_context(atomic.temporary(path))

    def write(self, step: int, values: Values) -> None:
        _check_names(values)
        samples = _repeated(self.path, {name: np.atleast_1d(value) for name, value in values.items()})
        lines = self._lines(step, samples)
        if lines:
            growing.append_line(self._file, "\n".join(lines), shown=self.path)

    def position(self) -> dict[str, int]:
        return {"bytes": growing.length(self.path)}

    def _finish(self) -> None:
        """Do nothing: every line is written already."""

    @abc.abstractmethod
    def _lines(self, step: int, samples: Values) -> list[str]:
        """Return the lines for values with the same number of samples."""


class _Csv(_Table):
    """One row per sample: step, then `name`, `name[i]`, `name[i][j]` for each element of a sample."""

    def __init__(self, path: Path, append: bool) -> None:
        super().__init__(path, append)
        self._header = _first_line(path) if append else ""

    def _lines(self, step: int, samples: Values) -> list[str]:
        ragged = next((name for name, value in samples.items() if value.dtype == object), None)
        if ragged is not None:
            hint = "write a .jsonl, whose lines may differ, or an .npz"
            raise PeError(f"{self.path}: '{ragged}' has sequences, and samples of a .csv have one length", hint=hint)
        columns = [column for name, value in samples.items() for column in _columns(name, value.shape[1:])]
        header = _csv([[STEP, *columns]])
        body = np.concatenate([_texts(value) for value in samples.values()], axis=1)
        rows = _csv([[str(step), *row] for row in body.tolist()])
        if not self._header:
            self._header = header[0]
            return header + rows
        if self._header != header[0]:
            raise PeError(
                f"{self.path}: its columns are {self._header}, but step {step} has {header[0]}",
                hint="write a .jsonl, whose lines may differ, or another .csv",
            )
        return rows


class _Jsonl(_Table):
    """One JSON object per sample: step and every value; a sample of one element is a plain number."""

    def _lines(self, step: int, samples: Values) -> list[str]:
        # float32 is written in as few digits as read back to the same float32.
        lists = [_shortest(value) for value in samples.values()]
        rows = zip(*lists, strict=True)
        return [strict_json.dumps({STEP: step, **dict(zip(samples, row, strict=True))}) for row in rows]


def _check_names(values: Values) -> None:
    assert values, "nothing to write"
    if STEP in values:
        raise PeError(f"a fetched variable can't be called '{STEP}': that column is the number of the step")


def _per_sample(array: np.ndarray) -> str:
    return f"{list(array.shape[1:])} a sample"


def _repeated(path: Path, samples: dict[str, np.ndarray]) -> Values:
    """Bring all values to one number of samples: means and other single values stand in every row.

    Raises:
        PeError: two values have different numbers of samples.
    """
    counts = {name: len(value) for name, value in samples.items() if len(value) != 1}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
        raise PeError(
            f"{path}: one row per sample needs the same number of samples in every value, but {said}",
            hint="write an .npz, or fetch them into two files",
        )
    rows = next(iter(counts.values()), 1)
    return {name: np.broadcast_to(value, (rows, *value.shape[1:])) for name, value in samples.items()}


def _columns(name: str, shape: tuple[int, ...]) -> list[str]:
    if shape in ((), (1,)):
        return [name]
    indices = itertools.product(*map(range, shape))
    return [name + "".join(f"[{i}]" for i in index) for index in indices]


def _texts(value: np.ndarray) -> np.ndarray:
    """Return [samples, elements] texts with as few digits as read back to the same number; booleans are 0 and 1."""
    flat = value.reshape(len(value), int(np.prod(value.shape[1:])))
    return (flat.astype(np.uint8) if flat.dtype == np.bool_ else flat).astype(np.str_)


def _shortest(value: np.ndarray) -> list[object]:
    """Return nested lists in which a float32 0.1 is 0.1, not 0.10000000149011612; rows of one element are plain numbers."""
    if value.dtype == object:
        return [_shortest(rows) for rows in value]
    value = value.reshape(-1) if value.shape[1:] == (1,) else value
    exact = value.astype(np.str_).astype(np.float64) if value.dtype == np.float32 else value
    result: list[object] = exact.tolist()
    return result


def _csv(rows: list[list[str]]) -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().splitlines()


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        with path.open(encoding="utf-8") as stream:
            return stream.readline().rstrip("\n")
    except (OSError, ValueError) as error:
        raise data_error(f"{path}: can't be continued: {error}") from None
