"""Tables of a checkpoint in files of rows: what comes back, and what is said of those that are damaged."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.servers.server_program import Kept
from pe_cli.io import atomic, checkpoint
from pe_cli.io.table_pieces import Pieces, Rows, Table, is_draft, write_piece
from pe_cli.session.processes.sharded_tables import fill

TABLE = np.arange(35, dtype=np.float32).reshape(7, 5)
COUNT = np.arange(7, dtype=np.int64)


def saved(base: Path, cuts: tuple[int, ...] = (0, 3, 7)) -> Path:
    """Return a checkpoint with a table and a count of its rows in pieces, and a bias that is not."""
    draft = base.absolute() / "checkpoints" / atomic.temporary_name()
    draft.mkdir(parents=True)
    files = []
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        rows = {f"t.block{number}": Rows("t", begin, end), f"n.block{number}": Rows("n", begin, end)}
        arrays = {f"t.block{number}": TABLE[begin:end], f"n.block{number}": COUNT[begin:end]}
        files.append(write_piece(draft, number, arrays, rows))
    whole = {"t": {"dtype": "float32", "shape": [7, 5]}, "n": {"dtype": "int64", "shape": [7]}}
    checkpoint.write(base / "checkpoints", 4, {"b": np.ones(2, np.float32)}, {}, 2, None, Pieces(draft, files, whole))
    return base / "checkpoints" / "step-4"


@pytest.mark.parametrize("cuts", [(0, 7), (0, 3, 7), (0, 1, 1, 2, 7)])
def test_rows_come_back_whole_however_many_have_written_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = saved(Path(), cuts)
    found, meta = checkpoint.load(folder)
    assert list(found) == ["b", "t", "n"]
    np.testing.assert_array_equal(found["t"], TABLE, strict=True)
    np.testing.assert_array_equal(found["n"], COUNT, strict=True)
    assert meta["format"] == 2
    assert [p.name for p in folder.parent.iterdir()] == ["step-4"]  # nothing unfinished is left


def changed(folder: Path, change: object) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)  # type: ignore[operator]
    (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda m: m["pieces"].pop("rows-1.safetensors"), "not all there", id="a file that is not listed"),
        pytest.param(lambda m: m["pieces"]["rows-1.safetensors"]["rows"].update({"t.block1": ["t", 2, 7]}), "not all there", id="twice"),
        pytest.param(lambda m: m["pieces"]["rows-1.safetensors"].update(sha256="0"), "changed since", id="another hash"),
        pytest.param(lambda m: m["pieces"].update({"../rows-1.safetensors": {}}), "damaged", id="a path"),
        pytest.param(lambda m: m.update(pieces=[]), "damaged", id="a list"),
        pytest.param(lambda m: m["tensors"]["t"].update(shape=[7, 1 << 40]), "more rows than its files hold", id="more than there is"),
        pytest.param(lambda m: m["tensors"]["t"].update(shape=[7, 4]), "other rows", id="another width"),
        pytest.param(lambda m: m["tensors"].pop("t"), "how large", id="of no size"),
    ],
)
def test_damaged_pieces_are_told(tmp_path: Path, change: object, says: str) -> None:
    folder = saved(tmp_path)
    changed(folder, change)
    with pytest.raises(PeError, match=says) as error:
        checkpoint.load(folder)
    assert error.value.code == ExitCode.DATA


def test_a_lost_file_is_told_and_another_checkpoint_named(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "rows-0.safetensors").unlink()
    with pytest.raises(PeError, match=r"rows-0\.safetensors: no such file"):
        checkpoint.load(folder)


def test_rows_are_written_into_nothing_but_a_checkpoint_to_be(tmp_path: Path) -> None:
    inside = tmp_path / "checkpoints"
    inside.mkdir()
    draft = inside / atomic.temporary_name()
    assert not is_draft(draft)
    draft.mkdir()
    assert is_draft(draft)
    assert not is_draft(inside)
    other = tmp_path / draft.name
    other.mkdir()
    assert not is_draft(other)
    link = inside / f".tmp-{os.getpid()}-01234567"
    link.symlink_to(other)
    assert not is_draft(link)


def test_rows_are_read_when_they_are_asked_for_whatever_files_they_lie_in(tmp_path: Path) -> None:
    found, _ = checkpoint.opened(saved(tmp_path, (0, 3, 4, 7)))
    table = found["t"]
    assert isinstance(table, Table)
    for begin, end in itertools.combinations(range(8), 2):
        np.testing.assert_array_equal(table[begin:end], TABLE[begin:end], strict=True)
    np.testing.assert_array_equal(np.asarray(table), TABLE, strict=True)
    kept = Kept("t.block0", "t", TensorType((4, 5), "float32"), begin=2)
    given = np.zeros((4, 5), np.float32)
    fill(kept, table, lambda begin, rows: given.__setitem__(slice(begin, begin + len(rows)), rows))
    np.testing.assert_array_equal(given, TABLE[2:6])
    with pytest.raises(PeError, match=r"'t' is float32\[7, 5\] in the checkpoint"):
        fill(Kept("t.block1", "t", TensorType((4, 5), "float32"), begin=4), table, print)
