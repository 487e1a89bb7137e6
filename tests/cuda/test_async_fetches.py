"""Steps that are begun before the one before has been looked at: same values, errors by their own step, and nothing of a bad step lasts."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place
from pe_cli.devices import cuda_driver, cuda_feeds
from pe_cli.devices.cuda_launch_integers import PAGE
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.estimate import estimate_memory
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.async_fetches import AsyncFetches
from pe_cli.execute.startup import run_startup
from pe_cli.io import checkpoint
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.cuda.test_bad_input import MODEL, RUN

Array = np.ndarray[Any, Any]


@pytest.fixture
def library(monkeypatch, tmp_path: Path) -> Library:
    """Return a card whose launches are done when somebody waits, with a config in the folder that is current."""
    needs_compiler()
    made = Library([])
    driver = LearningDriver(made)
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "library", lambda: (made, ""))
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)
    return made


def batches(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal((4, 3)).astype("float32"), "label": rng.integers(0, 3, (4, 1))} for _ in range(count)]


def started() -> tuple[Executor, str]:
    """Return what trains the config, and the variable of its loss."""
    _, built = load_and_build(Path("run.yaml"))
    scope = Scope([Place("cuda", 0)])
    run_startup(built.startup, scope, 1)
    assert built.train is not None
    return Executor(built.train, scope, seed=1), built.fetches["loss"]


@pytest.mark.parametrize("large", [1 << 18, 1], ids=["small feeds", "large feeds"])
def test_what_a_step_keeps_to_be_fed_and_read_is_foretold(library, monkeypatch, large: int):
    monkeypatch.setattr(cuda_feeds, "LARGE", large)
    executor, name = started()
    before = library.allocated
    for step, feed in enumerate(batches(3)):
        executor.run(feed, [name], step, late=True).values[0].get(name)
    _, built = load_and_build(Path("run.yaml"))
    (foretold,) = estimate_memory(built.train, [Place("cuda", 0)], 4, fetches=[name])
    assert sum(map(ctypes.sizeof, library.held.values())) == foretold.carried.pinned
    fed = 4 * 3 * 4 + 4 * 8  # a batch of x and of labels
    assert foretold.carried.rooms == (2 * fed if large == 1 else 0)
    arena = foretold.temporaries + PAGE  # launches are given numbers in memory
    assert library.allocated - before == arena + foretold.carried.rooms


def values_of(executor: Executor) -> dict[str, bytes]:
    return {name: executor.scope.get(name).tobytes() for name in executor.scope}


@pytest.mark.parametrize("large", [1 << 18, 1], ids=["small feeds", "large feeds"])
def test_a_step_goes_on_while_the_one_before_is_looked_at(library, monkeypatch, large: int):
    monkeypatch.setattr(cuda_feeds, "LARGE", large)
    fed, (waited, name), (late, _) = batches(5), started(), started()
    expected = [waited.run(feed, [name], step).values[0][name].tobytes() for step, feed in enumerate(fed)]
    found, open_ones = [], []
    for step, feed in enumerate(fed):
        given = {slot: array.copy() for slot, array in feed.items()}
        open_ones.append(late.run(given, [name], step, late=True).values[0])
        for array in given.values():  # an array is free as soon as it has been fed
            array[...] = 0
        assert isinstance(open_ones[-1], AsyncFetches)
        if step:
            found.append(open_ones.pop(0)[name].tobytes())
            assert any(library._streams), "the newest step is not waited for"
    found.append(open_ones[0][name].tobytes())
    assert found == expected
    assert values_of(late) == values_of(waited)


def test_an_error_names_its_own_step_and_leaves_parameters_alone(library):
    fed, (executor, name), (fine, _) = batches(3), started(), started()
    fine.run(fed[0], [name], 0)
    executor.run(fed[0], [name], 0, late=True)
    fed[1]["label"][2] = 7
    bad = executor.run(fed[1], [name], 1, late=True)
    later = executor.run(fed[2], [name], 2, late=True)
    with pytest.raises(PeError, match=r"value 7 at row 2 is out of range \[0, 3\), at step 1") as caught:
        bad.last(name)
    assert caught.value.code == ExitCode.DATA
    assert later.late
    assert values_of(executor) == values_of(fine)


def test_a_training_that_looks_late_is_one_that_looks_at_once(library, capsys):
    data = {slot: np.concatenate([feed[slot] for feed in batches(5)]) for slot in ("x", "label")}
    np.savez("data.npz", **data)

    def trained(into: str, every: str) -> tuple[int, str]:
        shown = ["-o", "fetches={loss: {every: 2 steps, merge: mean}}"]
        code = command(["train", "run.yaml", "--quiet", "-o", f"output.dir={into}", "-o", f"output.checkpoint.every={every}", *shown])
        return code, capsys.readouterr().err

    for into, every in (("once", "1 step"), ("late", "1 epoch")):
        code, said = trained(into, every)
        assert code == ExitCode.DONE, said
    known, found = (next(Path(into).iterdir()).joinpath("metrics.jsonl").read_text() for into in ("once", "late"))
    assert found == known
    assert known.count("\n") > 5, "one of every second step"
    one, two = (checkpoint.load(next(Path(into).iterdir()))[0] for into in ("once", "late"))
    assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in two.items()}
    data["label"][4 * 2 + 1] = 9
    np.savez("data.npz", **data)
    code, said = trained("bad", "1 epoch")
    assert code == ExitCode.DATA
    assert "feed 'label' is class 9 at row 10 of data.train" in said  # of the step, not of the one that had begun
