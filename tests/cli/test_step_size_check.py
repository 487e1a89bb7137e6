"""Whether a config alone says how large a training step is: `pe check` calls what cannot be planned a mistake only then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pe_cli.cli.check import _is_settled
from pe_cli.core.types import TensorType
from pe_cli.program.ir import Program


def program(levels: int) -> Program:
    made = Program("p")
    made.global_block().create_var("x", TensorType((-1, 2)), is_data=True, lod_level=levels)
    return made


@pytest.mark.parametrize(
    ("programs", "sizes", "settled"),
    [
        pytest.param([program(0)], [(-1, 2), (-1, 3, 4)], True, id="the batch alone is not known"),
        pytest.param([program(0)], [(-1, 2), (-1, -1, 4)], False, id="another size is not known either"),
        pytest.param([program(1)], [(-1, 2)], False, id="sequences of any length"),
        pytest.param([program(0), program(1)], [(-1, 2)], False, id="sequences in a later phase"),
        pytest.param([], [(-1, 2)], False, id="no program that trains"),
    ],
)
def test_sizes_are_settled(programs, sizes, settled) -> None:
    feeds = {f"f{i}": TensorType(shape) for i, shape in enumerate(sizes)}
    assert _is_settled(SimpleNamespace(built=SimpleNamespace(programs=programs, feeds=feeds))) is settled
