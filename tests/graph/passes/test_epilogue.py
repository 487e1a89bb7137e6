"""fuse_gemm_epilogue: text in, text out; its ops against NumPy; and programs that train to the same bits with it and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import TensorType
from pe_cli.graph.passes.fusions import fusion_pass
from pe_cli.program.ir import Program
from pe_cli.program.verify import verify
from tests.graph.passes.support import minimise, same, train
from tests.graph.passes.test_equal import fill
from tests.graph.passes.test_text import BIAS, text
from tests.ops.support import run_op

RELU = "  forward relu(X=s) -> Out=r: float32[batch, 3]\n"
BACK = (
    '  loss fill_like(X=r) -> Out=r@GRAD: float32[batch, 3] {"value": 1.0}\n'
    "  backward relu_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=s@GRAD: float32[batch, 3]\n"
    "  backward elementwise_add_grad(Out@GRAD=s@GRAD) -> X@GRAD=m@GRAD: float32[batch, 3], "
    "Y@GRAD=b@GRAD: float32[3] vars(b, b@GRAD)\n"
    "  backward mul_grad(X=x, Y=w, Out@GRAD=m@GRAD) -> Y@GRAD=w@GRAD: float32[4, 3] vars(w, w@GRAD)\n"
)


def test_a_product_its_bias_and_relu_become_one_op_and_two_gradients_too():
    made, said = text(fusion_pass("fuse_gemm_epilogue"), BIAS + RELU + BACK)
    lines = made.splitlines()[3:]
    assert lines[0] == (
        '  forward fused_gemm_epilogue(X=x, Y=w, Bias=b) -> Out=r: float32[batch, 3] {"activation": "relu"}'
    )
    assert lines[2].startswith(
        "  backward fused_elemwise_activation_grad(Out=r, Out@GRAD=r@GRAD) -> X@GRAD=r@GRAD@m.GRAD_0"
    )
    assert lines[3].startswith("  backward mul_grad(X=x, Y=w, Out@GRAD=r@GRAD@m.GRAD_0)")
    assert said == "fuse_gemm_epilogue: 1 places fused, 1 gradients"


def test_a_sum_that_others_read_stays_and_relu_with_it():
    made, _ = text(fusion_pass("fuse_gemm_epilogue"), BIAS + RELU, fetches=["s"])
    assert "fused_gemm_epilogue(X=x, Y=w, Bias=b) -> Out=s: float32[batch, 3]" in made
    assert "relu(X=s)" in made


@pytest.mark.parametrize(
    ("program", "fetches", "why"),
    [
        pytest.param(BIAS, ["m"], "the output of mul is fetched", id="the product is fetched"),
        pytest.param(BIAS, ["m@GRAD"], "", id="no such gradient"),
        pytest.param(
            BIAS.replace("elementwise_add(X=m, Y=b)", "elementwise_mul(X=m, Y=b)"), [],
            "the output of mul is read by elementwise_mul", id="another op",
        ),
        pytest.param(
            BIAS.replace("b: float32[3]", "b: float32[1]"), [], "what is added to the output of mul is no bias", id="one number"
        ),
        pytest.param("  var x: float32[batch, 4] is_data\n", [], "the program has no mul or conv2d", id="nothing to do"),
    ],
)  # fmt: skip
def test_what_is_left_alone_is_said(program, fetches, why):
    _, said = text(fusion_pass("fuse_gemm_epilogue"), program, fetches)
    assert why in said
    assert not why or "gradients" not in said, "nothing is said to be fused"


def test_a_fetched_gradient_of_the_product_keeps_its_name():
    made, said = text(fusion_pass("fuse_gemm_epilogue"), BIAS + RELU + BACK, fetches=["m@GRAD"])
    assert "m@GRAD" in made
    assert "has a gradient that is fetched" in said


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("sizes", [(7, 33, 20), (500, 3, 300), (5, 600, 300), (4, 2000, 2), (1, 5, 1)])
def test_a_biased_product_is_numpys(sizes, activation, rng):
    m, k, n = sizes
    x, w, b = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal(n)
    exact = x @ w + b
    got = run_op("fused_gemm_epilogue", {"X": x, "Y": w, "Bias": b}, {"activation": activation})
    np.testing.assert_allclose(got, np.maximum(exact, 0) if activation == "relu" else exact, rtol=1e-12, atol=1e-10)


def test_a_nan_comes_through_relu():
    got = run_op(
        "fused_gemm_epilogue",
        {"X": np.full((1, 2), np.nan), "Y": np.ones((2, 5)), "Bias": np.ones(5)},
        {"activation": "relu"},
    )
    assert np.isnan(got).all()


def network(seed: int) -> Program:
    """Return convolutions and products with biases, relu and other activations at random, and a loss."""
    rng = np.random.default_rng(seed)
    program = Program(f"epilogues {seed}")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 2, 9, 8)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    name, channels = "x", 2

    def append(kind: str, ins: dict[str, Any], slot: str, attrs: dict[str, Any] | None = None) -> str:
        out = program.unique("v")
        block.append_op(kind, ins, {slot: out}, attrs)
        return out

    def parameter(*sizes: int) -> str:
        return block.create_parameter(program.unique("p"), TensorType(sizes)).name

    def finish(name: str, channels: int, axis: int) -> str:
        if rng.random() < 0.8:
            name = append("elementwise_add", {"X": name, "Y": parameter(channels)}, "Out", {"axis": axis})
        return (
            append(str(rng.choice(["relu", "relu", "tanh", "abs"])), {"X": name}, "Out") if rng.random() < 0.8 else name
        )

    for _ in range(3):
        filters, taps = int(rng.integers(1, 20)), int(rng.choice([1, 3]))
        attrs = {"paddings": [taps // 2] * 2}
        name = append("conv2d", {"Input": name, "Filter": parameter(filters, channels, taps, taps)}, "Output", attrs)
        name, channels = finish(name, filters, 1), filters
    width = channels * 72
    for size in (30, 5):
        name = append("mul", {"X": name, "Y": parameter(width, size)}, "Out")
        name, width = finish(name, size, 1), size
    append("mean", {"X": append("square", {"X": append("tanh", {"X": name}, "Out")}, "Out")}, "Out")
    block.rename_var(list(block.vars)[-1], "loss")
    minimise(program, "loss")
    verify(program)
    return program


@pytest.mark.parametrize("layout", ["auto", "keep"])
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_train_to_the_same_bits(seed, layout):
    program = network(seed)
    names = [op.output_names()[0] for op in program.global_block().ops]
    fetches = list(dict.fromkeys(["loss", *(str(n) for n in np.random.default_rng(seed).choice(names, seed % 3))]))

    def feed(rng):
        return {"x": rng.standard_normal((5, 2, 9, 8)).astype("float32")}

    off, on = (
        train(program, fill, feed, fetches, 1 + seed % 2, data_layout=layout, fuse_gemm_epilogue=fused)
        for fused in (False, True)
    )
    assert np.isfinite(off[0][-1]["loss"]).all()
    same(off, on)
