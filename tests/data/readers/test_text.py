"""The text reader: lines, files, folders and blocks; places of mistakes."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.text_files import MAX_PIECE, MIN_PIECE, TextFiles

ALWAYS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def texts(table, name="text"):
    cells = table.cells(name)
    return [cells.text(row) for row in range(len(table))]


def test_a_row_is_a_line_that_holds_more_than_blanks(read, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\n\n \t\ntwo words \rthree")
    table = read("text", files="a.txt")
    assert table.names == ("text",)
    assert texts(table) == ["one", "two words ", "three"]
    assert dict(table.implied) == {"text": {"type": "text"}}


def test_lines_of_several_files(read, tmp_path):
    (tmp_path / "b.txt").write_text("three\n")
    (tmp_path / "a.txt").write_text("one\ntwo")
    assert texts(read("text", files="*.txt")) == ["one", "two", "three"]
    assert texts(read("text", files=["b.txt", "a.txt"], skip=1, limit=1)) == ["one"]


@given(lines=st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1), min_size=1, max_size=20))
@ALWAYS
def test_lines_come_back(read, tmp_path, lines):
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    assert texts(read("text", files="a.txt")) == lines


def test_a_row_is_a_file(read, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "b.txt").write_bytes(b"three")
    table = read("text", files="*.txt", per="file")
    assert table.names == ("text", "file")
    assert texts(table) == ["one\ntwo\n", "three"]
    assert [name.rpartition("/")[2] for name in texts(table, "file")] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("per", "found", "labels"),
    [
        pytest.param("line", ["a", "b", "c", "d"], ["NA", "NA", "no", "no"], id="lines"),
        pytest.param("file", ["a\nb", "c", "d"], ["NA", "no", "no"], id="files"),
    ],
)
def test_a_folder_has_a_folder_per_class(read, tmp_path, per, found, labels):
    for name, text in {"NA/1.txt": "a\nb", "no/1.txt": "c", "no/deep/2.txt": "d", "no/.hidden": "x"}.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    table = read("text", folder="texts", per=per)
    assert texts(table) == found
    assert texts(table, "label") == labels
    assert table.cells("label").codes().words == ["NA", "no"]
    assert table.implied["label"] == {"type": "category"}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        pytest.param("é\nb\n".encode("latin-1"), {"encoding": "latin-1"}, id="another encoding"),
        pytest.param("é\nb\n".encode("utf-8-sig"), {}, id="a byte-order mark"),
        pytest.param("é\nb\n".encode("utf-16"), {}, id="UTF-16 with a byte-order mark"),
        pytest.param(gzip.compress("é\nb\n".encode()), {}, id="packed by gzip"),
    ],
)
def test_encodings(read, tmp_path, data, options):
    (tmp_path / "a.txt").write_bytes(data)
    assert texts(read("text", files="a.txt", **options)) == ["é", "b"]


@pytest.mark.parametrize(
    ("data", "place", "said"),
    [
        pytest.param(b"ab\ncd\0e", ":2:3:", "a NUL byte", id="a NUL byte"),
        pytest.param(b"ab\ncd\xe9 e", ":2:3:", "byte 0xe9 is no UTF-8", id="another encoding"),
        pytest.param(b"\xff", ":1:1:", "byte 0xff is no UTF-8", id="one byte"),
        pytest.param(b"x" * (1 << 20) + b"\n" * 5 + b"\xc3", ":6:1:", "byte 0xc3 is no UTF-8", id="cut off, behind a megabyte"),
        pytest.param(b"x" * ((1 << 20) - 1) + "é".encode() + b"\n\0", ":2:1:", "a NUL byte", id="a character over a megabyte's end"),
        pytest.param(b"", "", "is empty", id="an empty file"),
        pytest.param(b" \n\t\n", "", "has blanks alone", id="blanks alone"),
        pytest.param(b"%PDF-1.4", "", "is a PDF", id="another kind of file"),
    ],
)
def test_files_that_are_no_text(read, tmp_path, data, place, said):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(PeError, match=said) as caught:
        read("text", files="a.txt")
    assert caught.value.code == ExitCode.DATA
    assert f"a.txt{place}" in caught.value.render()
    assert caught.value.hint


def test_a_mistake_in_the_second_file_has_its_place(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.txt").write_bytes(b"x\ny\0")
    with pytest.raises(PeError, match=r"b\.txt:2:2: error: a NUL byte"):
        read("text", files="*.txt")


def test_an_error_at_a_row_has_the_line_of_the_file(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("\n\nthree\nfour\n")
    table = read("text", files="*.txt", skip=1)
    assert table.error(0, "text", "wrong").render().startswith(f"{tmp_path}/a.txt:3:1: error: column 'text': wrong\n      two\n")
    assert table.error(2, "text", "wrong").render().startswith(f"{tmp_path}/b.txt:4:1: error: column 'text': wrong\n      four\n")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param([], "there is no folder", id="no folder"),
        pytest.param([""], "has no files", id="nothing in it"),
        pytest.param(["yes/a.txt", "b.txt"], "b.txt lies beside folders of classes", id="a text beside the folders"),
        pytest.param(["yes/a.txt", "no/ -> /etc/hostname"], "is a symbolic link", id="a link out of the folder"),
    ],
)
def test_wrong_folders(read, tmp_path, made, said):
    for name in made:
        path, _, target = name.partition(" -> ")
        path = tmp_path / "texts" / path
        if target:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        elif path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        else:
            path.mkdir(parents=True)
    with pytest.raises(PeError, match=said) as caught:
        read("text", folder="texts")
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({}, "name one of files and folder", id="no text"),
        pytest.param({"files": "a", "folder": "b"}, "keep one", id="both"),
        pytest.param({"files": "a", "per": "line", "blocks": 3}, "per and blocks both say", id="lines and blocks"),
        pytest.param({"files": "a", "stride": 3}, "add blocks: 64", id="a stride of nothing"),
        pytest.param({"files": "a", "encoding": "utf8000"}, "no encoding of text that Python knows", id="an encoding"),
        pytest.param({"files": "a", "blocks": True}, "blocks", id="blocks: true"),
    ],
)
def test_wrong_options(read, options, said):
    with pytest.raises(PeError, match=said) as caught:
        read("text", **options)
    assert caught.value.code == ExitCode.USAGE


def test_rows_that_skip_leaves_none_of(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(PeError, match="skip: 1 leaves none of 1 rows"):
        read("text", files="a.txt", skip=1)


def test_a_file_that_was_cut_since_is_no_crash(read, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n" * 10_000)
    table = read("text", files="a.txt", per="file")
    with (tmp_path / "a.txt").open("r+") as file:
        file.truncate(10)
    with pytest.raises(PeError, match="was changed while it is read") as caught:
        table.cells("text")
    assert caught.value.code == ExitCode.DATA


@given(
    parts=st.lists(
        st.one_of(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30),
            st.sampled_from(["\n", " ", "x" * 700, "é" * 2100, "\n\n"]),
        ),
        min_size=1,
        max_size=30,
    )
)
@ALWAYS
def test_pieces_make_up_the_text_and_cut_no_character(read, tmp_path, parts):
    text = "".join(parts)
    (tmp_path / "a.txt").write_bytes(text.encode())
    from pe_cli.data.reader_context import Origin

    files = TextFiles.read([tmp_path / "a.txt"], "utf-8", Origin(tmp_path))
    bounds = files.pieces()
    assert bounds[0] == 0
    assert bounds[-1] == len(files.buffer)
    sizes = np.diff(bounds)
    assert (sizes[:-1] >= MIN_PIECE).all()
    assert (sizes <= MAX_PIECE + 3).all()
    data = files.buffer.tobytes()
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        data[start:stop].decode()
        if stop < len(data) and stop - start < MAX_PIECE:
            assert data[stop - 1] == 10 or data[stop : stop + 1].isspace()
