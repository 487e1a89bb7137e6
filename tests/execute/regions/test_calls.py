"""Loops and branches that a step runs: against loops in NumPy, against the same ops written out, and against finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.regions.calls import MIN_SAMPLES
from pe_cli.kernels.cpu.loop_calls import run_rounds
from pe_cli.layers.control.loops import Scan, cond, scan, while_loop
from pe_cli.layers.define.registry import find
from pe_cli.program.backward import append_backward, gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Variable
from pe_cli.program.serialize import to_json
from pe_cli.program.text_forms import from_string, to_string
from pe_cli.program.verify import verify
from tests.execute.support import latest

Array = np.ndarray[Any, Any]


def call(layer: str, *args: Any, **given: Any) -> Any:
    return find(layer).fn(*args, **given)


class Built:
    """A program that is being written, with values for its variables; numbers are of one element type."""

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype
        self.main, self.startup = Program("main"), Program("startup")
        self.block = self.main.global_block()
        self.values: dict[str, Array] = {}
        self.feeds: dict[str, Array] = {}

    def feed(self, name: str, value: Any, sizes: Sequence[int] | None = None, *, gradient: bool = True) -> Variable:
        self.feeds[name] = value = self._typed(value)
        shape = tuple(value.shape if sizes is None else sizes)
        return self.block.create_var(name, TensorType(shape, str(value.dtype)), is_data=True, stop_gradient=not gradient)

    def parameter(self, name: str, value: Any) -> Variable:
        self.values[name] = value = self._typed(value)
        return self.block.create_parameter(name, TensorType(value.shape, str(value.dtype)))

    def _typed(self, value: Any) -> Array:
        made = np.asarray(value)
        return made.astype(self.dtype) if made.dtype == np.float64 else made

    def op(self, type: str, inputs: Any, attrs: Any = None) -> Variable:
        made = self.block.append_op(type, inputs, {"Out": self.main.unique(type)}, attrs)
        return self.block.var(made.outputs["Out"][0])

    def run(
        self, fetches: Sequence[Variable | str], step: int = 0, *, threads: int = 1, build: BuildStrategy | None = None,
        place: str = "cpu",
    ) -> list[Array]:  # fmt: skip
        verify(self.main)
        scope = Scope([Place(place, 0)])
        executor = Executor(
            self.main, scope, build=build or BuildStrategy(), execution=ExecutionStrategy(num_threads=threads), seed=3
        )
        for name, value in self.values.items():
            if name in scope:
                scope.set(name, value)
        names = [v if isinstance(v, str) else v.name for v in fetches]
        found = executor.run(self.feeds, names, step).values[0]
        self.scope, self.executor = scope, executor
        return [np.asarray(found[n]) for n in names]


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape) * scale


def check_gradients(built: Built, loss: Variable, names: Sequence[str], tolerance: float = 1e-6) -> None:
    """Compare the gradients of a float64 loss with central differences, for the named parameters and feeds."""
    found = gradients([loss], [built.block.var(n) for n in names])
    values = built.run([loss, *(g for g in found if g is not None)])
    assert all(g is not None for g in found)
    for name, gradient in zip(names, values[1:], strict=True):
        store = built.values if name in built.values else built.feeds
        original, expected = store[name], np.zeros_like(store[name])
        for index in np.ndindex(original.shape):
            sides = []
            for sign in (1, -1):
                moved = original.copy()
                moved[index] += sign * 1e-5
                store[name] = moved
                sides.append(float(built.run([loss])[0].sum()))
            expected[index] = (sides[0] - sides[1]) / 2e-5
        store[name] = original
        np.testing.assert_allclose(gradient, expected, rtol=tolerance, atol=tolerance * 10, err_msg=name)


def recurrent(built: Built, steps: int = 5, *, backwards: bool = False) -> tuple[Variable, Variable]:
    """Append h = tanh(x W + h U) over steps; return all h and the last one."""
    x = built.feed("x", numbers(steps, 2, 3), (steps, -1, 3))
    start = built.feed("start", numbers(2, 4, seed=1), (-1, 4))
    w, u = built.parameter("w", numbers(3, 4, seed=2)), built.parameter("u", numbers(4, 4, seed=3))

    def step(each: list[Variable], states: list[Variable]) -> Any:
        made = call("tanh", call("elementwise_add", call("mul", each[0], w), call("mul", states[0], u)))
        return [made], [made]

    (every,), (last,) = scan(step, [x], [start], backwards=backwards)
    return every, last


def by_hand(built: Built, *, backwards: bool = False) -> Array:
    x, h, w, u = built.feeds["x"], built.feeds["start"], built.values["w"], built.values["u"]
    found = []
    for each in x[::-1] if backwards else x:
        h = np.tanh(each @ w + h @ u)
        found.append(h)
    return np.array(found[::-1] if backwards else found)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_gives_what_a_loop_gives(backwards: bool):
    built = Built()
    with program_guard(built.main, built.startup):
        every, last = recurrent(built, backwards=backwards)
    expected = by_hand(built, backwards=backwards)
    found = built.run([every, last])
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_array_equal(found[1], found[0][0 if backwards else -1])


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_of_a_scan(backwards: bool):
    built = Built()
    with program_guard(built.main, built.startup):
        every, last = recurrent(built, 3, backwards=backwards)
        loss = call("elementwise_add", call("mean", call("square", every)), call("mean", last))
        check_gradients(built, loss, ["w", "u", "x", "start"])


def test_gradients_of_a_variable_that_begins_two_states_and_is_gone_through():
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(3, 3))

        def step(each: list[Variable], states: list[Variable]) -> Any:
            return [call("tanh", call("elementwise_mul", states[0], states[1])), call("elementwise_add", states[1], each[0])], []

        _, (first, second) = scan(step, [x], [x, x])
        check_gradients(built, call("mean", call("elementwise_mul", first, second)), ["x"])


def test_a_scan_is_the_ops_written_out_to_the_bit_and_threads_and_passes_change_nothing():
    scanned, written = Built(), Built()
    with program_guard(scanned.main, scanned.startup):
        every, _ = recurrent(scanned)
        loss = call("mean", call("square", every))
        append_backward(loss)
    with program_guard(written.main, written.startup):
        x, start = written.feed("x", numbers(5, 2, 3), (5, -1, 3)), written.feed("start", numbers(2, 4, seed=1), (-1, 4))
        w, u = written.parameter("w", numbers(3, 4, seed=2)), written.parameter("u", numbers(4, 4, seed=3))
        state, rows = start, []
        for t in range(5):
            each = call("squeeze", call("slice", x, [0], [t], [t + 1]), [0])
            state = call("tanh", call("elementwise_add", call("mul", each, w), call("mul", state, u)))
            rows.append(state)
        all_rows = call("stack", rows, 0)
        other = call("mean", call("square", all_rows))
        append_backward(other)
    plain = BuildStrategy(simplify=False, enable_auto_fusion=False, enable_addto=False, fuse_gemm_epilogue=False)
    first = scanned.run([every, loss, "w@GRAD", "u@GRAD", "start"])
    np.testing.assert_array_equal(first[0], written.run([all_rows])[0])
    for name, value in zip(("w@GRAD", "u@GRAD"), first[2:], strict=False):
        np.testing.assert_allclose(value, written.run([name])[0], rtol=1e-12)
    for threads in (1, 2, 3):
        for build in (None, plain):
            again = scanned.run([every, loss, "w@GRAD", "u@GRAD", "start"], threads=threads, build=build)
            for a, b in zip(first, again, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("samples", [15, 16, 33])
def test_threads_share_the_samples_of_a_loop_and_change_no_bit(samples: int):
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(6, samples, 8).astype("float32"), (6, -1, 8))
        start = built.feed("start", numbers(samples, 16, seed=1).astype("float32"), (-1, 16))
        w = built.parameter("w", numbers(24, 32, seed=2).astype("float32"))
        b = built.parameter("b", numbers(32, seed=3).astype("float32"))

        def step(each: list[Variable], states: list[Variable]) -> Any:
            both = call("elementwise_add", call("mul", call("concat", [each[0], states[0]], 1), w), b)
            gate, new = call("split", both, 2, 1)
            kept = call("elementwise_mul", call("sigmoid", gate), states[0])
            made = call("dropout", call("elementwise_add", kept, call("softmax", call("tanh", new))), 0.25)
            return [made], [call("reduce_sum", made, [1])]

        (sums,), (last,) = scan(step, [x], [start])
        loss = call("elementwise_add", call("mean", call("square", last)), call("mean", sums))
        append_backward(loss)
    fetches = [loss, last, sums, "w@GRAD", "b@GRAD"]
    first = built.run(fetches)
    for threads in (2, 3, 4):
        for a, c in zip(first, built.run(fetches, threads=threads), strict=True):
            np.testing.assert_array_equal(a, c)
        scans = [t for t in latest(built.executor).tasks if any(c.kernel is run_rounds for c in t.calls)]
        shares = min(threads, samples // MIN_SAMPLES)
        assert [sum(c.kernel is run_rounds for c in t.calls) for t in scans] == [shares, shares]


def test_states_that_change_places():
    """Fibonacci: each state becomes what the other was."""
    built = Built()
    with program_guard(built.main, built.startup):
        a, b = built.feed("a", [0.0]), built.feed("b", [1.0])
        _, finals = scan(lambda each, s: ([s[1], call("elementwise_add", s[0], s[1])], []), [], [a, b], steps=10)
    assert [v.item() for v in built.run(finals)] == [55.0, 89.0]


def test_states_of_which_one_takes_the_place_of_another():
    built = Built()
    with program_guard(built.main, built.startup):
        a, b = built.feed("a", numbers(6)), built.feed("b", numbers(6, seed=1))
        _, finals = scan(lambda each, s: ([call("tanh", s[1]), call("sigmoid", call("relu", s[0]))], []), [], [a, b], steps=4)
    x, y = built.feeds["a"], built.feeds["b"]
    for _ in range(4):
        x, y = np.tanh(y), 1 / (1 + np.exp(-np.maximum(x, 0)))
    for found, expected in zip(built.run(finals), (x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_step_that_writes_outside_hands_the_value_on():
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(4, 3), (4, 3))
        total = call("fill_constant", [3], "float64", 0.0)
        loop = Scan()
        each = loop.input(x)
        built.block.append_op("elementwise_add", {"X": total, "Y": each}, {"Out": total})
        loop.close()
    np.testing.assert_allclose(built.run([total])[0], built.feeds["x"].sum(0), rtol=1e-12)


@pytest.mark.parametrize("length", [2, 6])
def test_loops_within_loops_with_gradients(length: int):
    """Sums over columns of running products over rows, all of one matrix."""
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(length, 3, 2) + 2, (length, 3, -1))
        w = built.parameter("w", numbers(1, seed=5) + 1)

        def inner(each: list[Variable], states: list[Variable]) -> Any:
            made = call("elementwise_mul", call("elementwise_mul", states[0], each[0]), w)
            return [made], [made]

        def outer(each: list[Variable], states: list[Variable]) -> Any:
            (rows,), (last,) = scan(inner, [each[0]], [states[0]])
            return [call("scale", last, 0.5)], [call("reduce_sum", rows, [0])]

        start = built.feed("start", np.ones(2), (-1,))
        (sums,), (last,) = scan(outer, [x], [start])
        loss = call("elementwise_add", call("mean", sums), call("mean", last))
        check_gradients(built, loss, ["x", "w", "start"], 1e-5)
    state, found = built.feeds["start"], []
    for rows in built.feeds["x"]:
        each = []
        for row in rows:
            state = state * row * built.values["w"]
            each.append(state)
        found.append(np.sum(each, 0))
        state = state * 0.5
    np.testing.assert_allclose(built.run([sums])[0], np.array(found), rtol=1e-12)


def doubled(built: Built, bound: int = 0) -> tuple[Variable, Variable]:
    """Append `while sum(x) < 100: x = x * w; n = n + 1`."""
    x = built.parameter("x", np.array([1.0, 2.0, 3.0]))
    w = built.parameter("w", np.array([2.0]))
    n = call("fill_constant", [1], "int64", 0.0)

    def holds(states: list[Variable]) -> Variable:
        limit = call("fill_constant", [1], built.dtype, 100.0)
        return built.op("less_than", {"X": call("reduce_sum", states[0]), "Y": limit})

    def body(states: list[Variable]) -> list[Variable]:
        return [call("elementwise_mul", states[0], w), call("scale", states[1], 1.0, 1.0)]

    last, count = while_loop(holds, body, [x, n], bound=bound)
    return last, count


def test_a_while_runs_as_long_as_its_condition_holds():
    built = Built()
    with program_guard(built.main, built.startup):
        last, count = doubled(built)
    found = built.run([last, count])
    np.testing.assert_array_equal(found[0], np.array([32.0, 64.0, 96.0]))
    assert found[1].item() == 5
    built.values["x"] = np.array([100.0, 200.0, 300.0])
    far = built.run([last, count])
    np.testing.assert_array_equal(far[0], np.array([100.0, 200.0, 300.0]))
    assert far[1].item() == 0


def test_gradients_of_a_while_with_a_bound():
    built = Built()
    with program_guard(built.main, built.startup):
        last, _ = doubled(built, bound=9)
        check_gradients(built, call("mean", last), ["x", "w"])


def test_a_while_without_a_bound_has_no_gradient():
    built = Built()
    with program_guard(built.main, built.startup):
        last, _ = doubled(built)
        with pytest.raises(PeError, match="without a bound"):
            gradients([call("mean", last)], [built.block.var("w")])


def test_a_while_beyond_its_bound_says_so():
    built = Built()
    with program_guard(built.main, built.startup):
        last, _ = doubled(built, bound=3)
    with pytest.raises(PeError, match="still holds after 3 rounds"):
        built.run([last])


def branched(built: Built) -> Variable:
    x = built.parameter("x", numbers(3, 2))
    w = built.parameter("w", numbers(2, 2, seed=1))
    flag = built.feed("flag", np.array([True]), gradient=False)
    (out,) = cond(flag, lambda: [call("tanh", call("mul", x, w))], lambda: [call("scale", x, 3.0)])
    return out


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_and_its_gradients(taken: bool):
    built = Built()
    with program_guard(built.main, built.startup):
        out = branched(built)
        built.feeds["flag"] = np.array([taken])
        x, w = built.values["x"], built.values["w"]
        np.testing.assert_allclose(built.run([out])[0], np.tanh(x @ w) if taken else 3 * x, rtol=1e-12)
        check_gradients(built, call("mean", out), ["x", "w"])


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_writes_outside_passes_gradients_on(taken: bool):
    built = Built()
    with program_guard(built.main, built.startup):
        w = built.parameter("w", numbers(4))
        y = call("scale", w, 2.0)
        flag = built.feed("flag", np.array([taken]), gradient=False)

        def squared() -> list[Variable]:
            built.block.append_op("elementwise_mul", {"X": y, "Y": y}, {"Out": y})
            return []

        cond(flag, squared, list)
        check_gradients(built, call("mean", call("scale", y, 3.0)), ["w"])
    value = 2 * built.values["w"]
    np.testing.assert_allclose(built.run([y])[0], value**2 if taken else value, rtol=1e-12)


def test_a_branch_in_a_loop_with_gradients():
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(6, 2), (6, -1))
        start = built.feed("start", np.ones(2), (-1,))

        def step(each: list[Variable], states: list[Variable]) -> Any:
            zero = call("fill_constant", [1], "float64", 0.0)
            (made,) = cond(
                built.op("less_than", {"X": zero, "Y": call("reduce_sum", each[0])}),
                lambda: [call("elementwise_mul", states[0], call("sigmoid", each[0]))],
                lambda: [call("elementwise_sub", states[0], each[0])],
            )
            return [made], [made]

        (rows,), _ = scan(step, [x], [start])
        check_gradients(built, call("mean", call("square", rows)), ["x", "start"])
    state, found = np.ones(2), []
    for each in built.feeds["x"]:
        state = state / (1 + np.exp(-each)) if each.sum() > 0 else state - each
        found.append(state)
    np.testing.assert_allclose(built.run([rows])[0], np.array(found), rtol=1e-12)


def test_random_numbers_differ_from_round_to_round_and_come_again():
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", np.ones((8, 50)), (8, -1))
        (rows,), _ = scan(lambda each, s: ([], [call("dropout", each[0], 0.5)]), [x], [])
    first, again, later = built.run([rows])[0], built.run([rows])[0], built.run([rows], step=1)[0]
    np.testing.assert_array_equal(first, again)
    assert len({row.tobytes() for row in (*first, *later)}) == 16


def test_an_error_names_the_op_and_the_round():
    built = Built()
    with program_guard(built.main, built.startup):
        ids = built.feed("ids", np.array([[1], [2], [9], [0]]), (4, -1))
        table = built.parameter("table", numbers(5, 3))
        (rows,), _ = scan(
            lambda each, s: ([], [built.op("lookup_table", {"W": table, "Ids": call("reshape", each[0], [-1, 1])})]), [ids], []
        )
    with pytest.raises(PeError, match=r"lookup_table in round 3: value 9"):
        built.run([rows])


def test_regions_as_text_and_as_json():
    built = Built()
    with program_guard(built.main, built.startup):
        every, _ = recurrent(built)
        append_backward(call("mean", call("elementwise_mul", branched_on(built, every), every)))
    text = to_string(built.main)
    for other in (from_string(text), from_string(to_json(built.main))):
        verify(other)
        assert to_string(other) == text
        built.main = other
    assert text.count("region ") == 2 + 4


def branched_on(built: Built, x: Variable) -> Variable:
    flag = built.feed("flag", np.array([True]), gradient=False)
    (out,) = cond(flag, lambda: [call("tanh", x)], lambda: [call("scale", x, 3.0)])
    return out


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("region body(", "region bodies(", "has no region 'bodies'"),
        ("    end\n", "", "ends inside the region|unknown word"),
        ("-> tanh_0.tmp_0, tanh_0.tmp_0\n", "-> nowhere, tanh_0.tmp_0\n", "has no variable 'nowhere'"),
    ],
)
def test_text_that_is_no_region(old: str, new: str, match: str):
    built = Built()
    with program_guard(built.main, built.startup):
        recurrent(built)
    text = to_string(built.main)
    assert old in text
    with pytest.raises(PeError, match=match):
        from_string(text.replace(old, new))


def test_several_batches_of_one_plan():
    """A plan that serves batches of other sizes has its loops laid out again."""
    built = Built()
    with program_guard(built.main, built.startup):
        every, _ = recurrent(built)
    built.run([every])
    for n in (2, 3, 7, 5, 1, 4):
        built.feeds |= {"x": numbers(5, n, 3, seed=n), "start": numbers(n, 4, seed=n + 1)}
        found = built.executor.run(built.feeds, [every.name], 0).values[0][every.name]
        np.testing.assert_allclose(found, by_hand(built), rtol=1e-9)


@pytest.mark.parametrize("steps", [8, 512])
def test_a_loop_has_as_many_calls_however_many_steps_it_has(steps: int):
    built = Built()
    with program_guard(built.main, built.startup):
        every, _ = recurrent(built, steps)
        append_backward(call("mean", every))
    built.run([every, "w@GRAD"])
    nested = [c.args[0].calls for t in latest(built.executor).tasks for c in t.calls if c.kernel is run_rounds]
    assert [len(calls) for calls in nested] == [6, 4]


def test_types_that_do_not_fit():
    built = Built()
    with program_guard(built.main, built.startup):
        x = built.feed("x", numbers(4, 3), (4, 3))
        start = built.feed("start", numbers(2), (2,))
        with pytest.raises(PeError, match="begins as float64"):
            scan(lambda each, s: ([each[0]], []), [x], [start])
        with pytest.raises(PeError, match="begins as float64"):
            scan(lambda each, s: ([each[0]], []), [x], [built.feed("rows", numbers(1, 3), (1, 3))])
