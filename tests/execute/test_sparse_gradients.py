"""Training embeddings by row-sparse gradients: equal to dense ones, to PyTorch, on any devices and threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.critical_path import parallelism
from pe_cli.execute.diagnostics.estimate import estimate_memory
from pe_cli.execute.diagnostics.profile import rows, run_profile
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.graph.dot import to_dot
from pe_cli.graph.text import describe
from pe_cli.optim.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.optim.regularizer import L1Decay, L2Decay
from pe_cli.program.backward import gradients
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Program
from pe_cli.program.serialize import from_json, to_json
from pe_cli.program.text import print_program
from pe_cli.program.text_forms import from_string
from pe_cli.program.verify import verify
from tests.execute.support import latest
from tests.needs import torch
from tests.rotation import of_today

HEIGHT, WIDTH, SLOTS = 50, 6, 4
TABLES = ("deep", "other")


def start(name):
    return np.random.default_rng(len(name)).standard_normal((HEIGHT, WIDTH)).astype("float32")


def network(sparse: bool, lookups: int = 1, padding: int = -1, tables=TABLES[:1]) -> tuple[Program, Program]:
    """Rows of some tables, each looked up so many times, against a target: the mean squared error."""
    main, startup = Program("main"), Program("startup")
    block = main.global_block()
    block.create_var("y", TensorType((-1, WIDTH)), is_data=True, stop_gradient=True)
    parts = []
    for name in tables:
        NumpyArray(start(name))(block.create_parameter(name, TensorType((HEIGHT, WIDTH))), startup.global_block())
        for k in range(lookups):
            ids = f"ids{k}"
            if ids not in block.vars:
                block.create_var(ids, TensorType((-1, SLOTS, 1), "int64"), is_data=True, stop_gradient=True)
            with main.place(Span("model.yaml", 4 + k, 3)):
                ins = {"W": name, "Ids": ids}
                block.append_op("lookup_table", ins, {"Out": f"{name}{k}"}, {"is_sparse": sparse, "padding_idx": padding})
            block.append_op("reduce_sum", {"X": f"{name}{k}"}, {"Out": f"s{name}{k}"}, {"dim": [1]})
            parts.append(f"s{name}{k}")
    block.append_op("sum", {"X": parts}, {"Out": "all"})
    block.append_op("elementwise_sub", {"X": "all", "Y": "y"}, {"Out": "gap"}, {"axis": -1})
    block.append_op("square", {"X": "gap"}, {"Out": "squares"})
    block.append_op("mean", {"X": "squares"}, {"Out": "loss"})
    return main, startup


def batch(samples: int, lookups: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = {f"ids{k}": rng.integers(0, HEIGHT, (samples, SLOTS, 1)) for k in range(lookups)}
    return {**feed, "y": rng.standard_normal((samples, WIDTH)).astype("float32")}


def executor_of(optimizer, sparse=True, devices=1, threads=0, build=None, lookups=1, padding=-1, tables=TABLES[:1], peers=None):
    main, startup = network(sparse, lookups, padding, tables)
    optimizer().minimize(main.global_block().var("loss"), startup)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    run_startup(startup, scope, 1)
    strategy = BuildStrategy(**(build or {}))
    return Executor(main, scope, build=strategy, execution=ExecutionStrategy(num_threads=threads), peers=peers)


def train(optimizer, samples=(13, 40, 2, 1, 300), fetches=(), **how) -> dict[str, np.ndarray]:
    """Return every table after some steps, from the last device."""
    executor = executor_of(optimizer, **how)
    for step, n in enumerate(samples):
        executor.run(batch(n, how.get("lookups", 1), step), list(fetches), step)
    last = len(executor.places) - 1
    return {name: executor.scope.get(name, last) for name in how.get("tables", TABLES[:1])}


def named(name, **settings):
    return lambda: OPTIMIZERS[name](learning_rate=0.1, **settings)


OPTIMIZER = {
    "sgd": named("SGD"),
    "adagrad": named("Adagrad"),
    "adam": named("Adam"),
    "lazy adam": named("Adam", lazy_mode=True),
    "momentum": named("Momentum", momentum=0.9),
    "nesterov": named("Momentum", momentum=0.9, use_nesterov=True),
    "lookahead": lambda: OPTIMIZERS["Lookahead"](inner=OPTIMIZERS["SGD"](learning_rate=0.1), k=2),
}
#: Those that give the same with a dense gradient.
DENSE = [name for name in OPTIMIZER if name != "lazy adam"]


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("padding", [-1, 3])
def test_tables_are_those_of_a_dense_gradient(name, padding):
    found, dense = (train(OPTIMIZER[name], sparse=s, padding=padding)["deep"] for s in (True, False))
    np.testing.assert_allclose(found, dense, rtol=1e-4, atol=1e-5)
    if name == "sgd":
        np.testing.assert_array_equal(found, dense)
    if padding >= 0:
        np.testing.assert_array_equal(found[padding], start("deep")[padding])


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(("lookups", "tables"), [(1, TABLES), (3, TABLES[:1]), (2, TABLES)], ids=str)
def test_several_lookups_and_tables_agree_with_dense_gradients(name, lookups, tables):
    found, dense = (train(OPTIMIZER[name], sparse=s, lookups=lookups, tables=tables) for s in (True, False))
    for table in tables:
        np.testing.assert_allclose(found[table], dense[table], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "devices"), of_today(list(itertools.product(OPTIMIZER, [1, 2, 3])), 3))
@pytest.mark.parametrize(
    "build",
    [
        {},
        {"reduce_strategy": "Reduce"},
        {"enable_backward_optimizer_op_deps": False, "fuse_all_reduce_ops": False},
        {"fuse_all_optimizer_ops": True, "enable_sequential_execution": True},
    ],
    ids=["plain", "Reduce", "updates early", "fused updates"],
)
def test_devices_and_threads_change_nothing(name, devices, build):
    one = train(OPTIMIZER[name], lookups=2, tables=TABLES, samples=(13, 2, 1, 1000))
    plain = {"memory_optimize": False, "enable_inplace": False}
    how = {"lookups": 2, "tables": TABLES, "samples": (13, 2, 1, 1000), "devices": devices}
    first = train(OPTIMIZER[name], threads=1, build={**build, **plain}, **how)
    for table in TABLES:
        np.testing.assert_allclose(first[table], one[table], rtol=1e-3, atol=1e-4)
    for threads in (1, 2, 3, 4):
        found = train(OPTIMIZER[name], threads=threads, build=build, **how)
        assert all(np.array_equal(first[table], found[table]) for table in TABLES), threads


@pytest.mark.parametrize("reduce", ["AllReduce", "Reduce"])
def test_every_device_has_the_same_table(reduce):
    executor = executor_of(OPTIMIZER["adagrad"], devices=3, build={"reduce_strategy": reduce})
    for step, n in enumerate((13, 2, 1)):
        executor.run(batch(n, 1, step), ["loss"], step)
    for d in (1, 2):
        np.testing.assert_array_equal(executor.scope.get("deep", d), executor.scope.get("deep", 0))


@pytest.mark.parametrize("clip", [GradientClipByGlobalNorm(0.05), GradientClipByNorm(0.05), GradientClipByValue(0.002)], ids=str)
@pytest.mark.parametrize("devices", [1, 2])
def test_clipping_counts_every_row_once(clip, devices):
    how = {"tables": TABLES, "lookups": 2, "devices": devices}
    found, dense = (train(named("SGD", grad_clip=clip), sparse=s, **how) for s in (True, False))
    free = train(named("SGD"), **how)
    for table in TABLES:
        np.testing.assert_allclose(found[table], dense[table], rtol=2e-5, atol=2e-6)
        assert np.abs(found[table] - free[table]).max() > 1e-3


@pytest.mark.parametrize("decay", [L1Decay(0.2), L2Decay(0.2)], ids=str)
@pytest.mark.parametrize("devices", [1, 2])
def test_only_rows_of_the_batch_decay(decay, devices):
    feed = batch(3, 1, 0)
    executor = executor_of(named("SGD", regularization=decay), devices=devices)
    executor.run(feed, [])
    untouched = np.setdiff1d(np.arange(HEIGHT), feed["ids0"])
    value = start("deep")
    np.testing.assert_array_equal(executor.scope.get("deep")[untouched], value[untouched])
    sums = value[feed["ids0"][..., 0]].sum(1)
    gradient = np.zeros((HEIGHT, WIDTH))
    for i in range(3):
        for row in feed["ids0"][i, :, 0]:
            gradient[row] += 2 * (sums[i] - feed["y"][i]) / (3 * WIDTH)
    touched = np.unique(feed["ids0"])
    pull = value if isinstance(decay, L2Decay) else np.sign(value)
    expected = value[touched] - 0.1 * (gradient + 0.2 * pull)[touched]
    np.testing.assert_allclose(executor.scope.get("deep")[touched], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "lazy adam"])
def test_training_is_that_of_pytorch_with_sparse_gradients(name):
    table = torch.nn.Embedding(HEIGHT, WIDTH, sparse=True, _weight=torch.from_numpy(start("deep").copy()))
    make = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "lazy adam": torch.optim.SparseAdam}[name]
    other = make(table.parameters(), lr=0.1, **({"eps": 1e-6} if name == "adagrad" else {}))
    samples = (13, 40, 2)
    with torch.sparse.check_sparse_tensor_invariants():  # without a choice PyTorch warns
        for step, n in enumerate(samples):
            feed = batch(n, 1, step)
            gap = table(torch.from_numpy(feed["ids0"][..., 0])).sum(1) - torch.from_numpy(feed["y"])
            other.zero_grad()
            gap.square().mean().backward()
            other.step()
    found = train(OPTIMIZER[name], samples=samples)["deep"]
    np.testing.assert_allclose(found, table.weight.detach().numpy(), rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_fetched_gradient_is_the_dense_table(devices):
    dense = executor_of(OPTIMIZER["sgd"], sparse=False).run(batch(13, 1, 0), ["deep@GRAD"]).values[0]["deep@GRAD"]
    clip = {"grad_clip": GradientClipByNorm(1e6)}
    names = ["deep@GRAD", "deep@GRAD@CLIP_0"]
    found = executor_of(named("SGD", **clip), devices=devices).run(batch(13, 1, 0), names).values
    assert len(found) == devices
    for values in found:
        for name in names:
            np.testing.assert_allclose(values[name], dense, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("reduce", ["AllReduce", "Reduce"])
def test_gradients_that_update_nothing_stay_on_their_device(reduce):
    main, startup = network(True)
    block = main.global_block()
    (found,) = gradients([block.var("loss")], [block.var("deep")])
    scope = Scope([Place("cpu", d) for d in range(2)])
    executor = Executor(main, scope, build=BuildStrategy(reduce_strategy=reduce, gradient_scale_strategy="One"))
    run_startup(startup, scope, 1)
    feed = batch(6, 1, 0)
    values = executor.run(feed, [found.name]).values
    for d, value in enumerate(values):
        ids = feed["ids0"][3 * d : 3 * d + 3]
        assert set(np.flatnonzero(value[found.name].any(1))) == set(ids.ravel())


def test_what_is_fetched_changes_no_bit():
    one, two = (train(OPTIMIZER["adagrad"], fetches=f, devices=2)["deep"] for f in ([], ["deep@GRAD", "deep@GRAD@ROWS"]))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("devices", [1, 2])
def test_an_id_out_of_range_is_named_with_layer_row_and_value(devices):
    executor = executor_of(OPTIMIZER["adagrad"], devices=devices)
    feed = batch(6, 1, 0)
    feed["ids0"][4, 2] = HEIGHT
    with pytest.raises(PeError, match=rf"lookup_table: value {HEIGHT} at row 4 is out of range \[0, {HEIGHT}\)") as raised:
        executor.run(feed, ["loss"])
    assert raised.value.code is ExitCode.DATA
    assert str(raised.value.at).startswith("model.yaml:4")


def test_no_memory_of_the_size_of_the_table_is_needed():
    main, startup = Program("main"), Program("startup")
    block = main.global_block()
    block.create_var("ids", TensorType((-1, 1), "int64"), is_data=True, stop_gradient=True)
    block.create_parameter("w", TensorType((1_000_000, 8)))
    block.append_op("lookup_table", {"W": "w", "Ids": "ids"}, {"Out": "out"}, {"is_sparse": True})
    block.append_op("mean", {"X": "out"}, {"Out": "loss"})
    OPTIMIZER["adagrad"]().minimize(block.var("loss"), startup)
    assert estimate_memory(main, [Place("cpu", 0)], 64)[0].temporaries < 64 * 8 * 4 * 10


def test_pictures_and_profiles_name_the_gather():
    executor = executor_of(OPTIMIZER["adagrad"], devices=2)
    graph = executor.stages().graph()
    joined = "gather(Ids=[ids0@0.0, ids0@1.0], X=[deep0@GRAD@0.1, deep0@GRAD@1.1]) -> Out=deep@GRAD@0.1, Rows=deep@GRAD@ROWS@0.1"
    assert joined in describe(graph)
    assert 'shape=octagon' in next(line for line in to_dot(graph).splitlines() if 'label="gather' in line)
    profile = run_profile(executor, batch(40, 1, 0), ["loss"], 3)
    assert {"gather", "adagrad", "lookup_table"} <= {row.op for row in rows(profile)}
    assert parallelism(profile).path_ms > 0


def test_programs_with_rows_are_valid_and_survive_text_and_json():
    main = executor_of(OPTIMIZER["adam"], lookups=2, tables=TABLES).program
    verify(main)
    for copy in (from_string(print_program(main)), from_json(to_json(main)), main.clone()):
        verify(copy)
        assert print_program(copy) == print_program(main)


@pytest.mark.parametrize("name", ["Lamb", "AdamW", "SGDW", "Lion", "NAdam", "RAdam"])
def test_an_optimizer_without_a_form_for_rows_says_so(name):
    main, startup = network(True)
    with pytest.raises(PeError, match=f"{name} has no update for row-sparse gradients, and 'deep' has one"):
        named(name)().minimize(main.global_block().var("loss"), startup)


def test_ops_that_would_take_the_values_for_a_table_are_refused():
    main = executor_of(OPTIMIZER["sgd"]).program
    with pytest.raises(PeError, match="'scale' cannot read 'deep@GRAD', which is row-sparse"):
        main.global_block().append_op("scale", {"X": "deep@GRAD"}, {"Out": "half"}, {"scale": 0.5})


def test_threads_share_the_rows_of_a_table_that_devices_share():
    executor = executor_of(OPTIMIZER["adagrad"], devices=2, build={"reduce_strategy": "Reduce"})
    executor.run(batch(400, 1, 0), ["loss"])
    (plan,) = executor.plans.values()
    kinds = [plan.graph.nodes[t.node].title for t in plan.tasks]
    homes = [t.home for t, kind in zip(plan.tasks, kinds, strict=True) if kind == "adagrad"]
    assert homes == [0, 1]


def test_an_update_waits_for_all_gradients_but_for_no_other_table_s_rows_to_be_joined():
    executor = executor_of(named("Adagrad"), threads=2, tables=TABLES)
    executor.run(batch(6, 1, 3), ["loss"])
    plan = latest(executor)
    kinds = [plan.graph.nodes[task.node].title for task in plan.tasks]
    waits = plan.waits(2)

    def before(i, found=frozenset()):
        new = waits[i] - found
        return frozenset.union(found | new, *(before(j, found | new) for j in new))

    merges, updates = ({i for i, kind in enumerate(kinds) if kind == wanted} for wanted in ("merge_selected_rows", "adagrad"))
    gradients_ = {i for i, kind in enumerate(kinds) if kind.endswith("_grad")}
    assert len(merges) == 2
    assert {before(i) & merges for i in updates} == {frozenset([i]) for i in merges}
    assert all(before(i) >= gradients_ for i in updates)
