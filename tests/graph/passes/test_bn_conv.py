"""fuse_bn_conv: text in, text out; its ops against the separate ones; and trainings that keep their bits and need less memory."""

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
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program
from tests.execute.support import latest
from tests.graph.passes.test_text import text
from tests.ops.support import run_op

VARS = """\
  var x: float32[batch, 6, 6, 3] is_data stop_gradient
  var mean: float32[3] persistable stop_gradient
  var variance: float32[3] persistable stop_gradient
  param a: float32[3, 3, 1, 1]
  param scale: float32[3]
  param bias: float32[3]
  param w: float32[4, 3, 1, 1]
"""
LAST = '{"data_format": "NHWC"}'
FIRST = (
    "  forward fused_conv2d_moments(Input=x, Filter=a) -> Output=c: float32[batch, 6, 6, 3], Moments=c.m: float64[2, 3] stop_gradient "
    f"{LAST}\n"
)
NORM = (
    "  forward fused_batch_norm_act(X=c, Scale=scale, Bias=bias, Mean=mean, Variance=variance, Moments=c.m) -> "
    "Y=y: float32[batch, 6, 6, 3], MeanOut=mean, VarianceOut=variance, SavedMean=m: float32[3], SavedVariance=v: float32[3] "
    '{"data_layout": "NHWC"}\n'
)
CONV = (
    "  forward fused_conv2d_moments(Input=y, Filter=w) -> Output=d: float32[batch, 6, 6, 4], Moments=d.m: float64[2, 4] stop_gradient "
    f"{LAST}\n"
)
BACK = (
    "  backward conv2d_grad(Input=y, Filter=w, Output@GRAD=d@GRAD) -> Input@GRAD=y@GRAD: float32[batch, 6, 6, 3], "
    f"Filter@GRAD=w@GRAD: float32[4, 3, 1, 1] {LAST}\n"
)
ONES = "  backward fill_like(X=d) -> Out=d@GRAD: float32[batch, 6, 6, 4]\n"
THEN = (
    "  backward fused_batch_norm_act_grad(X=c, Scale=scale, Bias=bias, SavedMean=m, SavedVariance=v, Y@GRAD=y@GRAD) -> "
    'X@GRAD=c@GRAD: float32[batch, 6, 6, 3] {"data_layout": "NHWC"}\n'
)
PROGRAM = VARS + FIRST + NORM + CONV + ONES + BACK + THEN


def test_the_convolution_takes_the_norm_and_so_does_its_gradient():
    made, said = text(fusion_pass("fuse_bn_conv"), PROGRAM, ["d", "c@GRAD", "w@GRAD"])
    each = "SavedMean=m, SavedVariance=v, Scale=scale, Bias=bias"
    assert made == (
        VARS + FIRST
        + "  forward batch_norm_statistics(X=c, Moments=c.m, Mean=mean, Variance=variance) -> MeanOut=mean, VarianceOut=variance, "
        "SavedMean=m: float32[3], SavedVariance=v: float32[3]\n"
        f"  forward fused_norm_conv2d(Input=c, {each}, Filter=w) -> Output=d: float32[batch, 6, 6, 4], "
        f"Moments=d.m: float64[2, 4] stop_gradient {LAST}\n" + ONES
        + f"  backward fused_norm_conv2d_back(Input=c, {each}, Filter=w, Output@GRAD=d@GRAD) -> "
        f"Input@GRAD=c@GRAD@y.GRAD_0: float32[batch, 6, 6, 3], Filter@GRAD=w@GRAD: float32[4, 3, 1, 1] {LAST}\n"
        + THEN.replace("Y@GRAD=y@GRAD", "Y@GRAD=c@GRAD@y.GRAD_0")
    )  # fmt: skip
    assert said == "fuse_bn_conv: 1 places fused, 1 gradients"


@pytest.mark.parametrize(
    ("program", "fetches", "why"),
    [
        pytest.param(PROGRAM, ["y"], "1 x the output of fused_batch_norm_act is fetched", id="fetched"),
        pytest.param(
            PROGRAM + "  forward relu(X=y) -> Out=z: float32[batch, 6, 6, 3]\n", ["z"],
            "1 x the output of fused_batch_norm_act is also read by relu", id="another reader",
        ),
        pytest.param(
            VARS + FIRST + NORM + CONV + CONV.replace("=d", "=e"), [],
            "1 x the result is not read by one convolution that takes statistics", id="two convolutions",
        ),
        pytest.param(
            VARS + FIRST + NORM, [], "1 x the result is not read by one convolution that takes statistics", id="no convolution"
        ),
        pytest.param(
            VARS + FIRST + NORM.replace(", Moments=c.m)", ")") + CONV, [],
            "1 x no convolution takes the statistics before batch_norm", id="no statistics",
        ),
        pytest.param(
            VARS + FIRST + NORM.replace("MeanOut=mean, ", "") + CONV, [], "1 x batch_norm does not give all its statistics",
            id="statistics that nobody keeps",
        ),
        pytest.param(
            (VARS + FIRST + NORM + CONV).replace("4, 3, 1, 1", "4, 3, 3, 3").replace("6, 6, 4", "4, 4, 4"), [],
            "1 x the result goes to a convolution that is neither 1x1 nor depthwise", id="three by three",
        ),
        pytest.param(
            VARS.replace("param bias: float32[3]", "var bias: float32[3] persistable stop_gradient") + FIRST + NORM + CONV
            + "  forward scale(X=bias) -> Out=bias\n" + ONES + BACK + THEN, [],
            "1 x its input or a parameter is overwritten before its last use", id="overwritten",
        ),
        pytest.param(VARS + FIRST, [], "the program has no batch_norm with relu", id="no norm"),
    ],
)  # fmt: skip
def test_what_is_left_alone_and_why(program, fetches, why):
    made, said = text(fusion_pass("fuse_bn_conv"), program, fetches)
    assert made == program
    assert said == f"fuse_bn_conv: nothing fused: {why}"


CPUS = Target.of([Place("cpu", 0), Place("cpu", 1)])


def test_only_cpus_and_only_if_wanted():
    assert fusion_pass("fuse_bn_conv") in passes(BuildStrategy(), CPUS)
    assert fusion_pass("fuse_bn_conv") not in passes(BuildStrategy())
    assert fusion_pass("fuse_bn_conv") not in passes(BuildStrategy(fuse_bn_conv=False), CPUS)
    assert fusion_pass("fuse_bn_conv") not in passes(BuildStrategy(sync_batch_norm=True), CPUS)


# --- trainings --------------------------------------------------------------------------------------------------------

#: Images, filters, attributes: one block and several of which the last is shorter, sums that are taken in one go and in several.
CASES = {
    "small": ((2, 5, 4, 5), (7, 5, 1, 1), {}),
    "one block": ((2, 16, 16, 3), (33, 3, 1, 1), {}),
    "a little more": ((1, 19, 27, 20), (17, 20, 1, 1), {}),
    "three quarters": ((3, 16, 16, 8), (24, 8, 1, 1), {}),
    "many pixels": ((5, 31, 23, 24), (18, 24, 1, 1), {}),
    "many channels": ((2, 20, 17, 300), (40, 300, 1, 1), {}),
    "depthwise": ((3, 33, 33, 40), (40, 1, 3, 3), {"groups": 40, "paddings": [1, 1]}),
    "depthwise, wide": ((2, 40, 90, 48), (48, 1, 3, 3), {"groups": 48, "paddings": [1, 1]}),
    "depthwise, strided": ((2, 61, 50, 64), (64, 1, 3, 3), {"groups": 64, "strides": [2, 2], "paddings": [1, 1]}),
    "depthwise, dilated": ((2, 70, 50, 20), (40, 1, 3, 2), {"groups": 20, "dilations": [3, 2], "paddings": [5, 1]}),
    "depthwise, all padding": ((2, 6, 5, 700), (700, 1, 2, 2), {"groups": 700, "paddings": [4, 0]}),
}
EACH = pytest.mark.parametrize("case", CASES)


def model(case: str, dtype: str = "float32") -> Program:
    """Return a depthwise convolution, batch_norm, relu, the case's convolution, another batch_norm and a loss, with gradients."""
    images, filters, attrs = CASES[case]
    program = Program(case)
    block = program.global_block()
    channels = images[-1]
    block.create_var("x", TensorType((-1, *images[1:]), dtype), is_data=True, stop_gradient=True)
    block.create_parameter("a", TensorType((channels, 1, 1, 1), dtype))
    block.create_parameter("w", TensorType(filters, dtype))
    for number, size in ((1, channels), (2, filters[0])):
        for name in ("scale", "bias"):
            block.create_parameter(f"{name}{number}", TensorType((size,), dtype))
        for name in ("mean", "variance"):
            block.create_var(f"{name}{number}", TensorType((size,), dtype), persistable=True, stop_gradient=True)
    last = {"data_format": "NHWC"}
    block.append_op("conv2d", {"Input": "x", "Filter": "a"}, {"Output": "c"}, {"groups": channels, **last})
    for number, image, out in ((1, "c", "n"), (2, "d", "o")):
        if number == 2:
            block.append_op("conv2d", {"Input": "r", "Filter": "w"}, {"Output": "d"}, {**attrs, **last})
        ins = {s: f"{s.lower()}{number}" for s in ("Scale", "Bias", "Mean", "Variance")}
        outs = {"MeanOut": ins["Mean"], "VarianceOut": ins["Variance"], "SavedMean": f"m{number}", "SavedVariance": f"v{number}"}
        block.append_op("batch_norm", {"X": image, **ins}, {"Y": out, **outs}, {"data_layout": "NHWC"})
        if number == 1:
            block.append_op("relu", {"X": "n"}, {"Out": "r"})
    block.append_op("square", {"X": "o"}, {"Out": "q"})
    block.append_op("elementwise_mul", {"X": "q", "Y": "o"}, {"Out": "p"})
    block.append_op("mean", {"X": "p"}, {"Out": "loss"})
    append_backward(block.var("loss"))
    return program


def trained(case: str, fused: bool, dtype: str = "float32", threads: int = 1, devices: int = 1) -> tuple[dict[str, object], Executor]:
    """Return the loss and all gradients of parameters, and running statistics, of a step."""
    images = CASES[case][0]
    program = model(case, dtype)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(program, scope, build=BuildStrategy(fuse_bn_conv=fused), execution=ExecutionStrategy(num_threads=threads))
    rng = np.random.default_rng(2)
    for name in sorted(scope):
        scope.set(name, rng.uniform(-0.5, 1.5, scope.type(name).shape).astype(dtype))
    wanted = ["loss", "d", *(f"{n}@GRAD" for n in ("a", "w", "scale1", "bias1", "scale2"))]
    values = executor.run({"x": rng.standard_normal(images).astype(dtype)}, wanted).values
    kinds = {node.title for node in latest(executor).graph.nodes}  # type: ignore[union-attr]
    assert ({"fused_norm_conv2d", "fused_norm_conv2d_back", "batch_norm_statistics"} <= kinds) is fused
    found = {f"{name} {d}": v[name] for d, v in enumerate(values) for name in wanted}
    return found | {name: scope.get(name) for name in scope}, executor


def same(found: dict[str, object], expected: dict[str, object]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
        assert np.isfinite(value).all(), name  # type: ignore[call-overload]


@EACH
def test_no_bit_changes_on_any_number_of_threads(case):
    expected, _ = trained(case, fused=False)
    for threads in (1, 3):
        same(trained(case, fused=True, threads=threads)[0], expected)


@pytest.mark.parametrize("case", ["many pixels", "depthwise, strided"])
def test_no_bit_changes_in_float64_or_on_two_devices(case):
    same(trained(case, True, "float64")[0], trained(case, False, "float64")[0])
    same(trained(case, True, devices=2)[0], trained(case, False, devices=2)[0])


def test_the_normalised_images_take_no_memory():
    images = CASES["depthwise, wide"][0]
    plain, fused = (latest(trained("depthwise, wide", on)[1]).nbytes for on in (False, True))  # type: ignore[union-attr]
    assert plain - fused > 0.8 * 4 * np.prod(images)


# --- the ops ----------------------------------------------------------------------------------------------------------


def by_hand(x, w, dy, *, groups=1, strides=(1, 1), paddings=(0, 0), dilations=(1, 1)):
    """Return a 1x1 or depthwise convolution, and what `dy` gives for the images and the filters, tap by tap."""
    size = w.shape[2:]
    high, wide = ((x.shape[1 + i] + 2 * paddings[i] - (size[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in (0, 1))
    padded = np.pad(x, ((0, 0), *((p, p) for p in paddings), (0, 0)))
    dx, dw = np.zeros_like(padded), np.zeros_like(w)
    out = np.zeros((len(x), high, wide, len(w)))
    dy = dy(out.shape)
    each = 1 if groups == 1 else len(w) // groups
    for i, j in np.ndindex(*size):
        along = zip((i, j), dilations, strides, (high, wide), strict=True)
        rows, columns = (slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in along)
        seen, tap = padded[:, rows, columns], w[:, :, i, j]
        if groups == 1:
            out += seen @ tap.T
            dx[:, rows, columns] += dy @ tap
            dw[:, :, i, j] = np.einsum("nhwo,nhwc->oc", dy, seen)
        else:
            out += np.repeat(seen, each, -1) * tap[:, 0]
            dx[:, rows, columns] += (dy * tap[:, 0]).reshape(*dy.shape[:3], groups, each).sum(-1)
            dw[:, 0, i, j] = (np.repeat(seen, each, -1) * dy).sum((0, 1, 2))
    return out, dy, dx[:, paddings[0] : paddings[0] + x.shape[1], paddings[1] : paddings[1] + x.shape[2]], dw


@EACH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_ops_give_what_sums_by_hand_give(case, dtype):
    images, filters, attrs = CASES[case]
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal(images), rng.standard_normal(filters)
    each = {s: rng.uniform(0.5, 1.5, images[-1:]) for s in ("SavedMean", "SavedVariance", "Scale", "Bias")}
    y = np.maximum((x - each["SavedMean"]) * each["SavedVariance"] * each["Scale"] + each["Bias"], 0)
    out, dy, dx, dw = by_hand(y, w, rng.standard_normal, **attrs)
    given = {slot: a.astype(dtype) for slot, a in {"Input": x, **each, "Filter": w}.items()}
    found = run_op("fused_norm_conv2d", given, {"data_format": "NHWC", **attrs})
    back = run_op("fused_norm_conv2d_back", given | {"Output@GRAD": dy.astype(dtype)}, {"data_format": "NHWC", **attrs})
    tight = 1e-5 if dtype == "float32" else 1e-13
    flat = out.reshape(-1, filters[0])
    moments = np.array([flat.mean(0), ((flat - flat.mean(0)) ** 2).sum(0)])
    pairs = (found["Output"], out), (found["Moments"], moments), (back["Input@GRAD"], dx), (back["Filter@GRAD"], dw)
    for value, expected in pairs:
        np.testing.assert_allclose(value, expected, rtol=tight, atol=tight * abs(expected).max())


def test_what_it_has_no_kernels_for_is_refused():
    each = dict.fromkeys(("SavedMean", "SavedVariance", "Scale", "Bias"), np.ones(3, "float32"))
    given = {"Input": np.ones((2, 4, 4, 3), "float32"), **each, "Filter": np.ones((2, 3, 3, 3), "float32")}
    with pytest.raises(PeError, match="takes 1x1 convolutions of whole images, and depthwise ones"):
        run_op("fused_norm_conv2d", given, {"data_format": "NHWC"})
    one = given | {"Filter": np.ones((2, 3, 1, 1), "float32")}
    with pytest.raises(PeError, match=r"needs Scale of type float32\[3\], one number per channel, got float32\[2\]"):
        run_op("fused_norm_conv2d", one | {"Scale": np.ones(2, "float32")}, {"data_format": "NHWC"})
    with pytest.raises(PeError, match="needs Output@GRAD of type"):
        run_op("fused_norm_conv2d_back", one | {"Output@GRAD": np.ones((2, 4, 4, 3), "float32")}, {"data_format": "NHWC"})
