"""Names that layers use up: as many of each key as PaddlePaddle 1.8.5, so that what is appended later has its names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pe_cli.paddle.fluid as fluid
from tests.paddle.recordings.names_used import PROGRAMS, used

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:fluid.layers.LSTMCell"),
]
RECORD = json.loads((Path(__file__).parent / "recordings" / "names_used.json").read_text(encoding="utf-8"))
#: Keys of the original: others are of this package, and no later name follows from them.
KEYS = {key for found in RECORD.values() for key in found["used"]}
#: Programs whose results have other names here: loops return variables of their own.
OTHER_NAMES = {"while_loop", "dynamic_decode, greedy", "dynamic_decode, drawn", "dynamic_decode, given", "dynamic_decode, beams"}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_uses_up_the_names_that_the_original_does(name):
    found = used(fluid, lambda: fluid.unique_name.generator.ids, PROGRAMS[name])
    assert {key: count for key, count in found["used"].items() if key in KEYS} == RECORD[name]["used"]
    if name not in OTHER_NAMES:
        assert found["names"] == RECORD[name]["names"]


def test_every_program_is_recorded():
    assert sorted(PROGRAMS) == sorted(RECORD)


def test_a_layer_in_front_of_all_feeds_has_its_name():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert fluid.layers.full([2], 1.0).name == "full_0.tmp_0"


def test_both_weights_of_a_gru_cell_have_names_of_their_own():
    cell = fluid.layers.GRUCell(4, param_attr=fluid.ParamAttr(name="w"), bias_attr=fluid.ParamAttr(name="b"))
    cell(fluid.data("x", [None, 6]), fluid.data("h", [None, 4]))
    names = sorted(p.name for p in fluid.default_main_program().all_parameters())
    assert names == ["b_candidate", "b_gate", "w_candidate", "w_gate"]
