"""Names of programs: those that PaddlePaddle 1.8.5 gave, recorded by `recordings/programs.py`."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.layers.original_names import NAMINGS
from pe_cli.paddle.reference import recorded
from tests.paddle.recordings.programs import LAYERS, programs, record

pytestmark = pytest.mark.filterwarnings("ignore:fluid.evaluator")
RECORD = json.loads((Path(__file__).parent / "recordings" / "names.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(RECORD))
def test_names_are_those_of_the_original(name):
    found, expected = record(fluid, programs()[name]), RECORD[name]
    assert found["outputs"] == expected["outputs"]
    assert found["parameters"] == expected["parameters"]
    assert sorted(found["kept"]) == sorted(expected["kept"])
    assert {k: v for k, v in found["kept"].items() if expected["kept"][k] is not None} == {
        k: v for k, v in expected["kept"].items() if v is not None
    }


def test_every_program_is_recorded():
    assert sorted(programs()) == sorted(RECORD)


def test_what_is_no_output_has_a_name_that_no_output_has():
    x = fluid.data("x", [None, 4])
    made = fluid.layers.l2_normalize(x, 1)
    names = [n for op in fluid.default_main_program().global_block().ops for n in op.output_arg_names]
    assert made.name == "l2_normalize_0.tmp_0"
    assert [n for n in names if n != made.name] == [f"l2_normalize_0.at_{i}" for i in range(len(names) - 1)]


def test_a_layer_that_is_called_twice_by_one_name_goes_on_with_its_numbers():
    x = fluid.data("x", [None, 4])
    assert [fluid.layers.reshape(x, [-1, 2], name="r").name for _ in range(2)] == ["r.tmp_0", "r.tmp_2"]


def test_a_layer_that_fails_leaves_the_next_one_its_own_name():
    x = fluid.data("x", [None, 4])
    with pytest.raises(ValueError, match="reshape"):
        fluid.layers.reshape(x, [3, -1, -1])
    assert fluid.layers.fc(x, 2).name == "fc_0.tmp_1"
    assert fluid.layers.reshape(x, [-1, 2]).name == "reshape2_1.tmp_0"


def test_every_naming_is_of_a_layer():
    assert [name for name in NAMINGS if not hasattr(fluid.layers, name.rstrip("_"))] == []
    assert LAYERS


# --- modules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(recorded()))
def test_every_module_of_the_original_can_be_imported_and_has_its_names(path):
    module = importlib.import_module(f"pe_cli.{path}")
    absent = [name for name in recorded()[path].names if not hasattr(module, name)]
    assert absent == []


def test_a_name_that_another_module_defines_is_the_same_object():
    from pe_cli.paddle.fluid.layers import nn
    from pe_cli.paddle.fluid.layers.control_flow import StaticRNN
    from pe_cli.paddle.fluid.optimizer import name_scope

    assert nn.conv2d is fluid.layers.conv2d
    assert name_scope is fluid.name_scope
    assert StaticRNN is fluid.layers.StaticRNN


def test_a_name_that_nobody_has_taken_over_says_so_where_it_is_used():
    from pe_cli.paddle.fluid.op import OperatorFactory

    from pe_cli.paddle.fluid.framework import IrGraph

    with pytest.raises(NotImplementedError, match=r"fluid.framework.IrGraph is not there.*hint: pe export"):
        IrGraph()
    with pytest.raises(NotImplementedError, match=r"OperatorFactory is not there.*docs/coverage.md"):
        OperatorFactory()


def test_a_name_that_the_original_lacks_is_no_attribute():
    from pe_cli.paddle.fluid import clip

    with pytest.raises(AttributeError, match=r"fluid\.clip has no 'clip_all'"):
        clip.clip_all  # noqa: B018
    assert not hasattr(fluid.layers, "load_persistables")


def test_a_context_manager_keeps_its_name_and_arguments():
    from pe_cli.paddle.fluid.wrapped_decorator import signature_safe_contextmanager

    @signature_safe_contextmanager
    def given(value):
        """Give a value."""
        yield value

    with given(3) as found:
        assert (found, given.__name__, given.__doc__) == (3, "given", "Give a value.")


def test_operators_between_a_batch_and_a_row_of_it_go_by_the_first_axis():
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None])
    rows, factors = np.ones((2, 3), np.float32), np.array([2.0, 5.0], np.float32)
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": rows, "y": factors}, fetch_list=[x * y])[0]
    np.testing.assert_array_equal(found, [[2.0] * 3, [5.0] * 3])


def test_modules_are_there_as_names_of_the_module_above():
    code = "import pe_cli.paddle.fluid as fluid; print(fluid.layers.learning_rate_scheduler.noam_decay is fluid.layers.noam_decay)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_layers_are_found_where_they_say_they_are():
    # PaddleDetection calls `getattr(sys.modules[layer.__module__], layer.__name__)` for each of its operators
    layers = {name: fn for name, fn in vars(fluid.layers).items() if inspect.isfunction(fn) and not name.startswith("_")}
    assert len(layers) > 400
    assert not [name for name, fn in layers.items() if getattr(sys.modules[fn.__module__], fn.__name__, None) is not fn]
