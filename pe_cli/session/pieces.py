"""Large tables in a checkpoint: each server writes its rows itself, where it sees the folder of the run."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.service import Request
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.servers.core import ScopeHost
from pe_cli.graph.servers.server import Kept
from pe_cli.io import atomic
from pe_cli.io.pieces import Piece, Pieces, Rows, is_draft, write_piece

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
        folder, names = Path(request.message.text("folder")), set(request.message.names("names"))
        mine = [k for k in self._kept if k.whole in names]
        if request.trainer:
            raise FrameError(f"trainer {request.trainer} wants tables to be saved, which the first one does")
        if not folder.is_absolute() or not is_draft(folder):
            request.reply(Message("values", {"seen": 0}))
            return
        arrays = {k.name: self._host.view(k.name) for k in mine}
        rows = {k.name: Rows(k.whole, k.begin or 0, (k.begin or 0) + k.type.shape[0]) for k in mine}
        piece = write_piece(folder, self._number, arrays, rows)
        bad = [k.whole for k in mine if not _finite(arrays[k.name])]
        request.reply(Message("values", {"seen": 1, "file": piece.file, "bad": bad, **piece.to_json()}))


def _finite(values: np.ndarray[Any, Any]) -> bool:
    flat = values.reshape(-1)
    return all(bool(np.isfinite(flat[i : i + SOME]).all()) for i in range(0, flat.size, SOME))


def save_pieces(servers: Servers, kept: Mapping[str, Sequence[Kept]], tables: Mapping[str, TensorType], root: Path) -> Pieces | None:
    """Let servers write tables beside the checkpoints of a run; None where one of them does not see the folder.

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
    if answer.facts.get("rows") != piece.to_json()["rows"] or not (draft / piece.file).is_file():
        raise PeError(f"server {endpoint} has written other rows than it holds", code=ExitCode.PEER_LOST)
    return piece
