"""Losses."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f, i

SIGNS = np.array([1, -1, -1, 1], "float32")
YES = (f(4, 3, seed=9) > 0).astype("float32")
COUNTS = i(4, 3, seed=5, high=6).astype("float32")
A, B, C = f(4, 3), f(4, 3, seed=1), f(4, 3, seed=2)
NUMBERS = np.array([2, 0, 1, 2])
LOGS = np.log(np.abs(f(2, 4, 3, 5, seed=6)))
STEPS = {"t": i(2, 2, low=1, high=5).astype("int32"), "n": np.array([4, 3], "int32"), "m": np.array([2, 1], "int32")}

CASES = {
    "cosine_embedding_loss": Case(lambda p, x, y, t: p.nn.functional.cosine_embedding_loss(x, y, t, 0.1), {"x": A, "y": B, "t": SIGNS}),
    "cosine_embedding_loss of whole labels": Case(
        lambda p, x, y, t: p.nn.functional.cosine_embedding_loss(x, y, t, reduction="none"),
        {"x": A, "y": B, "t": SIGNS.astype("int64")},
    ),
    "CosineEmbeddingLoss": Case(lambda p, x, y, t: p.nn.CosineEmbeddingLoss(0.2, "sum")(x, y, t), {"x": A, "y": B, "t": SIGNS}),
    "hinge_embedding_loss": Case(
        lambda p, x, t: p.nn.functional.hinge_embedding_loss(x, t, 1.5, "none"), {"x": A, "t": np.tile(SIGNS[:, None], (1, 3))}
    ),
    "HingeEmbeddingLoss": Case(lambda p, x, t: p.nn.HingeEmbeddingLoss()(x, t), {"x": A, "t": np.tile(SIGNS[:, None], (1, 3))}),
    "triplet_margin_loss": Case(lambda p, x, y, z: p.nn.functional.triplet_margin_loss(x, y, z), {"x": A, "y": B, "z": C}),
    "triplet_margin_loss of cubes": Case(
        lambda p, x, y, z: p.nn.functional.triplet_margin_loss(x, y, z, 0.5, 3.0, swap=True, reduction="none"), {"x": A, "y": B, "z": C}
    ),
    "TripletMarginLoss": Case(lambda p, x, y, z: p.nn.TripletMarginLoss(2.0, 1.0, reduction="sum")(x, y, z), {"x": A, "y": B, "z": C}),
    "soft_margin_loss": Case(
        lambda p, x, t: p.nn.functional.soft_margin_loss(x, t, "none"), {"x": A, "t": np.tile(SIGNS[:, None], (1, 3)).astype("int64")}
    ),
    "SoftMarginLoss": Case(lambda p, x, t: p.nn.SoftMarginLoss()(x, t), {"x": A, "t": np.tile(SIGNS[:, None], (1, 3))}),
    "multi_label_soft_margin_loss": Case(
        lambda p, x, t, w: p.nn.functional.multi_label_soft_margin_loss(x, t, w, "none"),
        {"x": A, "t": YES, "w": f(3, low=0.5)},
    ),
    "MultiLabelSoftMarginLoss": Case(lambda p, x, t: p.nn.MultiLabelSoftMarginLoss()(x, t), {"x": A, "t": YES}),
    "multi_margin_loss": Case(lambda p, x, t: p.nn.functional.multi_margin_loss(x, t, 2, 1.5, reduction="none"), {"x": A, "t": NUMBERS}),
    "multi_margin_loss with weights": Case(
        lambda p, x, t, w: p.nn.functional.multi_margin_loss(x, t, 1, 1.5, w, reduction="mean"),
        {"x": A, "t": NUMBERS, "w": f(3, low=0.5)},
    ),
    "multi_margin_loss with weights and without a mean": Case(
        lambda p, x, t, w: p.nn.functional.multi_margin_loss(x, t, 1, 1.5, w, reduction="none"),
        {"x": A, "t": NUMBERS, "w": f(3, low=0.5)},
    ),
    "MultiMarginLoss": Case(lambda p, x, t: p.nn.MultiMarginLoss()(x, t), {"x": A, "t": NUMBERS}),
    "gaussian_nll_loss": Case(
        lambda p, x, y, v: p.nn.functional.gaussian_nll_loss(x, y, v, True, 0.6, "none"), {"x": A, "y": B, "v": f(4, 3, low=0.5)}
    ),
    "gaussian_nll_loss of a variance per row": Case(
        lambda p, x, y, v: p.nn.functional.gaussian_nll_loss(x, y, v), {"x": A, "y": B, "v": f(4, low=0.5)}
    ),
    "GaussianNLLLoss": Case(lambda p, x, y, v: p.nn.GaussianNLLLoss(reduction="sum")(x, y, v), {"x": A, "y": B, "v": f(4, 1, low=0.5)}),
    "poisson_nll_loss": Case(lambda p, x, t: p.nn.functional.poisson_nll_loss(x, t), {"x": A, "t": COUNTS}),
    "poisson_nll_loss in full": Case(
        lambda p, x, t: p.nn.functional.poisson_nll_loss(x, t, False, True, reduction="none"), {"x": f(4, 3, low=0.5), "t": COUNTS + 2}
    ),
    "PoissonNLLLoss": Case(lambda p, x, t: p.nn.PoissonNLLLoss(reduction="sum")(x, t), {"x": A, "t": COUNTS}),
    "pairwise_distance": Case(lambda p, x, y: p.nn.functional.pairwise_distance(x, y, keepdim=True), {"x": A, "y": B}),
    "pairwise_distance of cubes": Case(lambda p, x, y: p.nn.functional.pairwise_distance(x, y, 3.0), {"x": A, "y": B}),
    "pairwise_distance that is largest": Case(lambda p, x, y: p.nn.functional.pairwise_distance(x, y, float("inf")), {"x": A, "y": B}),
    "pairwise_distance that is smallest": Case(lambda p, x, y: p.nn.functional.pairwise_distance(x, y, float("-inf")), {"x": A, "y": B}),
    "pairwise_distance that is counted": Case(lambda p, x, y: p.nn.functional.pairwise_distance(x, y, 0.0), {"x": A, "y": B}, slopes=False),
    "PairwiseDistance": Case(lambda p, x, y: p.nn.PairwiseDistance(1.0)(x, y), {"x": A, "y": B}),
    "margin_ranking_loss with a label per row": Case(
        lambda p, x, y, t: p.nn.functional.margin_ranking_loss(x, y, t, 0.3, "none"), {"x": A, "y": B, "t": SIGNS[:, None]}
    ),
    "MarginRankingLoss": Case(lambda p, x, y, t: p.nn.MarginRankingLoss(0.3)(x, y, t), {"x": A, "y": B, "t": SIGNS[:, None]}),
    "triplet_margin_with_distance_loss": Case(
        lambda p, x, y, z: p.nn.functional.triplet_margin_with_distance_loss(x, y, z, lambda a, b: p.sum(p.abs(a - b), 1), 0.5, True),
        {"x": A, "y": B, "z": C},
    ),
    "TripletMarginWithDistanceLoss": Case(
        lambda p, x, y, z: p.nn.TripletMarginWithDistanceLoss(None, 0.5)(x, y, z), {"x": A, "y": B, "z": C}
    ),
    "cross_entropy with smooth labels": Case(
        lambda p, x, t: p.nn.functional.cross_entropy(x, t, label_smoothing=0.1), {"x": A, "t": NUMBERS}
    ),
    "CrossEntropyLoss of smooth probabilities": Case(
        lambda p, x, t: p.nn.CrossEntropyLoss(soft_label=True, label_smoothing=0.3)(x, t),
        {"x": A, "t": np.abs(B) / np.abs(B).sum(1, keepdims=True)},
    ),
    "rnnt_loss": Case(
        lambda p, x, t, n, m: p.nn.functional.rnnt_loss(x, t, n, m, fastemit_lambda=0.0, reduction="none"), {"x": LOGS, **STEPS}, near=1e-5
    ),
    "RNNTLoss": Case(
        lambda p, x, t, n, m: p.nn.RNNTLoss(fastemit_lambda=0.5, reduction="sum")(x, t, n, m), {"x": LOGS, **STEPS}, near=1e-5
    ),
}  # fmt: skip
