"""fuse_conv_bn: text in, text out; evaluations that keep their bits; and its op against PyTorch."""

from __future__ import annotations

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
from tests.needs import torch
from tests.ops.support import run_op

VARS = """\
  var x: float32[batch, 6, 6, 3] is_data stop_gradient
  var z: float32[batch, 6, 6, 4] is_data stop_gradient
  var mean: float32[4] persistable stop_gradient
  var variance: float32[4] persistable stop_gradient
  param scale: float32[4]
  param bias: float32[4]
  param w: float32[4, 3, 1, 1]
"""
CONV = '  forward conv2d(Input=x, Filter=w) -> Output=c: float32[batch, 6, 6, 4] {"data_format": "NHWC"}\n'
NORM = (
    "  forward batch_norm(X=c, Scale=scale, Bias=bias, Mean=mean, Variance=variance) -> "
    "Y=y: float32[batch, 6, 6, 4], MeanOut=mean, VarianceOut=variance, SavedMean=m: float32[4], SavedVariance=v: float32[4] "
    '{"epsilon": 0.001, "is_test": true, "data_layout": "NHWC"}\n'
)
PROGRAM = VARS + CONV + NORM
FUSED = (
    "  forward fused_conv2d_norm(Input=x, Filter=w, Scale=scale, Bias=bias, Mean=mean, Variance=variance{added}) -> "
    'Output=y: float32[batch, 6, 6, 4] {{"data_format": "NHWC", "epsilon": 0.001{relu}}}\n'
)
THEN = "  forward relu(X={}) -> Out=r: float32[batch, 6, 6, 4]\n"


@pytest.mark.parametrize(
    ("norm", "added", "relu"),
    [
        pytest.param(NORM, "", "", id="batch_norm"),
        pytest.param(NORM.replace("batch_norm(", "fused_batch_norm_act("), "", ', "activation": "relu"', id="and relu"),
        pytest.param(
            NORM.replace("batch_norm(X=c,", "fused_bn_add_activation(X=c, Z=z,"), ", Z=z", ', "activation": "relu"', id="and a sum"
        ),
        pytest.param(NORM.replace("is_test", "use_global_stats"), "", "", id="running statistics"),
    ],
)
def test_the_convolution_normalises(norm, added, relu):
    made, said = text(fusion_pass("fuse_conv_bn"), VARS + CONV + norm, ["y"])
    assert made == VARS + FUSED.format(added=added, relu=relu)
    assert said == "fuse_conv_bn: 1 of 1 batch_norms are applied by convolutions"


@pytest.mark.parametrize(
    ("program", "fetches", "why"),
    [
        pytest.param(
            PROGRAM.replace('"is_test": true, ', ""), ["y"], "1 x batch_norm uses the statistics of the batch", id="training"
        ),
        pytest.param(PROGRAM, ["c", "y"], "1 x the result of the convolution is fetched", id="fetched"),
        pytest.param(
            PROGRAM + THEN.format("c"), ["r"], "1 x the result of the convolution is also read by relu", id="another reader"
        ),
        pytest.param(PROGRAM, ["y", "m"], "1 x SavedMean is fetched", id="fetched statistics"),
        pytest.param(
            PROGRAM + "  forward relu(X=v) -> Out=r: float32[4]\n", ["r"], "1 x SavedVariance is also read by relu", id="read statistics"
        ),
        pytest.param(
            VARS + "  var old: float32[4] persistable stop_gradient\n" + CONV + NORM.replace("MeanOut=mean", "MeanOut=old"), ["y"],
            "1 x batch_norm copies its statistics to other variables", id="copied statistics",
        ),
        pytest.param(
            VARS + CONV.replace("conv2d(Input=x, Filter=w) -> Output", "relu(X=z) -> Out").replace(' {"data_format": "NHWC"}', "") + NORM,
            ["y"], "1 x the input of batch_norm is made by relu", id="no convolution",
        ),
        pytest.param(
            VARS.replace("param bias: float32[4]", "var bias: float32[4] persistable stop_gradient") + CONV + THEN.format("z")
            + "  forward scale(X=bias) -> Out=bias\n" + NORM, ["y"], "",
            id="a bias that changes before",
        ),
        pytest.param(VARS + CONV, ["c"], "the program has no batch_norm", id="no norm"),
    ],
)  # fmt: skip
def test_what_is_left_alone_and_why(program, fetches, why):
    made, said = text(fusion_pass("fuse_conv_bn"), program, fetches)
    if why:
        assert made == program
        assert said == f"fuse_conv_bn: nothing fused: {why}"
    else:  # what changes a parameter stays in front
        assert made.index("scale(X=bias)") < made.index("fused_conv2d_norm")


def test_only_cpus_and_only_if_wanted():
    cpus = Target.of([Place("cpu", 0), Place("cpu", 1)])
    assert fusion_pass("fuse_conv_bn") in passes(BuildStrategy(), cpus)
    assert fusion_pass("fuse_conv_bn") not in passes(BuildStrategy())
    assert fusion_pass("fuse_conv_bn") not in passes(BuildStrategy(fuse_conv_bn=False), cpus)


# --- evaluations ------------------------------------------------------------------------------------------------------

#: Images, filters, attributes; of every kind of kernel with one block and several, the last of them shorter.
CASES = {
    "direct": ((3, 9, 8, 5), (7, 5, 3, 3), {"paddings": [1, 1]}),
    "direct, blocks": ((7, 40, 40, 3), (24, 3, 5, 5), {"strides": [2, 1]}),
    "groups": ((4, 33, 30, 6), (20, 3, 3, 3), {"groups": 2, "dilations": [2, 1]}),
    "by Winograd's way": ((5, 29, 31, 32), (48, 32, 3, 3), {"paddings": [1, 1]}),
    "depthwise": ((3, 61, 50, 48), (48, 1, 3, 3), {"groups": 48, "paddings": [1, 1]}),
    "depthwise, strided": ((2, 90, 70, 40), (80, 1, 3, 3), {"groups": 40, "strides": [2, 2], "paddings": [1, 1]}),
    "one by one": ((5, 31, 23, 24), (130, 24, 1, 1), {}),
    "one by one, few": ((2, 3, 3, 7), (5, 7, 1, 1), {}),
    "one by one, holes": ((3, 30, 31, 16), (60, 16, 1, 1), {"strides": [2, 2]}),
    "one image": ((1, 41, 40, 16), (32, 16, 3, 3), {"paddings": [1, 1]}),
}
EACH = pytest.mark.parametrize("case", CASES)
THENS = pytest.mark.parametrize("then", ["nothing", "relu", "a sum and relu"])


def evaluated(case: str, then: str, fused: bool, dtype: str = "float32", threads: int = 1, devices: int = 1) -> list[np.ndarray]:
    """Return the devices' results of a convolution, batch_norm by running statistics, and what comes then."""
    images, filters, attrs = CASES[case]
    program = Program(case)
    block = program.global_block()
    block.create_var("x", TensorType((-1, *images[1:]), dtype), is_data=True, stop_gradient=True)
    block.create_parameter("w", TensorType(filters, dtype))
    for name in ("scale", "bias", "mean", "variance"):
        block.create_parameter(name, TensorType(filters[:1], dtype))
    last = {**attrs, "data_format": "NHWC"}
    if then == "a sum and relu":
        block.append_op("conv2d", {"Input": "x", "Filter": "w"}, {"Output": "z"}, last)
        block.append_op("square", {"X": "z"}, {"Out": "q"})
    block.append_op("conv2d", {"Input": "x", "Filter": "w"}, {"Output": "c"}, last)
    ins = {s: s.lower() for s in ("Scale", "Bias", "Mean", "Variance")}
    outs = {"Y": "n", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"}
    block.append_op("batch_norm", {"X": "c", **ins}, outs, {"data_layout": "NHWC", "is_test": True})
    name = "n"
    if then == "a sum and relu":
        block.append_op("elementwise_add", {"X": "n", "Y": "q"}, {"Out": "s"})
        name = "s"
    if then != "nothing":
        block.append_op("relu", {"X": name}, {"Out": "r"})
        name = "r"
    scope = Scope([Place("cpu", d) for d in range(devices)])
    build = BuildStrategy(fuse_conv_bn=fused, simplify=False)  # or the convolutions would be one, which two read
    executor = Executor(program, scope, build=build, execution=ExecutionStrategy(num_threads=threads))
    rng = np.random.default_rng(4)
    for var in sorted(scope):
        scope.set(var, rng.uniform(0.5, 1.5, scope.type(var).shape).astype(dtype))
    for var in ("mean", "variance"):  # every device has its own
        for d in range(1, devices):
            scope.set(var, rng.uniform(0.5, 1.5, filters[:1]).astype(dtype), d)
    values = executor.run({"x": rng.standard_normal(images).astype(dtype)}, [name]).values
    kinds = {node.title for node in latest(executor).graph.nodes}  # type: ignore[union-attr]
    assert ("fused_conv2d_norm" in kinds) is fused
    return [v[name] for v in values]


@EACH
@THENS
def test_no_bit_changes_on_any_number_of_threads(case, then):
    (expected,) = evaluated(case, then, fused=False)
    assert np.isfinite(expected).all()
    for threads in (1, 3):
        (found,) = evaluated(case, then, fused=True, threads=threads)
        np.testing.assert_array_equal(found, expected)


@THENS
def test_no_bit_changes_in_float64_or_on_two_devices(then):
    for case, more in (("by Winograd's way", {"dtype": "float64"}), ("depthwise", {"devices": 2})):
        for found, expected in zip(evaluated(case, then, True, **more), evaluated(case, then, False, **more), strict=True):
            np.testing.assert_array_equal(found, expected)


# --- the op -----------------------------------------------------------------------------------------------------------


@EACH
@THENS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_gives_what_pytorch_gives(case, then, dtype):
    images, filters, attrs = CASES[case]
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal(images), rng.standard_normal(filters)
    each = {s: rng.uniform(0.5, 1.5, filters[:1]) for s in ("Scale", "Bias", "Mean", "Variance")}
    scale, bias, mean, variance = (torch.from_numpy(a) for a in each.values())
    named = {"strides": "stride", "paddings": "padding", "dilations": "dilation", "groups": "groups"}
    made = torch.nn.functional.conv2d(
        torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w), **{named[k]: v for k, v in attrs.items()}
    )
    y = torch.nn.functional.batch_norm(made, mean, variance, scale, bias, eps=1e-3)
    z = {"Z": rng.standard_normal((made.shape[0], *made.shape[2:], made.shape[1]))} if then == "a sum and relu" else {}
    y = y.permute(0, 2, 3, 1).numpy() + z.get("Z", 0)
    expected = y if then == "nothing" else np.maximum(y, 0)
    given = {slot: a.astype(dtype) for slot, a in {"Input": x, "Filter": w, **each, **z}.items()}
    relu = "none" if then == "nothing" else "relu"
    found = run_op("fused_conv2d_norm", given, {"data_format": "NHWC", "epsilon": 1e-3, "activation": relu, **attrs})
    tight = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found, expected, rtol=tight, atol=tight * abs(expected).max())


def test_what_it_cannot_do_is_refused():
    each = dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), np.ones(2, "float32"))
    given = {"Input": np.ones((2, 4, 4, 3), "float32"), "Filter": np.ones((2, 3, 1, 1), "float32"), **each}
    last = {"data_format": "NHWC"}
    with pytest.raises(PeError, match="needs images with the channels last"):
        run_op("fused_conv2d_norm", given | {"Input": np.ones((2, 3, 4, 4), "float32")})
    with pytest.raises(PeError, match=r"needs Mean of type float32\[2\], one number per channel, got float32\[3\]"):
        run_op("fused_conv2d_norm", given | {"Mean": np.ones(3, "float32")}, last)
    z = {"Z": np.ones((2, 4, 4, 2), "float32")}
    with pytest.raises(PeError, match="takes Z with relu"):
        run_op("fused_conv2d_norm", given | z, last)
    with pytest.raises(PeError, match=r"takes Z with relu, and of type float32\[2, 4, 4, 2\]; got float32\[2, 4, 3, 2\]"):
        run_op("fused_conv2d_norm", given | {"Z": np.ones((2, 4, 3, 2), "float32")}, last | {"activation": "relu"})
