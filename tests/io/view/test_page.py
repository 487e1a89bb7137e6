"""The page of runs: what is of one run has its name where there are several, and none where there is one."""

from __future__ import annotations

import re

import pytest

from pe_cli.io.history import read_run
from pe_cli.io.view.model_facts import Facts, GraphFacts
from pe_cli.io.view.page import build_page
from tests.io.runs import make_run, ordinary


@pytest.mark.parametrize("names", [["one-20240229-120005"], ["one-20240229-120005", "two-20240229-120006"]], ids=["one", "two"])
def test_the_parts_of_a_run_are_called_by_its_name_where_there_are_others(tmp_path, names) -> None:
    runs = [read_run(make_run(tmp_path, name, ordinary())) for name in names]
    facts = [Facts(timeline={"lanes": []}, graphs=(GraphFacts(svg=f"<svg>{name}</svg>", note=name),)) for name in names]
    page = build_page(runs, facts)
    for title in ("Timeline", "Graph"):
        (section,) = re.findall(rf"<section><h2>{title}</h2>(.*?)</section>", page, re.DOTALL)
        assert re.findall("<h3>(.*?)</h3>", section) == (names if len(names) > 1 else [])
        assert section.count('class="timeline"' if title == "Timeline" else "<svg>") == len(names)
