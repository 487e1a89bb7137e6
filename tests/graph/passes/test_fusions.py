"""Fusions that ops declare: each is applied by a switch, and names ops that there are."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.graph.passes.fusions import fusion_pass, fusions
from pe_cli.graph.pipeline import FUSIONS, Target
from pe_cli.ops.define.fusion import Fuses, Part, Pattern
from pe_cli.ops.define.registry import find
from tests.graph.passes.test_text import BIAS, RELU_S, text


def test_every_declared_fusion_is_applied_once():
    assert sorted(FUSIONS) == sorted(fusions())


@pytest.mark.parametrize("switch", FUSIONS)
def test_a_switch_is_of_the_strategy_and_what_it_pays_on_is_of_the_target(switch):
    assert switch in {field.name for field in fields(BuildStrategy)}
    assert set(fusions()[switch].on) <= {field.name for field in fields(Target)}


def test_a_pattern_of_an_op_that_does_not_exist_is_found_when_ops_are_discovered():
    wrong = Fuses("fuse_nothing", Pattern([Part("act", ("relu", "no_such_op"))], lambda m: []))
    with pytest.raises(AssertionError, match="fused_sgd takes the place of no_such_op, which is no op"):
        wrong.verify(find("fused_sgd"))


def test_gradients_of_an_activation_with_two_uses_of_its_result_are_left_alone():
    """Two gradients of one relu, as of two losses: each is joined with the gradient of the sum that it alone feeds, or stays."""
    program = (
        BIAS
        + RELU_S
        + '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}\n'
        + "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD@a: float32[batch, 3]\n"
        + "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD@b: float32[batch, 3]\n"
        + "  backward sum(X=[s@GRAD@a, s@GRAD@b]) -> Out=s@GRAD: float32[batch, 3]\n"
        + "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)\n"
    )
    made, said = text(fusion_pass("fuse_elewise_add_act_ops"), program)
    assert "backward relu_grad" in made
    assert said == (
        "fuse_elewise_add_act_ops: nothing fused: 2 x the gradient of relu is read by sum; "
        "1 x the output of elementwise_add has a gradient that is not fused"
    )
