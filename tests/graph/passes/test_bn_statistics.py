"""fuse_bn_statistics: text in, text out; its op against NumPy and conv2d; and norms that get the same bits with it and without."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.graph.passes.fusions import fusion_pass
from pe_cli.graph.pipeline import Target, passes
from pe_cli.program.ir import Program
from tests.execute.support import latest
from tests.graph.passes.test_text import text
from tests.ops.support import run_op

PROGRAM = """\
  var x: float32[batch, 8, 8, 3] is_data stop_gradient
  var mean: float32[4] persistable stop_gradient
  var variance: float32[4] persistable stop_gradient
  param w: float32[4, 3, 3, 3]
  param scale: float32[4]
  param bias: float32[4]
"""
CONV = '  forward conv2d(Input=x, Filter=w) -> Output=c: float32[batch, 6, 6, 4] {"data_format": "NHWC"} scope("conv/")\n'
FUSED = (
    "  forward fused_conv2d_moments(Input=x, Filter=w) -> Output=c: float32[batch, 6, 6, 4], "
    'Moments=c.moments_0: float64[2, 4] stop_gradient {"data_format": "NHWC"} scope("conv/")\n'
)
NORM = (
    "  forward batch_norm(X=c, Scale=scale, Bias=bias, Mean=mean, Variance=variance{moments}) -> Y=y: float32[batch, 6, 6, 4], "
    "MeanOut=mean, VarianceOut=variance, SavedMean=m: float32[4], SavedVariance=v: float32[4] {attrs}\n"
)
LAST = '{"data_layout": "NHWC"}'


def test_the_convolution_finds_the_statistics():
    made, said = text(fusion_pass("fuse_bn_statistics"), PROGRAM + CONV + NORM.format(moments="", attrs=LAST), ["c"])
    assert made == PROGRAM + FUSED + NORM.format(moments=", Moments=c.moments_0", attrs=LAST)
    assert said == "fuse_bn_statistics: 1 of 1 statistics are taken by convolutions"


def test_two_norms_of_one_image_share_them():
    first = NORM.format(moments="", attrs=LAST)
    second = re.sub(r"=(mean|variance|m|v|y)\b", r"=\g<1>2", first)
    again = PROGRAM + "".join(f"  var {n}2: float32[4] persistable stop_gradient\n" for n in ("mean", "variance"))
    made, said = text(fusion_pass("fuse_bn_statistics"), again + CONV + first + second)
    assert made.count("Moments=c.moments_0:") == 1
    assert made.count(", Moments=c.moments_0) ->") == 2
    assert said == "fuse_bn_statistics: 2 of 2 statistics are taken by convolutions"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(
            PROGRAM + CONV + NORM.format(moments="", attrs='{"is_test": true, "data_layout": "NHWC"}'),
            "1 x batch_norm uses running statistics",
            id="inference",
        ),
        pytest.param(
            PROGRAM.replace("8, 8, 3", "3, 8, 8") + CONV.replace("6, 6, 4", "4, 6, 6").replace(' {"data_format": "NHWC"}', "")
            + NORM.format(moments="", attrs="").replace("6, 6, 4", "4, 6, 6").replace(" \n", "\n"),
            "1 x images have their channels first",
            id="channels first",
        ),
        pytest.param(
            PROGRAM + CONV + "  forward relu(X=c) -> Out=r: float32[batch, 6, 6, 4]\n"
            + NORM.format(moments="", attrs=LAST).replace("X=c", "X=r"),
            "1 x the input of batch_norm is made by relu",
            id="something between",
        ),
        pytest.param(PROGRAM + CONV, "the program has no batch_norm", id="no norm"),
    ],
)  # fmt: skip
def test_what_is_left_alone_and_why(program, why):
    made, said = text(fusion_pass("fuse_bn_statistics"), program)
    assert made == program
    assert said == f"fuse_bn_statistics: nothing fused: {why}"


CPUS = Target.of([Place("cpu", 0), Place("cpu", 1)])


def test_only_cpus_and_only_if_wanted():
    assert fusion_pass("fuse_bn_statistics") in passes(BuildStrategy(), CPUS)
    assert fusion_pass("fuse_bn_statistics") not in passes(BuildStrategy())
    assert fusion_pass("fuse_bn_statistics") not in passes(BuildStrategy(fuse_bn_statistics=False), CPUS)
    assert fusion_pass("fuse_bn_statistics") not in passes(BuildStrategy(sync_batch_norm=True), CPUS)
    assert CPUS.caches
    assert not Target.of([Place("cpu", 0), Place("cuda", 0)]).caches


# --- the op -----------------------------------------------------------------------------------------------------------

#: Images, filters, attributes: every kernel, with one block and with several, of which the last is shorter.
CASES = {
    "small": ((2, 6, 5, 3), (4, 3, 3, 3), {}),
    "any": ((7, 40, 40, 3), (24, 3, 3, 3), {"paddings": [1, 1]}),
    "strided, groups": ((9, 41, 37, 8), (40, 4, 3, 3), {"groups": 2, "strides": [2, 1]}),
    "depthwise": ((5, 33, 33, 40), (40, 1, 3, 3), {"groups": 40}),
    "pointwise": ((3, 50, 51, 16), (33, 16, 1, 1), {}),
    "pointwise with holes": ((3, 80, 81, 7), (64, 7, 1, 1), {"strides": [2, 2]}),
    "Winograd": ((5, 32, 33, 32), (64, 32, 3, 3), {"paddings": [1, 1]}),
    "one image": ((1, 90, 90, 4), (70, 4, 3, 3), {}),
    "no image": ((0, 6, 5, 3), (4, 3, 3, 3), {}),
}
EACH = pytest.mark.parametrize("case", CASES)


@EACH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_output_is_that_of_conv2d_and_moments_are_numpys(case, dtype):
    images, filters, attrs = CASES[case]
    rng = np.random.default_rng(1)
    given = {"Input": rng.standard_normal(images).astype(dtype) + 1, "Filter": rng.standard_normal(filters).astype(dtype)}
    attrs = {"data_format": "NHWC", **attrs}
    found = run_op("fused_conv2d_moments", given, attrs)
    np.testing.assert_array_equal(found["Output"], run_op("conv2d", given, attrs))
    out = found["Output"].astype("float64").reshape(-1, filters[0])
    assert found["Moments"].dtype == np.float64
    mean = out.mean(0) if len(out) else np.zeros(filters[0])
    tight = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found["Moments"][0], mean, rtol=tight, atol=tight)
    np.testing.assert_allclose(found["Moments"][1], ((out - mean) ** 2).sum(0), rtol=tight)


def normed(case: str, threads: int, fused: bool) -> dict[str, np.ndarray]:
    """Return what a convolution and a batch_norm after it give."""
    images, filters, attrs = CASES[case]
    program = Program(case)
    block = program.global_block()
    block.create_var("x", TensorType((-1, *images[1:])), is_data=True, stop_gradient=True)
    block.create_parameter("w", TensorType(filters))
    for name in ("scale", "bias", "mean", "variance"):
        block.create_var(name, TensorType((filters[0],)), persistable=True, stop_gradient=True)
    block.append_op("conv2d", {"Input": "x", "Filter": "w"}, {"Output": "c"}, {"data_format": "NHWC", **attrs})
    inputs = {"X": "c", "Scale": "scale", "Bias": "bias", "Mean": "mean", "Variance": "variance"}
    outputs = {"Y": "y", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"}
    block.append_op("batch_norm", inputs, outputs, {"data_layout": "NHWC"})
    scope = Scope([Place("cpu", 0)])
    build, execution = BuildStrategy(fuse_bn_statistics=fused), ExecutionStrategy(num_threads=threads)
    executor = Executor(program, scope, build=build, execution=execution)
    rng = np.random.default_rng(2)
    for name in scope:
        scope.set(name, rng.uniform(0.5, 1.5, scope.type(name).shape).astype("float32"))
    (values,) = executor.run({"x": rng.standard_normal(images).astype("float32")}, ["y", "m", "v"]).values
    kinds = [node.title for node in latest(executor).graph.nodes]  # type: ignore[union-attr]
    assert ("fused_conv2d_moments" in kinds) is fused
    return {**values, "mean": scope.get("mean"), "variance": scope.get("variance")}


@EACH
def test_a_norm_gets_the_same_bits_with_it_and_without_on_any_number_of_threads(case):
    expected = normed(case, 1, fused=False)
    for threads in (1, 3):
        found = normed(case, threads, fused=True)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_moments_that_cannot_be_meant_are_refused():
    rng = np.random.default_rng(1)
    each = dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), np.ones(3, "float32"))
    given = {"X": rng.standard_normal((4, 2, 2, 3)).astype("float32"), **each, "Moments": np.ones((2, 3))}
    run_op("batch_norm", given, {"data_layout": "NHWC"})
    with pytest.raises(PeError, match="in training only"):
        run_op("batch_norm", given, {"data_layout": "NHWC", "is_test": True})
    with pytest.raises(PeError, match=r"needs Moments float64 \[2, 3\], got float32\[2, 3\]"):
        run_op("batch_norm", given | {"Moments": np.ones((2, 3), "float32")}, {"data_layout": "NHWC"})
    with pytest.raises(PeError, match="channels last"):
        run_op("fused_conv2d_moments", {"Input": np.ones((2, 3, 4, 4)), "Filter": np.ones((2, 3, 3, 3))})
