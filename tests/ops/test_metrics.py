"""Ranking and counting against NumPy and torch; ties, NaN and classes out of range."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from tests.ops.support import run_gradient, run_op

NAN = np.nan


class TestTopK:
    @pytest.mark.parametrize(
        ("x", "k", "values", "indices"),
        [
            pytest.param([3, 1, 2], 2, [3, 2], [0, 2], id="the two largest in falling order"),
            pytest.param([1, 2, 2, 1], 3, [2, 2, 1], [1, 2, 0], id="ties by first place"),
            pytest.param([1, NAN, 3, NAN], 3, [NAN, NAN, 3], [1, 3, 2], id="NaN ranks above every number"),
            pytest.param([-np.inf, -np.inf], 1, [-np.inf], [0], id="minus infinity is a number"),
            pytest.param([NAN, 1], 2, [NAN, 1], [0, 1], id="NaN first stays first"),
        ],
    )
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_values(self, x, k, values, indices, dtype):
        found = run_op("top_k", {"X": np.array([x], dtype)}, {"k": k})
        np.testing.assert_array_equal(found["Out"], [values])
        np.testing.assert_array_equal(found["Indices"], [indices])

    @pytest.mark.parametrize("k", [1, 5, 100])
    def test_agrees_with_a_stable_sort(self, rng, k):
        x = rng.integers(0, 30, (2, 3, 100)).astype(np.float32)
        order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        found = run_op("top_k", {"X": x}, {"k": k})
        np.testing.assert_array_equal(found["Indices"], order)
        np.testing.assert_array_equal(found["Out"], np.take_along_axis(x, order, -1))

    def test_the_gradient_goes_where_the_values_came_from(self):
        gradient = run_gradient("top_k", {"X": np.array([[1.0, 3.0, 2.0]])}, {"k": 2}, "Out", np.array([[10.0, 20.0]]))
        np.testing.assert_array_equal(gradient["X"], [[0, 10, 20]])

    @pytest.mark.parametrize("k", [0, 4])
    def test_a_k_that_does_not_fit_is_refused(self, k):
        with pytest.raises(PeError, match=f"got k {k}"):
            run_op("top_k", {"X": np.ones((2, 3))}, {"k": k})


@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
class TestPlaces:
    @pytest.mark.parametrize("axis", [0, 1, 2, -1])
    @pytest.mark.parametrize("keep", [False, True])
    def test_agrees_with_numpy(self, name, axis, keep, rng):
        x = rng.integers(0, 5, (4, 5, 6)).astype(np.float64)
        x[1, 2, 3] = x[0, 0, 0] = NAN
        expected = getattr(np, name.replace("_", ""))(x, axis, keepdims=keep)
        np.testing.assert_array_equal(run_op(name, {"X": x}, {"axis": axis, "keepdims": keep}), expected)

    def test_a_vector_gives_one_place(self, name):
        assert run_op(name, {"X": np.array([2.0, 2.0])}).tolist() == [0]


class TestOneHot:
    @pytest.mark.parametrize("shape", [(4, 1), (4,)], ids=["a column", "a vector"])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_values(self, shape, dtype):
        x = np.array([2, 0, 1, 2], np.int64)
        found = run_op("one_hot", {"X": x.reshape(shape)}, {"depth": 3, "dtype": dtype})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.eye(3)[x])

    def test_a_class_out_of_range_is_named(self):
        with pytest.raises(PeError, match=r"one_hot: value 3 at row 1 is out of range \[0, 3\)") as raised:
            run_op("one_hot", {"X": np.array([[0], [3]], np.int64)}, {"depth": 3})
        assert raised.value.code is ExitCode.DATA

    def test_a_class_out_of_range_gives_zeros_where_that_is_allowed(self):
        found = run_op("one_hot", {"X": np.array([[-1], [1]], np.int64)}, {"depth": 2, "allow_out_of_range": True})
        np.testing.assert_array_equal(found, [[0, 0], [0, 1]])


class TestAccuracy:
    def test_a_label_among_the_best_k_is_right(self):
        indices = np.array([[0, 1], [2, 3], [1, 0]], np.int64)
        found = run_op("accuracy", {"Out": np.zeros((3, 2)), "Indices": indices, "Label": np.array([[1], [0], [1]])})
        assert found["Accuracy"] == pytest.approx(2 / 3)
        assert found["Correct"].tolist() == [2]
        assert found["Total"].tolist() == [3]

    def test_it_is_top_ks_accuracy(self, rng):
        x, label = rng.standard_normal((200, 10)).astype(np.float32), rng.integers(0, 10, (200, 1))
        best = run_op("top_k", {"X": x})
        found = run_op("accuracy", {"Out": best["Out"], "Indices": best["Indices"], "Label": label})
        assert found["Accuracy"][0] == pytest.approx((x.argmax(1) == label[:, 0]).mean())
        assert found["Accuracy"].dtype == np.float32

    def test_labels_of_another_shape_are_refused(self):
        given = {"Out": np.zeros((3, 2)), "Indices": np.zeros((3, 2), np.int64), "Label": np.zeros(3, np.int64)}
        with pytest.raises(PeError, match=r"Label \[batch, 1\]"):
            run_op("accuracy", given)
