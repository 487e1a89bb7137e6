"""Operators that become other layers than their own compute what onnxruntime, or ONNX's definition, computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.importing.define import ImportWish, read_model
from tests.rotation import of_today
from tests.session.importing.test_onnx import computed, imported


def graph(text: str, opset: int, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in values.items())
    return model


def rng(shape, seed=0, dtype="float32", low=0, high=5):
    r = np.random.default_rng(seed)
    return r.integers(low, high, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else r.normal(size=shape).astype(dtype)


I64 = np.int64
SMALL = "float[2, 3, 4] x"
CASES = [
    ("gather elements from the end", f"({SMALL}, int64[2, 3, 2] i) => (float[2, 3, 2] y) {{ y = GatherElements<axis=2>(x, i) }}", 18,
     {}, {"x": rng((2, 3, 4)), "i": rng((2, 3, 2), 1, "int64", -4, 4)}),
    ("scatter elements that add up", (f"({SMALL}, float[2, 2, 4] u) => (float[2, 3, 4] y) "
     "{ y = ScatterElements<axis=1, reduction=\"add\">(x, i, u) }"), 18, {"i": rng((2, 2, 4), 1, "int64", -3, 3)},
     {"x": rng((2, 3, 4)), "u": rng((2, 2, 4), 2)}),
    ("rows by computed coordinates", f"({SMALL}, int64[5, 2] i) => (float[5, 4] y) {{ y = GatherND(x, i) }}", 18, {},
     {"x": rng((2, 3, 4)), "i": np.array([[0, 2], [1, -1], [-1, 0], [1, 1], [0, 0]])}),
    ("rows of each sample", f"({SMALL}, int64[2, 2, 1] i) => (float[2, 2, 4] y) {{ y = GatherND<batch_dims=1>(x, i) }}", 18, {},
     {"x": rng((2, 3, 4)), "i": np.array([[[0], [2]], [[1], [1]]])}),
    ("rows that are put", f"({SMALL}, float[3, 4] u) => (float[2, 3, 4] y) {{ y = ScatterND(x, i, u) }}", 18,
     {"i": np.array([[0, 1], [1, -1], [1, 0]])}, {"x": rng((2, 3, 4)), "u": rng((3, 4), 2)}),
    ("computed places that keep the largest", (f"({SMALL}, int64[3, 1] i, float[3, 3, 4] u) => (float[2, 3, 4] y) "
     "{ y = ScatterND<reduction=\"max\">(x, i, u) }"), 18, {},
     {"x": rng((2, 3, 4)), "i": np.array([[0], [1], [0]]), "u": rng((3, 3, 4), 2)}),
    ("cubic pixels", ("(float[1, 2, 4, 5] x) => (float[1, 2, 7, 9] y) "
     "{ y = Resize<mode=\"cubic\", coordinate_transformation_mode=\"half_pixel\">(x, , , s) }"), 18, {"s": np.array([1, 2, 7, 9])},
     {"x": rng((1, 2, 4, 5))}),
    ("cubic pixels of the image alone, by a scale", ("(float[1, 2, 6, 5] x) => (float[1, 2, 4, 8] y) "
     "{ y = Resize<mode=\"cubic\", exclude_outside=1, coordinate_transformation_mode=\"align_corners\", cubic_coeff_a=-0.5>(x, , s) }"), 18,
     {"s": np.array([1, 1, 0.7, 1.7], np.float32)}, {"x": rng((1, 2, 6, 5))}),
    ("linear pixels, smoothed where it gets smaller", ("(float[1, 2, 8, 9] x) => (float[1, 2, 3, 5] y) "
     "{ y = Resize<mode=\"linear\", antialias=1>(x, , , s) }"), 18, {"s": np.array([1, 2, 3, 5])}, {"x": rng((1, 2, 8, 9))}),
    ("nearest by another rounding", ("(float[1, 2, 4, 5] x) => (float[1, 2, 7, 3] y) "
     "{ y = Resize<mode=\"nearest\", nearest_mode=\"ceil\", coordinate_transformation_mode=\"half_pixel\">(x, , , s) }"), 18,
     {"s": np.array([1, 2, 7, 3])}, {"x": rng((1, 2, 4, 5))}),
    ("a window with holes", ("(float[1, 2, 9, 8] x) => (float[1, 2, 6, 5] y) "
     "{ y = MaxPool<kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 0, 0, 0]>(x) }"), 18, {}, {"x": rng((1, 2, 9, 8))}),
    ("where the largest lie", ("(float[1, 2, 4, 6] x) => (float[1, 2, 2, 3] y, int64[1, 2, 2, 3] i) "
     "{ y, i = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(x) }"), 18, {}, {"x": rng((1, 2, 4, 6))}),
    ("p-norms of windows", "(float[1, 2, 5, 6] x) => (float[1, 2, 4, 5] y) { y = LpPool<kernel_shape=[2, 2], p=3>(x) }", 18, {},
     {"x": rng((1, 2, 5, 6))}),
    ("the smallest of a middle axis", f"({SMALL}) => (float[2, 2, 4] y, int64[2, 2, 4] i) {{ y, i = TopK<axis=1, largest=0>(x, k) }}", 18,
     {"k": np.array([2])}, {"x": rng((2, 3, 4))}),
    ("one-hot along the first axis", "(int64[3] i) => (float[4, 3] y) { y = OneHot<axis=0>(i, d, v) }", 18,
     {"d": np.array(4), "v": np.array([-1.0, 2.0], np.float32)}, {"i": np.array([1, -1, 9])}),
    ("a GRU whose reset comes first",
     "(float[5, 2, 3] x) => (float[5, 1, 2, 4] y, float[1, 2, 4] h) { y, h = GRU<hidden_size=4>(x, w, r, b) }", 18,
     {"w": rng((1, 12, 3), 5), "r": rng((1, 12, 4), 6), "b": rng((1, 24), 7)}, {"x": rng((5, 2, 3), 8)}),
    ("products of whole numbers", "(uint8[3, 4] x) => (int32[3, 2] y) { y = MatMulInteger(x, w, zx, zw) }", 18,
     {"w": rng((4, 2), 1, "int8", -90, 90), "zx": np.uint8(7), "zw": np.int8(-3)}, {"x": rng((3, 4), 2, "uint8", 0, 255)}),
    ("quantized numbers that are read", "(float[3, 4] x) => (uint8[3, 4] y) { y = QuantizeLinear(x, s, z) }", 18,
     {"s": np.float32(0.03), "z": np.uint8(100)}, {"x": 3 * rng((3, 4))}),
    ("a convolution of whole numbers",
     "(uint8[1, 2, 5, 5] x) => (uint8[1, 3, 3, 3] y) { y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b) }", 18,
     {"sx": np.float32(0.02), "zx": np.uint8(9), "w": rng((3, 2, 3, 3), 1, "int8", -90, 90), "sw": np.array([0.01, 0.02, 0.03], np.float32),
      "zw": np.zeros(3, np.int8), "sy": np.float32(0.4), "zy": np.uint8(120), "b": rng(3, 3, "int32", -900, 900)},
     {"x": rng((1, 2, 5, 5), 2, "uint8", 0, 255)}),
    ("a one-sided transform", "(float[2, 10, 1] x) => (float[2, 6, 2] y) { y = DFT<axis=1, onesided=1>(x) }", 18, {},
     {"x": rng((2, 10, 1))}),
    ("frames of a signal", "(float[1, 40, 1] x) => (float[1, 4, 9, 2] y) { y = STFT(x, n, w) }", 18,
     {"n": np.array(8), "w": np.hanning(16).astype("float32")}, {"x": rng((1, 40, 1))}),
    ("columns that become an image", "(float[2, 8, 9] x) => (float[2, 2, 4, 4] y) { y = Col2Im(x, i, b) }", 18,
     {"i": np.array([4, 4]), "b": np.array([2, 2])}, {"x": rng((2, 8, 9))}),
    ("rounds of a loop", ("(float[3] x) => (float[3] y, float[4, 3] z) { y, z = Loop(n, c, x)<body = b (int64 i, bool g, float[3] s) => "
     "(bool k, float[3] t, float[3] u) { k = Identity(g) t = Mul(s, two) u = Add(t, x) }> }"), 18,
     {"n": np.array(4), "c": np.array(True), "two": np.float32(2)}, {"x": rng(3)}),
    ("rounds of a scan, backwards", ("(float[2] a, float[5, 2] x) => (float[2] y, float[5, 2] z) { y, z = Scan<num_scan_inputs=1, "
     "scan_input_directions=[1], body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) { t = Add(s, e) u = Neg(t) }>(a, x) }"), 18,
     {},
     {"a": rng(2), "x": rng((5, 2))}),
    ("the other end beside it", "(float[2, 3] x) => (float[2, 6] y) { y = Pad<mode=\"wrap\">(x, p) }", 19, {"p": np.array([0, 1, 0, 2])},
     {"x": rng((2, 3))}),
    ("parts without elements", f"({SMALL}) => (float[2, 3, 4] y) {{ a, b = Split<axis=2>(x, s) y = Concat<axis=2>(b, a) }}", 18,
     {"s": np.array([4, 0])}, {"x": rng((2, 3, 4))}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "opset", "values", "feeds"), of_today([pytest.param(*c[1:], id=c[0]) for c in CASES], 3))
def test_an_operator_computes_what_onnx_defines(text, opset, values, feeds, tmp_path):
    model = graph(text, opset, values)
    made = imported(model, tmp_path, fixed=True)
    backwards = "directions" in text  # which ONNX's own evaluator does not know
    theirs = (onnxruntime.InferenceSession(model.SerializeToString()) if backwards else ReferenceEvaluator(model)).run(None, feeds)
    for mine, other in zip(computed(made, tmp_path / "made", feeds), theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "opset", "also"), [("bicubic", 16, "cubic"), ("bilinear", 16, "linear"), ("cubic", 20, "cubic")])
def test_grid_sample_has_its_names_of_each_opset(mode, opset, also, tmp_path):
    def model(name, version):
        node = f'GridSample<mode="{name}", padding_mode="border">(x, g)'
        return graph(f"(float[1, 2, 4, 5] x, float[1, 3, 2, 2] g) => (float[1, 2, 3, 2] y) {{ y = {node} }}", version, {})

    feeds = {"x": rng((1, 2, 4, 5)), "g": rng((1, 3, 2, 2), 3)}
    (mine,) = computed(imported(model(mode, opset), tmp_path, fixed=True), tmp_path / "made", feeds)
    np.testing.assert_allclose(mine, ReferenceEvaluator(model(also, 20)).run(None, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rounds", "says"), [(10**9, "are more than 2,000 nodes"), (None, "says whether another round comes")], ids=["too many", "computed"],
)  # fmt: skip
def test_a_loop_whose_rounds_cannot_be_written_out_is_refused(rounds, says, tmp_path):
    told = [helper.make_node("ReduceMax", ["s"], ["m"], keepdims=0), helper.make_node("Greater", ["m", "zero"], ["k"])]
    told = [helper.make_node("Identity", ["g"], ["k"])] if rounds else told
    info = helper.make_tensor_value_info
    inputs = [info("i", TensorProto.INT64, []), info("g", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, [3])]
    outputs = [info("k", TensorProto.BOOL, []), info("t", TensorProto.FLOAT, [3])]
    body = helper.make_graph([*told, helper.make_node("Neg", ["s"], ["t"])], "b", inputs, outputs)
    node = helper.make_node("Loop", ["n" if rounds else "", "c", "x"], ["y"], body=body)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    held = [numpy_helper.from_array(np.array(a), n) for n, a in (("n", rounds or 1), ("c", True), ("zero", np.float32(0)))]
    made = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])], held)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    with pytest.raises(PeError, match=says) as caught:
        read_model(ImportWish(tmp_path / "m.onnx", fixed=True))
    assert caught.value.code == ExitCode.DATA
