"""Boxes whose number only a step knows, through fluid: values by loops over the definitions, and sequences from layer to layer."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.ops.detection.generate_mask_labels import polygon_mask

L = fluid.layers
RNG = np.random.default_rng(3)


def run(fetches, feed, program=None):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(program, feed=feed, fetch_list=list(fetches), return_numpy=False)


def tensor(value, *lengths):
    made = fluid.LoDTensor()
    made.set(np.asarray(value), fluid.CPUPlace())
    made.set_recursive_sequence_lengths([list(level) for level in lengths])
    return made


def data(name, width, dtype="float32", levels=1):
    return fluid.data(name, [None, width], dtype, lod_level=levels)


def boxes(n, size=40.0, least=4.0):
    low = RNG.uniform(0, size / 2, (n, 2))
    return np.concatenate([low, low + RNG.uniform(least, size / 2, (n, 2))], 1).astype("float32")


def iou(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + 1, min(a[3], b[3]) - max(a[1], b[1]) + 1
    both = max(w, 0) * max(h, 0)
    return both / (sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)) - both)


def moves(box, to):
    w, h, w2, h2 = box[2] - box[0] + 1, box[3] - box[1] + 1, to[2] - to[0] + 1, to[3] - to[1] + 1
    return [(to[0] + w2 / 2 - box[0] - w / 2) / w, (to[1] + h2 / 2 - box[1] - h / 2) / h, np.log(w2 / w), np.log(h2 / h)]


# --- proposals --------------------------------------------------------------------------------------------------------


def proposed(scores, deltas, info, anchors, variances, before, after, threshold, least, eta):
    rows = []
    for k in np.argsort(-scores)[:before]:
        (x1, y1, x2, y2), d = anchors[k], deltas[k] * variances[k]
        w, h = x2 - x1 + 1, y2 - y1 + 1
        x, y = x1 + w / 2 + d[0] * w, y1 + h / 2 + d[1] * h
        w, h = np.exp(min(d[2], np.log(62.5))) * w, np.exp(min(d[3], np.log(62.5))) * h
        high, wide, scale = info
        box = np.clip([x - w / 2, y - h / 2, x + w / 2 - 1, y + h / 2 - 1], 0, [wide - 1, high - 1] * 2)
        sides = box[2:] - box[:2]
        if (sides / scale + 1 >= max(least, 1)).all() and box[0] + (sides[0] + 1) / 2 <= wide and box[1] + (sides[1] + 1) / 2 <= high:
            rows.append((box, scores[k]))
    kept = []
    for box, score in rows:
        if all(iou(box, other) <= threshold for other, _ in kept):
            kept.append((box, score))
            threshold *= eta if eta < 1 and threshold > 0.5 else 1
    return kept[:after] or [(np.zeros(4), 0.0)]


@pytest.mark.parametrize(("before", "after", "threshold", "eta"), [(12, 6, 0.6, 1.0), (6000, 1000, 0.3, 1.0), (20, 30, 0.8, 0.7)])
def test_the_best_boxes_that_lie_apart(before, after, threshold, eta):
    scores, deltas = (RNG.standard_normal((2, c, 3, 4)).astype("float32") for c in (2, 8))
    y, x = np.mgrid[0:3, 0:4] * 8.0
    anchors = np.stack([x - 2, y, x + 10, y + 8, x + 1, y - 4, x + 7, y + 12], -1).reshape(3, 4, 2, 4).astype("float32")
    info, variances = np.array([[24, 32, 1], [20, 30, 2]], "float32"), np.full_like(anchors, 0.4)
    given = {"s": scores, "d": deltas, "i": info, "a": anchors, "v": variances}
    made = [fluid.data(k, list(v.shape), "float32") for k, v in given.items()]
    rois, probs, ends = run(L.generate_proposals(*made, before, after, threshold, 4.0, eta, return_rois_num=True), given)
    expected = [
        proposed(s.transpose(1, 2, 0).ravel(), d.transpose(1, 2, 0).reshape(-1, 4), i, anchors.reshape(-1, 4), variances.reshape(-1, 4),
                 before, after, threshold, 4.0, eta)
        for s, d, i in zip(scores, deltas, info, strict=True)
    ]  # fmt: skip
    np.testing.assert_allclose(np.array(rois), [b for each in expected for b, _ in each], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.array(probs).ravel(), [s for each in expected for _, s in each], rtol=1e-6)
    assert rois.recursive_sequence_lengths() == probs.recursive_sequence_lengths() == [[len(e) for e in expected]]
    assert np.array(ends).tolist() == np.cumsum([len(e) for e in expected]).tolist()


def test_one_box_of_zeros_where_all_are_too_small():
    sizes = {"s": (1, 1, 1, 1), "d": (1, 4, 1, 1), "a": (1, 1, 1, 4), "v": (1, 1, 1, 4)}
    given = {k: np.zeros(sizes[k], "float32") if k in sizes else np.array([[9, 9, 1]], "float32") for k in "sdiav"}
    made = [fluid.data(k, list(v.shape), "float32") for k, v in given.items()]
    rois, probs = run(L.generate_proposals(*made, min_size=3.0), given)
    assert (np.array(rois).tolist(), np.array(probs).tolist(), rois.lod()) == ([[0, 0, 0, 0]], [[0]], [[0, 1]])


def test_levels_of_a_pyramid_and_back():
    given = np.concatenate([boxes(9, 400.0, 2.0), [[5, 5, 1, 9]]]).astype("float32")
    rois = data("rois", 4)
    levels, restore = L.distribute_fpn_proposals(rois, 2, 4, 3, 60)
    joined = L.gather(L.concat(levels), restore)
    *found, places, again = run([*levels, restore, joined], {"rois": tensor(given, [4, 6])})
    sides = given[:, 2:] - given[:, :2]
    area = np.where((sides < 0).any(1), 1e-9, (sides + 1).prod(1))
    wanted = np.clip(np.floor(3 + np.log2(np.sqrt(area) / 60)), 2, 4)
    for k, level in zip((2, 3, 4), found, strict=True):
        np.testing.assert_array_equal(np.array(level), given[wanted == k])
        assert level.recursive_sequence_lengths() == [[int((wanted[:4] == k).sum()), int((wanted[4:] == k).sum())]]
    assert np.array(places).dtype == "int32"
    np.testing.assert_array_equal(np.array(again), given)


def test_the_best_boxes_of_all_levels():
    a, b, p, q = boxes(3), boxes(4), RNG.random((3, 1)).astype("float32"), RNG.random((4, 1)).astype("float32")
    made = L.collect_fpn_proposals([data("a", 4), data("b", 4)], [data("p", 1), data("q", 1)], 2, 3, 5)
    (found,) = run([made], {"a": tensor(a, [1, 2]), "b": tensor(b, [4, 0]), "p": tensor(p, [1, 2]), "q": tensor(q, [4, 0])})
    rows = [(s, i, box) for s, i, box in zip([*p[:, 0], *q[:, 0]], [0, 1, 1, 0, 0, 0, 0], [*a, *b], strict=True)]
    best = sorted(sorted(rows, key=lambda r: -r[0])[:5], key=lambda r: r[1])
    np.testing.assert_array_equal(np.array(found), [r[2] for r in best])
    assert found.recursive_sequence_lengths() == [[sum(r[1] == i for r in best) for i in (0, 1)]]


def test_proposals_of_two_images_lead_to_regions_of_theirs():
    """Sequences that one part of a cut program makes count in the next, and in its gradients."""
    x, rois = fluid.data("x", [2, 1, 6, 6], "float32"), data("rois", 4)
    x.stop_gradient = False
    levels, _ = L.distribute_fpn_proposals(rois, 2, 3, 3, 4)
    pooled = L.roi_align(x, levels[0], 1, 1, sampling_ratio=1)
    (gradient,) = fluid.gradients([L.reduce_sum(pooled)], [x])
    image = np.stack([np.zeros((1, 6, 6)), np.ones((1, 6, 6))]).astype("float32")
    small = np.array([[1, 1, 3, 3], [2, 2, 4, 4], [0, 0, 2, 2]], "float32")
    values, grads = run([pooled, gradient], {"x": image, "rois": tensor(small, [1, 2])})
    assert np.array(values).ravel().tolist() == [0, 1, 1]
    assert values.lod() == []
    assert np.array(grads).sum((1, 2, 3)).tolist() == [1, 2]


def test_as_many_sequences_as_images():
    x, rois = fluid.data("x", [3, 1, 6, 6], "float32"), data("rois", 4)
    with pytest.raises(RuntimeError, match="2 numbers for 3 images"):
        run([L.roi_pool(x, rois)], {"x": np.zeros((3, 1, 6, 6), "float32"), "rois": tensor(boxes(3), [1, 2])})


# --- targets ----------------------------------------------------------------------------------------------------------


def assigned(anchors, true, info, positive, negative, straddle=-1.0, most=None):
    """Return anchors on objects, their boxes, and anchors on none; the first ones, where only so many are chosen."""
    true = true * info[2]
    inside = [k for k, b in enumerate(anchors) if straddle < 0 or ((b[:2] >= -straddle).all() and (b[2:] < info[[1, 0]] + straddle).all())]
    table = np.array([[iou(anchors[k], t) for t in true] for k in inside])
    on = [k for k, row in zip(inside, table, strict=True) if row.max() >= positive or (abs(row - table.max(0)) < 1e-5).any()]
    off = [k for k, row in zip(inside, table, strict=True) if row.max() < negative]
    if most:
        on = on[: most[0]]
        off = off[: most[1] - len(on)]
    of = {k: true[row.argmax()] for k, row in zip(inside, table, strict=True)}
    return on, [of[k] for k in on], off, [int(table[inside.index(k)].argmax()) for k in on]


CORNERS = [[0, 0], [5, 5], [0, 10], [10, 0], [10, 10], [2, 2], [-3, 0]]
ANCHORS = np.array([[x, y, x + 9, y + 9] for x, y in CORNERS], "float32")
INFO = np.array([[20, 20, 1.0], [20, 20, 2.0]], "float32")
TRUE = [np.array([[1, 1, 10, 10], [11, 9, 19, 18]], "float32"), np.array([[0, 0, 30, 30], [1, 5, 5, 9]], "float32")]
CROWD = np.array([[0], [0], [1], [0]], "int32")


def given_truth():
    feed = {"g": tensor(np.concatenate(TRUE), [2, 2]), "w": tensor(CROWD, [2, 2]), "i": INFO, "a": ANCHORS}
    return feed, data("g", 4), data("w", 1, "int32"), fluid.data("i", [None, 3], "float32"), fluid.data("a", [7, 4], "float32")


def test_anchors_for_a_region_proposal_network():
    feed, g, w, i, a = given_truth()
    moved, scores = RNG.standard_normal((2, 7, 4)).astype("float32"), RNG.standard_normal((2, 7, 1)).astype("float32")
    x, c = (fluid.data(k, list(v.shape), "float32") for k, v in (("x", moved), ("c", scores)))
    found = L.rpn_target_assign(x, c, a, a, g, w, i, 4, 0.0, 0.5, 0.5, 0.3, use_random=False)
    assert [v.shape for v in found] == [(-1, 1), (-1, 4), (-1, 1), (-1, 4), (-1, 4)], "only values tell how many"
    logits, picked, labels, targets, weights = run(found, feed | {"x": moved, "c": scores})
    rows, lengths = [], []
    for k, true in enumerate((TRUE[0], TRUE[1][1:])):
        on, of, off, _ = assigned(ANCHORS, true, INFO[k], 0.5, 0.3, 0.0, (2, 4))
        assert not set(on) & set(off)
        rows += [(k, anchor, 1, box) for anchor, box in zip(on, of, strict=True)] + [(k, anchor, 0, None) for anchor in off]
        lengths.append((len(on), len(on) + len(off)))
    positive = [r for r in rows if r[2]]
    assert np.array(labels).ravel().tolist() == [r[2] for r in rows]
    np.testing.assert_array_equal(np.array(logits), [scores[k, anchor] for k, anchor, *_ in rows])
    np.testing.assert_array_equal(np.array(picked), [moved[k, anchor] for k, anchor, *_ in positive])
    np.testing.assert_allclose(np.array(targets), [moves(ANCHORS[anchor], box) for _, anchor, _, box in positive], rtol=1e-4, atol=1e-6)
    assert (np.array(weights) == 1).all()
    assert labels.recursive_sequence_lengths() == [[n for _, n in lengths]]
    assert targets.recursive_sequence_lengths() == weights.recursive_sequence_lengths() == [[n for n, _ in lengths]]
    assert (logits.lod(), picked.lod()) == ([], [])


def test_an_anchor_that_is_both_is_on_none():
    # the true box is far from all anchors: the nearest is on it, and overlaps it by less than is needed
    feed, g, w, i, a = given_truth()
    feed |= {"g": tensor(np.array([[17, 17, 40, 40]], "float32"), [1]), "w": tensor([[np.int32(0)]], [1]), "i": INFO[:1]}
    x, c = fluid.data("x", [1, 7, 4], "float32"), fluid.data("c", [1, 7, 1], "float32")
    found = L.rpn_target_assign(x, c, a, a, g, w, i, 20, -1.0, 0.5, 0.5, 0.3, use_random=False)
    *_, labels, _, weights = run(found, feed | {"x": np.zeros((1, 7, 4), "float32"), "c": np.zeros((1, 7, 1), "float32")})
    assert not np.array(labels).any()
    assert np.array(weights).tolist() == [[0, 0, 0, 0]]


def test_draws_follow_the_seed_and_change_from_step_to_step():
    feed, g, w, i, a = given_truth()
    x, c = fluid.data("x", [2, 7, 4], "float32"), fluid.data("c", [2, 7, 1], "float32")
    feed |= {"x": np.zeros((2, 7, 4), "float32"), "c": np.arange(14, dtype="float32").reshape(2, 7, 1)}
    found = L.rpn_target_assign(x, c, a, a, g, w, i, 3, -1.0, 0.5, 0.3, 0.9)[0]

    def drawn(program):
        program.random_seed = 5
        executor = fluid.Executor(fluid.CPUPlace())
        return [executor.run(program, feed=feed, fetch_list=[found])[0].ravel().tolist() for _ in range(8)]

    main = fluid.default_main_program()
    again = main.clone()
    first = drawn(main)
    assert first == drawn(again)
    assert len({tuple(f) for f in first}) > 1
    assert all(len(set(f)) == len(f) <= 6 for f in first)


def test_classes_of_anchors():
    feed, g, w, i, a = given_truth()
    k = data("k", 1, "int32")
    moved, scores = RNG.standard_normal((2, 7, 4)).astype("float32"), RNG.standard_normal((2, 7, 3)).astype("float32")
    x, c = (fluid.data(name, list(v.shape), "float32") for name, v in (("x", moved), ("c", scores)))
    found = L.retinanet_target_assign(x, c, a, a, g, k, w, i, 3)
    feed |= {"x": moved, "c": scores, "k": tensor(np.array([[1], [3], [1], [2]], "int32"), [2, 2])}
    logits, _, labels, targets, weights, count = run(found, feed)
    rows, counts = [], []
    for n, (true, classes) in enumerate(((TRUE[0], [1, 3]), (TRUE[1][1:], [2]))):
        on, of, off, which = assigned(ANCHORS, true, INFO[n], 0.5, 0.4)
        on_both = [z for z in on if z in off]
        assert not on_both
        rows += [(n, z, classes[t], box) for z, t, box in zip(on, which, of, strict=True)] + [(n, z, 0, None) for z in off]
        counts.append([len(on) + 1])
    assert np.array(labels).ravel().tolist() == [r[2] for r in rows]
    np.testing.assert_array_equal(np.array(logits), [scores[n, z] for n, z, *_ in rows])
    np.testing.assert_allclose(np.array(targets), [moves(ANCHORS[z], box) for _, z, t, box in rows if t], rtol=1e-4, atol=1e-6)
    assert (np.array(weights) == 1).all()
    assert np.array(count).tolist() == counts


# --- what a detector learns from --------------------------------------------------------------------------------------

SIX = np.array([[1, 1, 9, 10], [2, 2, 12, 11], [0, 9, 8, 18], [9, 8, 18, 19], [11, 9, 19, 19], [4, 4, 14, 14]], "float32")


def labelled(class_nums=3, **attrs):
    feed = {
        "r": tensor(SIX * 2, [6]),
        "c": tensor(np.array([[1], [2]], "int32"), [2]),
        "w": tensor(np.array([[0], [0]], "int32"), [2]),
        "g": tensor(np.array([[2, 1, 10, 10], [10, 9, 19, 18]], "float32"), [2]),
        "i": np.array([[40, 40, 2.0]], "float32"),
    }
    made = [data("r", 4), data("c", 1, "int32"), data("w", 1, "int32"), data("g", 4), fluid.data("i", [None, 3], "float32")]
    found = L.generate_proposal_labels(*made, fg_thresh=0.5, bg_thresh_hi=0.5, class_nums=class_nums, use_random=False, **attrs)
    return feed, found


@pytest.mark.parametrize("agnostic", [False, True])
def test_proposals_that_a_detector_learns_from(agnostic):
    # where moves are the same for all classes, two places do for any number of them
    places = 2 if agnostic else 3
    feed, found = labelled(places, batch_size_per_im=6, fg_fraction=0.5, is_cls_agnostic=agnostic)
    rois, labels, targets, inside, outside = (np.array(v) for v in run(found, feed))
    true = [np.array(b) for b in ([2, 1, 10, 10], [10, 9, 19, 18])]
    every = [*true, *SIX]
    best = [max((iou(b, t), -k) for k, t in enumerate(true)) for b in every]
    on = [k for k, (v, _) in enumerate(best) if v >= 0.5][:3]
    off = [k for k, (v, _) in enumerate(best) if v < 0.5][:3]
    np.testing.assert_allclose(rois, np.array([every[k] for k in [*on, *off]]) * 2)
    assert labels.ravel().tolist() == [1 - best[k][1] for k in on] + [0] * len(off)
    expected = np.zeros((len(on) + len(off), places, 4))
    for row, k in enumerate(on):
        expected[row, 1 if agnostic else 1 - best[k][1]] = np.array(moves(every[k], true[-best[k][1]])) / [0.1, 0.1, 0.2, 0.2]
    np.testing.assert_allclose(targets, expected.reshape(len(rois), -1), rtol=1e-4, atol=1e-5)
    assert np.array_equal(inside, outside)
    assert inside.sum() == 4 * len(on)


def test_a_later_stage_of_a_cascade_takes_all():
    feed, found = labelled(batch_size_per_im=2, is_cascade_rcnn=True)
    rois = np.array(run(found, feed)[0])
    # the proposals alone, as in the original; none is left out by number
    assert sorted(map(tuple, rois)) == sorted(map(tuple, SIX * 2))


def test_true_boxes_of_the_stage_before_are_known_by_their_overlap():
    overlap = fluid.data("o", [None], "float32")
    feed, found = labelled(is_cascade_rcnn=True, max_overlap=overlap, return_max_overlap=True)
    known = np.array([0.4, 1.0, 0.2, 0.3, 1.0, 0.1], "float32")
    rois, *_, most = run(found, feed | {"o": known})
    left = np.concatenate([[[2, 1, 10, 10], [10, 9, 19, 18]], SIX[known < 1]])
    assert sorted(map(tuple, np.array(rois))) == sorted(map(tuple, left * 2))
    assert np.array(most)[:2].tolist() == [1, 1]
    with pytest.raises(ValueError, match="MaxOverlap counts in a cascade alone"):
        labelled(max_overlap=overlap)
    with pytest.raises(ValueError, match="four bbox_reg_weights but 0"):
        labelled(bbox_reg_weights=[0.1, 0.1, 0.2, 0.0])


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 7, 14])
def test_a_polygon_holds_the_middles_of_its_pixels(size):
    corners = RNG.uniform(-0.2, 1.2, (3, 2)) * size
    found = polygon_mask(corners, size)
    a, b, c = corners
    for i, j in np.ndindex(size, size):
        sides = [np.cross([*(q - p), 0], [*(np.array([j + 0.5, i + 0.5]) - p), 0])[2] / np.linalg.norm(q - p)
                 for p, q in ((a, b), (b, c), (c, a))]  # fmt: skip
        nearest = min(map(abs, sides))
        if nearest > 0.3:  # the outline is followed in fifths of a pixel
            assert found[i, j] == (min(sides) > 0 or max(sides) < 0)


def test_masks_of_regions_on_objects():
    points = np.array([[2, 2], [12, 2], [12, 12], [2, 12], [8, 8], [18, 8], [18, 18], [8, 18]], "float32")
    feed = {
        "i": np.array([[20, 20, 1.0], [20, 20, 2.0]], "float32"),
        "c": tensor(np.array([[1], [2]], "int32"), [1, 1]),
        "w": tensor(np.array([[0], [0]], "int32"), [1, 1]),
        "s": tensor(points, [1, 1], [1, 1], [4, 4]),
        "r": tensor(np.array([[2, 2, 12, 12], [0, 0, 4, 4], [16, 16, 36, 36], [6, 16, 26, 36]], "float32"), [2, 2]),
        "l": tensor(np.array([[1], [0], [0], [2]], "int32"), [2, 2]),
    }
    made = [fluid.data("i", [None, 3], "float32"), data("c", 1, "int32"), data("w", 1, "int32"), data("s", 2, levels=3), data("r", 4),
            data("l", 1, "int32")]  # fmt: skip
    rois, places, masks = run(L.generate_mask_labels(*made, 3, 4), feed)
    assert np.array(rois).tolist() == [[2, 2, 12, 12], [6, 16, 26, 36]]
    assert np.array(places).tolist() == [[0], [1]]
    assert rois.lod() == masks.lod() == [[0, 1, 2]]
    found = np.array(masks).reshape(2, 3, 4, 4)
    assert (found[0, 1] == 1).all()  # the region is the polygon
    assert (found[0, [0, 2]] == -1).all()
    assert found[1, 2].tolist() == [[0, 0, 1, 1]] * 4  # the right half of the region is in the polygon
    assert (found[1, :2] == -1).all()


def test_three_levels_of_sequences():
    one, zero = (tensor(np.full((1, 1), k, "int32"), [1]) for k in (1, 0))
    points = tensor(np.zeros((3, 2), "float32"), [3])
    feed = {"i": INFO[:1], "c": one, "w": zero, "s": points, "r": tensor(boxes(1), [1]), "l": one}
    classes, crowd, labels = (data(k, 1, "int32") for k in "cwl")
    made = [fluid.data("i", [None, 3], "float32"), classes, crowd, data("s", 2), data("r", 4), labels]
    with pytest.raises(RuntimeError, match="GtSegms has 1 levels of sequences"):
        run(L.generate_mask_labels(*made, 3, 4), feed)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_classes_and_flags_may_be_fed_in_any_type(dtype: str):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        boxes = fluid.data("boxes", [None, 4], lod_level=1)
        classes, crowd = (fluid.data(n, [None, 1], dtype, lod_level=1) for n in ("classes", "crowd"))
        made = fluid.layers.generate_proposal_labels(
            boxes, classes, crowd, boxes, fluid.data("info", [None, 3]), batch_size_per_im=4, fg_fraction=0.5, fg_thresh=0.5,
            class_nums=3, use_random=False,
        )
        given = fluid.create_lod_tensor(np.array([[0, 0, 9, 9], [20, 20, 29, 29]], "float32"), [[2]], fluid.CPUPlace())
        feed = {"boxes": given, "info": np.array([[40, 40, 1]], "float32")}
        for name, values in (("classes", [[1], [2]]), ("crowd", [[0], [0]])):
            feed[name] = fluid.create_lod_tensor(np.array(values, dtype), [[2]], fluid.CPUPlace())
        labels = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[made[1]], return_numpy=False)[0]
        assert sorted(np.asarray(labels).ravel().tolist())[-2:] == [1, 2]


def test_boxes_of_every_class_are_cut_to_the_images_of_their_rows():
    boxes, info = data("b", 4), fluid.data("i", [None, 3], "float32")
    every = L.box_clip(L.reshape(L.expand(boxes, [1, 3]), [-1, 3, 4]), info)
    given = RNG.uniform(-9, 70, (5, 4)).astype("float32")
    (found,) = run([every], {"b": tensor(given, [2, 0, 3]), "i": np.array([[60, 30, 2], [9, 9, 1], [40, 50, 1]], "float32")})
    last = np.array([[14, 29]] * 2 + [[49, 39]] * 3)
    np.testing.assert_array_equal(np.array(found), np.clip(given, 0, np.tile(last, 2))[:, None].repeat(3, 1))
    assert found.recursive_sequence_lengths() == [[2, 0, 3]]
