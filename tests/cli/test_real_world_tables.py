"""Tables as people have them: what `pe init --from` takes their cells for, and that every command takes the same cells alike."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from pe_cli.config.load import load_run
from pe_cli.config.nodes import to_data
from tests.cli.conftest import Pe

ROWS = 120
Columns = Mapping[str, Sequence[object]]
GOAL = {"goal": [["low", "high", "mid"][i * 7 % 3] for i in range(ROWS)]}


def text_of(columns: Columns, delimiter: str = ",", end: str = "\r\n") -> str:
    """Return columns as CSV, with one of three classes as the last."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    columns = {**columns, **GOAL}
    writer.writerow(list(columns))
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


@pytest.fixture
def begin(pe: Pe, tmp_path: Path) -> Callable[..., tuple[dict[str, dict[str, object]], dict[str, object], str]]:
    """Return what writes a starter: the columns that its config declares, the options of its source, and what was said."""

    def call(columns: Columns, *options: object, delimiter: str = ",", encoding: str = "utf-8", end: str = "\r\n"):
        (tmp_path / "t.csv").write_bytes(text_of(columns, delimiter, end).encode(encoding))
        said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "t.csv", "--target", "goal", *options, "--force")
        assert said.code == 0, said.err
        run = load_run(tmp_path / "run.yaml")
        found = {name: to_data(spec.value) for name, spec in run.preparation.columns.items()}
        return found, to_data(run.data["train"].options), said.out

    return call


def rng() -> np.random.Generator:
    """Return random numbers that are the same for every test."""
    return np.random.default_rng(5)


def amounts(form: str, decimal: str = ".", group: str = ",") -> list[str]:
    """Return amounts of money between 3 and 90,000, in a form such as '{} €'."""
    plain = [f"{value:,.2f}" for value in np.exp(rng().uniform(1, 11.4, ROWS))]
    return [form.format(text.translate({ord(","): group, ord("."): decimal})) for text in plain]


SPREAD = [str(np.datetime64("2023-01-05") + 5 * int(i)) for i in rng().permutation(ROWS)]


def days(form: str) -> list[str]:
    """Return days of two years in a form of strftime."""
    return [np.datetime64(day).astype(object).strftime(form) for day in SPREAD]


NUMBER = {"type": "number", "missing": "median", "scale": "standard"}


@pytest.mark.parametrize(
    ("cells", "delimiter", "expected"),
    [
        pytest.param(amounts("{}", ",", "."), ";", NUMBER | {"decimal": ",", "thousands": "."}, id="German amounts"),
        pytest.param(amounts("{} €", ",", "."), ";", NUMBER | {"decimal": ",", "thousands": ".", "unit": "€"}, id="euros"),
        pytest.param(amounts("{}", ",", "\u202f"), ";", NUMBER | {"decimal": ",", "thousands": " "}, id="French amounts"),
        pytest.param(amounts("CHF {}", ".", "\u2019"), ";", NUMBER | {"thousands": "'", "unit": "CHF"}, id="Swiss amounts"),
        pytest.param(amounts("${}"), ",", NUMBER | {"thousands": ",", "unit": "$"}, id="dollars"),
        pytest.param([f"₹{i % 9 + 1},{i % 90 + 10},{i % 900 + 100}" for i in range(ROWS)], ",", NUMBER | {"thousands": ",", "unit": "₹"},
                     id="lakhs of rupees"),
        pytest.param([f"{i % 97},{i % 10} %" for i in range(ROWS)], ";", NUMBER | {"decimal": ",", "unit": "%"}, id="percent"),
        pytest.param([f"{i % 97}%" for i in range(ROWS)], ",", NUMBER | {"unit": "%"}, id="whole percents"),
        pytest.param([f"{50 + i % 50}.5 kg" for i in range(ROWS)], ",", NUMBER | {"unit": "kg"}, id="kilograms"),
        pytest.param([("k.A.", "-", f"{i % 17},5")[min(2, i % 9)] for i in range(ROWS)], ";",
                     NUMBER | {"decimal": ",", "missing": "median"}, id="several words for missing"),
        pytest.param([999 if i % 20 == 3 else 18 + i * 7 % 60 for i in range(ROWS)], ",",
                     NUMBER | {"empty": [999], "missing": "median"}, id="999 for missing"),
        pytest.param([f"{(i * 37) % 40 * 250 + 1067:05}" for i in range(ROWS)], ",", {"type": "category"}, id="German postcodes"),
        pytest.param([f"{(i * 37) % 40 * 250 + 10115}" for i in range(ROWS)], ",", {"type": "category"}, id="postcodes without zeros"),
        pytest.param(["wahr" if i % 3 else "falsch" for i in range(ROWS)], ",",
                     {"type": "bool", "yes": ["wahr"], "no": ["falsch"], "missing": True},
                     id="true and false in German"),
        pytest.param(["OUI" if i % 3 else "NON" for i in range(ROWS)], ",",
                     {"type": "bool", "yes": ["OUI"], "no": ["NON"], "missing": True},
                     id="yes and no in French"),
        pytest.param(days("%d.%m.%Y"), ",", {"type": "date", "format": "%d.%m.%Y"}, id="German days"),
        pytest.param(days("%m/%d/%Y"), ",", {"type": "date", "format": "%m/%d/%Y"}, id="American days"),
        pytest.param(days("%d/%m/%y"), ",", {"type": "date", "format": "%d/%m/%y"}, id="British days of two digits"),
        pytest.param(days("%d-%b-%Y"), ",", {"type": "date", "format": "%d-%b-%Y"}, id="days with names of months"),
        pytest.param([("?", "red", "green", "blue")[i % 4] for i in range(ROWS)], ",", {"type": "category"}, id="a mark among texts"),
    ],
)  # fmt: skip
def test_a_column_is_taken_for(begin, cells, delimiter, expected):
    found, _, _ = begin({"PLZ" if "codes" in expected or (str(cells[0]).isdigit() and len(str(cells[0])) == 5) else "c": cells,
                         "other": [i * 31 % 100 for i in range(ROWS)]}, delimiter=delimiter)
    taken = next(iter(found.values()))
    assert {key: value for key, value in taken.items() if key != "parts"} == expected


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16", "utf-16-le", "mac-roman"])
def test_an_encoding_is_found_out_and_written_down(begin, pe, tmp_path, encoding):
    cities = ["Köln", "Düsseldorf", "Gießen", "Zürich"]
    found, source, said = begin({"größe": [f"{i % 40},5" for i in range(ROWS)], "stadt": [cities[i % 4] for i in range(ROWS)]},
                                delimiter=";", encoding=encoding)  # fmt: skip
    assert found["größe"]["decimal"] == ","
    expected = encoding if encoding in ("cp1252", "utf-16-le", "mac-roman") else None
    assert source.get("encoding") == expected
    assert (f"encoding: {encoding}: line " in said) == (expected is not None)
    assert "Gießen" in pe("data", tmp_path / "run.yaml").out


def test_an_encoding_that_changes_in_the_middle_is_told_with_its_line(pe, tmp_path):
    rows = [f"{i},{'Müller' if i % 2 else 'Größe'}\n" for i in range(40)]
    (tmp_path / "t.csv").write_bytes(b"a,b\n" + "".join(rows[:20]).encode() + "".join(rows[20:]).encode("cp1252"))
    said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "t.csv", "--target", "b")
    assert (said.code, "line 22" in said.err, "its encoding changes in the middle" in said.err) == (3, True, True), said.err


def test_days_that_may_be_in_two_orders_are_asked_for(begin, pe, tmp_path):
    cells = [f"{i % 12 + 1:02}/{i * 5 % 12 + 1:02}/2024" for i in range(ROWS)]
    (tmp_path / "t.csv").write_text(text_of({"when": cells, "x": [i * 31 % 100 for i in range(ROWS)]}))
    said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "t.csv", "--target", "goal")
    assert (said.code, "t.csv:2:1" in said.err, "--columns 'when={type: date, format:" in said.err) == (3, True, True), said.err
    assert not (tmp_path / "run.yaml").exists()
    found, _, _ = begin({"when": cells, "x": [i * 31 % 100 for i in range(ROWS)]}, "--columns", "when={type: date, format: '%d/%m/%Y'}")
    assert found["when"]["format"] == "%d/%m/%Y"


def test_days_whose_rows_follow_each_other_tell_their_order(begin):
    cells = [f"{i // 10 + 1:02}/{i % 10 + 1:02}/2024" for i in range(ROWS)]
    found, _, said = begin({"when": cells, "x": [i * 31 % 100 for i in range(ROWS)]})
    assert found["when"]["format"] == "%m/%d/%Y"
    assert "'when' has dates of the form %m/%d/%Y, an order in which the rows follow each other in time: '01/01/2024'" in said


def test_three_digits_behind_a_sign_are_settled_by_other_columns_and_said(begin):
    grouped = [f"{i % 9 + 1}.{i * 7 % 900 + 100}" if i % 3 else str(i * 7 % 900 + 100) for i in range(ROWS)]
    found, _, said = begin({"price": [f"{i % 40},25" for i in range(ROWS)], "people": grouped}, delimiter=";")
    assert (found["people"]["decimal"], found["people"]["thousands"]) == (",", ".")
    assert "'people': '2.107', '3.114', '5.128' are taken for thousands, as other columns write decimals with ','" in said
    found, _, _ = begin({"price": [f"{i % 40}.25" for i in range(ROWS)], "people": grouped})
    assert "thousands" not in found["people"]


def test_columns_that_say_nothing_or_too_much_are_told(begin):
    x = rng().normal(size=ROWS).round(3).tolist()
    again = [{"low": 1, "mid": 2, "high": 3}[word] for word in GOAL["goal"]]
    found, _, said = begin({"x": x, "x2": x, "one": ["a"] * ROWS, "id": list(range(ROWS)), "score": again, "copy": GOAL["goal"]})
    assert list(found) == ["x", "score", "goal"]
    for sentence in (
        "left out: 'x2': it is the same as 'x' in every row",
        "left out: 'one': it is 'a' in every row",
        "left out: 'id': another whole number in every row: an id",
        "left out: 'copy': it is the same as the target 'goal' in every row",
        "'score' has ranges of its own for every class, and so tells 'goal' by itself ('1', '3', '2')",
    ):
        assert sentence in said, said


def test_the_number_of_the_row_is_kept_where_nothing_else_is_left(begin):
    found, _, _ = begin({"time": list(range(1, ROWS + 1)), "one": ["a"] * ROWS})
    assert found["time"] == NUMBER


def test_columns_types_and_encoding_are_said(begin, pe, tmp_path):
    columns = {"code": [i % 7 for i in range(ROWS)], "x": [i * 31 % 100 for i in range(ROWS)], "no": ["a", "b"] * (ROWS // 2)}
    found, source, _ = begin(columns, "--columns", "code=category", "--drop", "no", "--encoding", "latin-1")
    assert (found["code"]["type"], "no" in found, source["encoding"]) == ("category", False, "latin-1")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(["--columns", "x"], 2, "--columns needs NAME=TYPE, got 'x'", id="no type"),
        pytest.param(["--columns", "x=nummer"], 2, "there is no column type 'nummer'", id="an unknown type"),
        pytest.param(["--columns", "x={type: number, decimals: ','}"], 2, "did you mean 'decimal'?", id="an unknown option"),
        pytest.param(["--columns", "x=image"], 2, "pe init makes no branch for the type image", id="a type without a branch"),
        pytest.param(["--columns", "y=number"], 3, "--columns: the data has no column 'y'", id="an unknown column"),
        pytest.param(["--columns", "goal=date"], 2, "goal=date: a target is predicted as classes, as a number or as tags", id="a target"),
        pytest.param(["--columns", "x=date"], 3, "column 'x': '5' is no date of ISO 8601", id="cells of another type"),
        pytest.param(["--drop", "y"], 3, "--drop: the data has no column 'y'", id="nothing to drop"),
        pytest.param(["--drop", "goal"], 2, "--drop: 'goal' is the target", id="the target is dropped"),
        pytest.param(["--encoding", "klingon"], 2, "no encoding of text that Python knows", id="an unknown encoding"),
    ],
)
def test_what_is_said_wrongly_is_told(pe, tmp_path, options, code, message):
    (tmp_path / "t.csv").write_text(text_of({"x": list(range(5, 5 + ROWS))}))
    said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "t.csv", "--target", "goal", *options)
    assert (said.code, message in said.err) == (code, True), said.err


def test_every_command_takes_the_same_cells(begin, pe, tmp_path):
    """Train on German cells; the same rows as plain numbers are predicted alike, from a file and from the exported model."""
    ort = pytest.importorskip("onnxruntime")
    price = np.exp(rng().uniform(1, 11, ROWS)).round(2)
    age = np.where(np.arange(ROWS) % 17 == 3, 999, 20 + np.arange(ROWS) * 7 % 50)
    german = [f"{value:,.2f} €".translate({ord(","): ".", ord("."): ","}) for value in price]
    found, _, _ = begin({"preis": german, "alter": age.tolist(), "aktiv": ["ja" if i % 3 else "nein" for i in range(ROWS)]},
                        delimiter=";", encoding="cp1252")  # fmt: skip
    assert [column["type"] for column in found.values()] == ["number", "number", "bool", "category"]
    config = tmp_path / "run.yaml"
    trained = pe("train", config, "--quiet", "-o", "train.steps=2", "-o", f"output.dir={tmp_path / 'runs'}")
    assert trained.code == 0, trained.err
    run = next((tmp_path / "runs").iterdir())
    rows = [{"preis": german[i], "alter": int(age[i]), "aktiv": "ja"} for i in range(6)]
    plain = [{**row, "preis": float(price[i])} for i, row in enumerate(rows)]
    answers = []
    for name, these in (("german", rows), ("plain", plain)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in these), encoding="utf-8")
        said = pe("predict", run, tmp_path / f"{name}.jsonl")
        assert said.code == 0, said.err
        answers.append(said.out)
    assert answers[0] == answers[1]
    assert pe("export", run, "--onnx", tmp_path / "m.onnx").code == 0
    session = ort.InferenceSession(tmp_path / "m.onnx")
    fed = {"preis": price[:6, None].astype(np.float64), "alter": age[:6, None].astype(np.float64),
           "aktiv": np.array([["ja"]] * 6, object)}  # fmt: skip
    names = [output.name for output in session.get_outputs()]
    assert set(fed) == {each.name for each in session.get_inputs()}
    told = dict(zip(names, session.run(None, fed), strict=True))
    lines = list(csv.DictReader(io.StringIO(answers[0])))
    assert [str(label) for label in told["prob_label"].ravel()] == [line["goal"] for line in lines]


# --- one of two classes -----------------------------------------------------------------------------------------------


def two_classes(tmp_path: Path, rare: str, other: str, every: int) -> Path:
    """Write a table of which one row in `every` is of a class."""
    draws = rng()
    rows = [[f"{draws.normal() + (i % every == 0):.3f}", rare if i % every == 0 else other] for i in range(200)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["x", "kauft"], *rows])
    return tmp_path / "t.csv"


@pytest.mark.parametrize(
    ("rare", "other", "every", "options", "classes", "best"),
    [
        pytest.param("ja", "nein", 10, [], ["nein", "ja"], "eval/average_precision[ja]", id="the rarer one, behind in the alphabet"),
        pytest.param("bad", "fine", 8, [], ["fine", "bad"], "eval/average_precision[bad]", id="the rarer one, first in the alphabet"),
        pytest.param('<"50k', "more", 8, [], ["more", '<"50k'], "eval/average_precision[__50k]", id="a class of odd signs"),
        pytest.param("ja", "nein", 3, [], ["nein", "ja"], "eval/loss", id="a third of the rows is not rare"),
        pytest.param("ja", "nein", 10, ["--positive", "nein"], ["ja", "nein"], "eval/loss", id="the one that is asked for"),
        pytest.param("yes", "no", 2, [], ["no", "yes"], "eval/loss", id="yes where both are as many"),
    ],
)  # fmt: skip
def test_metrics_are_about_one_class_and_named_for_it(pe, tmp_path, rare, other, every, options, classes, best):
    source = two_classes(tmp_path, rare, other, every)
    said = pe("init", tmp_path / "run.yaml", "--from", source, "--target", "kauft", *options)
    assert said.code == 0, said.err
    run = load_run(tmp_path / "run.yaml")
    assert to_data(run.preparation.columns["kauft"].value)["classes"] == classes
    text = (tmp_path / "run.yaml").read_text(encoding="utf-8")
    assert f'by: "{best}"' in text or f"by: {best}" in text
    assert f"metrics are about '{classes[1]}'" in said.out


def test_the_metrics_of_a_class_are_measured(pe, tmp_path):
    source = two_classes(tmp_path, "ja", "nein", 8)
    assert pe("init", tmp_path / "run.yaml", "--from", source, "--target", "kauft").code == 0
    trained = pe("train", tmp_path / "run.yaml", "--quiet", "-o", "train.epochs=1", "-o", f"output.dir={tmp_path / 'runs'}")
    assert trained.code == 0, trained.err
    lines = (next((tmp_path / "runs").iterdir()) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    measured = next(found for found in map(json.loads, lines) if found["split"] == "eval")
    assert {"recall[ja]", "precision[ja]", "average_precision[ja]"} <= set(measured)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(["--target", "kauft", "--positive", "jaa"], 3, "did you mean 'ja'?", id="no such class"),
        pytest.param(["--target", "x", "--positive", "ja"], 2, "'x' has numbers, not two classes", id="a number"),
    ],
)
def test_a_positive_class_that_does_not_occur_is_told(pe, tmp_path, options, code, message):
    said = pe("init", tmp_path / "run.yaml", "--from", two_classes(tmp_path, "ja", "nein", 8), *options)
    assert (said.code, message in said.err) == (code, True), said.err
