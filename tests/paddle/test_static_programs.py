"""Static programs of 2.x, beside what PaddlePaddle 2.6.2 made of them: `recordings/static_programs.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli.paddle as paddle
from pe_cli.io.fluid.value_files import read_original
from tests.paddle import further_static_programs as further
from tests.paddle.static_programs import PROGRAMS, run
from tests.rotation import of_today

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recordings" / "static_programs.json").read_text())
#: How far a loss or a rate may be off, of the largest one.
NEAR = 1e-4


def test_every_program_is_recorded() -> None:
    assert set(RECORDED) == set(PROGRAMS)
    assert set(further.__all__) < set(PROGRAMS)


@pytest.mark.filterwarnings("ignore:PaddlePaddle 1.8.5 has no form of")
@pytest.mark.parametrize("name", of_today(list(PROGRAMS), 4))
def test_a_program_has_the_numbers_names_and_files_of_the_original(name: str, tmp_path: Path) -> None:
    was, (found, near) = RECORDED[name], run(paddle, name, tmp_path)
    assert found.keys() == was.keys()
    for key in ("parameters", "saved", "inputs", "files"):
        assert found[key] == was[key], key
    assert found["shapes"] == [shape or [1] for shape in was["shapes"]]  # a number is [1] up to 2.4, and [] later
    for key in ("losses", "rates"):
        _near(found[key], was[key], NEAR, key)
    for key in ("tested", "again", "inferred"):
        _near(found[key], was[key], near, key)
    for mine, other in zip(found["answers"], was["answers"], strict=True):
        _near(mine, other, near, "answers")


def _near(found: list[float], was: list[float], near: float, key: str) -> None:
    assert len(found) == len(was), key
    largest = max([abs(v) for v in was], default=1.0)
    np.testing.assert_allclose(found, was, rtol=0, atol=near * max(largest, 1e-3), err_msg=key)


def test_a_file_has_the_weights_of_recurrent_layers_in_the_row_that_the_original_reads(tmp_path: Path) -> None:
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
        paddle.nn.GRU(2, 3)(static.data("series", [None, 4, 2]))
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        paddle.fluid.io.save_persistables(executor, tmp_path, main)
    values = {file.name: np.ravel(next(iter(read_original(file, [file.name]).values()))) for file in tmp_path.iterdir()}
    order = ("w_0", "w_1", "b_0", "b_1")
    np.testing.assert_array_equal(values["gru_0.w_0"], np.concatenate([values[f"gru_cell_0.{part}"] for part in order]))
