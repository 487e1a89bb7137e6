"""Which devices and threads a run gets, and that the choice changes no more than it may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.execute.plan.thread_layout import Layout
from pe_cli.session import device_choice
from pe_cli.session.device_choice import resolve_places
from tests.session.conftest import Bench

MODEL = """\
name: wide
feeds: {x: {shape: [512]}}
layers:
  a:    {type: fc, input: x, size: 512, act: relu}
  b:    {type: fc, input: a, size: 512, act: relu}
  loss: {type: mean, x: b}
fetches: [loss]
"""
CONFIG = """\
model: wide.yaml
data: {train: {reader: synthetic, samples: 128, fields: {x: {shape: [512]}}}}
feeds: {x: x}
train: {loss: loss, epochs: 2, batch_size: 64, optimizer: {type: SGD, learning_rate: 0.01}}
executor: {seed: 3}
output: {dir: runs}
"""


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "usable_cores", lambda: 4)
    monkeypatch.delenv("CPU_NUM", raising=False)


def test_auto_asks_what_is_best_for_the_cores() -> None:
    apart = resolve_places("cpu", "auto", best=lambda cores: Layout(cores - 1, cores - 1))
    assert (len(apart.places), apart.threads, apart.text) == (3, 0, "3 cpu (of 4 cores: a step is too short for more)")
    shared = resolve_places("cpu", "auto", best=lambda _: Layout(1, 2))
    assert (len(shared.places), shared.threads) == (1, 2)
    assert shared.text == "1 cpu (its ops are shared by 2 of 4 cores)"
    assert len(resolve_places("cpu", "auto").places) == 4


def test_what_the_user_says_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def best(cores: int) -> Layout:
        return Layout(1, cores)

    assert resolve_places("cpu", "auto", best=best).execution(ExecutionStrategy()).num_threads == 4
    assert resolve_places("cpu", "auto", best=best).execution(ExecutionStrategy(num_threads=3)).num_threads == 3
    assert resolve_places("cpu", 2, best=best).execution(ExecutionStrategy()).num_threads == 0
    monkeypatch.setenv("CPU_NUM", "2")
    found = resolve_places("cpu", "auto", best=best)
    assert (len(found.places), found.threads) == (2, 0)


def test_threads_that_are_chosen_change_no_bit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.base / "wide.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG)

    def trained(name: str, *options: str) -> tuple[Path, str]:
        folder = bench.train(name, *options)
        return folder, (folder / "log.txt").read_text()

    chosen, said = trained("chosen")
    assert "devices: 1 cpu (its ops are shared by 4 of 4 cores)" in said
    alone, _ = trained("alone", "-o", "executor.devices=1", "-o", "executor.num_threads=1")
    assert bench.seen(chosen) == bench.seen(alone)
    monkeypatch.setattr(device_choice, "usable_cores", lambda: 1)
    one, said = trained("one core")
    assert "devices: 1 cpu (cores of this process)" in said
    assert bench.seen(one) == bench.seen(alone)
    assert bench.run("bench", bench.base / "run.yaml", "--steps", "2", "--json") == 0
    assert json.loads(bench.out)["threads"] == 1
