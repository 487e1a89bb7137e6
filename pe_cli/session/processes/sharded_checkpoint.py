"""Checkpoints of sharded runs: every process writes its own rows, all at once, into the folder that becomes the checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.scope import Scope
from pe_cli.graph.sharded_updates import Rows
from pe_cli.io import atomic
from pe_cli.io.table_pieces import Piece, Pieces, is_draft, write_piece
from pe_cli.io.table_pieces import Rows as Span
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.processes.sharded_tables import is_finite


def save_parts(rows: Mapping[str, Rows], scope: Scope, group: ProcessGroup, root: Path) -> Pieces | None:
    """Write the rows of every process, and return the files to the first one; all processes ask, in the same order.

    Args:
        rows: variable -> rows of each process.
        scope: with the rows of this one.
        group: the processes.
        root: folder of the run's checkpoints.

    Returns:
        For the first process, what is written; for another one, its own file alone. None for all where one of them does not see the folder:
        nothing is written then.

    Raises:
        PeError: a file cannot be written; every process raises it.
    """
    draft = _draft(group, root)
    seen = [bool(facts.get("seen")) for facts in group.texts({"seen": is_draft(draft)})]
    if not all(seen):
        if group.leads:
            shutil.rmtree(draft, ignore_errors=True)
        return None
    spans = {name: Span(name, *each[group.rank]) for name, each in rows.items() if each[group.rank][0] < each[group.rank][1]}
    arrays = {name: scope.held(name) for name in spans}
    facts: dict[str, Any]
    try:
        piece = write_piece(draft, group.rank, arrays, spans)
        facts = piece.to_json() | {"file": piece.file, "bad": [n for n, a in arrays.items() if not is_finite(a)]}
    except PeError as error:
        facts = {"error": error.message, "code": int(error.code)}
    told = group.texts(facts)
    for other in told:
        if "error" in other:
            if group.leads:
                shutil.rmtree(draft, ignore_errors=True)
            raise PeError(str(other["error"]), code=ExitCode(int(other["code"])))
    files = [_piece(other) for other in told]
    kinds = {name: scope.type(name) for name in rows}
    whole = {n: {"dtype": t.numpy.name, "shape": [max(end for _, end in rows[n]), *t.shape[1:]]} for n, t in kinds.items()}
    return Pieces(draft, files, whole, [name for other in told for name in other["bad"]])


def _draft(group: ProcessGroup, root: Path) -> Path:
    """Return the folder that becomes the checkpoint, which the first process makes."""
    said: dict[str, Any] = {}
    if group.leads:
        draft = root.absolute() / atomic.temporary_name()
        try:
            atomic.make_folder(root)
            draft.mkdir()
            said = {"folder": str(draft)}
        except (PeError, OSError) as error:
            failure = error if isinstance(error, PeError) else atomic.write_error(error, draft)
            said = {"error": failure.message, "code": int(failure.code)}
    first = group.texts(said)[0]
    if "error" in first:
        raise PeError(str(first["error"]), code=ExitCode(int(first["code"])))
    return Path(str(first["folder"]))


def _piece(told: Mapping[str, Any]) -> Piece:
    rows = {str(name): Span(str(whole), int(begin), int(end)) for name, (whole, begin, end) in told["rows"].items()}
    return Piece(str(told["file"]), str(told["sha256"]), int(told["bytes"]), rows)
