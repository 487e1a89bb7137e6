"""Sequences in a graph: where lengths are known they are no values, and what is computed of their items is what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pe_cli.core.errors import PeError
from tests.session.importing.test_onnx import computed, drawn, graph, imported

W = drawn((4, 3), 1)
ONE, TWO, BACK = "Constant<value = int64 {1}>()", "Constant<value = int64 {2}>()", "Constant<value = int64 {-1}>()"
GRAPHS = [
    pytest.param(
        f"s = SplitToSequence<axis=1>(x, two) at = {BACK} a = SequenceAt(s, at) y = Tanh(a)", {"two": np.array(3)}, id="the last part",
    ),
    pytest.param(
        f"s = SplitToSequence<axis=1>(x, two) at = {ONE} a = SequenceAt(s, at) y = Tanh(a)", {"two": np.array([1, 4, 1])},
        id="parts of a size each",
    ),
    pytest.param(
        f"s = SplitToSequence<axis=1, keepdims=0>(x) at = {TWO} a = SequenceAt(s, at) b = Tanh(a) t = SequenceInsert(s, b) "
        "y = ConcatFromSequence<axis=1, new_axis=1>(t)", {}, id="places along an axis, and one more beside them",
    ),
    pytest.param(
        f"a = Tanh(x) b = Neg(x) s = SequenceConstruct(a, b, x) at = {ONE} t = SequenceErase(s, at) "
        "y = ConcatFromSequence<axis=-1>(t)", {}, id="what is put together, without one",
    ),
    pytest.param(
        "a = Tanh(x) b = Neg(x) e = SequenceEmpty() s = SequenceInsert(e, a) at = Constant<value = int64 {0}>() "
        "t = SequenceInsert(s, b, at) "
        "y = ConcatFromSequence<axis=-2, new_axis=1>(t)", {}, id="one before another",
    ),
    pytest.param(
        "s = SplitToSequence<axis=1>(x, two) n = SequenceLength(s) f = CastLike(n, x) y = Mul(x, f)", {"two": np.array(2)},
        id="how many there are",
    ),
    pytest.param(
        "s = SplitToSequence<axis=0>(w, two) at = Constant<value = int64 {1}>() v = SequenceAt(s, at) t = Tanh(x) "
        "p = Slice(t, zero, three, axes) y = Add(p, v)",
        {"w": drawn((2, 3), 5), "two": np.array([1, 1]), "zero": np.array([0]), "three": np.array([3]), "axes": np.array([1])},
        id="rows of a parameter",
    ),
    pytest.param(
        "s = SplitToSequence<axis=1>(x, two) n = SequenceLength(s) e = SequenceEmpty() c = Constant<value = bool {1}>() "
        "t = Loop(n, c, e)<body = b (int64 i, bool go, seq(float[N, 2]) so) => (bool on, seq(float[N, 2]) more) { on = Identity(go) "
        "p = SequenceAt(s, i) q = Sigmoid(p) more = SequenceInsert(so, q) }> y = ConcatFromSequence<axis=1>(t)", {"two": np.array(2)},
        id="a loop over parts, as PyTorch writes one",
    ),
    pytest.param(
        "s = SplitToSequence<axis=1>(x, two) t = SequenceMap(s)<body = b (float[N, 3] p) => (float[N, 3] q) { q = Sigmoid(p) }> "
        "y = ConcatFromSequence<axis=1>(t)", {"two": np.array(3)}, id="something of each",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "values"), GRAPHS)
def test_items_are_what_is_computed(body: str, values: dict[str, np.ndarray], tmp_path: Path) -> None:
    model = graph(f"(float[N, 6] x) => (float y) {{ {body} }}", **values)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    made, x = imported(model, tmp_path), drawn((3, 6), 9)
    (other,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (mine,) = computed(made, tmp_path / "made", {"x": x})
    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_a_parameter_of_which_parts_are_read_is_trained(tmp_path: Path) -> None:
    text = f"(float[N, 4] x) => (float[N, 3] y) {{ s = SplitToSequence<axis=0>(w, two) at = {ONE} v = SequenceAt(s, at) y = MatMul(x, v) }}"
    made = imported(graph(text, w=drawn((8, 3), 2), two=np.array(4)), tmp_path)
    assert made.arrays["w"].shape == (8, 3)
    assert "w" in str(made.layers)
    assert "trainable" not in str(made.layers)


@pytest.mark.parametrize(("body", "said"), [
    pytest.param(f"s = SplitToSequence<axis=1>(x, k) at = {TWO} a = SequenceAt(s, at) y = Tanh(a)", "names item 2 of 2", id="no such item"),
    pytest.param(
        f"t = Transpose<perm=[1, 0]>(x) s = SplitToSequence<axis=1>(t, k) at = {ONE} a = SequenceAt(s, at) y = Tanh(a)",
        "cuts an axis whose size is not known", id="parts of the batch",
    ),
    pytest.param("s = SplitToSequence<axis=1>(x, x) n = SequenceLength(s) y = CastLike(n, x)", "constant", id="computed sizes"),
    pytest.param("s = SequenceConstruct(x, x) a = Identity(s) y = Tanh(a)", "a sequence of 2 values", id="a sequence for a value"),
    pytest.param(f"at = {ONE} y = SequenceAt(x, at)", "it reads a sequence", id="a value in the place of a sequence"),
    pytest.param("e = SequenceEmpty() y = ConcatFromSequence<axis=0>(e)", "it joins no values", id="nothing to join"),
])  # fmt: skip
def test_what_is_no_sequence_of_a_known_length_is_refused(body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PeError, match=said):
        imported(graph(f"(float[N, 6] x) => (float[N, 6] y) {{ {body} }}", k=np.array(3)), tmp_path)
