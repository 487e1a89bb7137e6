"""fuse_grad_update of tables: text in, text out; and trainings that end in the same bits with it and without, in less memory."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.graph.passes import fuse_grad_update
from pe_cli.layers.define.registry import find
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.optim.regularizer import L2Decay
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from tests.graph.passes.test_text import text

ROWS, WIDTH = 300, 20
PROGRAM = """\
  var ids: int64[batch, 1] is_data stop_gradient
  var g: float32[batch, 3] is_data stop_gradient
  var rate: float32[1] persistable stop_gradient
  param w: float32[9, 3]
"""
GRADIENT = '  backward lookup_table_grad(Ids=ids, Out@GRAD=g) -> W@GRAD=w@GRAD: float32[9, 3] {"padding_idx": 4} vars(w, w@GRAD)\n'
STEP = "  optimize sgd(Param=w, Grad=w@GRAD, LearningRate=rate) -> ParamOut=w vars(w, w@GRAD)\n"
FUSED = '  backward lookup_sgd(Param=w, Grad=g, LearningRate=rate, Ids=ids) -> ParamOut=w {"padding_idx": 4}\n'


def test_one_operator_looks_up_and_steps():
    made, said = text(fuse_grad_update.run, PROGRAM + GRADIENT + STEP)
    assert made == PROGRAM + FUSED
    assert said == "fuse_grad_update: 1 of 1 updates are done by gradients"


def test_a_gradient_that_is_fetched_stays():
    made, said = text(fuse_grad_update.run, PROGRAM + GRADIENT + STEP, ["w@GRAD"])
    assert made == PROGRAM + GRADIENT + STEP
    assert said == "fuse_grad_update: nothing fused: 1 x a gradient is fetched"


def test_adam_of_other_gradients_is_no_candidate():
    main, _ = network("Adam", "float32")
    _, said = fuse_grad_update.run(main, [])
    assert said == "fuse_grad_update: 2 of 2 updates are done by gradients"


def call(layer: str, *args, **given):
    return find(layer).fn(*args, **given)


def network(optimizer: str, dtype: str, rows: int = ROWS, **settings: object) -> tuple[Program, Program]:
    """Return words and tags, of which some repeat and one is padding, in front of a layer, and what initialises them."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 4
    with program_guard(main, startup):
        words = call("embedding", call("data", "words", [7, 1], dtype="int64"), [rows, WIDTH], padding_idx=5, dtype=dtype)
        tags = call("embedding", call("data", "tags", [7, 1], dtype="int64"), [11, WIDTH], dtype=dtype)
        both = call("reduce_sum", call("elementwise_add", words, tags), dim=1)
        loss = call("mean", call("square", call("fc", both, 3, act="tanh")))
        given = settings if "inner" in settings else {"learning_rate": 0.3, **settings}
        OPTIMIZERS[optimizer](**given).minimize(loss)
    return main, startup


def trained(programs: tuple[Program, Program], batch: int, threads: int, **build: bool) -> tuple[dict[str, np.ndarray], Executor]:
    """Return the persistable variables after four steps, and the executor."""
    main, startup = programs
    scope = Scope([Place("cpu", 0)])
    run_startup(startup, scope, 4)
    executor = Executor(main, scope, build=BuildStrategy(**build), execution=ExecutionStrategy(num_threads=threads))
    rng = np.random.default_rng(0)
    for step in range(4):
        # Ids of the upper half come in the first step alone: later, their moments decay.
        words = rng.integers(0, ROWS if step == 0 else ROWS // 2, (batch, 7, 1))
        executor.run({"words": words, "tags": rng.integers(0, 11, (batch, 7, 1))}, [], step)
    return {name: scope.get(name) for name in scope}, executor


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_changes(optimizer, dtype, batch, threads):
    programs = network(optimizer, dtype)
    expected, _ = trained(programs, batch, 1, fuse_grad_update=False)
    found, executor = trained(programs, batch, threads)
    kinds = [op.type for op in executor.stages([]).graph().program.global_block().ops]
    assert kinds.count({"SGD": "lookup_sgd", "Adam": "lookup_adam"}[optimizer]) == 2
    assert "lookup_table_grad" not in kinds
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_table_that_is_read_before_its_update_changes_by_no_bit(threads):
    programs = network("Lookahead", "float32", inner=OPTIMIZERS["SGD"](learning_rate=0.3), k=3)
    expected, _ = trained(programs, 40, 1, fuse_grad_update=False)
    found, _ = trained(programs, 40, threads)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_gradients_of_tables_take_no_memory():
    programs = network("Adam", "float32", rows=20_000)
    (without,), (fused,) = (trained(programs, 2, 1, fuse_grad_update=on)[1].plans.values() for on in (False, True))
    assert fused.nbytes < without.nbytes - 20_000 * (WIDTH - 1) * 4  # a number for every row is left


@pytest.mark.parametrize("settings", [{"regularization": L2Decay(0.1)}, {"grad_clip": GradientClipByGlobalNorm(0.1)}])
def test_what_changes_a_gradient_first_gets_it(settings):
    programs = network("SGD", "float32", **settings)
    expected, _ = trained(programs, 8, 1, fuse_grad_update=False)
    found, executor = trained(programs, 8, 2)
    assert "lookup_sgd" not in [op.type for op in executor.stages([]).graph().program.global_block().ops]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
