"""CSV by our kernels, beside Python's csv module and pandas."""

from __future__ import annotations

import csv
import io
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import MISSING
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables import csv as tables
from pe_cli.data.tables import row_starts as scans
from pe_cli.data.tables.csv import CsvPart
from pe_cli.data.tables.table_files import PartsTable
from pe_cli.data.tables.text_source import Spool, open_source

BLANKS = " \t\n\r\v\f"
#: Characters that decide something, some that are blanks, and some of two to four bytes.
CELL = st.text(alphabet='ab1. ,;"\n\r\té\u2028漢😀-NA', max_size=12)


@pytest.fixture
def part(tmp_path):
    """Read text as one CSV file: part(text, threads=...)."""

    def read(text, *, delimiter=",", header=True, missing=MISSING, most=None, threads=None):
        path = tmp_path / "t.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        origin = Origin(tmp_path)
        return CsvPart(open_source(path, "auto", origin, Spool()), delimiter, header, missing, most, threads)

    return read


@pytest.fixture
def table(part, tmp_path):
    """Read text as a table."""

    def read(text, *, skip=0, limit=None, missing=MISSING, **options):
        found = part(text, missing=missing, **options)
        return PartsTable([found], Origin(tmp_path), skip, limit, frozenset(missing))

    return read


def texts(cells):
    strings = cells.strings()
    return [strings[i] for i in range(len(strings))]


def words(cells):
    codes = cells.codes()
    return [None if code < 0 else codes.words[code] for code in codes.codes.tolist()]


@st.composite
def written_tables(draw):
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=12))
    # some versions of Python's writer leave ends of lines without quotes that are not its own
    bare = width > 1 and not any(end in cell for row in rows for cell in row for end in "\r\n") and draw(st.booleans())
    delimiter = draw(st.sampled_from([",", ";", "\t", "|"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n \r\n"]))
    out = io.StringIO()
    csv.writer(
        out, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if bare else csv.QUOTE_ALL, lineterminator=end
    ).writerows([[f"c{i}" for i in range(width)], *rows])
    return out.getvalue(), delimiter, rows


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(written_tables(), st.booleans())
def test_cells_are_those_that_pythons_csv_module_wrote(table, written, cut):
    text, delimiter, rows = written
    found = table(text.rstrip("\r\n") if cut and not text.endswith('"\r') else text, delimiter=delimiter, missing=[])
    assert len(found) == len(rows)
    for i, name in enumerate(found.names):
        column = [row[i].strip(BLANKS) for row in rows]
        assert texts(found.cells(name)) == column
        known = list(dict.fromkeys(cell.strip() for cell in column if cell.strip()))
        assert found.cells(name).codes().words == known
        assert words(found.cells(name)) == [cell.strip() or None for cell in column]
        assert [found.cells(name).text(row) for row in range(len(rows))] == [cell.strip() for cell in column]


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(["", "NA", " 7 ", "1e400", "5e-324", "12345678901234567890.5", "-0"]),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_numbers_are_those_of_pandas(table, rows):
    text = "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows)
    found = table(text)
    frame = pd.read_csv(io.StringIO(text), dtype=str, skip_blank_lines=False)
    for name in found.names:
        numbers = found.cells(name).numbers()
        expected = np.array(frame[name], np.float64)
        infinite = np.isinf(expected)
        expected[infinite] = np.nan
        np.testing.assert_array_equal(numbers.values, expected)
        assert numbers.bad_count == infinite.sum()
        assert numbers.bad.tolist() == np.flatnonzero(infinite)[:5].tolist()


def wide(rows):
    """Return a table whose words change along the file, with cells of every kind."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["n", "hard", "word", "id", "text"])
    for i in range(rows):
        text = f'line {i}\nsays "{i % 7}", é' if i % 5 == 0 else f"plain {i * i % 1000}"
        number = "" if i % 50 == 3 else "x" if i % 997 == 5 else i / 7
        writer.writerow([number, f"{i}.{'123456789' * 3}", f"w{i * i % (i // 100 + 2)}", f"id {i}", text])
    return out.getvalue()


@pytest.fixture
def small_windows(monkeypatch):
    """Let windows be small, so that a small file has many."""
    monkeypatch.setattr(tables, "WINDOW", 4096)
    monkeypatch.setattr(scans, "WINDOW", 4096)
    monkeypatch.setattr(scans, "SHARE", 8192)


@pytest.fixture(scope="module")
def big():
    return wide(4000)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_any_number_of_threads_finds_what_the_csv_module_finds(table, big, threads):
    rows = list(csv.DictReader(io.StringIO(big, newline="")))
    found = table(big, threads=threads)
    found.prepare(["n", "hard"], ["word", "id", "text"])
    bad = [i for i, row in enumerate(rows) if row["n"] == "x"]
    expected = np.array([float(row["n"]) if row["n"] not in ("", "x") else np.nan for row in rows])
    numbers = found.cells("n").numbers()
    assert numbers.values.tobytes() == expected.tobytes()
    assert (numbers.bad.tolist(), numbers.bad_count) == (bad[:5], len(bad))
    assert found.cells("hard").numbers().values.tolist() == [float(row["hard"]) for row in rows]
    for name in ("word", "id", "text"):
        column = [row[name] for row in rows]
        codes = found.cells(name).codes()
        assert codes.words == list(dict.fromkeys(column))
        assert words(found.cells(name)) == column
    assert texts(found.cells("text")) == [row["text"] for row in rows]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(("skip", "limit"), [(0, 1), (255, 3), (256, 512), (3999, None), (1000, 2500), (0, 4000)])
def test_skip_and_limit_take_rows(table, big, skip, limit):
    rows = list(csv.DictReader(io.StringIO(big, newline="")))[skip:][:limit]
    found = table(big, skip=skip, limit=limit)
    assert len(found) == len(rows)
    assert words(found.cells("id")) == [row["id"] for row in rows]
    assert found.cells("hard").numbers().values.tolist() == [float(row["hard"]) for row in rows]
    assert texts(found.cells("text")) == [row["text"] for row in rows]
    assert found.cells("text").text(len(rows) - 1) == rows[-1]["text"]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("length", [100, 4094, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("filling", ["x", "é", "漢", "😀", '""', "\n", ",", " "])
def test_a_cell_may_lie_across_windows(table, length, filling):
    inner = (filling * length)[:length] if len(filling.encode()) == 1 else filling * (length // len(filling.encode()))
    found = table(f'a,b\n1,"<{inner}>"\n2,after\n')
    assert texts(found.cells("b")) == [f"<{inner.replace(chr(34) * 2, chr(34))}>", "after"]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("offset", range(4070, 4110))
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_end_of_a_window_may_be_anywhere(table, offset, end):
    rows = [["é" * (offset // 2), '"q"'], ["x", ' "y'], ["", "z"]]
    text = end.join(["a,b", *('"{}" , "{}" '.format(*(cell.replace('"', '""') for cell in row)) for row in rows)])
    found = table(text)
    assert [texts(found.cells(name)) for name in "ab"] == [
        [cell.strip() for cell in column] for column in zip(*rows, strict=True)
    ]


def test_only_so_many_rows_are_looked_at(part):
    text = "a,b\n" + "1,2\n" * 600 + "broken\n"
    assert len(part(text, most=600)) == 600
    assert len(part(text, most=10)) == 10


def test_a_column_is_read_as_numbers_and_as_codes(table):
    found = table("a\n1\n2\n1.0\n")
    found.prepare(["a"], ["a"])
    assert found.cells("a").numbers().values.tolist() == [1, 2, 1]
    assert words(found.cells("a")) == ["1", "2", "1.0"]
    assert found.cells("a").numbers() is found.cells("a").numbers()


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param(MISSING, [None, None, "?", "-"], id="what is usual"),
        pytest.param(["?", "-"], [None, "NA", None, None], id="what the options say, and the empty cell"),
        pytest.param([], [None, "NA", "?", "-"], id="the empty cell at least"),
    ],
)
def test_missing_cells(table, missing, expected):
    found = table('a,b\n"",1\n NA ,1\n?,1\n-,1\n', missing=missing)
    assert words(found.cells("a")) == expected
    assert texts(found.cells("a")) == [text or "" for text in expected]
    assert found.cells("a").numbers().bad_count == sum(text is not None for text in expected)


def test_many_distinct_words_make_tables_grow(table):
    count = 30_000
    found = table("id,x\n" + "".join(f"key-{i * 7919 % count},{i}\n" for i in range(count)), threads=2)
    assert words(found.cells("id")) == [f"key-{i * 7919 % count}" for i in range(count)]


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.product(["x", "x" * 7, "x" * 8, "x" * 9, "x" * 16, "x" * 17], repeat=2))
)
def test_words_that_begin_alike_differ(table, a, b):
    assert words(table(f"w,n\n{a},1\n{b}y,1\n{a},1\n").cells("w")) == [a, b + "y", a]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize(
    "inner",
    [
        pytest.param("x\n", id="ends of lines"),
        pytest.param("1,2,3\n4\n", id="rows of other numbers of cells"),
        pytest.param('""\n"",\n', id="quotes at ends of lines"),
        pytest.param('a ""b""\n\n \n', id="quotes and blank lines"),
    ],
)
def test_a_cell_may_hold_where_threads_begin(table, threads, inner):
    cells = [inner * 2000, "y", inner * 5000, inner * 10]
    found = table("a,b\n" + "".join(f'{i},"<{cell}>"\n' for i, cell in enumerate(cells)), threads=threads)
    assert texts(found.cells("b")) == [f"<{cell.replace(chr(34) * 2, chr(34))}>" for cell in cells]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(b"1,2,3\n", "3 cells, but line 1 has 2", id="a long row"),
        pytest.param(b"1\n", "1 cell, but line 1 has 2", id="a short row"),
        pytest.param(b'1,"2\n', "opened here and never closed", id="an open quote"),
        pytest.param(b'1,"2"x\n', "behind the closing quote", id="text behind a quote"),
        pytest.param(b"1,\xff\n", "not UTF-8", id="no text"),
        pytest.param(b"1,\0\n", "a byte is 0", id="NUL"),
    ],
)
@pytest.mark.parametrize("line", [2, 4000, 9000, 14_999])
def test_the_first_mistake_is_told_whoever_finds_it(part, threads, wrong, message, line):
    good = b"1,2\n" * 15_000
    text = b"a,b\n" + good[: 4 * (line - 2)] + wrong + good[4 * (line - 2) :][: 4 * (15_000 - line)] + b"9,9,9,9\n"
    with pytest.raises(PeError, match=message) as caught:
        part(text, threads=threads)
    assert caught.value.at.line == line


def test_a_row_that_is_too_long_is_told_before_it_is_read(part, monkeypatch):
    monkeypatch.setattr(scans, "LONGEST", 1 << 21)
    assert len(part("a,b\n" + 2**17 * "1,1234567\n" + "1," + "x" * (1 << 20) + "\n")) == 2**17 + 1
    with pytest.raises(PeError, match=r"row 3 has more than 2,097,152 bytes") as caught:
        part("a,b\n1,2\n1," + "x" * (3 << 20) + "\n")
    assert caught.value.at.line == 3
