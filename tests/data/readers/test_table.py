"""The table reader: formats, files, places of mistakes."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.registry import open_reader

#: Python unpacks zstd by itself from 3.14 on.
WITHOUT_ZSTD = pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python unpacks zstd")
ROWS = {"n": [1.5, -2.0, None, 1e-7], "word": ["x", "é 漢", None, "x"], "id": ["a,b", 'say "hi"', "two\nlines", "last"]}
CSV = 'n,word,id\n1.5,x,"a,b"\n-2,é 漢,"say ""hi"""\n,NA,"two\nlines"\n1e-7,x,last\n'


def lines(rows=ROWS):
    return "".join(json.dumps(dict(zip(rows, row, strict=True))) + "\n" for row in zip(*rows.values(), strict=True))


def write_parquet(path):
    pyarrow.parquet.write_table(pa.table(ROWS), path, row_group_size=2)


def write_feather(path):
    pyarrow.feather.write_feather(pa.table(ROWS), path, compression="lz4", chunksize=3)


def write_stream(path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, pa.table(ROWS).schema) as out:
        out.write_table(pa.table(ROWS), max_chunksize=2)


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


def check(table, rows=ROWS):
    """Assert that a table has the values of `ROWS`."""
    assert table.names == tuple(rows)
    assert len(table) == 4
    np.testing.assert_array_equal(table.cells("n").numbers().values, np.array(rows["n"], np.float64))
    assert table.cells("n").numbers().bad_count == 0
    for name in ("word", "id"):
        cells = table.cells(name)
        codes, strings = cells.codes(), cells.strings()
        assert codes.words == list(dict.fromkeys(text for text in rows[name] if text is not None))
        assert [codes.words[c] if c >= 0 else None for c in codes.codes.tolist()] == rows[name]
        assert [strings[i] for i in range(4)] == [text or "" for text in rows[name]]
        assert cells.array() is None
        assert len(cells) == 4
        numbers = cells.numbers()
        assert numbers.bad_count == sum(text is not None for text in rows[name])
        assert numbers.bad.tolist() == [i for i, text in enumerate(rows[name]) if text is not None]
        assert cells.text(3) == rows[name][3]


@pytest.mark.parametrize("kept", [1 << 20, 100, 0])
def test_unpacked_text_lies_in_memory_or_in_a_file(read, tmp_path, monkeypatch, kept):
    from pe_cli.data.tables import decompression, text_source

    monkeypatch.setattr(text_source, "KEPT", kept)
    monkeypatch.setattr(text_source, "CHUNK", 64)
    monkeypatch.setattr(decompression, "CHUNK", 64)
    for name, values in {"a": range(100), "b": range(100, 300)}.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(b"n\n" + b"".join(b"%d\n" % i for i in values)))
    (tmp_path / "c.csv").write_bytes("n\n300\n".encode("utf-16"))
    table = read("table", files=["a.csv.gz", "b.csv.gz", "c.csv"])
    assert table.cells("n").numbers().values.tolist() == list(range(301))
    assert table.cells("n").text(299) == "299"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.csv", CSV.encode(), id="CSV"),
        pytest.param("t.txt", CSV.replace(",", ";").replace("a;b", "a,b").encode(), id="semicolons"),
        pytest.param("t.tsv", CSV.replace(",", "\t").replace("a\tb", "a,b").encode(), id="tabs"),
        pytest.param("t.csv", CSV.replace(",", "|").replace("a|b", "a,b").encode(), id="bars"),
        pytest.param("t.csv", codecs.BOM_UTF8 + CSV.encode(), id="a byte-order mark is no part of a name"),
        pytest.param("t.csv", codecs.BOM_UTF16_LE + CSV.encode("utf-16-le"), id="UTF-16, lower byte first"),
        pytest.param("t.csv", codecs.BOM_UTF16_BE + CSV.encode("utf-16-be"), id="UTF-16, upper byte first"),
        pytest.param("t.csv.gz", gzip.compress(CSV.encode()), id="gzip"),
        pytest.param(
            "packed", gzip.compress(CSV[:20].encode()) + gzip.compress(CSV[20:].encode()), id="gzip in two members"
        ),
        pytest.param("t.csv.zst", zstd(CSV.encode()), id="zstd"),
        pytest.param("t.csv.gz", gzip.compress(CSV.encode("utf-16")), id="packed UTF-16"),
        pytest.param("t.jsonl", lines().encode(), id="JSON lines"),
        pytest.param("t", lines().encode(), id="JSON lines by their first byte"),
        pytest.param(
            "t.json.gz",
            gzip.compress(lines().replace("\n", "\r\n\r\n").encode()),
            id="packed JSON lines with blank ones",
        ),
        pytest.param("t.parquet", write_parquet, id="Parquet"),
        pytest.param("t.csv", write_parquet, id="Parquet under another name"),
        pytest.param("t.feather", write_feather, id="Feather"),
        pytest.param("t.arrows", write_stream, id="a stream of Arrow"),
    ],
)
def test_every_format_gives_the_same_table(read, tmp_path, name, content):
    if callable(content):
        content(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    check(read("table", files=name))
    found = read("table", files=name, skip=1, limit=2)
    np.testing.assert_array_equal(found.cells("n").numbers().values, [-2, np.nan])
    assert found.cells("id").codes().words == ['say "hi"', "two\nlines"]
    assert found.cells("id").text(1) == "two\nlines"


def test_files_are_one_table_whose_columns_are_found_by_name(read, tmp_path):
    for i, name in enumerate(["b", "a", "c"]):
        half = {key: values[2 * (i % 2) :][:2] for key, values in ROWS.items()}
        if name == "b":
            pyarrow.parquet.write_table(pa.table(half), tmp_path / "b.parquet")
        elif name == "a":
            (tmp_path / "a.jsonl").write_text(lines({key: half[key] for key in reversed(half)}))
    check(read("table", files=["b.parquet", "a.jsonl"]))


def test_a_pattern_means_files_in_the_order_of_their_names(read, tmp_path):
    for name, row in {"p-2.csv": "2", "p-10.csv": "10", "p-1.csv": "1", "q.csv": "9", "p-3.txt": "3"}.items():
        (tmp_path / name).write_text(f"n\n{row}\n")
    assert read("table", files="p-*.csv").cells("n").numbers().values.tolist() == [1, 10, 2]
    assert read("table", files=["q.csv", "p-[12].csv"], skip=1, limit=1).cells("n").numbers().values.tolist() == [1]
    assert read("table", files="*.csv", limit=3).cells("n").codes().words == ["1", "10", "2"]


@pytest.mark.parametrize(
    ("text", "names", "first"),
    [
        pytest.param("a,b\n1,2\n", ("a", "b"), "1", id="names over numbers"),
        pytest.param("a,b\nx,y\n", ("a", "b"), "x", id="text over text is taken for names"),
        pytest.param("1,2\n3,4\n", ("0", "1"), "1", id="numbers over numbers are no names"),
        pytest.param("0,1\n3,4\n", ("0", "1"), "3", id="counted from 0, numbers are names"),
        pytest.param(
            "x,1990,1991\n2,3,4\n5,6,7\n", ("x", "1990", "1991"), "2", id="text over a column of numbers is a name"
        ),
        pytest.param("x,1\ny,2\n", ("0", "1"), "x", id="text over text beside numbers"),
        pytest.param(",a\n7,x\n", ("0", "a"), "7", id="an empty name is the column's number"),
        pytest.param("1,2\n", ("0", "1"), "1", id="one row of numbers"),
    ],
)
def test_whether_the_first_row_has_names(read, tmp_path, text, names, first):
    (tmp_path / "t.csv").write_text(text)
    table = read("table", files="t.csv")
    assert table.names == names
    assert table.cells(names[0]).text(0) == first


def test_the_options_say_what_a_file_does_not(read, tmp_path):
    (tmp_path / "t").write_bytes("Zoë;1\nZoé;-\n".encode("latin-1"))
    table = read("table", files="t", format="csv", delimiter=";", encoding="latin-1", header=False, missing=["-"])
    assert table.names == ("0", "1")
    assert table.cells("0").codes().words == ["Zoë", "Zoé"]
    np.testing.assert_array_equal(table.cells("1").numbers().values, [1, np.nan])
    assert table.cells("1").numbers().bad_count == 0


def test_lists_of_a_fixed_size_are_arrays(read, tmp_path):
    values = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
    kind = pa.list_(pa.list_(pa.float32(), 4), 3)
    for name, part in {"a": values[:2], "b": values[2:]}.items():
        table = pa.table(
            {"v": pa.array(part.tolist(), kind), "w": pa.array([[1, 2]] * len(part), pa.list_(pa.int64()))}
        )
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    found = read("table", files="*.parquet", skip=1, limit=3)
    array = found.cells("v").array()
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, values[1:4])
    assert found.cells("w").array() is None
    assert found.cells("w").text(0) == "[1, 2]"


def test_a_list_that_is_missing_has_its_row(read, tmp_path):
    kind = pa.list_(pa.int32(), 2)
    pyarrow.feather.write_feather(pa.table({"v": pa.array([[1, 2], [3, 4], None], kind)}), tmp_path / "t.feather")
    with pytest.raises(PeError, match="row 3, column 'v': a list, or a list in one, is missing") as caught:
        read("table", files="t.feather").cells("v").array()
    assert caught.value.code == ExitCode.DATA


def failure(read, **options):
    with pytest.raises(PeError) as caught:
        read("table", **options)
    assert caught.value.code == ExitCode.DATA
    return caught.value


@pytest.mark.parametrize(
    ("content", "place", "message", "hint"),
    [
        pytest.param(
            "a,b\n1,2\n\n1,2,3\n",
            (4, 1, "1,2,3"),
            "3 cells, but line 1 has 2",
            "quote text that holds",
            id="a long row",
        ),
        pytest.param(
            '"x\ny",b\n1\n2,3\n',
            (3, 1, "1"),
            "1 cell, but line 1 has 2",
            "quote text that holds the end",
            id="a short row",
        ),
        pytest.param(
            "a,b\n1,2\n3", (3, 1, "3"), "1 cell, but line 1 has 2", "cut off", id="a last line that is cut off"
        ),
        pytest.param(
            "a,b\n1,2,\n", (2, 1, "1,2,"), "3 cells, but", "remove the delimiter at the end", id="a delimiter too much"
        ),
        pytest.param("", None, "is empty: it has no bytes", "wrote", id="nothing"),
        pytest.param("\n \n\r\n", None, "is empty: it has no rows", "wrote", id="blank lines"),
        pytest.param("\ufeff", None, "is empty: it has no rows", "wrote", id="a byte-order mark alone"),
        pytest.param("a,b\n", None, "has a header and no rows", "header: false", id="header only"),
        pytest.param(
            "a,b, a\n1,2,3\n",
            (1, 6, "a,b, a"),
            "2 columns are named 'a', number 1 and 3",
            "of its own",
            id="two of a name",
        ),
        pytest.param(
            'a,b\n1,"2\n3,4\n',
            (2, 3, '1,"2'),
            "a quote is opened here and never closed",
            "close it",
            id="an open quote",
        ),
        pytest.param(
            'a,b\n1,"2" x\n', (2, 7, '1,"2" x'), "text behind the closing quote", "twice", id="text behind a quote"
        ),
        pytest.param(
            'a,b\n1,"2" "3"\n',
            (2, 7, '1,"2" "3"'),
            "text behind the closing quote",
            "twice",
            id="a quote behind a quote",
        ),
        pytest.param("a,b\n1,\0\n", (2, 3, "1,\0"), "a byte is 0", "no text file", id="NUL"),
        pytest.param(
            "a,b\n1,é\n".encode("utf-16-le"), (1, 2, None), "a byte is 0", "utf-16-le", id="UTF-16 without a mark"
        ),
        pytest.param(
            "a,b\n1,é\n".encode("utf-16-be"), (1, 1, None), "a byte is 0", "utf-16-be", id="UTF-16 the other way round"
        ),
        pytest.param(
            "a\nx\né\n".encode("latin-1"), (3, 1, "\ufffd"), "byte 0xe9 in line 3", "encoding: cp1252 (it reads 'é' then)", id="Latin-1"
        ),
        pytest.param(
            b"a\n\xe6\xbc\n",
            (2, 1, None),
            "byte 0xe6 in line 2",
            "encoding: cp1252",
            id="a character cut off",
        ),
        pytest.param(b"a\n\xed\xa0\x80\n", (2, 1, None), "byte 0xed in line 2", "encoding", id="half a surrogate pair"),
        pytest.param(b"a\n\xc0\x80\n", (2, 1, None), "byte 0xc0 in line 2", "encoding", id="an overlong zero"),
        pytest.param(
            b"a\n\xf4\x90\x80\x80\n", (2, 1, None), "byte 0xf4 in line 2", "encoding", id="above the last character"
        ),
        pytest.param(b"PK\x03\x04xl/workbook", None, "is a zip archive", "save the sheet as CSV", id="a workbook"),
        pytest.param(
            gzip.compress(CSV.encode())[:-9], None, "cannot be unpacked", "cut off", id="gzip that is cut off"
        ),
        pytest.param(
            gzip.compress(b"PAR1" + bytes(9)), None, "is a Parquet file, not text", "unpack", id="packed Parquet"
        ),
        pytest.param(zstd(CSV.encode())[:-3], None, "cannot be unpacked", "cut off", id="zstd that is cut off"),
        pytest.param(b"\x1f\x8b" + bytes(40), None, "cannot be unpacked", "damaged", id="damaged gzip"),
        pytest.param(b"PAR1" + bytes(40), None, "is no readable Parquet file", "again", id="damaged Parquet"),
        pytest.param(b"ARROW1" + bytes(40), None, "is no readable Arrow file", "again", id="damaged Arrow"),
        pytest.param(b"FEA1" + bytes(40), None, "Feather file of version 1", "write_feather", id="old Feather"),
    ],
)
def test_mistakes_of_files_have_their_place(read, tmp_path, content, place, message, hint):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = failure(read, files="t.csv")
    assert message in error.message
    assert hint in (error.hint or "")
    if place is not None:
        assert error.at is not None
        assert (error.at.file, error.at.line, error.at.column) == (str(path), *place[:2])
        assert place[2] is None or error.at.text == place[2]
        assert error.notes[0][1] == "the table is read here"


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        pytest.param('{"a": 1}\n[1]\n', 2, 1, "the line is a list, not an object", "one object per line", id="a list"),
        pytest.param('{"a": 1}\n\n3\n', 3, 1, "the line is a number, not an object", "one object", id="a number"),
        pytest.param('{"a": 1}\n{"a": é,}\n', 2, 7, "no JSON: expecting value", "one whole object", id="no value"),
        pytest.param('[{"a": 1},\n{"a": 2]', 2, 8, "no JSON", "check what wrote it", id="a list that is damaged"),
        pytest.param('[{"a": 1},\n 7]', 2, 2, "a row is a number", "df.to_json", id="a list of other things"),
        pytest.param('{\n"a": 1\n', 3, 1, "no JSON", "check what wrote it", id="an object that is cut off"),
        pytest.param('{"a": 1, "b": {"c": 1}, "b.c": 2}\n{"a": 1}', 1, 1, "two values are called 'b.c'", "name them apart", id="dots"),
        pytest.param('{"a": 1, "a": 2}\n', 1, 1, "the key 'a' stands there twice", "once", id="a key twice"),
        pytest.param(
            '{"a": ' + "[" * 10**5 + "]" * 10**5 + "}\n", 1, 1, "nested too deeply", "plain", id="deep nesting"
        ),
        pytest.param('{"a": ' + "1" * 10**4 + "}\n", 1, 1, "too many digits", "1e308", id="an endless number"),
        pytest.param('{"a": 1}\n{"a": 2', 2, 8, "no JSON", "one whole object", id="cut off"),
    ],
)
def test_mistakes_of_json_lines_have_their_line(read, tmp_path, text, line, column, message, hint):
    (tmp_path / "t.jsonl").write_text(text)
    error = failure(read, files="t.jsonl")
    assert message in error.message
    assert hint in error.hint
    assert (error.at.line, error.at.column) == (line, column)


def test_json_lines_in_another_encoding(read, tmp_path):
    (tmp_path / "t.jsonl").write_bytes('{"a": 1}\n{"a": "é"}\n'.encode("latin-1"))
    error = failure(read, files="t.jsonl")
    assert "byte 0xe9" in error.message
    assert (error.at.line, error.at.column) == (2, 8)
    assert read("table", files="t.jsonl", encoding="latin-1").cells("a").codes().words == ["1", "é"]


@pytest.mark.parametrize(
    ("text", "wanted", "called"),
    [("a;b\n1;2\n", ",", "';'"), ("a\tb\n1\t2\n", ";", "tab"), ("a,b\n1,2\n", "\t", "','")],
)
def test_a_wrong_delimiter_is_said(read, tmp_path, text, wanted, called):
    (tmp_path / "t.csv").write_text(text)
    error = failure(read, files="t.csv", delimiter=wanted)
    assert f"this looks separated by {called}" in error.message
    assert error.hint.startswith("set delimiter: ")


def test_a_column_of_text_with_commas_is_one_column(read, tmp_path):
    (tmp_path / "t.csv").write_text('text\n"one, two"\nthree, four, five\n')
    error = failure(read, files="t.csv", delimiter=",")
    assert "3 cells, but line 1 has 1" in error.message
    assert read("table", files="t.csv", delimiter=";").cells("text").codes().words == ["one, two", "three, four, five"]


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        ("ascii", "a\n1\né\n".encode(), "is no ascii text: byte 0xc3 in line 3"),
        ("cp1252", b"a\n1\n\x81\n", "is no cp1252 text: byte 0x81 in line 3"),
        ("utf-16", codecs.BOM_UTF16_LE + "a\n1\n".encode("utf-16-le") + b"\x00\xd8\n\x00", "byte 0x00 in line 3"),
    ],
)
def test_text_that_is_not_in_the_encoding_asked_for(read, tmp_path, encoding, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    assert message in failure(read, files="t.csv", encoding=encoding).message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ""}, "one ASCII character"),
        ({"delimiter": '"'}, "one ASCII character"),
        ({"delimiter": "é"}, "one ASCII character"),
        ({"encoding": "latin-9000"}, "did you mean 'latin-1'"),
        ({"encoding": "rot13"}, "no encoding of text"),
        ({"encoding": "base64"}, "no encoding of text"),
        ({"header": 1}, "header"),
        ({"format": "xlsx"}, "format"),
        ({"files": []}, "files"),
        ({"missing": "NA"}, "missing"),
    ],
)
def test_options_are_checked(read, tmp_path, options, message):
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(PeError, match=message) as caught:
        read("table", **{"files": "t.csv", **options})
    assert caught.value.code == ExitCode.USAGE


def test_files_that_differ_in_columns(read, tmp_path):
    (tmp_path / "a.csv").write_text("age,job\n1,x\n")
    (tmp_path / "b.csv").write_text("jobs,age\nx,1\n")
    error = failure(read, files="*.csv")
    assert error.message.startswith(f"{tmp_path / 'b.csv'} has no column 'job' and a column 'jobs'")
    assert error.hint == "did you mean 'jobs'?"


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        pytest.param("nothing-*.csv", "no file matches 'nothing-*.csv'", "there are", id="a pattern without files"),
        pytest.param(
            "dat/*.csv", "no file matches 'dat/*.csv'", "did you mean 'data'?", id="a folder that is not there"
        ),
        pytest.param("tabel.*", "no file matches", "did you mean 'table.csv'?", id="a name that is nearly right"),
        pytest.param("tabel.csv", "no such file", "did you mean 'table.csv'?", id="a file that is not there"),
        pytest.param("data", "is a folder, not a file", "name the file", id="a folder"),
        pytest.param(["table.csv", "t*.csv"], "is read twice, by 'table.csv' and 't*.csv'", "once", id="a file twice"),
        pytest.param("*/../*.csv", "goes up behind its first *", "before", id="a pattern that goes up"),
        pytest.param("link*/*.csv", "no file matches", "symbolic links", id="a folder that is a link"),
        pytest.param("away*.csv", "no file matches", "symbolic links", id="a file that is a link"),
    ],
)
def test_files_that_cannot_be_found(read, tmp_path, files, message, hint):
    (tmp_path / "table.csv").write_text("a\n1\n")
    (tmp_path / "data").mkdir()
    away = tmp_path / "data" / "inner.csv"
    away.write_text("a\n2\n")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "away.csv").symlink_to(away)
    error = failure(read, files=files)
    assert message in error.message
    assert hint in error.hint
    assert read("table", files="away.csv").cells("a").text(0) == "2"
    assert read("table", files="**/inner.csv").cells("a").text(0) == "2"
    assert len(read("table", files="**")) == 2


@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, 9), zstd], ids=["gzip", "zstd"])
def test_a_decompression_bomb_is_not_unpacked(read, tmp_path, monkeypatch, pack):
    from pe_cli.data.tables import decompression

    monkeypatch.setattr(decompression, "UNPACKED", 1 << 20)
    (tmp_path / "t.csv").write_bytes(pack(b"a\n" + b"1\n" * (8 << 20)))
    error = failure(read, files="t.csv")
    assert "no table shrinks so far" in error.message


@pytest.mark.parametrize(
    ("name", "content", "place", "message"),
    [
        pytest.param("t.csv", CSV.encode(), (4, 6, ',NA,"two'), "column 'id': wrong", id="CSV"),
        pytest.param(
            "t.csv", CSV.replace("\n", "\r\n").encode(), (4, 6, ',NA,"two'), "column 'id': wrong", id="CSV of Windows"
        ),
        pytest.param(
            "t.csv", CSV.replace("\n", "\r").encode(), (4, 6, ',NA,"two'), "column 'id': wrong", id="CSV of old Macs"
        ),
        pytest.param(
            "t.csv", gzip.compress(CSV.encode("utf-16")), (4, 6, ',NA,"two'), "column 'id': wrong", id="packed CSV"
        ),
        pytest.param("t.jsonl", lines().encode(), (3, 27, None), "column 'id': wrong", id="JSON lines"),
    ],
)
def test_a_cell_has_its_place(read, tmp_path, name, content, place, message):
    (tmp_path / "first.csv").write_text("id,n,word\nx,1,y\n")
    (tmp_path / name).write_bytes(content)
    for error in (
        read("table", files=name).error(2, "id", "wrong", "correct it"),
        read("table", files=["first.csv", name], skip=1).error(2, "id", "wrong", "correct it"),
        read("table", files=["first.csv", name], skip=2).error(1, "id", "wrong", "correct it"),
    ):
        assert (error.message, error.hint, error.code) == (message, "correct it", ExitCode.DATA)
        assert (error.at.file, error.at.line, error.at.column) == (str(tmp_path / name), *place[:2])
        assert place[2] is None or error.at.text == place[2]


def test_a_cell_of_parquet_has_its_row(read, tmp_path):
    write_parquet(tmp_path / "t.parquet")
    error = read("table", files="t.parquet", skip=1).error(1, "id", "wrong", "correct it")
    assert error.message == f"{tmp_path / 't.parquet'}, row 3, column 'id': wrong"
    assert error.code == ExitCode.DATA


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: path.write_text("a\n1\n"), id="other bytes"),
        pytest.param(lambda path: os.truncate(path, 50), id="cut"),
        pytest.param(lambda path: path.unlink(), id="removed"),
    ],
)
def test_a_file_that_changes_while_it_is_read(read, tmp_path, change):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 1000)
    table = read("table", files="t.csv")
    change(path)
    with pytest.raises(PeError) as caught:
        table.cells("a").numbers()
    assert caught.value.code == ExitCode.DATA


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.parquet", b"PAR1", id="Parquet"),
        pytest.param("t.arrow", b"ARROW1", id="Arrow"),
        pytest.param("t.csv.zst", zstd(b"a\n1\n"), id="zstd", marks=WITHOUT_ZSTD),
    ],
)
def test_what_needs_pyarrow_says_so(read, tmp_path, monkeypatch, name, content):
    (tmp_path / name).write_bytes(content)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = failure(read, files=name)
    assert "pip install 'pe-cli[tables]'" in error.hint


def test_skip_that_leaves_nothing(read, tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    assert "skip: 1 leaves none of 1 rows" in failure(read, files="t.csv", skip=1).message


@pytest.mark.parametrize(("first", "names"), [
    ("country,1999,2000,2001", ("country", "1999", "2000", "2001")), ("1999,2000,2001,2002", ("1999", "2000", "2001", "2002")),
    ("fr,1999,2003,2001", ("0", "1", "2", "3")), ("fr,1999,2000,20", ("0", "1", "2", "3")),
])  # fmt: skip
def test_years_in_a_row_are_a_header(tmp_path, first, names):
    (tmp_path / "t.csv").write_text(f"{first}\nde,5,6,7\nfr,8,9,10\n")
    found = open_reader("table", {"files": "t.csv"}, tmp_path)
    assert found.names == names  # type: ignore[union-attr]
