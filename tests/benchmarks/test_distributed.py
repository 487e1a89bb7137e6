"""The model of what training over processes costs, and the page that benchmarks/distributed.py writes. Nothing here is timed."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.collectives.tree_reduce import all_reduce, room_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="script")
def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a script of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (ROOT / "benchmarks" / f"{name}.py").exists():
            del sys.modules[name]


class Counting:
    """A process that sends into the void, and notes what it sends or waits for, whichever is larger."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.sizes: list[int] = []

    def swap(self, peer: int, out: Any, into: Any) -> None:
        assert peer != self.rank
        self.sizes.append(max(0 if a is None else len(a) for a in (out, into)))


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8, 16])
def test_bytes_and_messages_of_the_model_are_those_of_the_busiest_process(script: Any, size: int) -> None:
    model, elements = script("distributed_model"), 1 << 10
    found = [Counting(rank, size) for rank in range(size)]
    for each in found:
        all_reduce(each, np.zeros(elements, np.float32), np.zeros(room_for(elements), np.float32))
    assert max(len(each.sizes) for each in found) == model.messages(size)
    assert max(sum(each.sizes) for each in found) == model.sent(elements, size)


def test_a_fit_finds_what_made_the_figures(script: Any) -> None:
    model = script("distributed_model")
    true = model.Costs(latency=3e-4, bandwidth=12.5e6, handling=1e-9)
    measured = [{"bytes": b, "size": n, "seconds": true.sum(b, n)} for n in (2, 3, 4) for b in (1 << 10, 1 << 20, 1 << 22)]
    found = model.fit(measured, 1e-9)
    np.testing.assert_allclose([found.latency, found.bandwidth], [true.latency, true.bandwidth], rtol=1e-9)


def test_a_step_is_no_shorter_than_what_it_is_made_of_and_no_longer_than_one_after_the_other(script: Any) -> None:
    model = script("distributed_model")
    for compute, sums in ((1.0, 0.1), (1.0, 1.0), (0.1, 1.0)):
        for count in (1, 4, 100):
            step = model.overlapped(compute, sums, count)
            assert max(compute, sums) <= step <= compute + sums + 1e-12
    assert model.overlapped(1.0, 1.0, 1) == 2.0
    alone = model.Costs(1e-3, 1e9).step(4e6, 1, 0.5, 4)
    assert alone == 0.5


def test_the_page_says_what_the_kept_figures_do(script: Any) -> None:
    """Fit, tables and predictions follow from the figures: whoever changes the model makes the page anew."""
    page = script("distributed_page")
    found = json.loads((ROOT / "benchmarks" / "distributed.json").read_text())
    judged, text = page.judge(found), page.PAGE.read_text()
    for name, body in page.tables(found, judged).items():
        begin, end = page.MARKS[name]
        assert text.split(begin)[1].split(end)[0].strip() == body, f"{name}: python benchmarks/distributed.py --kept --write"
    shown = page.PICTURE.read_text()
    assert all(re.search(rf"{gbit:g} Gbit/s", shown) for gbit in page.NETWORKS)


def test_without_root_it_says_what_it_can_do(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed, hosts = script("distributed"), script("distributed_hosts")
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["distributed.py"])
    with pytest.raises(SystemExit, match=r"nothing can be measured: network namespaces need root\nhint: --kept"):
        distributed.main()
