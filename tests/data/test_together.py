"""Data that several processes prepare together: each does a part, and all have what one alone has, bit for bit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import machine_processes as module
from pe_cli.data.loader import Loader
from pe_cli.data.machine_processes import MachineProcesses
from pe_cli.data.raw_cells import MISSING
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.table import TableOptions, open_table
from pe_cli.data.tables import row_starts
from pe_cli.data.tables.csv import CsvPart
from pe_cli.session.data.job_data import JobData
from tests.collectives.simulated import Network

CONFIGS = Path(__file__).parents[2] / "configs"


def prepared(config: Path, overrides: tuple[str, ...], peers: Any = None) -> list[Any]:
    """Return what columns have learned, what is said, and all batches of an epoch of training and evaluation."""
    said: list[str] = []
    data = JobData(*load_and_build(config, overrides), note=said.append)
    found: list[Any] = []
    if peers is not None:
        with data.prepared.shared(peers):
            for use in ("train", "eval"):
                data.fed(use)
    for use in ("train", "eval"):
        loader: Loader = data.loader(use, data.built.programs, 64)
        found += [{name: (a.dtype, a.shape, a.tobytes()) for name, a in batch.items()} for batch in loader.epoch(0)]
    return [data.fitted.to_files(), said, found]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("people", id="numbers, truth values, dates and categories with missing cells, a stratified split"),
        pytest.param("reviews", id="texts as sequences"),
        pytest.param("translator", id="texts of one length"),
        pytest.param("ratings", id="bags"),
        pytest.param("series", id="windows of series"),
        pytest.param("shapes", id="pictures"),
        pytest.param("char_lm", id="blocks of a text"),
        pytest.param("digits", id="arrays"),
    ],
)
def test_three_processes_together_have_what_one_alone_has(config: str) -> None:
    path = CONFIGS / f"{config}.yaml"
    alone = prepared(path, ())
    for found in Network(3).run(lambda peers: prepared(path, (), peers)):
        assert found[:2] == alone[:2]
        assert found[2] == alone[2]


def test_what_the_process_knows_that_resumes_a_run_all_know() -> None:
    run, built = load_and_build(CONFIGS / "people.yaml")
    before = JobData(run, built, smoke=False)
    before.fed("train")
    state = before.fitted.columns["age"].state
    state["fill"] = 1234.5

    def process(peers: Any) -> list[Any]:
        data = JobData(run, built, before.fitted if peers.rank == 1 else None)
        with data.prepared.shared(peers):
            data.fed("train")
        return [data.prepared.given, data.fitted.columns["age"].state, data.fitted.split]

    assert Network(3).run(process) == [[True, state, before.fitted.split]] * 3


def write(folder: Path, kind: str, count: int = 1000) -> Path:
    """Write a table of numbers and of words that come late, with a few cells that are no numbers."""
    cells = {
        "a": [str(i / 7) if i % 300 != 299 else "many" for i in range(count)],
        "b": [f" w{i * i % 97}" for i in range(count)],
        "c": [str(i % 5) if i % 3 else "NA" for i in range(count)],
    }
    path = folder / f"t.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(cells), *zip(*cells.values(), strict=True)])
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(cells, row, strict=True))) + "\n" for row in zip(*cells.values(), strict=True)))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(cells), path, row_group_size=300)
    else:
        pyarrow.feather.write_feather(pyarrow.table(cells), path, chunksize=300)
    return path


def columns(table: Any, together: MachineProcesses | None) -> list[Any]:
    table.prepare(["a", "c"], ["b", "c"], together)
    codes = [table.cells(name).codes() for name in "bc"]
    numbers = [table.cells(name).numbers() for name in "ac"]
    return [
        [(found.codes.tobytes(), found.words) for found in codes],
        [(found.values.tobytes(), found.bad.tolist(), found.bad_count) for found in numbers],
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "feather"])
def test_cells_of_a_table_are_read_in_parts_and_are_the_same(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    options = TableOptions(files=str(path), skip=13, limit=900)
    alone = columns(open_table(options, Origin(tmp_path)), None)
    found = Network(4).run(lambda peers: columns(open_table(options, Origin(tmp_path)), MachineProcesses(peers)))
    assert found == [alone] * 4


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_of_one_file_are_found_in_parts(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of lines in quoted cells, where a part of the file may begin, too; a mistake is told by all as by one alone."""
    monkeypatch.setattr(row_starts, "SHARE", 1 << 12)
    path = tmp_path / f"t.{kind}"
    texts = [f"{i} " + "x\n" * (i % 7) for i in range(3000)]
    lines = [json.dumps({"a": i, "b" if i < 2999 else "late": text}) for i, text in enumerate(texts)]
    path.write_text("a,b\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts)) if kind == "csv" else "\n\n".join(lines) + "\n")

    def found(peers: Any = None) -> list[Any]:
        together = MachineProcesses(peers) if peers else None
        table = open_table(TableOptions(files=str(path)), Origin(tmp_path, together=together))
        strings = table.cells("b").strings()
        return [len(table), table.names, strings.bytes.tobytes(), strings.offsets.tobytes(), table.cells("a").text(2718)]

    alone = found()
    assert alone[0] == 3000
    assert Network(4).run(found) == [alone] * 4
    with path.open("a") as file:
        file.write("1,2,3\n")

    def said(peers: Any = None) -> str:
        with pytest.raises(PeError) as caught:
            found(peers)
        return f"{caught.value.at}: {caught.value.message}"

    alone_said = said()
    assert str(path) in alone_said
    assert Network(4).run(said) == [alone_said] * 4


def test_each_process_reads_its_share_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "csv")
    read: list[tuple[int, int]] = []
    before = CsvPart.read
    monkeypatch.setattr(CsvPart, "read", lambda self, *given: (read.append(given[:2]), before(self, *given))[1])
    options = TableOptions(files=str(path))

    def process(peers: Any) -> None:
        open_table(options, Origin(tmp_path)).prepare(["a"], ["b"], MachineProcesses(peers))

    Network(4).run(process)
    assert sorted(read) == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_the_columns_of_the_processes_lie_in_the_same_memory(tmp_path: Path) -> None:
    def process(peers: Any) -> list[float]:
        together = MachineProcesses(peers)
        (space,) = together.rooms([((3,), "<f8")], "a test") or ()
        space[together.index] = 1 + together.index
        together.wait("a test")
        return [float(value) for value in space]

    assert Network(3).run(process) == [[1.0, 2.0, 3.0]] * 3


def test_where_there_is_no_room_each_process_reads_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_file", full)
    path = write(tmp_path, "csv")
    options = TableOptions(files=str(path), missing=list(MISSING))
    alone = columns(open_table(options, Origin(tmp_path)), None)
    assert Network(2).run(lambda peers: columns(open_table(options, Origin(tmp_path)), MachineProcesses(peers))) == [alone] * 2


def test_machines_share_nothing_and_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two processes are on one machine, the third on another."""
    path = write(tmp_path, "csv")
    options = TableOptions(files=str(path))
    alone = columns(open_table(options, Origin(tmp_path)), None)

    def process(peers: Any) -> list[Any]:
        together = MachineProcesses(_Elsewhere(peers))
        assert (together.index, together.count) == ((0, 1) if peers.rank == 2 else (peers.rank, 2))
        return columns(open_table(options, Origin(tmp_path)), together)

    assert Network(3).run(process) == [alone] * 3


class _Elsewhere:
    """Peers of which the last one says that it is on another machine."""

    def __init__(self, peers: Any) -> None:
        self._peers, self.rank = peers, peers.rank

    def gather(self, message: bytes) -> list[bytes]:
        what, mine = json.loads(message)
        if what == "machine" and self.rank == 2:
            message = json.dumps([what, ["elsewhere", *mine[1:]]]).encode()
        return self._peers.gather(message)


def test_tables_of_other_sizes_are_other_data(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")

    def process(peers: Any) -> str:
        with pytest.raises(PeError) as caught:
            columns(open_table(TableOptions(files=str(path), limit=100 + peers.rank), Origin(tmp_path)), MachineProcesses(peers))
        assert caught.value.code == ExitCode.DATA
        return caught.value.message

    said = Network(2).run(process)
    assert said[0] == said[1]
    assert said[0].startswith("process 1 has other data than process 0: it reads 2,020 bytes of columns a, c, b, not 2,000")


def test_a_mistake_in_a_column_is_told_by_all_as_by_one_alone(tmp_path: Path) -> None:
    path = CONFIGS / "flats.yaml"
    overrides = ("data.columns.district={type: number}", "data.columns.lift={type: date}")

    def said(peers: Any = None) -> list[str]:
        with pytest.raises(PeError) as caught:
            prepared(path, overrides, peers)
        return [f"{error.at}: {error.message}" for error in caught.value.each]

    alone = said()
    assert len(alone) == 2
    assert Network(3).run(said) == [alone] * 3
    assert np.all([str(CONFIGS / "data" / "flats.csv") in line for line in alone])
