"""Each fusing pass on small programs: text in, text out, and what it says."""

from __future__ import annotations

import re

import pytest

from pe_cli.core.errors import Span
from pe_cli.core.strategy import BuildStrategy
from pe_cli.graph.passes import addto
from pe_cli.graph.passes.fusions import fusion_pass
from pe_cli.graph.pipeline import apply_passes
from pe_cli.program.parse import parse_program
from pe_cli.program.text_forms import to_string
from pe_cli.program.verify import verify

HEAD = 'program "p"\nblock 0\n'
BIAS = """\
  var x: float32[batch, 4] is_data stop_gradient
  param w: float32[4, 3]
  param b: float32[3]
  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]
  forward elementwise_add(X=m, Y=b) -> Out=s: float32[batch, 3] scope("fc/")
"""
IMAGE = """\
  var x: float32[batch, 2, 4, 4] is_data stop_gradient
  var z: float32[batch, 2, 4, 4] is_data stop_gradient
  var mean: float32[2] persistable stop_gradient
  var variance: float32[2] persistable stop_gradient
  param scale: float32[2]
  param bias: float32[2]
"""
NORM = (
    "  forward {op}(X=x, {z}Scale=scale, Bias=bias, Mean=mean, Variance=variance) -> Y={y}: float32[batch, 2, 4, 4], "
    "MeanOut=mean, VarianceOut=variance, SavedMean=m: float32[2], SavedVariance=v: float32[2]\n"
)
PLAIN = IMAGE + NORM.format(op="batch_norm", z="", y="n")


def text(run, program: str, fetches=()) -> tuple[str, str]:
    given = parse_program(HEAD + program)
    verify(given)
    before = to_string(given)
    made, said = run(given, list(fetches))
    verify(made)
    assert to_string(given) == before, "the program given was changed"
    return to_string(made).removeprefix(HEAD), said


def test_elementwise_add_and_relu_become_one_op_with_the_first_one_s_scope():
    made, said = text(fusion_pass("fuse_elewise_add_act_ops"), BIAS + "  forward relu(X=s) -> Out=r: float32[batch, 3]\n")
    assert made.splitlines()[4:] == [
        '  forward fused_elemwise_activation(X=m, Y=b) -> Out=r: float32[batch, 3] scope("fc/")'
    ]
    assert said == "fuse_elewise_add_act_ops: 1 places fused, 0 gradients"


def test_gradients_of_relu_and_the_sum_become_one_op_with_the_roles_of_both():
    made, said = text(
        fusion_pass("fuse_elewise_add_act_ops"),
        BIAS
        + "  forward relu(X=s) -> Out=r: float32[batch, 3]\n"
        + '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}\n'
        + "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD: float32[batch, 3]\n"
        + "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> X@GRAD=m@GRAD: float32[batch, 3], "
        + "Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)\n",
    )
    assert made.splitlines()[-1] == (
        "  backward fused_elemwise_activation_grad(Out=r, Out@GRAD=r@GRAD) -> "
        "X@GRAD=m@GRAD: float32[batch, 3], Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)"
    )
    assert "s" not in [line.split(":")[0].strip() for line in made.splitlines()]
    assert said == "fuse_elewise_add_act_ops: 1 places fused, 1 gradients"


def test_an_activation_whose_gradient_reads_its_input_keeps_the_sum_for_it():
    made, _ = text(
        fusion_pass("fuse_elewise_add_act_ops"),
        BIAS
        + '  forward leaky_relu(X=s) -> Out=r: float32[batch, 3] {"alpha": 0.5}\n'
        + '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}\n'
        + '  backward leaky_relu_grad(X=s, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD: float32[batch, 3] {"alpha": 0.5}\n'
        + "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)\n",
    )
    outs = "X=m, Y=b) -> Out=r: float32[batch, 3], IntermediateOut=s: float32[batch, 3]"
    back = "IntermediateOut=s, Out@GRAD=r@GRAD) -> Y@GRAD=b@GRAD: float32[3]"
    attrs = '{"functor_list": ["leaky_relu", "elementwise_add"], "functor_attrs": {"alpha": 0.5}, "save_intermediate_out": true}'
    assert made.splitlines()[4:] == [
        f'  forward fused_elemwise_activation({outs} {attrs} scope("fc/")',
        '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}',
        f"  backward fused_elemwise_activation_grad({back} {attrs} vars(b, b@GRAD)",
    ]


RELU_S = "  forward relu(X=s) -> Out=r: float32[batch, 3]\n"


@pytest.mark.parametrize(
    ("program", "fetches", "why"),
    [
        pytest.param(
            BIAS + RELU_S + "  forward tanh(X=s) -> Out=t: float32[batch, 3]\n",
            [],
            "1 x the output of elementwise_add is also read by relu; 1 x the output of elementwise_add is also read by tanh",
            id="another op reads the sum",
        ),
        pytest.param(BIAS + RELU_S, ["s"], "1 x the output of elementwise_add is fetched", id="the sum is fetched"),
        pytest.param(
            BIAS + "  forward relu(X=m) -> Out=r: float32[batch, 3]\n",
            [],
            "1 x the input of relu is made by mul",
            id="relu follows mul",
        ),
        pytest.param(BIAS, [], "the program has no activation", id="no activation"),
        pytest.param(
            "  var x: float32[batch, 4] is_data stop_gradient\n  forward relu(X=x) -> Out=r: float32[batch, 4]\n",
            [],
            "1 x the input of relu is made by no op or several",
            id="relu of a feed",
        ),
        pytest.param(
            "  param b: float32[3]\n"
            '  forward fill_constant() -> Out=x: float32[3] {"shape": [3], "value": 1.0}\n'
            "  forward elementwise_add(X=x, Y=b) -> Out=s: float32[3]\n"
            '  forward fill_constant() -> Out=x {"shape": [3], "value": 2.0}\n'
            "  forward relu(X=s) -> Out=x\n",
            [],
            "1 x fused_elemwise_activation would move past operators that use the same variables",
            id="the operand is overwritten before relu, and relu writes what is used in between",
        ),
    ],
)
def test_what_elementwise_add_and_an_activation_are_left_alone_for(program, fetches, why):
    made, said = text(fusion_pass("fuse_elewise_add_act_ops"), program, fetches)
    assert made == program
    assert said == f"fuse_elewise_add_act_ops: nothing fused: {why}"


def test_batch_norm_and_relu_become_one_op():
    made, said = text(fusion_pass("fuse_bn_act_ops"), PLAIN + "  forward relu(X=n) -> Out=y: float32[batch, 2, 4, 4]\n")
    assert made == IMAGE + NORM.format(op="fused_batch_norm_act", z="", y="y")
    assert said == "fuse_bn_act_ops: 1 places fused, 0 gradients"


NORM_GRAD = (
    "  backward batch_norm_grad(X=x, Scale=scale, SavedMean=m, SavedVariance=v, Y@GRAD=n@GRAD) -> "
    "Scale@GRAD=scale@GRAD: float32[2], Bias@GRAD=bias@GRAD: float32[2] vars(scale, scale@GRAD, bias, bias@GRAD)\n"
)
ONES = '  loss fill_like(X=y) -> Out=y@GRAD: float32[batch, 2, 4, 4] {"value": 1.0}\n'


def test_gradients_of_batch_norm_and_relu_become_one_op():
    made, said = text(
        fusion_pass("fuse_bn_act_ops"),
        PLAIN
        + "  forward relu(X=n) -> Out=y: float32[batch, 2, 4, 4]\n"
        + ONES
        + "  backward relu_grad(Out=y, Out@GRAD=y@GRAD) -> X@GRAD=n@GRAD: float32[batch, 2, 4, 4]\n"
        + NORM_GRAD,
    )
    assert made == IMAGE + NORM.format(op="fused_batch_norm_act", z="", y="y") + ONES + (
        "  backward fused_batch_norm_act_grad(X=x, Scale=scale, SavedMean=m, SavedVariance=v, Bias=bias, Y@GRAD=y@GRAD) -> "
        "Scale@GRAD=scale@GRAD: float32[2], Bias@GRAD=bias@GRAD: float32[2] vars(scale, scale@GRAD, bias, bias@GRAD)\n"
    )
    assert said == "fuse_bn_act_ops: 1 places fused, 1 gradients"


def test_a_fetched_output_of_batch_norm_stays_while_its_gradients_fuse():
    program = (
        PLAIN
        + "  forward relu(X=n) -> Out=y: float32[batch, 2, 4, 4]\n"
        + ONES
        + "  backward relu_grad(Out=y, Out@GRAD=y@GRAD) -> X@GRAD=n@GRAD: float32[batch, 2, 4, 4]\n"
        + NORM_GRAD
    )
    made, said = text(fusion_pass("fuse_bn_act_ops"), program, ["n"])
    assert "forward batch_norm(" in made
    assert said == "fuse_bn_act_ops: 0 places fused, 1 gradients; not 1 x the output of batch_norm is fetched"
    made, said = text(fusion_pass("fuse_bn_act_ops"), program, ["n@GRAD"])
    assert made == program
    assert said == (
        "fuse_bn_act_ops: nothing fused: 1 x the gradient of relu is fetched; "
        "1 x the output of batch_norm has a gradient that is not fused"
    )


@pytest.mark.parametrize("operands", ["X=n, Y=z", "X=z, Y=n"])
def test_batch_norm_a_sum_and_relu_become_one_op_with_either_operand(operands):
    grads = "X@GRAD=n@GRAD" if operands.startswith("X=n") else "Y@GRAD=n@GRAD"
    made, said = text(
        fusion_pass("fuse_bn_add_act_ops"),
        PLAIN
        + f"  forward elementwise_add({operands}) -> Out=s: float32[batch, 2, 4, 4]\n"
        + "  forward relu(X=s) -> Out=y: float32[batch, 2, 4, 4]\n"
        + ONES
        + "  backward relu_grad(Out=y, Out@GRAD=y@GRAD) -> X@GRAD=s@GRAD: float32[batch, 2, 4, 4]\n"
        + f"  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> {grads}: float32[batch, 2, 4, 4]\n"
        + NORM_GRAD,
    )
    assert made == (
        IMAGE
        + NORM.format(op="fused_bn_add_activation", z="", y="y").replace(
            "Variance=variance) ->", "Variance=variance, Z=z) ->"
        )
        + ONES
        + "  backward fused_bn_add_activation_grad(X=x, Scale=scale, SavedMean=m, SavedVariance=v, Y=y, Y@GRAD=y@GRAD) -> "
        "Scale@GRAD=scale@GRAD: float32[2], Bias@GRAD=bias@GRAD: float32[2] vars(scale, scale@GRAD, bias, bias@GRAD)\n"
    )
    assert said == "fuse_bn_add_act_ops: 1 places fused, 1 gradients"


DEPTHWISE = """\
  var x: float32[batch, 2, 4, 4] is_data
  param k: float32[2, 1, 3, 3]
  forward relu(X=x) -> Out=r: float32[batch, 2, 4, 4]
  forward depthwise_conv2d(Input=r, Filter=k) -> Output=y: float32[batch, 2, 2, 2] {"groups": 2}
"""


def test_relu_and_depthwise_conv2d_become_one_op_with_their_gradients():
    made, said = text(
        fusion_pass("fuse_relu_depthwise_conv"),
        DEPTHWISE
        + '  loss fill_like(X=y) -> Out=y@GRAD: float32[batch, 2, 2, 2] {"value": 1.0}\n'
        + "  backward depthwise_conv2d_grad(Input=r, Filter=k, Output@GRAD=y@GRAD) -> "
        'Input@GRAD=r@GRAD: float32[batch, 2, 4, 4], Filter@GRAD=k@GRAD: float32[2, 1, 3, 3] {"groups": 2} vars(k, k@GRAD)\n'
        + "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=x@GRAD: float32[batch, 2, 4, 4]\n",
    )
    assert made.splitlines()[2:] == [
        '  forward fused_relu_depthwise_conv2d(Input=x, Filter=k) -> Output=y: float32[batch, 2, 2, 2] {"groups": 2}',
        '  loss fill_like(X=y) -> Out=y@GRAD: float32[batch, 2, 2, 2] {"value": 1.0}',
        (
            "  backward fused_relu_depthwise_conv2d_grad(Input=x, Filter=k, Output@GRAD=y@GRAD) -> "
            'Input@GRAD=x@GRAD: float32[batch, 2, 4, 4], Filter@GRAD=k@GRAD: float32[2, 1, 3, 3] {"groups": 2} vars(k, k@GRAD)'
        ),
    ]
    assert said == "fuse_relu_depthwise_conv: 1 places fused, 1 gradients"


@pytest.mark.parametrize(
    ("more", "fetches", "why"),
    [
        pytest.param(
            "  forward tanh(X=r) -> Out=t: float32[batch, 2, 4, 4]\n", [], "also read by tanh", id="tanh reads relu too"
        ),
        pytest.param("", ["r"], "fetched", id="relu is fetched"),
    ],
)
def test_what_relu_and_depthwise_conv2d_are_left_alone_for(more, fetches, why):
    made, said = text(fusion_pass("fuse_relu_depthwise_conv"), DEPTHWISE + more, fetches)
    assert made == DEPTHWISE + more
    assert said == f"fuse_relu_depthwise_conv: nothing fused: 1 x the output of relu is {why}"


def test_a_fused_op_keeps_the_place_of_the_first():
    program = parse_program(HEAD + BIAS + RELU_S)
    program.global_block().ops[1].at = place = Span("m.yaml", 3, 1, 2, "a: b")
    made, _ = fusion_pass("fuse_elewise_add_act_ops")(program, [])
    assert made.global_block().ops[1].at == place


def test_the_pipeline_runs_the_passes_in_order_and_says_what_each_did():
    program = parse_program(HEAD + PLAIN + "  forward relu(X=n) -> Out=y: float32[batch, 2, 4, 4]\n")
    said: list[str] = []
    every = {
        "fuse_elewise_add_act_ops": True,
        "fuse_relu_depthwise_conv": True,
        "fuse_bn_act_ops": True,
        "fuse_bn_add_act_ops": True,
    }
    apply_passes(program, BuildStrategy(data_layout="keep", **every), ["y"], said)
    wanted = [
        "fold_constants: 0 ops became constants",
        "common_subexpressions: 0 ops repeated others",
        "dead_code: every op counts",
        "fuse_bn_add_act_ops: nothing fused: 1 x the input of relu is made by batch_norm",
        "fuse_bn_act_ops: 1 places fused, 0 gradients",
        "fuse_relu_depthwise_conv: nothing fused: the program has no depthwise_conv2d",
        "fuse_elewise_add_act_ops: nothing fused: the program has no activation",
        "fuse_gemm_epilogue: nothing fused: the program has no mul or conv2d",
        "enable_addto: nothing added in place: no variable has gradients from several places",
        "fuse_all_optimizer_ops: nothing to join: the program updates nothing",
        "enable_auto_fusion: nothing fused: the program has no pointwise ops",
    ]
    # A pass that is added stands somewhere among these, and has its own tests.
    known = {sentence.partition(":")[0] for sentence in wanted}
    assert [sentence for sentence in said if sentence.partition(":")[0] in known] == wanted
    said.clear()
    apply_passes(program, BuildStrategy(data_layout="keep", sync_batch_norm=True, fuse_bn_act_ops=True), ["y"], said)
    assert "fuse_bn_act_ops: nothing fused: sync_batch_norm takes the batch_norm ops" in said


TWICE = """\
  param v: float32[4, 4]
  param w: float32[4, 4]
  forward mul(X=x, Y=v) -> Out=h: float32[batch, 4]
"""
FED = "  var x: float32[batch, 4] is_data stop_gradient\n"
ENDS = '  loss fill_like(X=s) -> Out=s@GRAD: float32[batch, 4] {"value": 1.0}\n'
SHORT_CUT = (
    FED
    + TWICE
    + "  forward mul(X=h, Y=w) -> Out=m: float32[batch, 4]\n"
    + "  forward elementwise_add(X=m, Y=h) -> Out=s: float32[batch, 4]\n"
    + ENDS
    + "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> X@GRAD=m@GRAD: float32[batch, 4], Y@GRAD=p: float32[batch, 4]\n"
)
PRODUCT = "  backward mul_grad(X=h, Y=w, Out@GRAD=m@GRAD{addto}) -> X@GRAD={out}: float32[batch, 4], Y@GRAD=w@GRAD: float32[4, 4]"


def gradient_of_h(text: str) -> str:
    """Give gradients of h the names that inference reads their type from."""
    return re.sub(r"\b([pqr])\b(?=[:,)\]])", r"h@GRAD@\1", text)


def test_a_gradient_is_added_where_it_is_made_and_the_sum_vanishes_with_its_roles():
    given = SHORT_CUT + PRODUCT.format(addto="", out="q") + " vars(w, w@GRAD)\n"
    last = "  backward mul_grad(X=x, Y=v, Out@GRAD=h@GRAD) -> Y@GRAD=v@GRAD: float32[4, 4] vars(v, v@GRAD)\n"
    made, said = text(
        addto.run, gradient_of_h(given + "  backward sum(X=[p, q]) -> Out=h@GRAD: float32[batch, 4] vars(v, v@GRAD)\n" + last)
    )
    done = PRODUCT.format(addto=", X@ADDTO=p", out="h@GRAD") + " vars(w, w@GRAD, v, v@GRAD)\n"
    assert made == gradient_of_h(SHORT_CUT + done + last)
    assert said == "enable_addto: 1 gradients are added where they are made, 1 of 1 sums vanished"


LAST = "  backward sum(X=[{parts}]) -> Out=h@GRAD: float32[batch, 4]\n"
SQUARE = "  backward square_grad(X=h, Out@GRAD=s@GRAD{addto}) -> X@GRAD={out}: float32[batch, 4]\n"
MAXIMUM = "  backward elementwise_max_grad(X=h, Y=m, Out@GRAD=s@GRAD) -> X@GRAD={out}: float32[batch, 4]\n"


@pytest.mark.parametrize(
    ("given", "expected", "said"),
    [
        pytest.param(
            PRODUCT.format(addto="", out="q") + "\n" + SQUARE.format(addto="", out="r") + LAST.format(parts="p, q, r"),
            PRODUCT.format(addto=", X@ADDTO=p", out="q") + "\n" + SQUARE.format(addto=", X@ADDTO=q", out="h@GRAD"),
            "2 gradients are added where they are made, 1 of 1 sums vanished",
            id="a chain of three",
        ),
        pytest.param(
            PRODUCT.format(addto="", out="q") + "\n" + MAXIMUM.format(out="r") + LAST.format(parts="p, q, r"),
            PRODUCT.format(addto=", X@ADDTO=p", out="q") + "\n" + MAXIMUM.format(out="r") + LAST.format(parts="q, r"),
            "1 gradients are added where they are made, 0 of 1 sums vanished; not 1 x elementwise_max_grad cannot add",
            id="what cannot add is summed",
        ),
    ],
)
def test_gradients_are_added_one_after_the_other(given, expected, said):
    made, found = text(addto.run, gradient_of_h(SHORT_CUT + given))
    assert made == gradient_of_h(SHORT_CUT + expected)
    assert found == f"enable_addto: {said}"


@pytest.mark.parametrize(
    ("given", "fetches", "why"),
    [
        pytest.param(
            MAXIMUM.format(out="q") + LAST.format(parts="p, q"), [], "1 x elementwise_max_grad cannot add", id="no op that adds"
        ),
        pytest.param(
            SQUARE.format(addto="", out="q") + LAST.format(parts="p, q"),
            ["h@GRAD@q"],
            "1 x a part of the gradient is fetched",
            id="a part is fetched",
        ),
        pytest.param(
            PRODUCT.format(addto="", out="q") + "\n" + SQUARE.format(addto="", out="r") + LAST.format(parts="r, q, p"),
            [],
            "1 x the parts are not made in their order",
            id="the first part is made last",
        ),
        pytest.param(
            SQUARE.format(addto="", out="q") + LAST.format(parts="p, q") + "  backward scale(X=q) -> Out=z: float32[batch, 4]\n",
            [],
            "1 x a part of the gradient is also read by scale",
            id="a part is read elsewhere",
        ),
        pytest.param("", [], "no variable has gradients from several places", id="no sum"),
    ],
)
def test_what_gradients_are_left_to_a_sum_for(given, fetches, why):
    program = gradient_of_h(SHORT_CUT + given)
    made, said = text(addto.run, program, fetches)
    assert made == program
    assert said == f"enable_addto: nothing added in place: {why}"


def test_gradients_of_images_are_added_with_channels_last_only():
    images = "  var x: float32[batch, {shape}] is_data\n  param k: float32[2, 2, 1, 1]\n"
    ones = '  backward fill_like(X=x) -> Out={out}: float32[batch, {shape}] {{"value": 1.0}}\n'
    conv = (
        "  backward conv2d_grad(Input=x, Filter=k, Output@GRAD=g{addto}) -> Input@GRAD={out}: float32[batch, {shape}] "
        '{{"data_format": "{order}"}}\n'
    )
    given = images + ones.replace("{out}", "g") + ones.replace("{out}", "x@GRAD@p") + conv
    total = "  backward sum(X=[x@GRAD@p, x@GRAD@q]) -> Out=x@GRAD: float32[batch, {shape}]\n"
    last = {"shape": "4, 4, 2", "order": "NHWC"}
    made, _ = text(addto.run, (given + total).format(**last, addto="", out="x@GRAD@q"))
    assert made == given.format(**last, addto=", Input@ADDTO=x@GRAD@p", out="x@GRAD")
    first = {"shape": "2, 4, 4", "order": "NCHW"}
    _, said = text(addto.run, (given + total).format(**first, addto="", out="x@GRAD@q"))
    assert said == "enable_addto: nothing added in place: 1 x conv2d_grad had better not add: its images are in NCHW"
