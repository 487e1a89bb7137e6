"""Cross entropies against closed forms, SciPy and torch; ignored, soft and wrong labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.backward import gradients
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

SWCE = "softmax_with_cross_entropy"
SIGMOID = "sigmoid_cross_entropy_with_logits"


def ints(*values):
    return np.array(values, np.int64)


class TestSoftmaxWithCrossEntropy:
    @pytest.mark.parametrize(
        ("logits", "label", "loss"),
        [
            pytest.param([[0, 0]], 1, np.log(2), id="equal logits cost ln 2"),
            pytest.param([[0, np.log(3)]], 1, np.log(4 / 3), id="odds of three to one cost ln 4/3"),
            pytest.param([[1000, 0]], 1, 1000, id="a certain mistake costs its margin"),
            pytest.param([[1e6, 0]], 0, 0, id="a certain hit costs nothing"),
            pytest.param([[-1e6, -1e6]], 0, np.log(2), id="very negative logits do not underflow"),
        ],
    )
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_values(self, logits, label, loss, dtype):
        out = run_op(SWCE, {"Logits": np.array(logits, dtype), "Label": ints([label])})
        np.testing.assert_allclose(out["Loss"], [[loss]], rtol=1e-6)

    def test_hard_labels_agree_with_torch(self, rng):
        x, label = rng.standard_normal((6, 11)) * 4, rng.integers(0, 11, (6, 1))
        label[2] = -100
        up = rng.standard_normal((6, 1))
        t = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(t, torch.tensor(label[:, 0]), reduction="none")
        loss.backward(torch.tensor(up[:, 0]))
        given = {"Logits": x, "Label": label}
        found = run_op(SWCE, given)
        np.testing.assert_allclose(found["Loss"][:, 0], loss.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(found["Softmax"], special.softmax(x, -1), rtol=1e-12)
        np.testing.assert_allclose(run_gradient(SWCE, given, None, "Loss", up)["Logits"], t.grad.numpy(), atol=1e-14)

    @pytest.mark.parametrize("axis", [1, 2])
    @pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
    def test_other_axes_agree_with_torch(self, rng, axis, soft):
        x = rng.standard_normal((3, 5, 4))
        first = np.moveaxis(x, axis, 1)
        if soft:
            label = special.softmax(rng.standard_normal(x.shape), axis)
            target = torch.tensor(np.moveaxis(label, axis, 1))
        else:
            shape = (3, 1, 4) if axis == 1 else (3, 5, 1)
            label = rng.integers(0, x.shape[axis], shape)
            target = torch.tensor(np.squeeze(label, axis))
        loss = torch.nn.functional.cross_entropy(torch.tensor(first), target, reduction="none").numpy()
        found = run_op(SWCE, {"Logits": x, "Label": label}, {"axis": axis, "soft_label": soft})["Loss"]
        np.testing.assert_allclose(np.squeeze(found, axis), loss, rtol=1e-12)

    def test_an_ignored_row_has_loss_0_and_gradient_0_even_next_to_nan(self, rng):
        x = rng.standard_normal((3, 4))
        x[1] = np.nan
        given = {"Logits": x, "Label": ints([1], [7], [2])}
        out = run_op(SWCE, given, {"ignore_index": 7})
        assert out["Loss"][1, 0] == 0
        gradient = run_gradient(SWCE, given, {"ignore_index": 7}, "Loss")["Logits"]
        assert np.array_equal(gradient[1], np.zeros(4))
        assert np.isfinite(gradient).all()

    def test_soft_labels_that_name_one_class_are_hard_labels(self, rng):
        x, label = rng.standard_normal((5, 4)), rng.integers(0, 4, (5, 1))
        hard, soft = {"Logits": x, "Label": label}, {"Logits": x, "Label": np.eye(4)[label[:, 0]]}
        yes = {"soft_label": True}
        np.testing.assert_allclose(run_op(SWCE, soft, yes)["Loss"], run_op(SWCE, hard)["Loss"], rtol=1e-12)
        a, b = run_gradient(SWCE, soft, yes, "Loss"), run_gradient(SWCE, hard, None, "Loss")
        np.testing.assert_allclose(a["Logits"], b["Logits"], atol=1e-14)

    @pytest.mark.parametrize("both", [False, True], ids=["alone", "together with the loss"])
    def test_a_gradient_through_the_probabilities_counts(self, rng, both):
        x, label, up = rng.standard_normal((5, 4)), rng.integers(0, 4, (5, 1)), rng.standard_normal((5, 4))
        program = Program()
        block = program.global_block()
        arrays = {"x": x, "label": label, "up": up, "one": np.ones((5, 1))}
        for name, a in arrays.items():
            block.create_var(name, TensorType(a.shape, str(a.dtype)), persistable=True)
        block.append_op(SWCE, {"Logits": "x", "Label": "label"}, {"Loss": "loss", "Softmax": "p"})
        targets, starts = (["loss", "p"], ["one", "up"]) if both else (["p"], ["up"])
        (g,) = gradients([block.var(n) for n in targets], [block.var("x")], [block.var(n) for n in starts])
        scope = Scope([Place()])
        executor = Executor(program, scope)
        for name, a in arrays.items():
            scope.set(name, a)
        values = executor.run({}, [g.name]).values
        t = torch.tensor(x, requires_grad=True)
        total = (torch.softmax(t, -1) * torch.tensor(up)).sum()
        if both:
            total = total + torch.nn.functional.cross_entropy(t, torch.tensor(label[:, 0]), reduction="sum")
        total.backward()
        np.testing.assert_allclose(values[0][g.name], t.grad.numpy(), atol=1e-14)

    def test_a_label_without_the_class_axis_is_taken_too(self, rng):
        x = rng.standard_normal((3, 4))
        a, b = (run_op(SWCE, {"Logits": x, "Label": label})["Loss"] for label in (ints(1, 0, 3), ints([1], [0], [3])))
        assert np.array_equal(a, b)


class TestCrossEntropy:
    def test_hard_labels_are_the_negative_logarithm(self, rng):
        p = special.softmax(rng.standard_normal((4, 6)), -1)
        label = ints([5], [0], [-100], [2])
        found = run_op("cross_entropy", {"X": p, "Label": label})
        expected = -np.log(p[np.arange(4), label[:, 0] % 6])
        expected[2] = 0
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-13)
        gradient = run_gradient("cross_entropy", {"X": p, "Label": label})["X"]
        dense = np.zeros((4, 6))
        for r in (0, 1, 3):
            dense[r, label[r, 0]] = -1 / p[r, label[r, 0]]
        np.testing.assert_allclose(gradient, dense, rtol=1e-13)

    def test_soft_labels_are_a_weighted_sum(self, rng):
        p, q = (special.softmax(rng.standard_normal((4, 6)), -1) for _ in range(2))
        found = run_op("cross_entropy", {"X": p, "Label": q}, {"soft_label": True})
        np.testing.assert_allclose(found[:, 0], -(q * np.log(p)).sum(-1), rtol=1e-13)

    def test_impossible_hits_cost_1e20_and_impossible_misses_nothing(self):
        p = np.array([[0.0, 1.0]])
        assert run_op("cross_entropy", {"X": p, "Label": ints([0])})[0, 0] == 1e20
        assert run_op("cross_entropy", {"X": p, "Label": np.array([[0.0, 1.0]])}, {"soft_label": True})[0, 0] == 0


class TestWrongLabels:
    @pytest.mark.parametrize("value", [10, -1, 2**40])
    @pytest.mark.parametrize(
        ("name", "slot", "shape", "attrs"),
        [
            pytest.param("cross_entropy", "X", (4, 10), {}, id="probabilities"),
            pytest.param(SWCE, "Logits", (4, 10), {}, id="logits"),
            pytest.param(SWCE, "Logits", (4, 10, 2), {"axis": 1}, id="logits with the classes in the middle"),
        ],
    )
    def test_a_label_out_of_range_is_named_with_row_and_limit(self, name, slot, shape, attrs, value):
        label = np.zeros((*shape[:1], 1, *shape[2:]), np.int64)
        label[3].flat[-1] = value
        with pytest.raises(PeError, match=rf"{name}: value {value} at row 3 is out of range \[0, 10\)") as raised:
            run_op(name, {slot: np.full(shape, 0.1), "Label": label}, attrs)
        assert raised.value.code is ExitCode.DATA

    def test_the_row_is_the_one_of_the_whole_batch_on_several_devices(self):
        program = Program()
        block = program.global_block()
        block.create_var("x", TensorType((-1, 3)), is_data=True)
        block.create_var("label", TensorType((-1, 1), "int64"), is_data=True)
        block.append_op(SWCE, {"Logits": "x", "Label": "label"}, {"Loss": "loss", "Softmax": "p"})
        executor = Executor(program, Scope([Place("cpu", 0), Place("cpu", 1)]))
        label = np.zeros((8, 1), np.int64)
        label[6] = 3
        with pytest.raises(PeError, match="value 3 at row 6") as raised:
            executor.run({"x": np.zeros((8, 3), np.float32), "label": label}, ["loss"])
        assert raised.value.code is ExitCode.DATA

    @pytest.mark.parametrize(
        ("label", "text"),
        [
            pytest.param(np.zeros((4, 3)), "int64", id="soft labels without soft_label"),
            pytest.param(np.zeros((4, 2), np.int64), "one class number per row", id="two labels a row"),
            pytest.param(np.zeros((5, 1), np.int64), "one class number per row", id="another batch"),
            pytest.param(np.zeros((4, 1), np.int32), "cast it to int64", id="int32"),
        ],
    )
    def test_labels_of_another_type_are_refused(self, label, text):
        with pytest.raises(PeError, match=text):
            run_op(SWCE, {"Logits": np.zeros((4, 3)), "Label": label})


class TestSigmoid:
    def test_agrees_with_torch(self, rng):
        x, z = rng.standard_normal((5, 6)) * 10, rng.random((5, 6))
        t = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(t, torch.tensor(z), reduction="none")
        loss.sum().backward()
        given = {"X": x, "Label": z}
        np.testing.assert_allclose(run_op(SIGMOID, given), loss.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(run_gradient(SIGMOID, given)["X"], t.grad.numpy(), atol=1e-14)

    @pytest.mark.parametrize(("x", "label", "loss"), [(1e4, 1, 0), (1e4, 0, 1e4), (-1e4, 1, 1e4), (0, 1, np.log(2))])
    def test_large_logits_cost_their_size(self, x, label, loss):
        found = run_op(SIGMOID, {"X": np.array([x], np.float32), "Label": np.array([label], np.float32)})
        np.testing.assert_allclose(found, [loss], rtol=1e-6)

    def test_ignored_labels_cost_nothing_and_normalize_divides_by_the_others(self):
        x, label = np.zeros(4), np.array([1.0, -1.0, 0.0, -1.0])
        plain = run_op(SIGMOID, {"X": x, "Label": label}, {"ignore_index": -1})
        np.testing.assert_allclose(plain, np.log(2) * np.array([1, 0, 1, 0]))
        shared = {"ignore_index": -1, "normalize": True}
        np.testing.assert_allclose(run_op(SIGMOID, {"X": x, "Label": label}, shared), plain / 2)
        np.testing.assert_allclose(run_gradient(SIGMOID, {"X": x, "Label": label}, shared)["X"], [-0.25, 0, 0.25, 0])


def test_bce_loss_agrees_with_torch_also_where_it_is_certain(rng):
    x, z = rng.random(20), rng.integers(0, 2, 20).astype(float)
    x[:4], z[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
    expected = torch.nn.functional.binary_cross_entropy(torch.tensor(x), torch.tensor(z), reduction="none").numpy()
    np.testing.assert_allclose(run_op("bce_loss", {"X": x, "Label": z}), expected, rtol=1e-12)


def test_log_loss_is_its_formula(rng):
    x, z = rng.random((9, 1)), rng.integers(0, 2, (9, 1)).astype(float)
    for epsilon in (1e-4, 0.1):
        expected = -z * np.log(x + epsilon) - (1 - z) * np.log(1 - x + epsilon)
        found = run_op("log_loss", {"Predicted": x, "Labels": z}, {"epsilon": epsilon})
        np.testing.assert_allclose(found, expected, rtol=1e-13)
