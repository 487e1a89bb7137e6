"""SSD's loss, DetectionMAP and thinned-out detections as scripts of the original call them."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.needs import torch

L = fluid.layers


def lod(array, lengths, dtype="float32"):
    return fluid.create_lod_tensor(np.asarray(array, dtype), [lengths], fluid.CPUPlace())


def boxes(rng, n):
    low = rng.uniform(0, 0.6, (n, 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.4, (n, 2))], 1).astype("float32")


@pytest.mark.parametrize("normalize", [True, False])
def test_ssd_loss_and_its_gradient(normalize):
    rng = np.random.default_rng(2)
    priors = boxes(rng, 8)
    true = priors[[1, 4, 6]] + 0.01
    where, scores = rng.standard_normal((2, 8, 4)).astype("float32"), rng.standard_normal((2, 8, 3)).astype("float32")
    variables = [fluid.data("l", [None, 8, 4]), fluid.data("c", [None, 8, 3])]
    given = [fluid.data("g", [None, 4], lod_level=1), fluid.data("y", [None, 1], "int32", lod_level=1), fluid.data("p", [8, 4])]
    for v in variables:
        v.stop_gradient = False
    loss = L.ssd_loss(*variables, *given, neg_overlap=2.0, overlap_threshold=0.99, loc_loss_weight=0.5, normalize=normalize)
    gradients = fluid.gradients([L.reduce_sum(loss)], variables)
    feed = {"l": where, "c": scores, "g": lod(true, [1, 2]), "y": lod([[1], [2], [1]], [1, 2], "int32"), "p": priors}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss, *gradients])

    l, c = (torch.tensor(v, requires_grad=True) for v in (where, scores))  # noqa: E741
    total = []
    for i, (rows, labels) in enumerate([([1], [1]), ([4, 6], [2, 1])]):
        target = torch.zeros(8, dtype=torch.int64)
        target[rows] = torch.tensor(labels)
        each = torch.nn.functional.cross_entropy(c[i], target, reduction="none")
        free = [k for k in range(8) if k not in rows]
        losses = each.detach().tolist()
        worst = sorted(free, key=lambda k, losses=losses: -losses[k])[: 3 * len(rows)]
        sizes, own = torch.tensor(priors[rows][:, 2:] - priors[rows][:, :2]), torch.tensor(np.array([[0.01, 0.01]], "float32"))
        code = torch.cat([own / sizes, torch.zeros_like(sizes)], 1)
        near = torch.nn.functional.smooth_l1_loss(l[i, rows], code, reduction="sum")
        total.append(each[rows + worst].sum() + 0.5 * near)
    expected = torch.stack(total) / (3 if normalize else 1)
    expected.sum().backward()
    np.testing.assert_allclose(found[0].ravel(), expected.detach(), rtol=1e-4)
    np.testing.assert_allclose(found[1], l.grad, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found[2], c.grad, rtol=1e-3, atol=1e-5)


def test_map_adds_up_over_batches_until_reset():
    d = fluid.data("d", [None, 6], lod_level=1)
    label, box = fluid.data("y", [None, 1], lod_level=1), fluid.data("b", [None, 4], lod_level=1)
    measure = fluid.metrics.DetectionMAP(d, label, box, class_num=2)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())

    def step(shift):
        feed = {"d": lod([[1, 0.9 - shift, shift, 0, 1, 1]], [1]), "y": lod([[1]], [1]), "b": lod([[0, 0, 1, 1]], [1])}
        return [float(v[0]) for v in exe.run(feed=feed, fetch_list=list(measure.get_map_var()))]

    assert step(0.0) == [1, 1]
    assert step(0.8) == [0, 0.5]
    assert step(0.0) == pytest.approx([1, 2 / 3])
    measure.reset(exe)
    assert step(0.8) == [0, 0]


def test_thinned_out_detections_have_a_sequence_for_each_image():
    b, s = fluid.data("b", [None, 3, 4]), fluid.data("s", [None, 2, 3])
    out = L.multiclass_nms(b, s, 0.5, -1, -1)
    values = {"b": np.array([[[0, 0, 1, 1], [0, 0, 0.9, 1], [2, 2, 3, 3]]] * 2, "float32"), "s": np.full((2, 2, 3), 0.9, "float32")}
    values["s"][1] = 0
    same, places = fluid.contrib.layers.multiclass_nms2(b, s, 0.5, -1, -1, return_index=True)
    found, again, index = fluid.Executor(fluid.CPUPlace()).run(feed=values, fetch_list=[out, same, places], return_numpy=False)
    assert found.lod() == again.lod() == index.lod() == [[0, 2, 2]]
    np.testing.assert_allclose(np.array(found)[:, 2:], values["b"][0, [0, 2]])
    np.testing.assert_allclose(np.array(again), np.array(found))
    assert np.array(index).tolist() == [[0], [2]]
    with pytest.raises(ValueError, match="multiclass_nms"):
        fluid.contrib.layers.multiclass_nms2(s, s, 0.5, -1, -1)


def test_settings_that_cannot_act():
    given = [fluid.data("l", [None, 8, 4]), fluid.data("c", [None, 8, 3]), fluid.data("g", [None, 4], lod_level=1)]
    given += [fluid.data("y", [None, 1], "int32", lod_level=1), fluid.data("p", [8, 4])]
    with pytest.raises(Exception, match="mining_type"):
        L.ssd_loss(*given, mining_type="hard_example")
    with pytest.raises(ValueError, match="class_num"):
        fluid.metrics.DetectionMAP(*given[2:])
