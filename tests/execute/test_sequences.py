"""Sequences in the executor: batches are cut between them, and devices give what one gives."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch_split import cut_sequences
from pe_cli.execute.executor import Executor
from pe_cli.layers.define.registry import find
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from pe_cli.session.training.averages import Averages

LENGTHS = (3, 1, 7, 2, 2, 5, 1)


def call(layer: str, *args, **given):
    return find(layer).fn(*args, **given)


def network(kind: str, is_sparse: bool = False) -> tuple[Program, Program, str]:
    """Texts to classes (`texts`), or words to classes (`words`); SGD."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 3
    with program_guard(main, startup):
        words = call("data", "words", [1], dtype="int64", lod_level=1)
        label = call("data", "label", [1], dtype="int64", lod_level=int(kind == "words"))
        x = call("dropout", call("embedding", words, [20, 6], is_sparse=is_sparse), 0.3)
        x = call("sequence_conv", x, 5, 3, act="tanh")
        if kind == "texts":
            x = call(
                "concat",
                [
                    call("sequence_pool", x, "sqrt"),
                    call("sequence_last_step", call("dynamic_gru", call("fc", x, 9), 3)),
                ],
                1,
            )
        loss = call("mean", call("softmax_with_cross_entropy", call("fc", x, 4), label))
        OPTIMIZERS["SGD"](learning_rate=0.5).minimize(loss)
    return main, startup, loss.name


def batch(seed: int, kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.permutation(LENGTHS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    labels = rng.integers(0, 4, (len(lengths) if kind == "texts" else offsets[-1], 1))
    feed = {"words": rng.integers(0, 20, (offsets[-1], 1)), "words@LOD0": offsets, "label": labels}
    return feed if kind == "texts" else {**feed, "label@LOD0": offsets}


def trainer(kind: str, devices: int, threads: int = 1, *, is_sparse: bool = False, **build) -> tuple[Executor, str]:
    """An executor that trains the network from its initial values, and the name of the loss."""
    main, startup, loss = network(kind, is_sparse)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    scope.allocate({v.name: v.type for v in startup.list_vars() if v.persistable})
    first = Scope([Place("cpu", 0)])
    Executor(startup, first, seed=3).run({})
    for name in first:
        scope.set(name, first.get(name))
    execution = ExecutionStrategy(num_threads=threads)
    return Executor(main, scope, seed=3, execution=execution, build=BuildStrategy(**build)), loss


def train(
    kind: str, devices: int, threads: int = 1, is_sparse: bool = False
) -> tuple[list[float], dict[str, np.ndarray]]:
    executor, loss = trainer(kind, devices, threads, is_sparse=is_sparse)
    losses = []
    for step in range(4):
        losses.append(executor.run(batch(step, kind), [loss], step).number(loss)[0])
    return losses, {name: executor.scope.get(name) for name in executor.scope}


@pytest.mark.parametrize("kind", ["texts", "words"])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("devices", [2, 3])
def test_devices_give_what_one_device_gives(kind, devices, is_sparse):
    """A mean over words counts a device by its words, one over texts by its texts; 7 texts go 2 and 2 and 3.

    The rows of a row-sparse gradient are none of the sequences', though they were looked up by their words.
    """
    losses, values = train(kind, 1)
    others, found = train(kind, devices, is_sparse=is_sparse)
    np.testing.assert_allclose(others, losses, rtol=2e-6)
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert losses[-1] != losses[0]


def test_threads_change_no_bit():
    losses, values = train("texts", 2, 1)
    others, found = train("texts", 2, 4)
    assert losses == others
    assert all(np.array_equal(found[name], value) for name, value in values.items())


def test_nested_sequences_are_cut_at_the_outermost():
    arrays = {"x": np.arange(7), "x@LOD0": np.array([0, 2, 3]), "x@LOD1": np.array([0, 2, 4, 7])}
    part = cut_sequences("x", ("x@LOD0", "x@LOD1"), arrays, 1, 2)
    assert {name: a.tolist() for name, a in part.items()} == {"x": [4, 5, 6], "x@LOD0": [0, 1], "x@LOD1": [0, 3]}


def pooled() -> Executor:
    program = Program("pool")
    with program_guard(program, Program()):
        call("sequence_pool", call("data", "x", [2], lod_level=1), "sum")
    return Executor(program, Scope([Place("cpu", 0)]))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        pytest.param([0, 2, 4], "end at 4, but there are 5 rows", id="a row is left"),
        pytest.param([0, 2, 9], "end at 9, but there are 5 rows", id="rows are missing"),
        pytest.param([0, 3, 2, 5], "do not fall", id="offsets fall"),
        pytest.param([1, 5], "start at 0", id="the first row is left out"),
        pytest.param(None, "their offsets are missing", id="none"),
    ],
)
def test_offsets_that_do_not_fit(offsets, message):
    feed = {"x": np.zeros((5, 2), "float32")}
    if offsets is not None:
        feed["x@LOD0"] = np.array(offsets)
    with pytest.raises(PeError, match=message) as caught:
        pooled().run(feed)
    assert caught.value.code == ExitCode.DATA


@pytest.mark.parametrize("layer", ["sequence_pool", "sequence_reverse", "dynamic_gru"])
def test_offsets_that_a_program_makes_up_are_checked_too(layer):
    program = Program("reset")
    with program_guard(program, Program()), program.place(Span("m.yaml", 4, 3)):
        x = call("lod_reset", call("data", "x", [3]), target_lod=[0, 2, 9])
        out = call(layer, x, *({"sequence_pool": ["sum"], "dynamic_gru": [1]}.get(layer, [])))
    executor = Executor(program, Scope([Place("cpu", 0)]))
    for name in executor.scope:
        executor.scope.set(name, np.zeros(executor.scope.type(name).shape, "float32"))
    with pytest.raises(PeError, match="end at 9, but there are 5 rows") as caught:
        executor.run({"x": np.zeros((5, 3), "float32")}, [out.name])
    assert caught.value.at == Span("m.yaml", 4, 3)


def test_feeds_of_one_batch_have_as_many_samples():
    main, _, _ = network("texts")
    feed = {**batch(0, "texts"), "label": np.zeros((6, 1), np.int64)}
    with pytest.raises(PeError, match="label has 6, words has 7"):
        Executor(main, Scope([Place("cpu", 0)])).split(feed)


def test_devices_pad_to_the_longest_of_all():
    program = Program("pad")
    with program_guard(program, Program()):
        value = call("fill_constant", [1], "float32", 0.0)
        block, length = call("sequence_pad", call("data", "x", [1], lod_level=1), value)
    executor = Executor(program, Scope([Place("cpu", d) for d in range(2)]))
    feed = {"x": np.arange(5, dtype="float32").reshape(5, 1), "x@LOD0": np.array([0, 1, 5])}
    values = executor.run(feed, [block.name, length.name]).values
    assert [v[block.name].shape for v in values] == [(1, 4, 1), (1, 4, 1)]
    assert [v[length.name].tolist() for v in values] == [[1], [4]]


def test_averages_over_batches_count_rows():
    averages = Averages()
    averages.add("loss", 1.0, 3)
    averages.add("loss", 4.0, 1)
    assert averages.take(["loss"]) == {"loss": 1.75}
