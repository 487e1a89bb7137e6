"""Layers of two-stage detectors together: draws do not depend on devices, rows that are left over cost nothing, gradients flow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle
from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.layers.define.registry import LAYERS, discover, find
from pe_cli.layers.define.replacements import REPLACEMENTS
from pe_cli.paddle import fluid
from pe_cli.program.backward import gradients
from pe_cli.program.initializer import Constant
from tests.layers.support import layers as L
from tests.layers.support import programs, run

ROOT = Path(pe_cli.paddle.__file__).parent
FEED = {"gt@LOD0": np.array([0, 2, 2, 3, 5]), "kinds@LOD0": np.array([0, 2, 2, 3, 5])}


@pytest.fixture(scope="module")
def chosen():
    """Return a program that draws anchors and boxes, its outputs, and a batch of four images; the second one has no thing."""
    rng = np.random.default_rng(2)

    def boxes(*shape):
        low = rng.uniform(0, 30, (*shape, 2))
        return np.concatenate([low, low + rng.uniform(6, 16, (*shape, 2))], -1).astype("float32")

    with programs() as (main, start):
        gt, kinds = L.data("gt", [4], lod_level=1), L.data("kinds", [1], dtype="int64", lod_level=1)
        info, moves, logits = L.data("info", [3]), L.data("moves", [24, 4]), L.data("logits", [24, 1])
        logits = L.elementwise_add(logits, L.create_parameter([24, 1], "float32", default_initializer=Constant(0.0)), axis=1)
        anchors = L.reshape(L.assign(L.anchor_generator(L.data("map", [2, 2, 3]), [8, 16], [0.5, 2], stride=[12, 12])[0]), [-1, 4])
        first = L.rpn_target_assign(moves, logits, anchors, None, gt, None, info, 8, -1.0, 0.5, 0.4)
        second = L.generate_proposal_labels(L.data("rois", [12, 4]), kinds, None, gt, info, 6, 0.5, 0.3, 0.3, class_nums=4)
        costs = L.sigmoid_cross_entropy_with_logits(first[0], L.cast(first[2], "float32"), ignore_index=-1)
        loss = L.reduce_sum(costs)
        grad = gradients([loss], [logits])[0]
    feed = {
        **FEED, "gt": boxes(5), "kinds": rng.integers(1, 4, (5, 1)), "info": np.tile(np.float32([48, 48, 1]), (4, 1)),
        "moves": rng.standard_normal((4, 24, 4)).astype("float32"), "logits": rng.standard_normal((4, 24, 1)).astype("float32"),
        "rois": boxes(4, 12), "map": np.zeros((4, 2, 2, 3), "float32"),
    }  # fmt: skip
    return (main, start), [first[2].name, first[3].name, second[0].name, second[1].name, second[2].name], loss.name, grad.name, feed


def values(both, names, feed, devices, step=0):
    main, start = both
    scope = Scope([Place("cpu", i) for i in range(devices)])
    run_startup(start, scope, seed=5)
    found = Executor(main, scope, seed=5).run(feed, names, step).values
    return [np.concatenate([v[name] for v in found]) for name in names]


def test_two_devices_choose_what_one_does_and_each_step_anew(chosen):
    both, names, _, _, feed = chosen
    one, two, later = values(both, names, feed, 1), values(both, names, feed, 2), values(both, names, feed, 1, step=1)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(one, later, strict=True))


def test_an_image_without_things_has_no_row_on_an_object(chosen):
    both, names, _, _, feed = chosen
    label, _, _, kind, moves = values(both, names, feed, 1)
    assert label.reshape(4, 8)[1].tolist() == [0] * 8
    assert set(kind.reshape(4, 6)[1].tolist()) <= {0, -1}
    assert not moves.reshape(4, 6, -1)[1].any()


def test_gradients_go_to_the_anchors_that_were_chosen(chosen):
    both, names, loss, grad, feed = chosen
    label, cost, back = values(both, [names[0], loss, grad], feed, 1)
    assert (back != 0).sum() == (label >= 0).sum()
    assert np.isfinite(cost).all()


def test_regions_of_images_are_those_with_counts():
    rois = np.array([[[0, 0, 4, 4], [2, 1, 6, 5]], [[1, 1, 3, 6], [0, 2, 7, 7]]], "float32")
    image = np.random.default_rng(1).random((2, 3, 8, 8))
    with programs() as (main, start):
        x, by_image = L.data("x", [3, 8, 8]), L.data("rois", [2, 4])
        own = L.roi_align(x, by_image, 2, 2)
        given = L.roi_align(x, L.reshape(by_image, [-1, 4]), 2, 2, batch_roi_nums=L.cast(L.data("n", []), "int64"))
        with pytest.raises(PeError, match=r"rois .* belong to their images"):
            L.roi_pool(x, by_image, batch_roi_nums=L.cast(L.data("m", []), "int64"))
        feed = {"x": image.astype("float32"), "rois": rois, "n": np.full(2, 2, "float32"), "m": np.full(2, 2, "float32")}
        found = run(main, start, feed, [own, given])
    np.testing.assert_array_equal(*found)


def test_every_name_of_fluid_layers_is_a_layer_of_model_files_or_says_what_is():
    discover()
    index = set(json.loads((ROOT / "reference_names.json").read_text(encoding="utf-8")))
    names = [n for n in index if callable(vars(fluid.layers).get(n))]
    assert len(names) > 300
    assert sorted(n for n in names if n not in LAYERS and n not in REPLACEMENTS) == []
    assert not set(REPLACEMENTS) & set(LAYERS)
    assert fluid.layers.interpolate is fluid.layers.image_resize  # a model file has fewer arguments


def test_a_name_without_a_layer_says_what_to_use():
    with pytest.raises(PeError, match=r"'while_loop' of fluid.layers is no layer of a model file: it takes Python functions") as caught:
        find("while_loop")
    assert caught.value.hint == "while: pe ops while"
