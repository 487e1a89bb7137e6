"""What an .npz gathers before it is written: records in a hidden file beside it, so that a killed process loses none.

A record is a line of JSON with the names of its arrays, then each of them in NumPy's own format.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pe_cli.io import append as growing
from pe_cli.io import atomic, strict_json
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
            unpack(npz, None)
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
        """Return where the records end: bytes of the hidden file; writes and samples of the .npz that they will become."""
        return {"bytes": growing.length(self._path), "writes": self._writes, "samples": self._samples}

    def records(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the records in order.

        Raises:
            PeError: DATA; the file is damaged.
        """
        if not self._path.exists():
            return
        try:
            with self._path.open("rb") as stream:
                while line := stream.readline(_LINE_LIMIT):
                    names = strict_json.loads(line)
                    if not isinstance(names, list) or "step" not in names:
                        raise ValueError("a record does not begin with its names")
                    yield {str(n): np.lib.format.read_array(stream, allow_pickle=False) for n in names}
        except (OSError, ValueError, EOFError) as error:
            raise data_error(f"{self._path}: damaged: {error}", "remove it: earlier fetches are lost with it") from None

    def remove(self) -> None:
        """Remove the records, once the .npz is written."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise atomic.write_error(error, self._path) from None


def unpack(npz: Path, position: Mapping[str, int] | None) -> None:
    """Turn an .npz back into records, which take its place.

    Args:
        npz: the file.
        position: of `Spool.position`; what came later is left out. None takes everything.

    Raises:
        PeError: DATA, it is damaged; USAGE or DEVICE, the records can't be written.
    """
    arrays = read_npz(npz)
    if "step" not in arrays:
        raise data_error(f"{npz}: no file of fetches: it has no 'step'", "remove it, or move it away")
    if position is not None:
        counts = {name: position["writes" if name == "step" else "samples"] for name in arrays}
        arrays = {name: value[: counts[name]] for name, value in arrays.items()}
    atomic.write_bytes(path_of(npz), _bytes(arrays) if len(arrays["step"]) else b"")
    try:
        npz.unlink()
    except OSError as error:
        raise atomic.write_error(error, npz) from None


def _bytes(record: Record) -> bytes:
    stream = io.BytesIO()
    stream.write(strict_json.dumps(list(record)).encode() + b"\n")
    for value in record.values():
        np.lib.format.write_array(stream, value, allow_pickle=False)
    return stream.getvalue()
