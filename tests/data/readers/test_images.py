"""Folders of pictures, and tables with their paths."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pe_cli.core.errors import ExitCode, PeError


@pytest.fixture
def draw(tmp_path):
    """Write small pictures: draw("cat/a.png", "dog/b.jpg")."""

    def write(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 3)).save(path)

    return write


def column(table, name):
    return [table.cells(name).text(i) for i in range(len(table))]


def raised(read, **options):
    with pytest.raises(PeError) as found:
        read("images", **options)
    return found.value


def test_a_folder_per_class(read, draw):
    draw("set/dog/b.png", "set/dog/a.jpg", "set/cat/2.webp", "set/cat/deeper/1.bmp", "set/cat/10.PNG")
    table = read("images", folder="set")
    assert table.names == ("image", "label", "file")
    assert column(table, "image") == ["cat/10.PNG", "cat/2.webp", "cat/deeper/1.bmp", "dog/a.jpg", "dog/b.png"]
    assert column(table, "label") == ["cat", "cat", "cat", "dog", "dog"]
    assert column(table, "file") == column(table, "image")
    assert table.implied == {"image": {"type": "image"}, "label": {"type": "category"}}


def test_a_class_may_have_the_name_of_a_missing_cell(read, draw):
    draw("set/NA/a.png", "set/null/b.png")
    codes = read("images", folder="set").cells("label").codes()
    assert codes.words == ["NA", "null"]
    assert codes.codes.tolist() == [0, 1]


def test_pictures_without_classes_have_no_label(read, draw):
    draw("set/b.png", "set/a.png")
    table = read("images", folder="set")
    assert table.names == ("image", "file")
    assert column(table, "image") == ["a.png", "b.png"]


def test_single_pictures_are_named_or_matched(read, draw, tmp_path):
    draw("set/b.png", "set/a.png", "other/c.png")
    assert column(read("images", files="set/*.png"), "image") == ["a.png", "b.png"]
    table = read("images", files=["other/c.png", "set/a.png"])
    assert column(table, "image") == ["other/c.png", "set/a.png"]
    assert table.folder == tmp_path


def test_the_column_of_pictures_may_have_another_name(read, draw):
    draw("one/a.png", "one/b.png", "classes/cat/c.png")
    table = read("images", folder="one", path="photo")
    assert table.names == ("photo", "file")
    assert column(table, "photo") == ["a.png", "b.png"]
    assert table.implied == {"photo": {"type": "image"}}
    assert read("images", files="one/*.png", path="file").names == ("file",)
    assert read("images", folder="classes", path="photo").names == ("photo", "label", "file")


def test_hidden_files_are_left_out(read, draw):
    draw("set/cat/a.png", "set/cat/.b.png", "set/.hidden/c.png")
    assert column(read("images", folder="set"), "image") == ["cat/a.png"]


def test_the_first_ones_may_be_skipped_and_their_number_limited(read, draw):
    draw(*(f"set/{i}.png" for i in range(6)))
    assert column(read("images", folder="set", skip=1, limit=3), "image") == ["1.png", "2.png", "3.png"]
    assert "skip: 6 leaves none of 6 pictures" in raised(read, folder="set", skip=6).message


def test_a_table_with_a_column_of_paths(read, draw, tmp_path):
    draw("data/one.png", "data/two.png")
    (tmp_path / "data/rows.csv").write_text("id,path,age\n7,two.png,3.5\n8,one.png,4\n")
    table = read("images", table="data/rows.csv", path="path")
    assert table.names == ("id", "path", "age")
    assert column(table, "path") == ["two.png", "one.png"]
    assert table.cells("age").numbers().values.tolist() == [3.5, 4.0]
    assert table.implied == {"path": {"type": "image"}}
    assert table.folder == tmp_path / "data"
    with pytest.raises(PeError, match=r"rows\.csv:3:3: error: .*oh"):
        raise table.error(1, "path", "oh")


def test_options_of_the_table_and_the_folder_of_its_paths(read, draw, tmp_path):
    draw("pictures/one.png")
    (tmp_path / "rows.csv").write_text("file;age\none.png;3\none.png;4\n")
    table = read("images", table={"files": "rows.csv", "delimiter": ";"}, path="file", folder="pictures", limit=1)
    assert len(table) == 1
    assert table.folder == tmp_path / "pictures"


def test_broken_files_are_left_out_where_it_is_said(read, draw, tmp_path):
    draw("set/cat/a.png", "set/cat/b.png")
    (tmp_path / "set/cat/b.png").write_text("text")
    (tmp_path / "set/cat/notes.txt").write_text("text")
    (tmp_path / "set/dog").mkdir()
    table = read("images", folder="set", broken="skip")
    assert column(table, "image") == ["cat/a.png"]
    assert table.implied["image"] == {"type": "image", "broken": "skip"}
    (tmp_path / "set/cat/a.png").write_text("text")
    assert "has no picture that can be read" in raised(read, folder="set", broken="skip").message


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        pytest.param({"cat/a.txt": "", "cat/b.txt": ""}, "a.txt, and 1 more files: not .png, .jpg", "set broken: skip", id="other files"),
        pytest.param({"dog/": ""}, "class 'dog' has no picture", "remove the folder", id="an empty class"),
        pytest.param({"extra.png": ""}, "extra.png lies beside folders of classes (cat)", "move it into one", id="no class"),
    ],
)
def test_what_else_lies_in_the_folder_is_named(read, draw, tmp_path, files, message, hint):
    draw("set/cat/a.png")
    for name, text in files.items():
        path = tmp_path / "set" / name
        path.mkdir() if name.endswith("/") else path.write_text(text)
    error = raised(read, folder="set")
    assert message in error.message
    assert hint in error.hint
    assert error.code == ExitCode.DATA


def test_links_to_folders_are_refused(read, draw, tmp_path):
    draw("set/cat/a.png", "other/b.png")
    (tmp_path / "set/dog").symlink_to(tmp_path / "other")
    assert "dog is a symbolic link to a folder, which is not followed" in raised(read, folder="set").message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "name one of folder, files and table", id="nothing"),
        pytest.param({"folder": "a", "files": "b"}, "folder and files both say which pictures there are", id="folder and files"),
        pytest.param({"table": "a.csv"}, "table needs path", id="a table without a path"),
        pytest.param({"folder": "a", "path": "label"}, "label is that of their classes", id="pictures that are called as classes are"),
        pytest.param({"folder": "absent"}, "there is no folder", id="no folder"),
        pytest.param({"folder": "empty"}, "has no pictures", id="an empty folder"),
        pytest.param({"folder": "rows.csv"}, "is a file, not a folder", id="a file"),
        pytest.param({"table": "rows.csv", "path": "paht"}, "the table has no column 'paht'", id="another column"),
    ],
)
def test_options_that_cannot_be_followed(read, tmp_path, options, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.csv").write_text("path\na.png\n")
    error = raised(read, **options)
    assert message in error.message
    assert error.code in (ExitCode.DATA, ExitCode.USAGE)


def test_folders_are_listed_alike_on_every_machine(read, draw):
    names = [f"set/{'abc'[i % 3]}/{n}.png" for i, n in enumerate(np.random.default_rng(0).permutation(30))]
    draw(*names)
    found = column(read("images", folder="set"), "image")
    assert found == sorted(name.removeprefix("set/") for name in names)
