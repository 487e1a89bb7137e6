"""Small files of columns that claim very much, and values that Python has no number and no text for."""

from __future__ import annotations

import io
import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data import open_reader
from pe_cli.data.tables import size_claims
from tests.fuzz import thrift

MB = 1 << 20


def parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def arrow(table, codec=None):
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as to:
        to.write_table(table)
    return file.getvalue()


def one(array):
    return pa.table({"a": array})


def nothing(rows):
    """Return an array that has a length and not a byte."""
    return pa.Array.from_buffers(pa.null(), rows, [None])


def views():
    """Return 600 views of one text of a megabyte."""
    text = pa.array(["x" * MB], pa.string_view()).buffers()
    return pa.Array.from_buffers(pa.string_view(), 600, [None, pa.py_buffer(text[1].to_pybytes() * 600), *text[2:]])


def nested(data):
    """Return a Parquet file with a list of 2**30 elements in its one page."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, _ = thrift.read(data[begin:-8])
    at = next(value for path, value in thrift.leaves(tree) if path[-2:] == (3, 9))
    header, end = thrift.read(data, at)
    page = next(value for number, _, value in header if number == 5)
    page[0][2] = 1 << 30
    written = thrift.write(header)
    return data[:at] + written + data[end : begin - len(written) + end - at] + data[begin:]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        pytest.param("f.arrow", lambda: arrow(one(nothing(1 << 30))), "claims 1,073,741,824 rows of 1 columns", id="rows without bytes"),
        pytest.param("f.arrow", lambda: arrow(one(pa.array(np.zeros(1 << 20))), "zstd"), "claims to unpack to 8,388,6", id="packed zeros"),
        pytest.param("f.parquet", lambda: parquet(one(["x" * (8 * MB)]), compression="zstd"), "its pages claim", id="a packed page"),
        pytest.param("f.parquet", lambda: nested(parquet(one([[1, 2, 3]]))), "its pages claim 1,073,741,827 values", id="a long list"),
        pytest.param("f.arrow", lambda: arrow(one(views())), "whose values take 629,1", id="views of one text"),
        pytest.param(
            "f.parquet",
            lambda: parquet(one(pa.DictionaryArray.from_arrays(np.zeros(900, np.int32), ["x" * MB]))),
            "whose values take 943,",
            id="a dictionary of one text",
        ),
        pytest.param(
            "f.arrow",
            lambda: arrow(one(pa.FixedSizeListArray.from_arrays(nothing(1 << 30), 1 << 30))),
            "whose values take 68,7",
            id="a list of nothing",
        ),
    ],
)  # fmt: skip
def test_a_small_file_that_claims_very_much_is_refused(name, content, why, tmp_path, monkeypatch):
    monkeypatch.setattr(size_claims, "UNPACKED", 1 << 22)
    (tmp_path / name).write_bytes(content())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PeError, match=why):
        open_reader("table", {"files": name}, tmp_path).cells("a").strings()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


def test_few_words_in_many_rows_are_read(tmp_path):
    words = pa.array(["yes", "no"] * 50_000)
    (tmp_path / "f.parquet").write_bytes(parquet(one(words)))
    cells = open_reader("table", {"files": "f.parquet"}, tmp_path).cells("a")
    assert cells.codes().words == ["yes", "no"]
    assert cells.strings()[99_999] == "no"


def test_texts_are_found_in_a_schema(tmp_path):
    inner = pa.struct([("s", pa.string()), ("n", pa.int32())])
    schema = pa.schema([("a.b", pa.string()), ("l", pa.list_(inner)), ("d", pa.decimal128(30, 2)), ("z", pa.binary())])
    pq.write_table(schema.empty_table(), tmp_path / "f.parquet", store_decimal_as_integer=False)
    assert size_claims.footer(tmp_path / "f.parquet").texts == ("a.b", "l.list.element.s", "z")


@pytest.mark.parametrize(
    ("ending", "kind", "values"),
    [
        pytest.param("parquet", pa.date32(), [0, 2**31 - 1], id="Parquet, a date behind the year 9999"),
        pytest.param("arrow", pa.date32(), [0, 2**31 - 1], id="Arrow, a date behind the year 9999"),
        pytest.param("arrow", pa.timestamp("s"), [0, 2**62], id="Arrow, a time that no microseconds count"),  # Parquet has no seconds
        pytest.param("parquet", pa.timestamp("us"), [0, -(2**62)], id="Parquet, a time before the year 1"),
        pytest.param("arrow", pa.timestamp("us"), [0, -(2**62)], id="Arrow, a time before the year 1"),
    ],
)
def test_a_value_that_python_has_not_is_named_by_its_row(ending, kind, values, tmp_path):
    wide = pa.int32() if kind.bit_width == 32 else pa.int64()
    column = pa.array(values, wide).view(kind)
    (tmp_path / f"f.{ending}").write_bytes((parquet if ending == "parquet" else arrow)(one(column)))
    found = open_reader("table", {"files": f"f.{ending}"}, tmp_path)
    for ask in (lambda: found.cells("a").codes(), lambda: found.cells("a").strings(), lambda: found.cells("a").text(1)):
        with pytest.raises(PeError, match=r"row 2, column 'a': a value of the type .* is not understood"):
            ask()


def test_metadata_that_end_pyarrows_process_are_an_error(tmp_path):
    """Histograms of levels of another size than the column's: pyarrow's object for a column's metadata calls std::terminate."""
    data = parquet(one(pa.array(["x"] * 9)))
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, _ = thrift.read(data[begin:-8])
    group = next(value for number, _, value in tree if number == 4)[1][0]
    meta = next(value for number, _, value in next(v for n, _, v in group if n == 1)[1][0] if number == 3)
    sizes = next(value for number, _, value in meta if number == 16)
    for field in sizes:
        if field[0] == 3:
            field[2] = (field[2][0], field[2][1] * 2)
    footer = thrift.write(tree)
    (tmp_path / "f.parquet").write_bytes(data[:begin] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(PeError, match="histogram size mismatch"):
        open_reader("table", {"files": "f.parquet"}, tmp_path).cells("a").codes()
