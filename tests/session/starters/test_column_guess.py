"""What columns are taken for, case by case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.session.starters.column_guess import guess, guess_target
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.guesses import Asked
from pe_cli.session.starters.numbers import markers


def of(values: list[object], name: str = "c") -> tuple[str | None, dict[str, object], str]:
    found = guess(ListTable({name: values}, Origin(Path())), name, Asked())
    return found.type, dict(found.options), found.why


def settings(task: str) -> Settings:
    return Settings(Path(), "c", Path(), task)


RNG = np.random.default_rng(3)
NUMBERS = RNG.normal(size=60).round(4).tolist()
YEARS = ["timestamp", "month", "weekday"]
EUROPE = {"decimal": ",", "thousands": "."}
MISSING_999 = {"empty": [999], "missing": "median", "scale": "standard"}
DAYS = [str(np.datetime64("2024-01-01") + 13 * i) for i in range(60)]


@pytest.mark.parametrize(
    ("values", "kind", "options"),
    [
        pytest.param(NUMBERS, "number", {"scale": "standard"}, id="numbers"),
        pytest.param([*NUMBERS, None], "number", {"missing": "median", "scale": "standard"}, id="numbers with a gap"),
        pytest.param([0, 1] * 30, "bool", {}, id="0 and 1"),
        pytest.param(["1.234,5", "7,25", "12.000,1"] * 20, "number", {**EUROPE, "scale": "standard"}, id="decimal commas"),
        pytest.param(["1,234", "2,345,678", "17"] * 20, "number", {"thousands": ",", "scale": "standard"}, id="millions"),
        pytest.param(["12,34,567", "1,000.5"] * 30, "number", {"thousands": ",", "scale": "standard"}, id="Indian thousands"),
        pytest.param(["1'234.50", "999.95"] * 30, "number", {"thousands": "'", "scale": "standard"}, id="Swiss thousands"),
        pytest.param(["1 234,5", "12 000,0"] * 30, "number", {"decimal": ",", "thousands": " ", "scale": "standard"}, id="French"),
        pytest.param(["$1,234.50", "$7.25"] * 30, "number", {"thousands": ",", "unit": "$", "scale": "standard"}, id="dollars"),
        pytest.param(["84,7 %", "5 %"] * 30, "number", {"decimal": ",", "unit": "%", "scale": "standard"}, id="percent"),
        pytest.param(["12kg", "7.5kg"] * 30, "number", {"unit": "kg", "scale": "standard"}, id="kilograms"),
        pytest.param(["(12.5)", "7.5"] * 30, "category", {}, id="parentheses alone are no notation"),
        pytest.param([*[31.0, 45.5, 18.0] * 20, 999, 999, 999], "number", MISSING_999, id="999 for missing"),
        pytest.param([31, 450, 999] * 20, "number", {"scale": "standard"}, id="999 among its like"),
        pytest.param(["01067", "80331", "10115"] * 20, "category", {}, id="digits with zeros in front"),
        pytest.param(["wahr", "falsch"] * 30, "bool", {"yes": ["wahr"], "no": ["falsch"]}, id="true and false in German"),
        pytest.param(["Sí", "No"] * 30, "bool", {"yes": ["Sí"], "no": ["No"]}, id="yes and no in Spanish"),
        pytest.param([0, 1, None] * 20, "number", {"missing": "median", "scale": "standard"}, id="0, 1 and gaps"),
        pytest.param(["Yes", "no"] * 30, "bool", {}, id="yes and no"),
        pytest.param(["yes", "no", ""] * 20, "category", {}, id="yes, no and gaps: a class of their own"),
        pytest.param([3, 3, None] * 20, "category", {}, id="one number or a gap"),
        pytest.param([f"{2020 + i % 3}-Q{i % 4 + 1}" for i in range(60)], "date", {"format": "%Y-Q%q", "parts": YEARS[:2]},
                     id="quarters"),
        pytest.param([f"Q{i % 4 + 1}/{20 + i % 3}" for i in range(60)], "date", {"format": "Q%q/%y", "parts": YEARS[:2]},
                     id="short quarters"),
        pytest.param([f"{2020 + i % 3}-W{i % 9 + 1:02}" for i in range(60)], "date", {"parts": YEARS[:2]}, id="weeks"),
        pytest.param([f"{i % 28 + 1}. M\u00e4rz {2000 + i % 30}" for i in range(60)], "date", {"format": "%d. %B %Y", "parts": YEARS},
                     id="names of months"),
        pytest.param([20210100 + i % 28 + 1 for i in range(60)], "date", {"format": "%Y%m%d", "parts": ["timestamp", "weekday"]},
                     id="days without signs"),
        pytest.param([202001 + i % 12 + 100 * (i % 5) for i in range(60)], "date", {"format": "%Y%m", "parts": YEARS[:2]},
                     id="months without signs"),
        pytest.param([f"{i % 9 + 1},{i:03}E+0{i % 7}" for i in range(60)], "number",
                     {"decimal": ",", "transform": "asinh", "scale": "standard"}, id="exponents behind decimal commas"),
        pytest.param([f"{100 + i}.25{'-' * (i % 2)}" for i in range(60)], "number", {"thousands": " ", "scale": "standard"},
                     id="a minus behind the number"),
        pytest.param([f"({100 + i}.25)" if i % 2 else f"{100 + i}.25" for i in range(60)], "number",
                     {"thousands": " ", "scale": "standard"}, id="parentheses of accountants"),
        pytest.param([f"\u2212{i}.5" if i % 2 else f"{i}.5" for i in range(60)], "number", {"thousands": " ", "scale": "standard"},
                     id="the minus of printers"),
        pytest.param(["1-", "1", "2-", "2", "3-", "3"] * 10, "category", {}, id="grades"),
        pytest.param([f"192.168.100.{100 + i % 6}" for i in range(60)], "category", {}, id="addresses of machines"),
        pytest.param(["igen", "nem"] * 30, "bool", {"yes": ["igen"], "no": ["nem"]}, id="yes and no in Hungarian"),
        pytest.param(["\u2713", "\u2717"] * 30, "bool", {"yes": ["\u2713"], "no": ["\u2717"]}, id="check marks"),
        pytest.param([200000 + 7 * i for i in range(60)], "number", {"scale": "standard"}, id="numbers of which some are like months"),
        pytest.param(["red", "green", "blue"] * 20, "category", {}, id="texts that repeat"),
        pytest.param(["a|b", "b|c", "a", "c|a|b", ""] * 20, "bag", {}, id="lists by |"),
        pytest.param(["x; y", "y", "z; x", "x; y; z"] * 20, "bag", {"separator": ";"}, id="lists by ;"),
        pytest.param(["red, big", "red", "big", "small", "red, small", "small, big"] * 20, "bag", {"separator": ","}, id="lists by ,"),
        pytest.param(["red, big", "green, big", "blue, small"] * 20, "category", {}, id="lists that are no more than their items"),
        pytest.param(["Doe, Jane Mary Ann of Hill", "Smith, John"] * 30, "category", {}, id="a comma in long names is no list"),
        pytest.param(DAYS, "date", {"parts": ["timestamp", "month", "weekday"]}, id="dates over two years"),
        pytest.param(DAYS[:10] * 6, "date", {"parts": ["timestamp", "weekday"]}, id="dates over some months"),
        pytest.param(["2024-01-01", "2024-10-27"] * 30, "date", {"parts": YEARS}, id="dates over 300 days"),
        pytest.param([f"{day}T08:30" for day in DAYS[:2] * 30], "date", {"parts": ["timestamp", "hour"]}, id="moments of some days"),
        pytest.param([f"{d[5:7]}/{d[8:]}/{d[:4]}" for d in DAYS], "date", {"format": "%m/%d/%Y", "parts": YEARS}, id="American dates"),
        pytest.param(
            [f"{d[8:]}.{d[5:7]}.{d[:4]} 12:00" for d in DAYS], "date", {"format": "%d.%m.%Y %H:%M", "parts": [*YEARS, "hour"]},
            id="German moments",
        ),
        pytest.param([*DAYS, ""], "date", {"parts": ["timestamp", "month", "weekday"], "missing": "zero"}, id="dates with a gap"),
        pytest.param([f"this text has number {i} in it" for i in range(60)], "text", {"tokens": "words"}, id="texts of words"),
        pytest.param(
            [f"これは日本語の文章で{i}番目のとても長い文ですからね" for i in range(60)], "text", {"tokens": "characters"},
            id="texts without blanks",
        ),
    ],
)  # fmt: skip
def test_columns_are_taken_for(values, kind, options):
    assert of(values)[:2] == (kind, options)


@pytest.mark.parametrize(
    ("values", "name", "why"),
    [
        pytest.param(list(range(60)), "c", "another whole number in every row: an id", id="the number of the row"),
        pytest.param(
            [int(i) for i in RNG.permutation(900)[:60]], "customer_id", "an id", id="whole numbers that are called id"
        ),
        pytest.param([int(i) for i in RNG.permutation(900)[:60]], "orderId", "an id", id="ids in camel case"),
        pytest.param(
            [f"k{i}" for i in range(60)],
            "c",
            "60 different texts in 60 rows, such as 'k0': an id?",
            id="other texts in every row",
        ),
        pytest.param([7] * 60, "c", "it is 7 in every row", id="a constant number"),
        pytest.param(["x"] * 60, "c", "it is 'x' in every row", id="a constant text"),
        pytest.param([None] * 60, "c", "every cell is missing", id="nothing"),
        pytest.param(
            [*NUMBERS, "1.2.3"], "c", "1 cell is no number: '1.2.3' in row 61", id="a mistake among numbers"
        ),
        pytest.param([f"{i} kg" if i % 2 else f"{i},5 g" for i in range(60)], "c", "numbers of several units (g, kg)", id="units differ"),
        pytest.param([f"{i},5" if i % 2 else f"{i}.5" for i in range(60)], "c", "numbers in several notations, such as '0.5'", id="mixed"),
        pytest.param([*(f"{i},5" for i in range(60)), "1,2,3"], "c", "no number like 1234,5, such as '1,2,3' in row 61", id="a typo"),
        pytest.param([f"{i:05}" for i in range(0, 600, 10)], "zip", "60 different ones in 60 rows", id="codes that never repeat"),
    ],
)
def test_columns_are_left_out(values, name, why):
    kind, _, said = of(values, name)
    assert (kind, why in said) == (None, True), said


def test_whole_numbers_that_all_differ_are_numbers_unless_their_name_says_id():
    assert of([int(i) for i in RNG.permutation(900)[:60]], "price")[0] == "number"


def test_numbers_far_from_the_others_are_clipped():
    kind, options, why = of([*(NUMBERS * 20), 1e6])
    assert (kind, "far from the others" in why) == ("number", True)
    low, high = options["clip"]
    assert low < high < 1e6


def test_rare_classes_share_an_index_in_larger_tables():
    words = ["a", "b"] * 300 + ["rare"]
    assert of(words)[1] == {"min_count": 2}
    assert of(words[-61:])[1] == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([*NUMBERS, "?", "?"], ("?",), id="a question mark"),
        pytest.param([*NUMBERS, "-", "unknown"], ("-", "unknown"), id="two texts"),
        pytest.param([*NUMBERS, "12a"], (), id="a text with a digit is a mistake"),
        pytest.param([*NUMBERS, *"uvwxy"], (), id="many texts are mistakes"),
        pytest.param(["?", "a", "b"] * 20, ("?",), id="a question mark among texts"),
        pytest.param(["k.A.", "a", "b"] * 20, ("k.A.",), id="no answer, in German"),
        pytest.param(["-", "+", "++"] * 20, (), id="a minus beside a plus is a class"),
        pytest.param(["1,5", "2,25", "k. A."] * 20, ("k. A.",), id="a text among decimal commas"),
    ],
)
def test_marks_for_missing_numbers(values, expected):
    assert markers(ListTable({"c": values}, Origin(Path())), ["c"]) == expected


@pytest.mark.parametrize(
    ("values", "task", "kind"),
    [
        pytest.param(["a", "b"] * 30, "auto", "category", id="texts"),
        pytest.param([1, 2, 3] * 20, "auto", "category", id="few whole numbers"),
        pytest.param([1, 2, 3] * 20, "number", "number", id="few whole numbers that are asked for as numbers"),
        pytest.param(NUMBERS, "auto", "number", id="numbers"),
        pytest.param(list(range(60)), "auto", "number", id="many whole numbers"),
        pytest.param([1.5, 2.5] * 30, "auto", "number", id="few numbers with a fraction"),
        pytest.param([1.5, 2.5] * 30, "classes", "category", id="few numbers that are asked for as classes"),
    ],
)
def test_targets_are_taken_for(values, task, kind):
    assert guess_target(ListTable({"c": values}, Origin(Path())), "c", settings(task), Asked()).type == kind


def test_many_numbers_are_no_classes():
    with pytest.raises(PeError, match="the target has 60 different texts in 60 rows"):
        guess_target(ListTable({"c": NUMBERS}, Origin(Path())), "c", settings("classes"), Asked())


def test_dates_that_stand_for_none_are_missing():
    table = ListTable({"day": [*DAYS, "9999-12-31", "1900-01-01"], "first": [*DAYS, "1900-01-01", "1900-01-02"]}, Origin(Path()))
    assert markers(table, ["day"]) == ("9999-12-31", "1900-01-01")


def test_dates_of_another_calendar_are_said():
    found = guess(ListTable({"c": [f"{i % 28 + 1}/{i % 12 + 1}/{2560 + i % 6}" for i in range(60)]}, Origin(Path())), "c", Asked())
    assert "dates of the years 2560 to 2565" in found.note


@pytest.mark.parametrize(("name", "values", "kind", "said"), [
    pytest.param("version", [f"3.{i % 12}" for i in range(60)], "category", "is taken for versions, no numbers", id="versions"),
    pytest.param("created_at", [1_600_000_000 + 86_399 * i for i in range(60)], "date", "seconds since 1970, 2020-09-13", id="seconds"),
    pytest.param("ts", [1_600_000_000_000 + 86_399_000 * i for i in range(60)], "date", "milliseconds since 1970", id="milliseconds"),
    pytest.param("c", [f"{20 + i}:{i:02}:30" for i in range(60)], "date", "lengths of time, 20:00:30 to 79:59:30", id="hours beyond a day"),
    pytest.param("c", [f"{i // 9}h {i}m" for i in range(60)], "date", "lengths of time, 0:00:00 to 7:31:00"[:24], id="hours and minutes"),
    pytest.param("runtime", [f"0:{i:02}:30" for i in range(60)], "date", "lengths of time, 0:00:30 to 0:59:30", id="by the name"),
    pytest.param("c", [f"0:{i:02}:30" for i in range(60)], "date", "is taken for times of day", id="times of day"),
    pytest.param("c", [f"{4 + i % 3}'{i % 12}\"" for i in range(60)], "category", "", id="feet and inches"),
    pytest.param("mobile", [1_512_000_000 + 7919 * i for i in range(60)], None, "", id="telephones"),
    pytest.param("c", [f"{i % 9 + 1}E{i}" for i in range(60)], "number", "are taken for the numbers 1, 20, 300", id="codes with E"),
    pytest.param("c", [15_120_001 + 7919 * i for i in range(60)], "number", "where they only tell things apart", id="numbers of articles"),
    pytest.param("start_date", [44204 + i for i in range(60)], None, "", id="days of Excel that number the rows"),
    pytest.param("due_date", [44204 + i * i % 61 for i in range(60)], "number", "44204 is 2021-01-08", id="days of Excel"),
    pytest.param("c", [f"{100 + i}.25{'-' * (i % 2)}" for i in range(60)], "number", "'101.25-', '103.25-', '105.25-' are taken for -101",
                 id="a minus behind the number"),
])  # fmt: skip
def test_what_is_said_of_unlikely_numbers(name, values, kind, said):
    found = guess(ListTable({name: values}, Origin(Path())), name, Asked())
    assert (found.type, said in found.note) == (kind, True), found
