"""Loops by fours, common ways of broadcasting, sums in parts and merged launches give what one thread would, one after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import TensorType
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_kernel_launches import built_of, shape_of
from pe_cli.devices.cuda_launch_batching import merged
from pe_cli.devices.cuda_launches import Launch
from pe_cli.kernels.calls import Buffer, Call, Numbers, Offset, Tickets
from pe_cli.kernels.cuda.batched_launches import written
from pe_cli.kernels.cuda.int32_index import reciprocal
from pe_cli.kernels.cuda.language import calls_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import find
from pe_cli.ops.math.broadcast import call_binary
from pe_cli.ops.math.elementwise import ADD
from pe_cli.ops.math.reduction import sum_axes
from pe_cli.ops.math.reduction_cuda import FOLDED, PART, sum_columns, sum_lines, sum_runs
from pe_cli.ops.update.optimizer import momentum_step

Array = np.ndarray[Any, Any]


class Bench:
    """Memory of the device, and calls of kernels over it."""

    def __init__(self) -> None:
        self.driver = cuda_driver.only_driver()

    def sent(self, value: Array, spare: int = 0) -> Extent:
        """Return a copy of an array that lies so many bytes behind an aligned place."""
        held = self.driver.allocate(max(1, value.nbytes + spare))
        self.driver.write(held + spare, value)
        return Extent(held + spare, value.nbytes)

    def read(self, place: Extent, dtype: str = "float32") -> Array:
        """Return what lies there."""
        found = np.zeros(place.nbytes // np.dtype(dtype).itemsize, dtype)
        self.driver.read(place.address, found)
        return found

    def launches(self, call: Call, places: dict[Buffer, Extent]) -> list[Launch]:
        """Return a call as launches."""

        def meant(arg: Any) -> Any:
            if isinstance(arg, Offset):
                held, skipped = places[arg.buffer], 4 * arg.elements
                return Extent(held.address + skipped, held.nbytes - skipped)
            if isinstance(arg, Tickets):
                return self.sent(np.zeros(arg.count, np.int64))
            return self.sent(np.array([*arg.values, 0], np.int64)) if isinstance(arg, Numbers) else places.get(arg, arg)

        calls = calls_on_cuda(call)
        return [Launch(0, built_of(c), *shape_of(c), [meant(a) for a in c.args], written(c.kernel), True) for c in calls]

    def run(self, launches: list[Launch]) -> None:
        """Do them, one after the other."""
        for each in launches:
            self.driver.launcher(each.built, each.grid, each.block, each.args)()
        self.driver.wait()

    def lowered(self, make: Any, values: dict[Buffer, Array], out: Buffer) -> tuple[Array, int]:
        """Return what an output is after the calls of a lowering, and how many launches those are."""
        o = Lowering(find("mean"), {}, {}, {}, place="cuda")
        make(o)
        blank = {b: np.full(b.shape, np.nan, b.dtype) for b in (out, *o.scratch_buffers)}
        places = {b: self.sent(v) for b, v in {**blank, **values}.items()}
        launches = [launch for call in o.calls for launch in self.launches(call, places)]
        self.run(launches)
        return self.read(places[out], out.dtype).reshape(out.shape), len(launches)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def buffer(*shape: int) -> Buffer:
    return Buffer("x", TensorType(shape, "float32"))


@pytest.mark.parametrize("spare", [0, 4], ids=["aligned by 16 bytes", "aligned by 4 bytes"])
@pytest.mark.parametrize("n", [1, 4, 1031])
def test_a_loop_by_fours_does_every_element_once(bench, rng, n: int, spare: int) -> None:
    p, g, v = rng.standard_normal((3, n)).astype("float32")
    rate = np.array([0.5], "float32")
    buffers = [buffer(n), buffer(n), buffer(n), buffer(1)]
    places = {b: bench.sent(x, spare) for b, x in zip(buffers, (p, g, v, rate), strict=True)}
    bench.run(bench.launches(Call(momentum_step, (*buffers, n, 0.25, 0), "float32", "float32"), places))
    velocity = np.float32(0.25) * v + g
    np.testing.assert_allclose(bench.read(places[buffers[2]]), velocity, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(bench.read(places[buffers[0]]), p - np.float32(0.5) * velocity, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "way"),
    [
        pytest.param((5, 7), (5, 7), "both", id="one shape"),
        pytest.param((5, 7), (1,), "one", id="one number"),
        pytest.param((9, 7), (7,), "last", id="one for each column"),
        pytest.param((90, 7), (7,), "last", id="one for each of few columns"),
        pytest.param((5, 7), (5, 1), "first", id="one for each row"),
        pytest.param((2, 3, 5), (3, 1), "middle", id="one for each channel"),
        pytest.param((7,), (9, 7), "last.of_x", id="the first operand is the smaller one"),
        pytest.param((3, 1), (2, 3, 5), "middle.of_x", id="the first operand has one for each channel"),
        pytest.param((5, 1), (1, 7), "", id="both are broadcast"),
        pytest.param((2, 3, 5), (2, 1, 5), "", id="a size of 1 inside"),
    ],
)
def test_a_way_of_broadcasting_is_numpys(bench, rng, x: tuple[int, ...], y: tuple[int, ...], way: str) -> None:
    a, b = rng.standard_normal(x).astype("float32"), rng.standard_normal(y).astype("float32")
    left, right, out = buffer(*x), buffer(*y), buffer(*(a + b).shape)
    used: list[str] = []

    def make(o: Lowering) -> None:
        call_binary(o, ADD, left, right, out, -1)
        used.extend(each.kernel.name for call in o.calls for each in calls_on_cuda(call))

    found, _ = bench.lowered(make, {left: a, right: b}, out)
    np.testing.assert_array_equal(found, a + b)
    (name,) = used
    assert name.endswith(f":add.{way}" if way else ":add")


def test_a_reciprocal_divides_exactly(rng) -> None:
    last = 2**31 - 1
    for d in (1, 2, 3, 7, 64, 65535, 2**30, 2**30 + 1, last, *map(int, rng.integers(1, last, 200))):
        m, s = reciprocal(d)
        assert 0 < m < 2**32
        assert 0 <= s < 32
        for a in (0, d - 1, d, last // d * d, last // d * d - 1, last, *map(int, rng.integers(0, last, 20))):
            assert (2 * a * m >> 32) >> s == a // d


@pytest.mark.parametrize(
    ("shape", "gone"),
    [
        pytest.param((2 * PART + 3,), (True,), id="all of many"),
        pytest.param((2, 2 * PART + 5), (False, True), id="few long rows"),
        pytest.param((FOLDED + 7, 3), (True, False), id="few long columns"),
        pytest.param((FOLDED + 1, 33), (True, False), id="more long columns than a warp has lanes"),
        pytest.param((37, 33), (True, False), id="short columns"),
        pytest.param((700, 40), (True, False), id="columns in parts"),
        pytest.param((FOLDED + 3, 1), (True, False), id="one long column"),
        pytest.param((3, 40, 2), (False, True, False), id="columns inside"),
        pytest.param((5, 660), (False, True), id="rows of fours, a warp each"),
        pytest.param((6, 131), (False, True), id="rows that begin anywhere"),
    ],
)
def test_a_sum_is_that_of_float64(bench, rng, shape: tuple[int, ...], gone: tuple[bool, ...]) -> None:
    value = rng.uniform(-1, 1, shape).astype("float32")
    expected = value.astype("float64").sum(tuple(i for i, g in enumerate(gone) if g)) * 0.5
    x, out = buffer(*shape), buffer(*np.atleast_1d(expected).shape)
    found, count = bench.lowered(lambda o: sum_axes(o, x, out, shape, gone, 0.5), {x: value}, out)
    np.testing.assert_allclose(found, np.atleast_1d(expected), rtol=1e-6, atol=1e-6)
    assert count == 1


def test_launches_that_are_merged_do_what_they_do_one_by_one(bench, rng) -> None:
    """Sums and copies of pieces of one memory, which often overlap: what depends on what decides which go together."""
    sizes, room = (40, 3, 17, 64), 400
    values = rng.integers(-9, 9, room).astype("float32")

    def program(base: int) -> list[Launch]:
        made = []
        for k, size in zip(range(24), itertools.cycle(sizes), strict=False):
            buffers = [buffer(size) for _ in range(3)]
            begins = np.random.default_rng(k).integers(0, room // 64, 3) * 64 - [0, 0, 0]
            places = {b: Extent(base + 4 * int(at), 4 * size) for b, at in zip(buffers, begins, strict=True)}
            call = Call(ADD, (*buffers, Numbers(()), 0, 1, 1, size, 0, 0, 0), "float32", "float32")
            (launch,) = bench.launches(call, places)
            made.append(Launch(k, launch.built, launch.grid, launch.block, launch.args, frozenset({2}), True))
        return made

    one_by_one, together = bench.sent(values), bench.sent(values)
    bench.run(program(one_by_one.address))
    fewer = merged(program(together.address), bench.sent)
    bench.run(fewer)
    np.testing.assert_array_equal(bench.read(together), bench.read(one_by_one))
    assert len(fewer) < 20


def test_launches_of_different_kernels_do_in_one_what_they_do_one_by_one(bench, rng) -> None:
    """Loops that are dealt, warps on rows, blocks that share a sum: of whole numbers, so that the order of sums does not count."""
    room, rows, columns = 12, 300, 8
    values = rng.integers(-3, 4, (room, rows * columns)).astype("float32")

    def program(base: int) -> list[Launch]:
        made: list[Launch] = []
        draw = np.random.default_rng(5)
        for k in range(12):
            source, target = map(int, draw.choice(room, 2, replace=False))
            x, out = (Extent(base + 4 * rows * columns * at, 4 * rows * columns) for at in (source, target))
            few = bench.sent(np.zeros(4 * columns))
            call = (
                Call(ADD, (x, out, out, Numbers(()), 0, 1, 1, rows, 0, 0, 0), "float32", "float32"),
                Call(sum_lines, (x, out, rows, columns, 1.0), "float32", "float32"),
                Call(sum_columns, (x, out, few, rows * columns, columns, columns, 2, 150, 0.5, Tickets(1)), "float32", "float32"),
                Call(sum_runs, (x, out, few, 1, 2, 0, rows, 0, 1.0, Tickets(1)), "float32", "float32"),
            )[k % 4]
            (launch,) = bench.launches(call, {})
            made.append(Launch(k, launch.built, launch.grid, launch.block, launch.args, launch.writes, True))
        return made

    one_by_one, together = bench.sent(values), bench.sent(values)
    bench.run(program(one_by_one.address))
    fewer = merged(program(together.address), bench.sent)
    bench.run(fewer)
    np.testing.assert_array_equal(bench.read(together), bench.read(one_by_one))
    assert any("|" in launch.built.kernel.name for launch in fewer)
    assert len(fewer) < 8


def test_what_is_apart_is_one_launch_and_what_reports_stays(bench) -> None:
    buffers = [[buffer(5) for _ in range(3)] + [buffer(1)] for _ in range(3)]
    launches = []
    for k, row in enumerate(buffers):
        places = {b: bench.sent(np.zeros(b.shape, "float32")) for b in row}
        (launch,) = bench.launches(Call(momentum_step, (*row, 5, 0.25, 0), "float32", "float32"), places)
        launches.append(Launch(k, *(getattr(launch, n) for n in ("built", "grid", "block", "args", "writes")), True))
    (found,) = merged(launches, bench.sent)
    assert found.built.kernel.name.endswith(":momentum_step[]")
    assert found.grid == (3,)
    reporting = [Launch(*(getattr(x, n) for n in ("work", "built", "grid", "block", "args", "writes")), False) for x in launches]
    assert [launch.work for launch in merged(reporting, bench.sent)] == [0, 1, 2]
