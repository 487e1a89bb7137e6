"""The mutants of `make mutants` are programs, marks tell which tests execute them, and each is shown to the nearest tests first."""

from __future__ import annotations

import ast

import pytest

from tests.mutant_places import ROOT, Mutant, sample
from tests.mutant_reach import Reach, mark
from tests.mutants import chosen_tests, verdict


def test_mutants_are_programs_and_so_are_files_with_marks():
    chosen = sample(6, 3, "pe_cli/graph/passes")
    assert chosen == sample(6, 3, "pe_cli/graph/passes"), "a seed gives the same mutants"
    assert len(chosen) == 6
    for number, mutant in enumerate(chosen):
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        made = source[: mutant.begin] + mutant.text + source[mutant.end :]
        assert ast.dump(ast.parse(made)) != ast.dump(ast.parse(source)), mutant
        marked, told = mark(source, [(number, mutant)])
        ast.parse(marked)
        assert told == {number: number}


def test_a_mark_is_executed_with_its_place_and_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    source = "def f(x):\n    if x > 1 + 2:\n        out.append(x)\n    match x:\n        case 3: return 4\n"
    places = {text: (source.index(text), source.index(text) + len(text)) for text in ("x > 1 + 2", "1 + 2", "out.append(x)", "3:", "4")}
    texts = {"x > 1 + 2": "x >= 1 + 2", "1 + 2": "1 - 2", "out.append(x)": "pass", "3:": "4:", "4": "5"}
    placed = [(i, Mutant("f.py", 1, *places[was], texts[was], was)) for i, was in enumerate(places)]
    marked, told = mark(source, placed)
    assert told == {0: 0, 1: 0, 2: 2, 4: 4}, "an inner place has the outer mark, a pattern has none"
    hits: list[int] = []
    out: list[int] = []
    names: dict[str, object] = {"hits": hits, "out": out}
    exec(marked.replace("__import__('pe_cli._reached', fromlist=['hit']).hit", "hits.append"), names)
    f = names["f"]
    assert callable(f)
    assert (f(3), hits) == (4, [0, 4])
    hits.clear()
    assert (f(9), hits, out) == (None, [0, 2], [9])


def test_the_nearest_and_quickest_tests_come_first():
    seconds = {"tests/io/test_a.py::far": 0.1, "tests/graph/test_b.py::slow": 9.0}
    seconds |= {"tests/graph/test_c.py::quick": 0.2, "tests/x/test_plan.py::named": 5.0}
    mutant = Mutant("pe_cli/graph/plan.py", 1, 0, 1, "a", "b")
    here = ["tests/graph/test_b.py::slow", "tests/graph/test_c.py::quick", "tests/x/test_plan.py::named"]
    assert chosen_tests(mutant, seconds, seconds) == [here, ["tests/io/test_a.py::far"]], "in the order of files"
    assert chosen_tests(mutant, seconds, seconds, limit=6) == [here[1:]], "the nearest and quickest are taken first"


def test_a_kernel_is_shown_to_the_tests_that_marks_break(monkeypatch, tmp_path):
    mutant = Mutant("pe_cli/graph/plan.py", 1, 0, 1, "a", "b")
    shown: list[list[list[str]]] = []
    monkeypatch.setattr("tests.mutants.noticed", lambda mutant, rounds, home: shown.append(rounds) or "one")
    found = Reach({0: set(), 1: {"a"}}, {"a": 1.0, "b": 1.0, "c": 1.0}, ["b", "c"])
    assert [verdict(number, mutant, found, {"c"}, tmp_path) for number in (0, 1)] == ["one", "one"]
    assert shown == [[["b"]], [["a"]]]


def test_a_place_that_no_test_executes_is_not_noticed(tmp_path):
    (tmp_path / "pe_cli" / "graph").mkdir(parents=True)
    (tmp_path / "pe_cli" / "graph" / "plan.py").write_text("a")
    assert verdict(0, Mutant("pe_cli/graph/plan.py", 1, 0, 1, "a", "b"), Reach(tests={0: set()}, seconds={"t": 1.0}), set(), tmp_path) == ""
