"""Checkpoints that processes write in parts: all rows are there, or nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.io import checkpoint
from pe_cli.session.processes import sharded_checkpoint
from pe_cli.session.processes.peer_group import PeerGroup
from pe_cli.session.processes.sharded_checkpoint import save_parts
from tests.collectives.simulated import Network, Simulated

ROWS = {"w": ((3, 5), (0, 3)), "alone": ((0, 0), (0, 4))}
WHOLE = {"w": np.arange(10, dtype=np.float32).reshape(5, 2), "alone": np.arange(4, dtype=np.float32)}


def scope_of(rank: int) -> Scope:
    scope = Scope([Place("cpu", 0)])
    for name, rows in ROWS.items():
        begin, end = rows[rank]
        scope.allocate({name: TensorType((end - begin, *WHOLE[name].shape[1:]))})
        scope.set(name, WHOLE[name][begin:end])
    return scope


def saved(root: Path):
    """Return what each of two processes gets, or the error that it raises."""

    def process(peers: Simulated):
        try:
            return save_parts(ROWS, scope_of(peers.rank), PeerGroup(peers, peers), root)
        except PeError as error:
            return error

    return Network(2).run(process)


def test_the_first_process_writes_a_checkpoint_with_the_rows_of_all(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    pieces, _ = saved(root)
    assert sorted(piece.file for piece in pieces.files) == ["rows-0.safetensors", "rows-1.safetensors"]
    checkpoint.write(root, 3, {"rest": np.ones(2, np.float32)}, {}, pieces=pieces)
    arrays, _ = checkpoint.load(root / "step-3")
    assert {n: np.asarray(a).tolist() for n, a in arrays.items()} == {n: a.tolist() for n, a in {**WHOLE, "rest": np.ones(2)}.items()}
    assert arrays["w"][2:4].tolist() == WHOLE["w"][2:4].tolist(), "rows are read as they are asked for"


def test_nothing_is_written_where_one_process_does_not_see_the_folder(tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "checkpoints"
    answers = iter([True, False])
    monkeypatch.setattr(sharded_checkpoint, "is_draft", lambda folder: next(answers))
    assert saved(root) == [None, None]
    assert [*root.iterdir()] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_that_cannot_be_written_is_the_error_of_all(tmp_path: Path, monkeypatch, rank: int) -> None:
    root, write = tmp_path / "checkpoints", sharded_checkpoint.write_piece

    def full(folder, number, arrays, rows):
        if number == rank:
            raise PeError(f"{folder}: the disk is full", code=ExitCode.DEVICE)
        return write(folder, number, arrays, rows)

    monkeypatch.setattr(sharded_checkpoint, "write_piece", full)
    for error in saved(root):
        assert error.code == ExitCode.DEVICE
        assert "the disk is full" in error.message
    assert [*root.iterdir()] == []


def test_a_folder_that_cannot_be_made_is_the_error_of_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [error.code for error in saved(tmp_path / "file" / "checkpoints")] == [ExitCode.USAGE] * 2
