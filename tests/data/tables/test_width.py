"""Tables of very many columns: refused at their first row, line or schema, and read in time that goes with their columns."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.json_size import count
from pe_cli.data import open_reader
from pe_cli.data.tables import column_limit

MOST = 5


def opened(path: Path, reader: str = "table"):
    return open_reader(reader, {"files" if reader == "table" else "file": path.name}, path.parent)


def written(path: Path, columns: int, rows: int = 3) -> Path:
    """Write a table in the format that its name says."""
    names = [f"c{i}" for i in range(columns)]
    kind = path.suffix
    if kind in (".csv", ".tsv"):
        by = "," if kind == ".csv" else "\t"
        path.write_text("\n".join([by.join(names), *[by.join("1" * columns)] * rows]) + "\n")
    elif kind == ".jsonl":
        path.write_text((json.dumps(dict.fromkeys(names, 1)) + "\n") * rows)
    else:
        made = pa.table({name: [1.5] * rows for name in names})
        if kind == ".parquet":
            pq.write_table(made, path)
        else:
            new = pa.ipc.new_stream if kind == ".arrows" else pa.ipc.new_file
            with new(path, made.schema) as out:
                out.write_table(made)
    return path


FORMATS = [".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".arrows"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_table_of_more_columns_than_the_bound_is_refused_and_one_of_as_many_is_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_limit, "MOST_COLUMNS", MOST)
    assert len(opened(written(tmp_path / f"fits{suffix}", MOST)).names) == MOST
    with pytest.raises(PeError, match=f"wide{suffix} has .* columns, .* that a table has|6 columns, and a table has 5 at most") as caught:
        opened(written(tmp_path / f"wide{suffix}", MOST + 1))
    assert caught.value.code == ExitCode.DATA
    assert "keep the columns that you need" in str(caught.value.hint)


def test_the_csv_reader_and_lines_that_differ_in_their_keys_have_the_same_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_limit, "MOST_COLUMNS", MOST)
    with pytest.raises(PeError, match="more than 5 columns"):
        opened(written(tmp_path / "wide.csv", MOST + 1), "csv")
    lines = tmp_path / "other.jsonl"
    lines.write_text("".join(json.dumps({f"k{i}": i, f"l{i}": [{f"m{j}": j for j in range(9)}]}) + "\n" for i in range(MOST)))
    with pytest.raises(PeError, match="more than 5 columns") as caught:
        opened(lines)
    assert caught.value.at is not None
    assert caught.value.at.line == 3
    lines.write_text(json.dumps({"a": [{f"m{j}": j for j in range(99)}]}) + "\n{}\n")
    assert opened(lines).names == ("a",)
    # Values of an object are columns of their own.
    lines.write_text(json.dumps({"a": {f"m{j}": j for j in range(99)}}) + "\n{}\n")
    with pytest.raises(PeError, match="more than 5 columns"):
        opened(lines)


@pytest.mark.parametrize(
    ("head", "row"),
    [
        pytest.param(",".join(f"c{i}" for i in range(10**6)), ",".join(["1"] * 10**6), id="a million columns"),
        pytest.param("," * (60 << 20), "", id="60 MiB of commas"),
        pytest.param("\t" * (4 << 20), "1", id="4 MiB of tabs"),
        pytest.param("{" + ", ".join(f'"k{i}": 0' for i in range(10**6)) + "}", "{}", id="an object of a million keys"),
    ],
)
def test_a_wide_first_row_is_refused_before_it_takes_memory(head: str, row: str, tmp_path: Path) -> None:
    path = tmp_path / "wide"
    path.write_text(f"{head}\n{row}\n")
    opened(written(tmp_path / "small.csv", 3))  # what is imported and compiled for it is there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PeError, match="more than 100,000 columns"):
        opened(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        pytest.param(b'{"a": {"b": {"c": 1}}, "d": [{"e": 1}]}', 2, id="what is nested does not count"),
        pytest.param(b'{"a:\\"": ":", "b": 0}', 2, id="neither do texts"),
        pytest.param(b"[]", 0, id="a list has none"),
    ],
)
def test_keys_of_an_object_are_counted_without_reading_it(text: bytes, outer: int) -> None:
    assert count(text).outer == outer


def test_columns_are_read_ahead_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pe_cli.data.tables.csv import CsvPart
    from pe_cli.session.starters.files import Settings
    from pe_cli.session.starters.kind import make

    passes = []
    real = CsvPart._pass
    monkeypatch.setattr(CsvPart, "_pass", lambda part, *args: passes.append(1) or real(part, *args))
    path = tmp_path / "t.csv"
    rows = [",".join(str((i * r) % 7) for i in range(1, 401)) for r in range(20)]
    path.write_text("\n".join([",".join(f"c{i}" for i in range(400)), *rows]))
    made = make(Settings(path, "c0", tmp_path / "config.yaml"))
    assert len(passes) < 10
    assert "199 more: only the first 200 are looked at" in made.config
