"""Layers that are one op, made of what the op declares: names, order, defaults, docs."""

from __future__ import annotations

import inspect

import pytest

from pe_cli.core.types import TensorType
from pe_cli.layers.define.faces import make_layer, write_doc
from pe_cli.layers.define.helper import activations
from pe_cli.layers.define.registry import discover
from pe_cli.ops.define.faces import Face, Word, words
from pe_cli.ops.define.registry import OPS, Attr, op
from tests.layers.support import layers as L
from tests.layers.support import programs


@pytest.fixture
def declared():
    """An op of two inputs and two outputs, for the time of a test."""

    @op(
        "declared_for_a_test",
        inputs="X Weight?",
        outputs="Out Count",
        attrs={"axis": Attr(0, "axis to search along"), "sizes": Attr([1], "sizes, in pixels"), "rate": Attr(0.5)},
    )
    def made(x: TensorType, weight: TensorType | None, *, axis: int, sizes: list[int], rate: float) -> tuple[TensorType, TensorType]:
        """Weigh X by Weight.

        Out = rate X Weight along axis

        Args:
            X: [batch, ...],
                of any dtype.
            Weight: type of X.
            rate: a factor.

        Returns:
            Out: type of X.
            Count: how many, [1].

        Source:
            Nobody.
        """
        return x, x

    yield made
    del OPS["declared_for_a_test"]


def test_words_say_names_targets_and_defaults():
    assert words("x perm:axis! k=2.5 name") == [
        Word("x"),
        Word("perm", "axis", required=True),
        Word("k", given=True, default=2.5),
        Word("name"),
    ]
    with pytest.raises(ValueError, match="no argument"):
        words("x, y")


def test_arguments_go_to_the_slots_and_attributes_that_they_name(declared):
    made = make_layer(declared, Face("weighed", "input along:axis! by:Weight sizes=[2] act name", returns="Out"))
    shown = "(input: 'Variable', along: 'int', by: 'Variable | None' = None, sizes: 'list[int]' = [2], act: 'str | None' = None, "
    assert str(inspect.signature(made)) == shown + "name: 'str | None' = None) -> 'Variable'"
    with programs() as (main, _):
        x = L.data("x", [4])
        out = made(x, 1, x, sizes=3, act="relu", name="mine")
        first, second = main.global_block().ops
    assert out.name == second.outputs["Out"][0]
    assert (first.inputs, first.attrs["axis"], first.attrs["sizes"], first.attrs["rate"]) == ({"X": ["x"], "Weight": ["x"]}, 1, [3], 0.5)
    assert first.outputs == {"Out": ["mine.tmp_0"], "Count": ["mine.tmp_1"]}


def test_what_is_left_out_stays_the_op_s(declared):
    made = make_layer(declared, Face("weighed", "x axis name"))
    with programs() as (main, _):
        out, count = made(L.data("x", [4]))
        (only,) = main.global_block().ops
    assert ([out.name], [count.name]) == (only.outputs["Out"], only.outputs["Count"])
    assert only.attrs["axis"] == 0
    assert "Weight" not in only.inputs


def test_the_doc_is_the_op_s_in_the_layer_s_names(declared):
    face = Face("weighed", "input along:axis! by:Weight rate name", docs={"by": "weights."}, returns="Out")
    assert write_doc(declared, face) == """Weigh input by by.

Out = rate input by along along

Args:
    input: [batch, ...],
        of any dtype.
    along: axis to search along.
    by: weights.
    rate: a factor.
    name: prefix of the output's name.

Returns:
    Type of input.

Source:
    Nobody."""


@pytest.mark.parametrize("takes", ["x weight more", "x by:Weigth"])
def test_a_face_with_an_argument_for_nothing_is_told(declared, takes):
    with pytest.raises(ValueError, match="declared_for_a_test: a face takes"):
        make_layer(declared, Face("weighed", takes))


def test_a_wrong_argument_is_a_type_error(declared):
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        make_layer(declared, Face("weighed", "x axis name"))(None, axes=1)


def test_every_activation_is_a_layer():
    assert set(activations()) <= set(discover())
    assert {"relu", "tanh", "softmax", "pow"} <= set(activations())
    assert "sum" not in activations()


def test_every_declared_function_of_2_x_is_there():
    from pe_cli.paddle import nn, tensor
    from pe_cli.paddle.forwarding import faces

    assert min(len(faces("nn.functional")), len(faces("tensor"))) > 5
    for name, (_, face) in faces("nn.functional").items():
        assert callable(getattr(nn.functional, name))
        assert not face.module or issubclass(getattr(nn, face.module), nn.Layer)
    assert set(faces("tensor")) <= set(tensor.functions())
