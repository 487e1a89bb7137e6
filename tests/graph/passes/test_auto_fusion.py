"""enable_auto_fusion: text in, text out; the generated kernels, and the separate calls, give the bits of the separate ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import TensorType
from pe_cli.graph.passes import auto_fusion
from pe_cli.graph.pipeline import apply_passes
from pe_cli.kernels.compiler.worker_processes import load
from pe_cli.ops.define.registry import discover
from pe_cli.ops.fused import fusion_group
from pe_cli.ops.fused.fusion_kernel import Step, Text, fused_kernel
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role
from pe_cli.program.verify import verify
from tests.graph.passes.support import same, train
from tests.graph.passes.test_equal import fill
from tests.graph.passes.test_text import BIAS, text
from tests.rotation import on_its_day

discover()
RELU = "  forward relu(X=s) -> Out=r: float32[batch, 3]\n"
ADD_RELU = '[["elementwise_add", {"X": [0], "Y": [1]}, {"Out": [2]}, {}], ["relu", {"X": [2]}, {"Out": [3]}, {}]]'


def test_a_bias_and_relu_become_one_op_that_may_overwrite_the_product():
    made, said = text(auto_fusion.run, BIAS + RELU)
    assert made.splitlines()[4:] == [
        f'  forward fusion_group(X=m, Rest=b) -> Out=r: float32[batch, 3] {{"ops": {ADD_RELU}, "outs": [3]}} scope("fc/")'
    ]
    assert said == "enable_auto_fusion: 2 ops became 1"


def test_a_fetched_value_is_a_second_result():
    made, _ = text(auto_fusion.run, BIAS + RELU, fetches=["s"])
    assert "Out=[s: float32[batch, 3], r: float32[batch, 3]]" in made
    assert '"outs": [2, 3]' in made


def test_the_gradient_of_a_value_that_vanished_is_named_after_one_that_stays():
    made, _ = text(
        auto_fusion.run,
        BIAS
        + RELU
        + '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}\n'
        + "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD: float32[batch, 3]\n"
        + "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)\n",
    )
    assert "X@GRAD=r@GRAD@s.GRAD_0: float32[batch, 3]" in made
    assert "elementwise_add_grad(Out@GRAD=r@GRAD@s.GRAD_0)" in made


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(BIAS, "1 pointwise ops have no other next to them", id="an op alone"),
        pytest.param(
            BIAS + '  forward reduce_sum(X=s) -> Out=t: float32[1] {"reduce_all": true}\n'
            "  forward elementwise_add(X=s, Y=t) -> Out=u: float32[batch, 3]\n",
            "times other ops stood between",
            id="an op in between needs the first and makes what the second reads",
        ),
        pytest.param(
            BIAS.replace("w: float32[4, 3]", "w: float32[4, 3]\n  var c: float32[batch] is_data stop_gradient")
            + '  forward elementwise_add(X=s, Y=c) -> Out=u: float32[batch, 3] {"axis": 0}\n'
            + "  forward elementwise_mul(X=u, Y=b) -> Out=v: float32[batch, 3]\n"
            + '  forward cast(X=v) -> Out=w2: float64[batch, 3] {"out_dtype": "float64"}\n',
            "",
            id="a row and a column fit one another",
        ),
        pytest.param("  var x: float32[batch, 4] is_data\n", "the program has no pointwise ops", id="nothing to do"),
    ],
)
def test_what_is_left_alone_is_said(program, why):
    assert why in text(auto_fusion.run, program)[1]


TWO_AXES, THREE_AXES = (f"  var {name}: float32[{sizes}] is_data stop_gradient\n" for name, sizes in (("t", "4, 3"), ("u", "1, 4, 3")))


def test_results_have_the_axes_of_the_widest_value():
    added = "  forward elementwise_add(X=t, Y=u) -> Out=s: float32[1, 4, 3]\n  forward relu(X=s) -> Out=v: float32[1, 4, 3]\n"
    made, _ = text(auto_fusion.run, TWO_AXES + THREE_AXES + added)
    assert "fusion_group(Rest=[t, u]) -> Out=v: float32[1, 4, 3]" in made
    assert '"like": 1' in made


def test_a_value_with_fewer_axes_alone_makes_no_group():
    column = "  var u: float32[1, 4, 1] is_data stop_gradient\n"
    added = "  forward elementwise_add(X=t, Y=u) -> Out=s: float32[1, 4, 3]\n  forward relu(X=s) -> Out=v: float32[1, 4, 3]\n"
    made, said = text(auto_fusion.run, TWO_AXES + column + added)
    assert "fusion_group" not in made
    assert "nothing fused" in said


def test_a_long_chain_is_cut_into_groups_of_sixteen():
    lines = ["  var v0: float32[batch, 3] is_data stop_gradient\n"]
    lines += [f'  forward scale(X=v{i}) -> Out=v{i + 1}: float32[batch, 3] {{"scale": {i}.5}}\n' for i in range(33)]
    made, said = text(auto_fusion.run, "".join(lines))
    assert (
        said
        == "enable_auto_fusion: 32 ops became 2; 1 pointwise ops have no other next to them; 2 times a group was full"
    )
    assert made.count("fusion_group") == 2


def test_two_long_functions_do_not_share_a_loop():
    lines = "".join(
        f"  forward {f}(X={x}) -> Out={y}: float32[batch, 3]\n"
        for f, x, y in [("tanh", "x", "a"), ("relu", "a", "b"), ("exp", "b", "c")]
    )
    made, said = text(auto_fusion.run, "  var x: float32[batch, 3] is_data stop_gradient\n" + lines)
    assert said == (
        "enable_auto_fusion: 2 ops became 1; 1 pointwise ops have no other next to them; "
        "1 times a group had its fill of long functions"
    )
    assert "exp(X=b)" in made


def test_a_kernel_is_made_again_from_its_name():
    made = Text(
        "frm",
        (Step("pe_cli.ops.math.elementwise:add", (0, 1)), Step("pe_cli.ops.nn.dropout:drop_back", (3, 2))),
        (4, 3),
    )
    name = "pe_cli.ops.fused.fusion_kernel:frm>math.elementwise.add(0,1);nn.dropout.drop_back(3,2)>4,3"
    assert made.name == name
    assert Text.parse(name) == made
    assert load(name) is fused_kernel(made)


# --- random programs --------------------------------------------------------------------------------------------------

UNARY = ["relu", "tanh", "sigmoid", "gelu", "swish", "square", "leaky_relu", "softplus", "elu", "abs", "exp"]
BINARY = ["elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max"]
SHAPES = [((40, 7), -1), ((7,), -1), ((1,), -1)]


def random_program(seed: int, sizes: tuple[int, ...]) -> Program:
    """Return pointwise ops over one shape with random operands, a loss, and momentum with weight decay."""
    rng = np.random.default_rng(seed)
    program = Program(f"pointwise {seed}")
    block = program.global_block()
    block.create_var("x", TensorType((-1, *sizes)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    made = ["x"]
    for _ in range(14):
        kind, out = (
            rng.choice(["unary", "unary", "binary", "binary", "scale", "sum", "clip", "dropout"]),
            program.unique("v"),
        )
        x = made[-1]
        if kind == "unary":
            block.append_op(str(rng.choice(UNARY)), {"X": x}, {"Out": out})
        elif kind == "binary":
            other, axis = str(rng.choice(made)), -1
            if rng.random() < 0.6:
                shape, axis = [(sizes, -1), (sizes[-1:], -1), ((1,), -1), (sizes[:1], 1)][int(rng.integers(4))]
                other = program.unique("p")
                block.create_parameter(other, TensorType(shape))
            block.append_op(str(rng.choice(BINARY)), {"X": x, "Y": other}, {"Out": out}, {"axis": axis})
        elif kind == "sum":
            block.append_op("sum", {"X": [str(n) for n in rng.choice(made, 3)]}, {"Out": out})
        elif kind == "dropout":
            block.append_op("dropout", {"X": x}, {"Out": out, "Mask": program.unique("mask")}, {"dropout_prob": 0.3})
        elif kind == "clip":
            block.append_op("clip", {"X": x}, {"Out": out}, {"min": -0.7, "max": 0.9})
        else:
            block.append_op("scale", {"X": x}, {"Out": out}, {"scale": 0.7, "bias": 0.1})
        made.append(out)
        if rng.random() < 0.7:  # keeps numbers small
            made.append(program.unique("v"))
            block.append_op("tanh", {"X": out}, {"Out": made[-1]})
    block.create_parameter("last", TensorType(sizes))
    block.append_op("elementwise_mul", {"X": made[-1], "Y": "last"}, {"Out": "end"})
    block.append_op("mean", {"X": "end"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        velocity = block.create_var(f"{parameter.name}.v", parameter.type, persistable=True, stop_gradient=True)
        decayed = f"{gradient.name}@DECAY"
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            block.append_op("l2_decay", {"Grad": gradient, "Param": parameter}, {"Out": decayed}, {"coeff": 0.01})
            ins = {"Param": parameter, "Grad": decayed, "Velocity": velocity, "LearningRate": "lr"}
            block.append_op(
                "momentum", ins, {"ParamOut": parameter, "VelocityOut": velocity}, {"use_nesterov": bool(seed % 2)}
            )
    verify(program)
    return program


def compare(seed: int, sizes: tuple[int, ...], **strategy: Any) -> None:
    program = random_program(seed, sizes)
    rng = np.random.default_rng(seed)
    names = [op.output_names()[0] for op in program.global_block().ops if op.role is not Role.OPTIMIZE]
    fetches = list(dict.fromkeys(["loss", *(str(n) for n in rng.choice(names, seed % 3))]))

    def feed(rng):
        return {"x": rng.standard_normal((9, *sizes)).astype("float32")}

    devices = 1 + seed % 2
    off = train(program, fill, feed, fetches, devices, enable_auto_fusion=False)
    on = train(program, fill, feed, fetches, devices, **strategy)
    assert np.isfinite(off[0][-1]["loss"]).all()
    same(off, on)
    made = apply_passes(program, BuildStrategy(**strategy), fetches)
    verify(made)
    assert any(op.type == "fusion_group" for op in made.global_block().ops)


@pytest.mark.parametrize("seed", range(12))
def test_generated_kernels_give_the_same_bits(seed, monkeypatch):
    monkeypatch.setattr(fusion_group, "WORTH_NS", 0.0)
    compare(seed, (40, 7) if seed % 4 else (3, 70))


@on_its_day(1, of=3)
@pytest.mark.parametrize("seed", range(12, 24))
@pytest.mark.parametrize("memory", [True, False])
def test_separate_calls_of_small_groups_give_the_same_bits(seed, memory):
    compare(seed, (4, 7), memory_optimize=memory)


def test_weight_decay_and_the_update_become_one_pass():
    program = random_program(0, (40, 7))
    made = apply_passes(program, BuildStrategy(), ["loss"])
    updates = [op for op in made.global_block().ops if op.role is Role.OPTIMIZE]
    assert {op.type for op in updates} == {"fusion_group"}
    assert all([m[0] for m in op.attrs["ops"]] == ["l2_decay", "momentum"] for op in updates)
