"""Spools the arrays of an .npz in a hidden file beside it, so that a killed process loses none.

A record is a line of JSON with the names of its arrays, then each of them in NumPy's own format.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.npy_header import UNREADABLE, read_array
from pe_cli.io import append_files as growing
from pe_cli.io import atomic, strict_json
from pe_cli.io.regular_files import open_regular
from pe_cli.io.tensors import data_error, read_npz

#: Bytes of a record's first line, at most.
_LINE_LIMIT = 1 << 20
Record = Mapping[str, np.ndarray]


def path_of(npz: Path) -> Path:
    """Return where the records of an .npz are gathered."""
    return npz.with_name(f".{npz.name}.spool")


class Spool:
    """The records of an .npz that is not written yet.

    Args:
        npz: the file; where it exists and no records do, they begin with what it holds.
    """

    def __init__(self, npz: Path) -> None:
        self._npz, self._path = npz, path_of(npz)
        if not self._path.exists() and npz.exists():
            _replace(npz, _stacked(npz))
        self._writes, self._samples = 0, 0
        for record in self.records():
            self._count(record)

    def add(self, record: Record) -> None:
        """Add a record.

        Raises:
            PeError: USAGE or DEVICE, it can't be written.
        """
        growing.append_bytes(self._path, _bytes(record), shown=self._npz)
        self._count(record)

    def _count(self, record: Record) -> None:
        self._writes += len(record["step"])
        self._samples += next((len(value) for name, value in record.items() if name != "step"), 0)

    def position(self) -> dict[str, int]:
        """Return where the records end: elements of `step`, and of the other arrays along their first axis."""
        return {"writes": self._writes, "samples": self._samples}

    def records(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the records in order; see `read`."""
        return self.read(self._npz)

    @staticmethod
    def read(npz: Path) -> Iterator[dict[str, np.ndarray]]:
        """Yield the records of an .npz in order.

        Raises:
            PeError: DATA; the file is damaged. DEVICE; there is too little memory.
        """
        path = path_of(npz)
        if not path.exists():
            return
        try:
            with open_regular(path) as stream:
                size = os.fstat(stream.fileno()).st_size
                while line := stream.readline(_LINE_LIMIT):
                    names = strict_json.loads(line)
                    if not isinstance(names, list) or "step" not in names:
                        raise ValueError("a record does not begin with its names")
                    yield {str(n): read_array(stream, size - stream.tell()) for n in names}
        except MemoryError:
            raise PeError(f"{path}: a record does not fit into memory", hint="the file is as it was", code=ExitCode.DEVICE) from None
        except (OSError, *UNREADABLE) as error:
            raise data_error(f"{path}: damaged: {error}", "remove it: earlier fetches are lost with it") from None

    def remove(self) -> None:
        """Remove the records, once the .npz is written.

        Raises:
            PeError: the file cannot be removed (USAGE or DEVICE).
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise atomic.write_error(error, self._path) from None


def cut(npz: Path, position: Mapping[str, int]) -> bool:
    """Take the records back to an earlier position, also where the .npz has been written meanwhile.

    Args:
        npz: the file; records take its place.
        position: of `Spool.position`.

    Returns:
        Whether there was as much as that.

    Raises:
        PeError: DATA, they are damaged; USAGE or DEVICE, the records can't be written.
    """
    counts = {"step": position["writes"]}
    arrays: dict[str, np.ndarray] = {}
    if path_of(npz).exists():
        parts: dict[str, list[np.ndarray]] = {}
        records = Spool.read(npz)
        while sum(map(len, parts.get("step", ()))) < counts["step"]:
            record = next(records, None)
            if record is None:
                break
            for name, value in record.items():
                parts.setdefault(name, []).append(value)
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
    elif npz.exists():
        arrays = _stacked(npz)
    arrays = {name: value[: counts.get(name, position["samples"])] for name, value in arrays.items()}
    _replace(npz, arrays)
    return len(arrays.get("step", ())) == counts["step"]


def _stacked(npz: Path) -> dict[str, np.ndarray]:
    arrays = read_npz(npz)
    if "step" not in arrays:
        raise data_error(f"{npz}: no file of fetches: it has no 'step'", "remove it, or move it away")
    return arrays


def _replace(npz: Path, arrays: Record) -> None:
    """Let one record take the place of an .npz and of its records."""
    atomic.write_bytes(path_of(npz), _bytes(arrays) if len(arrays.get("step", ())) else b"")
    try:
        npz.unlink(missing_ok=True)
    except OSError as error:
        raise atomic.write_error(error, npz) from None


def _bytes(record: Record) -> bytes:
    stream = io.BytesIO()
    stream.write(strict_json.dumps(list(record)).encode() + b"\n")
    for value in record.values():
        np.lib.format.write_array(stream, value, allow_pickle=False)
    return stream.getvalue()
