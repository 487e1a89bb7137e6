"""Several devices that train together: in any order that streams, events and edges allow, bits are those of one where sums are exact."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.cli.main import run as command
from pe_cli.collectives.cuda_sums import LEAST_PART, parts_of, summing
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_device_group import Group, apart
from pe_cli.devices.cuda_driver import CudaDriver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.devices.cuda_libraries.nccl import version_of
from pe_cli.io.checkpoint import load, steps
from pe_cli.kernels.cuda.language import build
from pe_cli.session.device_choice import resolve_places
from tests.cuda.libraries.collectives import Nccl
from tests.cuda.ptx.device import PtxDriver, needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.cuda.ptx.streams import CONTEXT
from tests.rotation import on_its_day

Array = np.ndarray[Any, Any]
LINE = """
name: line
feeds:
  x: {shape: [12], dtype: float32}
  y: {shape: [2], dtype: float32}
layers:
  out:    {type: fc, input: x, size: 2}
  cost:   {type: square_error_cost, input: out, label: y}
  loss:   {type: mean, x: cost}
fetches: [loss]
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: Momentum, momentum: 0.5, learning_rate: 0.125}}
executor: {place: cuda, seed: 1}
output: {dir: runs, checkpoint: {every: 1 step, keep: 9}}
"""
LOST = 46
REDUCE = ("-o", "build_strategy.reduce_strategy=Reduce")
Train = Callable[..., dict[str, Array]]


@pytest.fixture
def train(monkeypatch, tmp_path: Path) -> Train:
    """Return what trains for three steps, and gives all that the last checkpoint holds; values are such that no sum is rounded."""
    needs_compiler()
    monkeypatch.setattr("pe_cli.collectives.cuda_sums.LEAST_PART", 8)
    monkeypatch.setattr(loaded_libraries, "installed", dict)
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(LINE)
    Path("run.yaml").write_text(RUN)
    np.savez("data.npz", x=rng.integers(-1, 2, (24, 12)).astype("float32"), y=rng.integers(-1, 2, (24, 2)).astype("float32"))
    first = {"out.w_0": rng.integers(-1, 2, (12, 2)), "out.b_0": np.ones(2)}
    np.savez("first.npz", **{name: value.astype("float32") for name, value in first.items()})
    numbers = itertools.count()

    def run(library: Library | None, *arguments: str, code: int = ExitCode.DONE) -> dict[str, Array]:
        if library is not None:
            use(monkeypatch, library)
        folder = f"runs{next(numbers)}"
        given = ["-o", f"output.dir={folder}", *arguments]
        assert command(["train", "run.yaml", "--quiet", "--init", "first.npz", *given]) == code
        return dict(load(next(Path(folder).iterdir()))[0])

    return run


def use(monkeypatch: pytest.MonkeyPatch, library: Library) -> list[LearningDriver]:
    """Let CUDA's devices be those of a library."""
    drivers = [LearningDriver(library, i) for i in range(library._count)]
    monkeypatch.setattr(cuda_driver, "library", lambda: (library, ""))
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: drivers[0])
    monkeypatch.setattr(cuda_driver, "_other_driver", drivers.__getitem__)
    return drivers


def bits(values: dict[str, Array]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in values.items()}


@on_its_day(2, of=3)
def test_several_devices_have_the_bits_of_one_and_of_the_cpu(train: Train, monkeypatch):
    expected = bits(train(None, "-o", "executor.place=cpu", "-o", "executor.devices=1"))
    for count, seed, more in ((4, 1, ()), (2, 2, REDUCE)):
        library = Library([], devices=count, seed=seed)
        assert bits(train(library, "-o", f"executor.devices={count}", *more)) == expected, (count, seed, more)
        assert library.calls["cuGraphLaunch"] == 2, "the first step is launched, the others are one graph of all devices"
        assert {*library.launched} == {*range(count)}
    for seed, more, root in ((3, (), {None}), (4, REDUCE, {1})):  # the bias is first, and has the first owner
        nccl = Nccl(library := Library([], devices=2, seed=seed))
        monkeypatch.setattr(loaded_libraries, "installed", lambda nccl=nccl: {"nccl": loaded_libraries.Installed("2.32.3", nccl)})
        assert bits(train(library, "-o", "executor.devices=2", *more)) == expected, more
        assert library.calls["cuGraphLaunch"] == 2
        assert ({to for _, to, _ in nccl.sums}, len(nccl.sums)) == (root, 3)
        assert version_of(nccl) == (23203, "2.32.3")


def test_where_nccl_fails_that_is_said_with_the_remedy(train: Train, monkeypatch, capsys):
    library = Library([], devices=2)
    nccl = Nccl(library, {"ncclGroupEnd": 6})
    monkeypatch.setattr(loaded_libraries, "installed", lambda: {"nccl": loaded_libraries.Installed("2.32.3", nccl)})
    train(library, "-o", "executor.devices=2", code=ExitCode.DEVICE)
    said = capsys.readouterr().err
    assert "error: the CUDA devices failed: ncclGroupEnd: remote process exited or there was a network error; a link is down" in said
    assert "hint: executor.libraries: none sums by kernels of pe" in said


def test_a_device_that_is_lost_is_named_and_leaves_the_last_checkpoint(train: Train, capsys):
    library = Library([], devices=2)
    library.failing["cuStreamSynchronize"] = lambda _: LOST if library.current == CONTEXT + 1 and library.calls.get("cuGraphLaunch") else 0
    train(library, code=ExitCode.DEVICE)
    assert "error: the CUDA device cuda:1 failed: cuStreamSynchronize: CUDA_ERROR_DEVICE_UNAVAILABLE" in capsys.readouterr().err
    assert steps(next(Path("runs0").iterdir()) / "checkpoints")[-1] == 1


@pytest.mark.parametrize(
    ("closed", "garbled", "together", "why"),
    [
        pytest.param((), (), 3, "", id="all reach one another"),
        pytest.param([(2, 0)], (), 2, "cuda:2 cannot reach the memory of cuda:0: there is no direct way between them", id="no way"),
        pytest.param(
            (), [(0, 1)], 1, "cuda:0 cannot reach the memory of cuda:1: of 8,192 words that were copied, 1 came as others",
            id="a way on which numbers change",
        ),
    ],
)  # fmt: skip
def test_devices_are_used_together_where_copies_between_them_arrive(monkeypatch, closed: Any, garbled: Any, together: int, why: str):
    library = Library([], devices=3)
    library.closed, library.garbled = {*closed}, {*garbled}
    use(monkeypatch, library)
    found = resolve_places("cuda", "auto")
    assert [str(p) for p in found.places] == [f"cuda:{i}" for i in range(together)]
    assert found.text == f"{together} cuda{f' ({why})' if why else ''}"
    if why:
        with pytest.raises(PeError, match=f"3 CUDA devices wanted, but {why}") as caught:
            resolve_places("cuda", 3, Span("run.yaml", 2, 1))
        assert (caught.value.code, caught.value.hint) == (ExitCode.DEVICE, f"set executor.devices: {together}")
        assert caught.value.at == Span("run.yaml", 2, 1)


def test_of_devices_that_cannot_be_used_auto_takes_none(monkeypatch):
    library = Library([], devices=2)
    drivers = use(monkeypatch, library)

    def other(index: int) -> CudaDriver:
        raise PeError("the CUDA device cuda:1 has the compute capability 6.0", code=ExitCode.DEVICE)

    monkeypatch.setattr(cuda_driver, "_other_driver", other)
    assert resolve_places("cuda", "auto").text == "1 cuda (the CUDA device cuda:1 has the compute capability 6.0)"
    assert apart(drivers) == ""


@pytest.fixture(scope="module")
def bench() -> PtxDriver:
    needs_compiler()
    return PtxDriver()


@pytest.mark.parametrize(
    ("count", "active", "sums"),
    [
        pytest.param(2, (0, 1), lambda x: x[0] + x[1], id="two"),
        pytest.param(3, (0, 2), lambda x: x[0] + x[1], id="three of which one has no samples"),
        pytest.param(6, (0, 1, 2, 3, 4, 5), lambda x: ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]), id="six"),
    ],
)
def test_sums_are_those_of_the_tree_to_the_bit(bench: PtxDriver, count: int, active: tuple[int, ...], sums: Callable[[Array], Array]):
    n = 37
    x = (np.random.default_rng(count).standard_normal((len(active), n)) * 10.0 ** np.arange(-3, len(active) - 3)[:, None]).astype("float32")
    rows = [Extent(bench.allocate(4 * n), 4 * n) for _ in active]
    for row, value in zip(rows, x, strict=True):
        bench.write(row.address, value)
    targets = [*rows, *(Extent(bench.allocate(4 * n), 4 * n) for _ in range(count - len(active)))]
    built = build(summing(count, active, count), "float32", "float32")
    bench.launcher(built, (2,), (8,), [*rows, *targets, n])()
    for target in targets:
        found = np.zeros(n, np.float32)
        bench.read(target.address, found)
        assert found.tobytes() == sums(x).tobytes()


@pytest.mark.parametrize(("elements", "devices"), [(1, 4), (LEAST_PART * 2 + 5, 4), (LEAST_PART * 9, 8)])
def test_parts_cover_a_bucket_once_and_begin_where_16_bytes_do(elements: int, devices: int):
    parts = parts_of(elements, devices)
    assert [e for low, high in parts for e in range(low, high)] == list(range(elements))
    assert len(parts) <= devices
    assert not any(low % 16 for low, _ in parts)


def test_what_devices_are_asked_is_done_in_order_whatever_comes_first_elsewhere():
    for seed in range(8):
        library = Library([], devices=3, seed=seed)
        drivers = [CudaDriver(library, i) for i in range(3)]
        assert apart(drivers) == ""
        group = Group(drivers)
        place, given, found = drivers[0].allocate(8), [drivers[0].pinned(1) for _ in range(6)], drivers[0].pinned(1)
        for i, each in enumerate(given):
            each[0] = i
            group.at((0, 2, 1, 1, 0, 2)[i]).send(place, each)
        group.at(1).fetch(place, found)
        group.wait()
        assert found[0] == 5, seed


def test_one_graph_of_all_devices_waits_for_what_is_named_and_for_feeds_of_every_device():
    for seed in range(6):
        library = Library([], devices=2, seed=seed)
        drivers = [CudaDriver(library, i) for i in range(2)]
        assert apart(drivers) == ""
        group = Group(drivers)
        place, given, found = drivers[1].allocate(8), [drivers[0].pinned(1) for _ in range(3)], drivers[0].pinned(1)
        given[0][0], given[1][0], given[2][0] = 1, 2, 7
        first, second = (partial(group.at(home).send, place, given[home]) for home in range(2))
        last = partial(group.at(0).fetch, place, found)
        for launches, waits, left in (([first, second, last], [[], [0], [1]], 2), ([second, first, last], [[], [0], [0, 1]], 1)):
            group.captured(launches, waits)()
            group.wait()
            assert found[0] == left, seed
        run = group.captured([last], [[]])
        drivers[1].send(place, given[2])  # a feed, of which the group does not know
        run()
        drivers[1].send(place, given[0])  # that of the next step
        group.wait()
        assert found[0] == 7, seed
