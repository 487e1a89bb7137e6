"""Names, parameters in both programs, sharing, bias, activation, and the errors of these."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.layers.define.helper import attr_for_each, pair
from pe_cli.program.defaults import program_guard
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Program
from pe_cli.program.param_attr import ParamAttr
from tests.layers.support import layers as L
from tests.layers.support import programs, run


@pytest.fixture
def net():
    with programs() as both:
        yield both


def x4():
    return L.data("x", [4])


def test_unnamed_layers_are_numbered(net):
    out = L.fc(L.fc(x4(), 3), 2)
    assert [p.name for p in net[0].global_block().parameters()] == ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    assert out.name == "fc_1.tmp_1"


def test_a_given_name_is_the_prefix(net):
    L.fc(x4(), 3, name="head")
    assert [p.name for p in net[0].global_block().parameters()] == ["head.w_0", "head.b_0"]


def test_a_number_that_the_user_took_is_skipped(net):
    L.fc(x4(), 3, name="fc_0")
    L.fc(net[0].global_block().var("x"), 3)
    assert [p.name for p in net[0].global_block().parameters()][2:] == ["fc_1.w_0", "fc_1.b_0"]


def test_parameters_are_initialised_in_the_startup_program_only(net):
    main, startup = net
    L.fc(x4(), 3)
    assert [op.type for op in main.global_block().ops] == ["mul", "elementwise_add"]
    assert [op.type for op in startup.global_block().ops] == ["uniform_random", "fill_constant"]
    made = startup.global_block().vars["fc_0.w_0"]
    assert made.persistable
    assert made.type == TensorType((4, 3))


def test_the_default_weight_is_xavier_uniform(net):
    L.fc(x4(), 3)
    op = net[1].global_block().ops[0]
    limit = np.sqrt(6 / (4 + 3))  # Glorot and Bengio 2010, eq. 16
    assert op.attrs["min"] == pytest.approx(-limit)
    assert op.attrs["max"] == pytest.approx(limit)


def test_the_attributes_of_a_parameter_are_kept(net):
    regularizer, clip = object(), object()
    attr = ParamAttr("w", Constant(2.0), 0.5, regularizer, False, False, clip)
    L.fc(x4(), 3, param_attr=attr, bias_attr=False)
    (w,) = net[0].global_block().parameters()
    assert (w.name, w.learning_rate, w.regularizer, w.trainable, w.gradient_clip, w.do_model_average) == (
        "w", 0.5, regularizer, False, clip, False,
    )  # fmt: skip
    assert net[1].global_block().ops[0].attrs["value"] == 2.0


@pytest.mark.parametrize(
    ("attr", "name"),
    [pytest.param("table", "table", id="a name"), pytest.param(Constant(1.0), "fc_0.w_0", id="an initializer"),
     pytest.param(None, "fc_0.w_0", id="nothing"), pytest.param(True, "fc_0.w_0", id="true")],
)  # fmt: skip
def test_what_may_stand_for_a_parameter_attribute(net, attr, name):
    L.fc(x4(), 3, param_attr=attr, bias_attr=False)
    assert [p.name for p in net[0].global_block().parameters()] == [name]


def test_anything_else_is_no_parameter_attribute(net):
    with pytest.raises(PeError, match="must be a ParamAttr, a name or an initializer, got 3"):
        L.fc(x4(), 3, param_attr=3)


def test_one_name_is_one_parameter(net):
    main, startup = net
    x = x4()
    a = L.fc(x, 3, param_attr=ParamAttr(name="w"), bias_attr=False)
    b = L.fc(x, 3, param_attr=ParamAttr(name="w"), bias_attr=False)
    assert [p.name for p in main.global_block().parameters()] == ["w"]
    assert len(startup.global_block().ops) == 1
    first, second = run(main, startup, {"x": np.ones((2, 4), "float32")}, [a, b])
    np.testing.assert_array_equal(first, second)


def test_one_name_with_two_shapes_is_an_error_with_both_places(net):
    main, _ = net
    x = x4()
    with main.place(Span("m.yaml", 1, 1)):
        L.fc(x, 3, param_attr=ParamAttr(name="w"))
    with (
        pytest.raises(PeError, match=r"is float32\[4, 3\] there and should be float32\[4, 5\] here") as caught,
        main.place(Span("m.yaml", 2, 1)),
    ):
        L.fc(x, 5, param_attr=ParamAttr(name="w"))
    assert caught.value.at == Span("m.yaml", 2, 1)
    assert caught.value.notes == [(Span("m.yaml", 1, 1), "'w' is made here")]


def test_a_parameter_may_not_have_a_variables_name(net):
    with pytest.raises(PeError, match="'x' is a variable, not a parameter"):
        L.fc(x4(), 3, param_attr=ParamAttr(name="x"))


def test_a_second_main_program_shares_the_first_values(net):
    _, startup = net
    L.fc(x4(), 3)
    other = Program("eval")
    with program_guard(other, startup):
        L.fc(x4(), 3)
    assert len(startup.global_block().ops) == 2
    assert [p.name for p in other.global_block().parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_a_second_main_program_with_another_shape_is_an_error(net):
    _, startup = net
    L.fc(x4(), 3)
    with (
        program_guard(Program("eval"), startup),
        pytest.raises(PeError, match=r"the startup program makes 'fc_0\.w_0'"),
    ):
        L.fc(x4(), 5)


def test_a_parameter_of_unknown_size_is_an_error(net):
    x = L.data("x", [-1, -1], append_batch_size=False)
    with pytest.raises(PeError, match=r"parameter 'fc_0.w_0' would be float32\[batch, 3\]"):
        L.fc(x, 3)


def test_an_unknown_activation_is_an_error_with_a_hint(net):
    with pytest.raises(PeError, match="there is no activation 'rleu'") as caught:
        L.fc(x4(), 3, act="rleu")
    assert caught.value.hint == "did you mean 'relu'?"


@pytest.mark.parametrize(
    ("value", "numbers"), [pytest.param(3, [3, 3], id="one number"), pytest.param((1, 2), [1, 2], id="two numbers")]
)
def test_pairs(value, numbers):
    assert pair("conv2d", "stride", value, 1) == numbers


@pytest.mark.parametrize(
    "value", [pytest.param(0, id="too small"), pytest.param([1, 2, 3], id="three"), pytest.param([1, 0.5], id="half")]
)
def test_what_is_no_pair(value):
    with pytest.raises(PeError, match="stride must be a number of at least 1, or two of them"):
        pair("conv2d", "stride", value, 1)


def test_one_attribute_serves_several_inputs_and_a_list_must_fit():
    assert attr_for_each(None, 2) == [None, None]
    with pytest.raises(PeError, match="2 inputs, but param_attr has 1 entries"):
        attr_for_each([None], 2)
