"""The mutants of `make mutants` are programs, and each has tests to be noticed by."""

from __future__ import annotations

import ast

from tests.mutants import ROOT, rounds, sample


def test_mutants_are_programs_that_tests_are_chosen_for():
    chosen = sample(6, 3)
    assert chosen == sample(6, 3), "a seed gives the same mutants"
    for mutant in chosen:
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        made = source[: mutant.begin] + mutant.text + source[mutant.end :]
        assert ast.dump(ast.parse(made)) != ast.dump(ast.parse(source)), mutant
        tests = list(rounds(mutant))
        assert tests
        assert all((ROOT / path).exists() for path in tests[0] if path.startswith("tests/")), mutant
