"""The csv reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data import open_reader
from pe_cli.data.column import Context, discover
from pe_cli.data.column_declarations import check_columns
from pe_cli.data.fields import FieldDataset

TABLE = "a,b,kind\n1,2.5,dog\n-3,4e1,cat\n5,6,dog\n"
SHIPPED = Path(__file__).parents[3] / "configs/data"


def encoded(table, other=None):
    """Return the samples of a table, or of another with what the first has taught."""
    fields, classes = {}, {}
    for name, (kind, options) in check_columns({name: (given, None) for name, given in table.implied.items()}).items():
        column = discover()[kind]
        state = column.fit(options, Context(table, name, target=name == "label"), None)
        fields[name] = column.encode(options, state, Context(other or table, name, target=name == "label"))
        classes |= {name: column.classes(state)} if column.classes(state) else {}
    return FieldDataset(fields, None, classes)


@pytest.fixture
def opened(read, tmp_path):
    def open_table(text, **options):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "t.csv").write_bytes(content)
        return read("csv", file="t.csv", **options)

    return open_table


@pytest.fixture
def table(opened):
    return lambda text, **options: encoded(opened(text, **options))


def everything(data):
    batch = data.take(np.arange(len(data)))
    return {name: values.tolist() for name, values in batch.items()}


@pytest.mark.parametrize(
    ("text", "options", "features", "label"),
    [
        pytest.param(
            TABLE, {"label": "kind"}, [[1, 2.5], [-3, 40], [5, 6]], [[1], [0], [1]], id="names are sorted classes"
        ),
        pytest.param(
            TABLE,
            {"label": "kind", "classes": ["dog", "cat"]},
            [[1, 2.5], [-3, 40], [5, 6]],
            [[0], [1], [0]],
            id="classes give the order",
        ),
        pytest.param(
            TABLE, {"features": ["b", "a"]}, [[2.5, 1], [40, -3], [6, 5]], None, id="features in the order given"
        ),
        pytest.param(TABLE, {"features": [1], "label": 0}, [[2.5], [40], [6]], [[1], [-3], [5]], id="columns by index"),
        pytest.param("1,2\n3,4\n", {}, [[1, 2], [3, 4]], None, id="a table without header is recognised"),
        pytest.param("1,2\n3,4\n", {"header": True}, [[3, 4]], None, id="numbers as a header when told so"),
        pytest.param("1,2\n3,4\n", {"label": 1}, [[1], [3]], [[2], [4]], id="whole numbers are labels as they are"),
        pytest.param("x;y\n1;2\n", {"delimiter": ";"}, [[1, 2]], None, id="another delimiter"),
        pytest.param("x\ty\n1\t2\n", {"delimiter": "\t"}, [[1, 2]], None, id="tabs"),
        pytest.param("x, y\n1, 2\n", {"features": ["y"]}, [[2]], None, id="blanks around cells do not count"),
        pytest.param('x,"y,z"\n1,"2"\n', {"features": ["y,z"]}, [[2]], None, id="quoted cells"),
        pytest.param("x,y\r\n1,2\r\n", {}, [[1, 2]], None, id="lines of Windows"),
        pytest.param("\ufeffx,y\n1,2\n", {"features": ["x"]}, [[1]], None, id="a byte-order mark is no part of a name"),
        pytest.param("x,y\n\n1,2\n\n", {}, [[1, 2]], None, id="blank lines are left out"),
        pytest.param("x,y\n1,2", {}, [[1, 2]], None, id="no newline at the end"),
        pytest.param(
            "x,y\n1,7\n2,3\n", {"label": "y", "classes": [3, 7]}, [[1], [2]], [[1], [0]], id="numbers as classes"
        ),
    ],
)
def test_values(table, text, options, features, label):
    data = table(text, **options)
    found = everything(data)
    assert found["features"] == features
    assert found.get("label") == label
    assert data.fields["features"] == TensorType((len(features[0]),), "float32")
    assert label is None or data.fields["label"] == TensorType((1,), "int64")


@pytest.mark.parametrize("label", ["2.5", "3.0", "1e3", "-0.5"])
def test_a_label_with_a_fraction_makes_all_of_them_float32(table, label):
    data = table(f"x,y\n1,2\n3,{label}\n", label="y")
    assert data.fields["label"] == TensorType((1,), "float32")
    assert everything(data)["label"] == [[2], [float(label)]]


def test_names_of_classes_are_known(table):
    assert table(TABLE, label="kind").classes == {"label": ("cat", "dog")}
    assert table("1,2\n", label=1).classes == {}


@pytest.mark.parametrize(
    ("text", "options", "place", "message"),
    [
        pytest.param("a,b\n1,2\n3,x4\n", {}, "3:3", "column 'b': 'x4' is no finite number", id="no number"),
        pytest.param("1,2\n3,oops\n", {}, "2:3", "column '1': 'oops'", id="no number, without header"),
        pytest.param("a,b\n1,\n", {}, "2:3", "column 'b': the cell is missing", id="an empty cell"),
        pytest.param("a,b\n1,nan\n", {}, "2:3", "'nan' is no finite", id="nan"),
        pytest.param("a,b\ninf,1\n", {}, "2:1", "'inf' is no finite", id="infinity"),
        pytest.param("a,b\n1,1e39\n", {}, "2:3", "'1e39' is too large for float32", id="more than float32 holds"),
        pytest.param("a,b\n1,1_000\n", {}, "2:3", "'1_000' is no finite", id="underscores, which only Python knows"),
        pytest.param('a,b\n1,2\n"3",z\n', {}, "3:5", "'z' is no finite", id="the line where cells are quoted"),
        pytest.param("a,b\n1,2\n3\n", {}, "3:1", "1 cell, but line 1 has 2", id="too few cells"),
        pytest.param("a,b\n1,2\n3,4,5\n", {}, "3:1", "3 cells, but line 1 has 2", id="too many cells"),
        pytest.param('a,b\n1,"2\n3,4\n', {}, "2:3", "never closed", id="a quote that is not closed"),
        pytest.param(
            "a,b\n1,x\n2,7\n", {"label": "b"}, "3:3", "label '7' is a number, unlike those before", id="mixed"
        ),
        pytest.param(
            "a,b\n1,7\n2,x\n", {"label": "b"}, "3:3", "label 'x' is no number, unlike", id="mixed the other way"
        ),
        pytest.param("a,b\n1,x\n2,\n", {"label": "b"}, "3:3", "the cell is missing", id="an empty label"),
        pytest.param(
            "a,b\n1,dog\n2,cow\n",
            {"label": "b", "classes": ["cat", "dog"]},
            "3:3",
            "'cow' is not among the 2",
            id="a label outside classes",
        ),
        pytest.param("a,b\n1,99999999999999999999\n", {"label": "b"}, "2:3", "is no whole number", id="a huge label"),
        pytest.param("a,a\n1,2\n", {"features": ["a"]}, "1:3", "2 columns are named 'a'", id="a name of two columns"),
    ],
)
def test_bad_cells_are_named_with_line_and_column(table, tmp_path, text, options, place, message):
    with pytest.raises(PeError, match=message) as caught:
        table(text, **options)
    assert f"{tmp_path / 't.csv'}:{place}:" in caught.value.render()
    assert caught.value.code is ExitCode.DATA
    assert "run.yaml:3:5: note: the table is read here" in caught.value.render()


def test_the_whole_error_as_the_user_sees_it(table, tmp_path):
    with pytest.raises(PeError) as caught:
        table("width,height\n1,2\n3,4.x\n")
    assert caught.value.render() == (
        f"{tmp_path}/t.csv:3:3: error: column 'height': '4.x' is no finite number\n"
        "      3,4.x\n"
        "        ^^^\n"
        "run.yaml:3:5: note: the table is read here\n"
        "hint: correct the cells, declare height: {type: category}, or list such texts under the reader's missing"
    )


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        pytest.param(TABLE, {"features": ["aa"]}, "has no column 'aa'", "did you mean 'a'", id="a misspelt column"),
        pytest.param(
            TABLE, {"features": ["zzz"]}, "has no column 'zzz'", "its first row is a, b, kind", id="no such column"
        ),
        pytest.param(
            TABLE, {"features": [3]}, "has 3 columns, and no column 3", "count from 0", id="an index too high"
        ),
        pytest.param(
            TABLE, {"features": ["a"], "header": False}, "header is false", "index", id="a name without header"
        ),
        pytest.param("a,b\n", {}, "has a header and no rows", "header: false", id="a header only"),
        pytest.param("\n\n", {}, "has no rows", "", id="blank lines only"),
        pytest.param("a\n1\n", {"label": "a"}, "no column but the label", "delimiter", id="nothing but a label"),
        pytest.param(b"a,b\n1,\xff\n", {}, "is not UTF-8 text: byte 0xff", "save it as UTF-8", id="another encoding"),
    ],
)
def test_bad_tables(table, text, options, message, hint):
    with pytest.raises(PeError, match=message) as caught:
        table(text, **options)
    assert hint in caught.value.hint
    assert caught.value.code is ExitCode.DATA


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"features": [-1]}, "features.0", id="a negative index"),
        pytest.param({"features": []}, "features must not be empty", id="no feature"),
        pytest.param({"label": True}, "label", id="a label that is no column"),
        pytest.param({"delimiter": ",,"}, "delimiter must have at most 1 character, got", id="a delimiter of two characters"),
        pytest.param({"delimiter": '"'}, "cannot stand between cells", id="a quote as delimiter"),
        pytest.param({"header": "yes"}, "header", id="a header that is neither true nor false nor auto"),
        pytest.param({"classes": ["a", "b", "a"]}, "class 'a' is listed twice", id="a class twice"),
    ],
)
def test_bad_options(table, options, message):
    with pytest.raises(PeError, match=message) as caught:
        table(TABLE, **options)
    assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("part", "each"),
    [
        pytest.param({"limit": 120}, 40, id="the first 120 rows have 40 of each species"),
        pytest.param({"skip": 120}, 10, id="the last 30 rows have 10 of each species"),
    ],
)
def test_iris(part, each):
    data = encoded(open_reader("csv", {"file": "iris.csv", "label": "species", **part}, SHIPPED))
    batch = data.take(np.arange(len(data)))
    assert np.bincount(batch["label"][:, 0]).tolist() == [each] * 3
    assert data.fields["features"] == TensorType((4,), "float32")


def test_iris_has_the_means_that_are_published():
    # the summary statistics in UCI's iris.names
    data = encoded(open_reader("csv", {"file": "iris.csv", "label": "species"}, SHIPPED))
    means = data.take(np.arange(150))["features"].mean(axis=0, dtype=np.float64)
    assert means.tolist() == pytest.approx([5.84, 3.05, 3.76, 1.20], abs=0.01)


def test_columns_of_another_file_are_found_by_name(opened, tmp_path):
    train = opened(TABLE, label="kind")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "t.csv").write_text("kind,extra,b,a\ndog,9,40,-3\n")
    other = open_reader("csv", {"file": "other/t.csv"}, tmp_path)
    assert everything(encoded(train, other)) == {"features": [[-3, 40]], "label": [[1]]}


def test_a_file_that_lacks_a_class_keeps_the_indices_of_training(opened, tmp_path):
    train = opened(TABLE, label="kind")
    (tmp_path / "other.csv").write_text("a,b,kind\n1,2,dog\n")
    other = open_reader("csv", {"file": "other.csv", "label": "kind"}, tmp_path)
    assert everything(encoded(train, other))["label"] == [[1]]


def test_a_class_that_training_never_saw_is_an_error(opened, tmp_path):
    train = opened(TABLE, label="kind")
    (tmp_path / "other.csv").write_text("a,b,kind\n1,2,dog\n3,4,cow\n")
    other = open_reader("csv", {"file": "other.csv", "label": "kind"}, tmp_path)
    with pytest.raises(PeError, match="'cow' is not among the 2 classes of the training rows") as caught:
        encoded(train, other)
    assert (caught.value.at.file, caught.value.at.line) == (str(tmp_path / "other.csv"), 3)
    assert caught.value.code is ExitCode.DATA
