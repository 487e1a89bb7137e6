"""Large tables in a checkpoint: each server writes and reads its own rows, where it can access the run's folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.service import Request
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.servers.scope_values import ScopeHost
from pe_cli.graph.servers.server_program import Kept
from pe_cli.io import atomic
from pe_cli.io.table_pieces import Array, Piece, Pieces, Rows, Value, is_draft, tables_of, write_piece

#: Bytes of rows that are asked for, given or read at a time.
CHUNK = 1 << 24
#: Elements that are looked at at a time.
SOME = 1 << 22


class Writer:
    """Writes what a server holds of tables, when the first trainer asks for it.

    Args:
        host: values of the server.
        kept: what it holds.
        number: of the server.
    """

    def __init__(self, host: ScopeHost, kept: Sequence[Kept], number: int) -> None:
        self._host, self._number = host, number
        self._kept = [k for k in kept if k.begin is not None]

    def save(self, request: Request) -> None:
        """Write rows into the folder that the message names, and tell what was written.

        A folder that this machine does not see gets nothing, and neither does any folder that is not to become a checkpoint.

        Raises:
            FrameError: it asks for something else than tables.
            PeError: USAGE or DEVICE, they cannot be written.
        """
        folder, names = request.message.folder("folder"), set(request.message.names("names"))
        mine = [k for k in self._kept if k.whole in names]
        if request.trainer:
            # The first trainer leads; a message of another one is a mistake or an attack.
            raise FrameError(f"trainer {request.trainer} wants tables to be saved, which the first one does")
        # Only a folder that is about to become a checkpoint may be written to, whatever a message says.
        if not folder.is_absolute() or not is_draft(folder):
            request.reply(Message("values", {"seen": 0}))
            return
        arrays = {k.name: self._host.view(k.name) for k in mine}
        rows = {k.name: Rows(k.whole, k.begin or 0, (k.begin or 0) + k.type.shape[0]) for k in mine}
        piece = write_piece(folder, self._number, arrays, rows)
        bad = [k.whole for k in mine if not is_finite(arrays[k.name])]
        request.reply(Message("values", {"seen": 1, "file": piece.file, "bad": bad, **piece.to_json()}))


class Reader:
    """Takes what a server holds of tables from a checkpoint, when the first trainer asks for it.

    Args:
        host: values of the server.
        kept: what it holds.
    """

    def __init__(self, host: ScopeHost, kept: Sequence[Kept]) -> None:
        self._host = host
        self._kept = [k for k in kept if k.begin is not None]

    def read(self, request: Request) -> None:
        """Read rows from the folder that the message names; tell which tables they are of: none where this machine sees another folder.

        Raises:
            FrameError: another trainer asks.
            PeError: DATA; the folder is damaged, or of another model.
        """
        folder, names = request.message.folder("folder"), set(request.message.names("names"))
        if request.trainer:
            raise FrameError(f"trainer {request.trainer} wants tables to be read, which the first one does")
        found = tables_of(folder) if folder.is_absolute() else None
        # By its digest: two machines may have different folders at one path.
        if found is None or found[0] != request.message.text("of"):
            request.reply(Message("values", {"names": []}))
            return
        mine = [k for k in self._kept if k.whole in names and k.whole in found[1]]
        for k in mine:
            fill(k, found[1][k.whole], lambda begin, rows, name=k.name: self._host.put(name, begin, rows))  # type: ignore[misc]
        request.reply(Message("values", {"names": sorted({k.whole for k in mine})}))


def fill(kept: Kept, table: Value, put: Callable[[int, Array], object]) -> None:
    """Give the rows of a piece, some megabytes at a time.

    Args:
        kept: the piece.
        table: the whole.
        put: `f(first row in the piece, rows)`.

    Raises:
        PeError: DATA; it is another table.
    """
    rest, begin = kept.type.shape[1:], kept.begin or 0
    if table.dtype != kept.type.numpy or table.shape[1:] != rest or table.shape[0] < begin + kept.type.shape[0]:
        text = f"'{kept.whole}' is {table.dtype}{list(table.shape)} in the checkpoint and another type in the model"
        raise PeError(text, code=ExitCode.DATA)
    for first, last in chunks(kept):
        put(first, table[begin + first : begin + last])


def chunks(kept: Kept) -> Iterator[tuple[int, int]]:
    """Yield the rows of a piece, a bounded number of bytes at a time."""
    rows = kept.type.shape[0]
    # At least one row, however long it is.
    each = max(1, CHUNK * max(1, rows) // max(1, kept.type.nbytes))
    for begin in range(0, rows, each):
        yield begin, min(rows, begin + each)


def read_by_servers(servers: Servers, kept: Mapping[str, Sequence[Kept]], folder: Path, names: Collection[str]) -> dict[str, set[str]]:
    """Make servers read their rows of tables from a checkpoint; return host:port -> tables that the server there has read.

    Raises:
        PeError: DATA; the checkpoint is damaged.
        PeerError: a server is lost, or could not read.
    """
    has = [endpoint for endpoint, each in kept.items() if any(k.begin is not None and k.whole in names for k in each)]
    found = tables_of(folder.absolute())
    if found is None or not has:
        return {}
    asked = Message("read", {"folder": str(folder.absolute()), "names": sorted(names), "of": found[0]})
    answers = servers.ask(dict.fromkeys(has, asked), "waits until servers have read their rows")
    return {endpoint: set(answer.names("names")) for endpoint, answer in answers.items()}


def is_finite(values: np.ndarray[Any, Any]) -> bool:
    """Return whether all values are finite; some are looked at at a time."""
    flat = values.reshape(-1)
    return all(bool(np.isfinite(flat[i : i + SOME]).all()) for i in range(0, flat.size, SOME))


def save_pieces(servers: Servers, kept: Mapping[str, Sequence[Kept]], tables: Mapping[str, TensorType], root: Path) -> Pieces | None:
    """Make servers write their tables beside the checkpoints of a run; None where one of them cannot access the folder.

    Args:
        servers: connections.
        kept: host:port -> what the server there holds.
        tables: those that are to be written, with the types of all their rows.
        root: folder of the checkpoints.

    Raises:
        PeError: the folder cannot be written.
        PeerError: a server is lost, or could not write.
    """
    atomic.make_folder(root)
    draft = root.absolute() / atomic.temporary_name()
    try:
        draft.mkdir()
    except OSError as error:
        raise atomic.write_error(error, draft) from None
    has = [endpoint for endpoint, each in kept.items() if any(k.begin is not None and k.whole in tables for k in each)]
    asked = Message("save", {"folder": str(draft), "names": sorted(tables)})
    answers = servers.ask(dict.fromkeys(has, asked), "waits until servers have saved")
    # A server that does not see the folder makes the trainer fetch the rows instead.
    if not all(answer.number("seen") for answer in answers.values()):
        shutil.rmtree(draft, ignore_errors=True)
        return None
    files = [_piece(endpoint, answer, kept[endpoint], tables, draft) for endpoint, answer in answers.items()]
    whole = {name: {"dtype": kind.numpy.name, "shape": list(kind.shape)} for name, kind in tables.items()}
    bad = [name for answer in answers.values() for name in answer.names("bad")]
    return Pieces(draft, files, whole, bad)


def _piece(endpoint: str, answer: Message, kept: Sequence[Kept], names: Collection[str], draft: Path) -> Piece:
    """Return the file of a server, whose rows are those that it has to have."""
    rows = {k.name: Rows(k.whole, k.begin, k.begin + k.type.shape[0]) for k in kept if k.begin is not None and k.whole in names}
    piece = Piece(answer.text("file"), answer.text("sha256"), answer.number("bytes"), rows)
    # The description must be of what the server holds: a checkpoint is read by it later.
    if answer.facts.get("rows") != piece.to_json()["rows"] or not (draft / piece.file).is_file():
        raise PeError(f"server {endpoint} has written other rows than it holds", code=ExitCode.PEER_LOST)
    return piece
