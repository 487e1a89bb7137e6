"""Forms of the original's layers and optimizers that scripts use more rarely, against NumPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers

def fed(name, array, **given):
    return fluid.data(name, list(array.shape), str(array.dtype), **given)


def run(*fetches, start=False, **feed):
    exe = fluid.Executor(fluid.CPUPlace())
    if start:
        exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(feed=feed, fetch_list=list(fetches))]


def test_indices_masks_and_axes_that_only_a_step_knows(rng):
    a, one, n = rng.standard_normal((3, 4, 5)).astype("float32"), np.array([1], "int32"), np.array([1, 3], "int64")
    x, i, lengths = fed("x", a), fed("i", one), fed("n", n)
    found = run(x[i], x[:, i], x[i, 0], x[:, i:, ::2], L.unsqueeze(x, 1), L.sequence_mask(lengths, i), x=a, i=one, n=n)
    right = [a[1], a[:, 1], a[1, 0], a[:, 1:, ::2], a[:, None], [[1], [1]]]
    for got, wanted in zip(found, right, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_whole_numbers_are_scattered_and_looked_for():
    a, i, u = np.arange(8).reshape(4, 2), np.array([3, 1]), np.array([[5, 6], [7, 8]])
    x, index, rows = fed("x", a), fed("i", i), fed("u", u)
    written, added, there = run(L.scatter(x, index, rows), L.scatter_nd_add(x, L.unsqueeze(index, [1]), rows), L.where(x), x=a, i=i, u=u)
    right = a.copy()
    right[i] = u
    np.testing.assert_array_equal(written, right)
    right = a.copy()
    right[i] += u
    np.testing.assert_array_equal(added, right)
    np.testing.assert_array_equal(there, np.argwhere(a))


def test_kron_of_tensors_with_other_numbers_of_axes(rng):
    a, b = rng.standard_normal((2, 3)).astype("float32"), rng.standard_normal(4).astype("float32")
    x, y = fed("x", a), fed("y", b)
    for got, wanted in zip(run(L.kron(x, y), L.kron(y, x), x=a, y=b), (np.kron(a, b), np.kron(b, a)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("value", [1.0, 3.0])
def test_a_branch_may_return_what_it_does_not_touch(value):
    a = np.array([value], "float32")
    x, two = fed("x", a), L.fill_constant([1], "float32", 2.0)
    found = run(*L.cond(x > two, lambda: (x, two), lambda: (two, x)), x=a)
    assert [float(v[0]) for v in found] == sorted([value, 2.0], reverse=True)


def test_ftrl_takes_l1_for_both_weights():
    w = L.create_parameter([1], "float32", name="w", default_initializer=fluid.initializer.Constant(0.5))
    g = np.array([0.3], "float32")
    fluid.optimizer.Ftrl(0.1, l1=0.01, l2=7.0).minimize(L.reduce_sum(w * fed("x", g)))
    run(start=True, x=g)
    linear = 0.3 - 0.3 / 0.1 * 0.5
    found = np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(found, (-0.01 - linear) / (0.3 / 0.1 + 2 * 0.01), rtol=1e-5)


def _table(make, **given):
    """Return a table after two steps of an optimizer."""
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ids = np.array([[1], [4], [1]])
        rows = L.embedding(fed("i", ids), [5, 2], param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5)), **given)
        make().minimize(L.mean(L.square(rows)))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        for _ in range(2):
            exe.run(feed={"i": ids})
        return np.array(fluid.global_scope().find_var("embedding_0.w_0").get_tensor())


@pytest.mark.parametrize("kind", ["RMSProp", "Lamb"])
def test_optimizers_of_whole_gradients_take_sparse_tables(kind):
    def make():
        return getattr(fluid.optimizer, kind)(0.1)

    np.testing.assert_array_equal(_table(make, is_sparse=True), _table(make))


@pytest.mark.parametrize("classes", [2, 6, 8, 50])
def test_steps_that_a_path_lacks_count_as_undecided_questions(classes):
    """Every question that nothing is known of costs ln 2, and as in PaddlePaddle so does every step to the depth of the tree."""
    labels = np.arange(classes, dtype="int64").reshape(-1, 1)
    costs = L.hsigmoid(fed("x", np.zeros((classes, 3), "float32")), fed("y", labels), classes, bias_attr=False)
    (found,) = run(costs, start=True, x=np.zeros((classes, 3), "float32"), y=labels)
    np.testing.assert_allclose(found, np.full((classes, 1), (classes - 1).bit_length() * np.log(2)), rtol=1e-6)
    assert costs.name == "hierarchical_sigmoid_0.tmp_0"


def test_steps_that_a_path_of_ones_own_lacks_count_too():
    table, code = np.array([[0, -1, -1], [0, 2, 1]]), np.array([[0, 0, 0], [1, 0, 1]])
    a, y = np.zeros((2, 3), "float32"), np.zeros((2, 1), "int64")
    costs = L.hsigmoid(fed("x", a), fed("y", y), 5, path_table=fed("t", table), path_code=fed("c", code), is_custom=True)
    (found,) = run(costs, start=True, x=a, y=y, t=table, c=code)
    np.testing.assert_allclose(found, np.full((2, 1), 3 * np.log(2)), rtol=1e-6)


def test_questions_off_the_paths_stay_where_gradients_are_sparse(rng):
    table, code = np.array([[0, 1, -1], [0, 2, 1]]), np.array([[0, 1, 0], [1, 0, 1]])
    a, y = rng.standard_normal((2, 3)).astype("float32"), np.zeros((2, 1), "int64")
    x, label, t, c = fed("x", a), fed("y", y), fed("t", table), fed("c", code)
    x.stop_gradient = False
    paths = {"path_table": t, "path_code": c, "is_custom": True}
    whole = L.hsigmoid(x, label, 5, fluid.ParamAttr(name="w"), fluid.ParamAttr(name="b"), **paths)
    part = L.hsigmoid(x, label, 5, fluid.ParamAttr(name="w"), fluid.ParamAttr(name="b"), is_sparse=True, **paths)
    slopes = [fluid.gradients(L.reduce_sum(v), x)[0] for v in (whole, part)]
    feed = {"x": a, "y": y, "t": table, "c": code}
    one, two, g, h = run(whole, part, *slopes, start=True, **feed)
    np.testing.assert_allclose(two, one, rtol=1e-5)
    np.testing.assert_allclose(h, g, rtol=1e-5, atol=1e-6)
    fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(L.mean(part))
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(fluid.default_startup_program())
    before = np.array(scope.find_var("w").get_tensor())
    exe.run(feed=feed)
    moved = (np.array(scope.find_var("w").get_tensor()) != before).any(1)
    assert moved.tolist() == [True, True, True, False, False]
