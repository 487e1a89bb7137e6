"""What a fusing pass says of a program in which nothing is fused: the nearest thing that is missing."""

from __future__ import annotations

import pytest

from pe_cli.graph.passes.fusions import fusion_pass
from pe_cli.program.parse import parse_program
from pe_cli.program.verify import verify

HEAD = """\
program "p"
block 0
  var x: float32[batch, 2, 4, 4] is_data stop_gradient
  param k: float32[2, 1, 3, 3]
"""
RELU = "  forward relu(X=x) -> Out=r: float32[batch, 2, 4, 4]\n"
CONV = '  forward depthwise_conv2d(Input=x, Filter=k) -> Output=y: float32[batch, 2, 2, 2] {"groups": 2}\n'
ADD = "  forward elementwise_add(X=x, Y=x) -> Out=s: float32[batch, 2, 4, 4]\n"


@pytest.mark.parametrize(
    ("switch", "ops", "why"),
    [
        pytest.param("fuse_relu_depthwise_conv", RELU, "the program has no depthwise_conv2d", id="relu alone"),
        pytest.param("fuse_relu_depthwise_conv", RELU + CONV, "1 x the input of depthwise_conv2d is made by no op or several", id="a feed"),
        pytest.param(
            "fuse_relu_depthwise_conv", ADD + CONV.replace("=x", "=s"), "1 x the input of depthwise_conv2d is made by elementwise_add",
            id="another op before it",
        ),
        pytest.param("fuse_elewise_add_act_ops", CONV, "the program has no activation", id="neither"),
        pytest.param("fuse_elewise_add_act_ops", ADD, "the program has no activation", id="a sum alone"),
        pytest.param("fuse_bn_conv", RELU, "the program has no batch_norm with relu", id="relu without batch_norm"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(switch, ops, why) -> None:
    program = parse_program(HEAD + ops)
    verify(program)
    made, said = fusion_pass(switch)(program, [])
    assert made is program
    assert said.partition(": nothing fused: ")[2] == why
