"""Large feeds are read where they lie; the results are those of a copy, and nobody's array changes."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import LEND_BYTES
from pe_cli.program.ir import Program
from tests.execute.support import latest

SHAPE = (64, 96)


def program(*ops: tuple[str, dict, dict, dict]) -> Program:
    made = Program("loans")
    block = made.global_block()
    block.create_var("x", TensorType((-1, SHAPE[1])), is_data=True, stop_gradient=True)
    for kind, ins, outs, attrs in ops:
        block.append_op(kind, ins, outs, attrs)
    return made


def executor(made: Program, devices: int = 1) -> Executor:
    return Executor(made, Scope([Place("cpu", d) for d in range(devices)]))


def forms(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in other layouts."""
    wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
    wide[:, ::2] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.uint8)
    odd[:] = np.frombuffer(x.tobytes(), np.uint8)
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "plain": x.copy(),
        "every second column": wide[:, ::2],
        "columns first": np.asfortranarray(x),
        "an odd address": odd.view(x.dtype).reshape(x.shape),
        "read-only": frozen,
        "float64": x.astype("float64"),
        "plain again": x.copy(),
    }


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_arrays_of_any_layout_in_turn(devices):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    assert x.nbytes // devices >= LEND_BYTES // 3
    step = executor(
        program(("relu", {"X": "x"}, {"Out": "y"}, {}), ("scale", {"X": "x"}, {"Out": "z"}, {"scale": 2.0})), devices
    )
    for k, (name, array) in enumerate(forms(x).items()):
        out = step.run({"x": array}, ["y", "z"], k).values
        found = {n: np.concatenate([v[n] for v in out]) for n in ("y", "z")}
        np.testing.assert_array_equal(found["y"], np.maximum(x, 0), err_msg=name)
        np.testing.assert_array_equal(found["z"], 2 * x, err_msg=name)
        np.testing.assert_array_equal(array, x, err_msg=name)


def test_each_step_reads_its_own_array():
    step = executor(program(("reduce_sum", {"X": "x"}, {"Out": "y"}, {"dim": [1]})))
    for k in range(5):
        x = np.full(SHAPE, k, "float32")
        (out,) = step.run({"x": x}, ["y"], k).values
        np.testing.assert_array_equal(out["y"], np.full(SHAPE[0], k * SHAPE[1], "float32"))


def test_an_op_that_writes_a_feed_changes_nobodys_array():
    step = executor(
        program(("scale", {"X": "x"}, {"Out": "x"}, {"scale": 3.0}), ("relu", {"X": "x"}, {"Out": "y"}, {}))
    )
    x = np.ones(SHAPE, "float32")
    (out,) = step.run({"x": x}, ["y"], 0).values
    np.testing.assert_array_equal(out["y"], 3 * x)
    np.testing.assert_array_equal(x, np.ones(SHAPE, "float32"))


@pytest.mark.parametrize("fetch", ["x", "flat"])
def test_a_feed_and_what_shares_its_bytes_can_be_fetched(fetch):
    ops = ("reshape", {"X": "x"}, {"Out": "flat"}, {"shape": [-1]}), ("relu", {"X": "flat"}, {"Out": "y"}, {})
    step = executor(program(*ops))
    for k in range(2):
        x = np.full(SHAPE, k + 1, "float32")
        (out,) = step.run({"x": x}, [fetch, "y"], k).values
        np.testing.assert_array_equal(out[fetch].reshape(SHAPE), x)
        np.testing.assert_array_equal(out["y"], x.reshape(-1))


def test_a_profiled_step_reads_the_newest_array():
    step = executor(program(("relu", {"X": "x"}, {"Out": "y"}, {})))
    x = np.ones(SHAPE, "float32")
    step.run({"x": x}, ["y"], 0)
    for k in (2, 3):
        (out,), _ = latest(step).run_timed([{"x": k * x}], k)
        np.testing.assert_array_equal(out["y"], k * x)
    (out,) = step.run({"x": 7 * x}, ["y"], 4).values
    np.testing.assert_array_equal(out["y"], 7 * x)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("rows", [4, SHAPE[0]])
def test_arrays_that_are_fed_again_are_read_again(devices, rows):
    """Small arrays are copied, large ones read where they lie; their numbers may have changed since."""
    step = executor(program(("relu", {"X": "x"}, {"Out": "y"}, {})), devices)
    first, second = np.ones((rows, SHAPE[1]), "float32"), np.full((rows, SHAPE[1]), 5, "float32")
    for k, x in enumerate((first, first, second, second, first, first)):
        x += k
        out = step.run({"x": x}, ["y"], k).values
        np.testing.assert_array_equal(np.concatenate([v["y"] for v in out]), x)


def test_an_array_that_is_another_by_its_strides_is_read_as_it_is():
    step = executor(program(("scale", {"X": "x"}, {"Out": "y"}, {"scale": 1.0})), 2)
    x = np.arange(SHAPE[0] * SHAPE[1], dtype="float32").reshape(SHAPE)
    for k, value in enumerate((x, x, x[::-1], x, x[::-1])):
        out = step.run({"x": value}, ["y"], k).values
        np.testing.assert_array_equal(np.concatenate([v["y"] for v in out]), value)
