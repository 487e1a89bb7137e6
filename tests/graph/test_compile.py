"""The stages of a program: none changes the one before it, and what is shown is what runs."""

from __future__ import annotations

import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.text import describe
from pe_cli.program.text import print_program
from tests.execute.support import latest
from tests.execute.test_executor import batch, classifier, values
from tests.graph.passes.support import MODELS, built

PLACES = (Place("cpu", 0), Place("cpu", 1))
STRATEGIES = [
    BuildStrategy(),
    BuildStrategy(sync_batch_norm=True),
    BuildStrategy(reduce_strategy="Reduce"),
    BuildStrategy(gradient_scale_strategy="Customized"),
    BuildStrategy(simplify=False, data_layout="keep", enable_addto=False),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return built(MODELS / "resnet20.yaml", tmp_path_factory.mktemp("run")).train


@pytest.mark.parametrize("strategy", STRATEGIES, ids=range(len(STRATEGIES)))
def test_no_stage_changes_the_one_before(images, strategy):
    before = print_program(images)
    stages = compile_program(images, Purpose(PLACES, strategy), ["loss"])
    program = print_program(stages.program)
    fused = print_program(stages.fused)
    assert print_program(images) == before
    graph = describe(stages.graph())
    assert print_program(images) == before
    assert print_program(stages.program) == program
    assert print_program(stages.fused) == fused
    stages.graph([0])
    assert describe(stages.graph()) == graph


def test_a_plan_runs_the_graph_that_is_shown():
    scope = Scope(list(PLACES))
    executor = Executor(classifier(), scope)
    for name, value in values().items():
        scope.set(name, value)
    executor.run(batch(8, 0), ["loss"], 0)
    assert latest(executor).graph is executor.stages(["loss"]).executed()
    executor.run(batch(1, 0), ["loss"], 1)
    assert latest(executor).graph is executor.stages(["loss"]).executed([0])


def test_all_devices_are_the_same_graph_by_number_or_by_default():
    stages = compile_program(classifier(), Purpose(PLACES), ["loss"])
    assert stages.graph([0, 1]) is stages.graph()
    assert stages.graph([0]) is not stages.graph()


def test_what_is_fetched_stays_in_the_graph():
    program = classifier()
    program.global_block().create_var("unused", TensorType((-1, 16)))
    program.global_block().append_op("relu", {"X": "h0"}, {"Out": "unused"})
    stages = compile_program(program, Purpose(PLACES), ["loss"])
    assert "unused" not in describe(stages.stage("fused"))
    assert "unused" in describe(stages.stage("ssa"))
    assert "unused" in describe(stages.fetching(["loss", "unused"]).stage("fused"))
