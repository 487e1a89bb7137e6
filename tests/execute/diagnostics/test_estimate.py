"""The memory that is foretold is the memory that a plan then takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch_split import split_sizes
from pe_cli.execute.diagnostics.estimate import batch_types, estimate_memory
from pe_cli.execute.executor import Executor
from pe_cli.graph.lod_resolution import resolve
from pe_cli.program.ir import Program


def chain(length: int, width: int = 100) -> Program:
    """Return a program of relus, one after the other."""
    program = Program("chain")
    block = program.global_block()
    block.create_var("x0", TensorType((-1, width)), is_data=True, stop_gradient=True)
    for i in range(length):
        block.append_op("scale", {"X": f"x{i}"}, {"Out": f"x{i + 1}"}, {"scale": 2.0})
    return program


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("share", [True, False])
def test_the_estimate_is_what_the_plan_takes(devices: int, share: bool) -> None:
    program, build = chain(5), BuildStrategy(memory_optimize=share)
    places = [Place("cpu", i) for i in range(devices)]
    found = estimate_memory(program, places, 7, build=build, fetches=["x5"])
    sizes = split_sizes(7, devices)
    parts = batch_types(resolve(program), sizes)
    plan = Executor(program, Scope(places), build=build).plan(parts, sizes, ["x5"])
    assert [e.temporaries for e in found] == [m.plan.nbytes for m in plan.memory]
    assert [e.place for e in found] == places


def test_without_sharing_every_variable_has_its_own_bytes() -> None:
    plain = BuildStrategy(memory_optimize=False, simplify=False, enable_auto_fusion=False)
    (found,) = estimate_memory(chain(3), [Place()], 4, build=plain)
    # 4 variables of 4 x 100 float32, each 1600 bytes: a multiple of the alignment
    assert found.temporaries == found.unshared == 4 * 1600
    (shared,) = estimate_memory(chain(3), [Place()], 4, build=replace(plain, memory_optimize=True))
    assert shared.temporaries < 4 * 1600


def test_a_feed_of_unknown_size_is_named() -> None:
    program = Program("open")
    program.global_block().create_var("words", TensorType((-1, -1)), is_data=True)
    program.global_block().append_op("scale", {"X": "words"}, {"Out": "y"}, {"scale": 2.0})
    with pytest.raises(PeError, match="feed 'words' is float32"):
        estimate_memory(program, [Place()], 4)
