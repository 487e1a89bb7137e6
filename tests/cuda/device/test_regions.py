"""Loops and branches on a card, where every round that there may be is launched: against the CPU, which runs them as nested calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.layers.control.loops import cond, scan
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Variable
from tests.execute.regions.test_calls import Built, branched, call, doubled, numbers, recurrent
from tests.rotation import of_today


def loss_of_scan(built: Built, *, backwards: bool) -> list[Variable]:
    every, last = recurrent(built, 3, backwards=backwards)
    loss = call("elementwise_add", call("mean", every), call("mean", last))
    return [every, last, *gradients([loss], [built.block.var(n) for n in ("x", "start", "w", "u")])]


def loss_of_while(built: Built, bound: int = 7) -> list[Variable]:
    last, count = doubled(built, bound)
    return [last, count, *gradients([call("mean", last)], [built.block.var(n) for n in ("x", "w")])]


def loss_of_branch(built: Built) -> list[Variable]:
    out = branched(built)
    return [out, *gradients([call("mean", out)], [built.block.var(n) for n in ("x", "w")])]


def branches_in_a_loop(built: Built) -> list[Variable]:
    x, start = built.feed("x", numbers(4, 2), (4, -1)), built.feed("start", np.ones(2), (-1,))

    def step(each: list[Variable], states: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        (made,) = cond(
            built.op("less_than", {"X": call("fill_constant", [1], built.dtype, 0.0), "Y": call("reduce_sum", each[0])}),
            lambda: [call("elementwise_mul", states[0], call("sigmoid", each[0]))],
            lambda: [call("elementwise_sub", states[0], each[0])],
        )
        return [made], [made]

    (rows,), _ = scan(step, [x], [start])
    return [rows, *gradients([call("mean", call("square", rows))], [x, start])]


def noise(built: Built) -> list[Variable]:
    x = built.feed("x", np.ones((3, 2, 5)), (3, 2, -1))

    def outer(each: list[Variable], states: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        (rows,), _ = scan(lambda row, _: ([], [call("dropout", row[0], 0.5)]), [each[0]], [])
        return [], [rows]

    (rows,), _ = scan(outer, [x], [])
    return [rows]


@pytest.mark.parametrize(
    ("build", "feeds"),
    of_today([
        pytest.param(lambda b: loss_of_scan(b, backwards=False), {}, id="a scan"),
        pytest.param(lambda b: loss_of_scan(b, backwards=True), {}, id="a scan backwards"),
        pytest.param(loss_of_while, {}, id="a while that ends before its bound"),
        pytest.param(loss_of_branch, {}, id="a branch that is taken"),
        pytest.param(loss_of_branch, {"flag": np.array([False])}, id="a branch that is not taken"),
        pytest.param(branches_in_a_loop, {}, id="branches in a loop"),
        pytest.param(noise, {}, id="random numbers in a loop in a loop"),
    ], 7),
)  # fmt: skip
def test_regions_compute_what_they_compute_on_the_cpu(build: Callable[[Built], Sequence[Variable]], feeds: dict[str, np.ndarray]):
    built = Built("float32")
    with program_guard(built.main, built.startup):
        outs = build(built)
    built.feeds |= feeds
    found = built.run(outs, 5, place="cuda")
    for _ in range(2):  # the second run makes one graph of all launches, which the third begins with
        again = built.executor.run(built.feeds, [v.name for v in outs], 5).values[0]
        for v, value in zip(outs, found, strict=True):
            np.testing.assert_array_equal(again[v.name], value)
    for value, expected in zip(found, built.run(outs, 5), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-6)


def test_a_while_without_a_bound_says_what_to_do():
    built = Built("float32")
    with program_guard(built.main, built.startup):
        last, _ = doubled(built)
    with pytest.raises(PeError, match="a loop without a bound cannot run on cuda") as caught:
        built.run([last], place="cuda")
    assert caught.value.code is ExitCode.DEVICE
    assert "give it a bound" in str(caught.value.hint)


def test_a_while_beyond_its_bound_says_so():
    built = Built("float32")
    with program_guard(built.main, built.startup):
        last, _ = doubled(built, bound=2)
    with pytest.raises(PeError, match="still holds after 2 rounds"):
        built.run([last], place="cuda")


def looked_up(built: Built) -> Variable:
    ids = built.feed("ids", np.array([[1], [2], [9], [0]]), (4, -1))
    table = built.parameter("table", numbers(5, 3))
    (rows,), _ = scan(
        lambda each, _: ([], [built.op("lookup_table", {"W": table, "Ids": call("reshape", each[0], [-1, 1])})]), [ids], []
    )
    return rows


def test_an_error_names_the_op_and_the_round_and_the_next_step_begins_anew():
    built = Built("float32")
    with program_guard(built.main, built.startup):
        rows = looked_up(built)
    with pytest.raises(PeError, match=r"lookup_table in round 3: value 9"):
        built.run([rows], place="cuda")
    built.feeds["ids"][2] = 3
    np.testing.assert_array_equal(built.run([rows], place="cuda")[0][:, 0], built.values["table"][[1, 2, 3, 0]])


@pytest.mark.parametrize("taken", [False, True])
def test_an_error_of_a_branch_that_does_not_count_is_none(taken: bool):
    built = Built("float32")
    with program_guard(built.main, built.startup):
        ids, table = built.feed("ids", np.array([[9]])), built.parameter("table", numbers(5, 3))
        flag = built.feed("flag", np.array([taken]), gradient=False)
        (out,) = cond(
            flag,
            lambda: [built.op("lookup_table", {"W": table, "Ids": ids})],
            lambda: [call("fill_constant", [1, 3], built.dtype, 2.0)],
        )
    if taken:
        with pytest.raises(PeError, match="lookup_table: value 9"):
            built.run([out], place="cuda")
    else:
        np.testing.assert_array_equal(built.run([out], place="cuda")[0], np.full((1, 3), 2.0))
