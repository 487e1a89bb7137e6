"""Suppression of overlapping boxes. Only values tell how many stay, so the core has these with padded rows, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.detection import box_coder
from pe_cli.program.ir import Variable


def _made(kind: str, name: str | None, inputs: dict[str, Any], outputs: Sequence[str], **attrs: Any) -> list[Variable]:
    ensure_defaults()
    with raised_as(FluidValueError):
        found = LayerHelper(kind, name).op(kind, inputs, attrs, tuple(outputs))
    for v in found:
        v.stop_gradient = True
    return list(found)


def multiclass_nms(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Any:
    """Keep of every class the boxes that overlap no better one much: [detections, 6], class, score and box; see the op."""
    facts = (score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label)
    return multiclass_nms2(bboxes, scores, *facts, name=name)


def multiclass_nms2(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Do what multiclass_nms does, and with return_index return the boxes' places among the boxes of all images, too."""
    out, index = _made(
        "multiclass_nms", name, {"BBoxes": bboxes, "Scores": scores}, ["Out", "Index"], score_threshold=float(score_threshold),
        nms_top_k=nms_top_k, keep_top_k=keep_top_k, nms_threshold=float(nms_threshold), normalized=normalized, nms_eta=float(nms_eta),
        background_label=background_label, return_index=return_index,
    )  # fmt: skip
    return (out, index) if return_index else out


def matrix_nms(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Lower the scores of boxes that overlap better ones, and keep the best: [detections, 6], and their places with return_index."""
    out, index = _made(
        "matrix_nms", name, {"BBoxes": bboxes, "Scores": scores}, ["Out", "Index"], score_threshold=float(score_threshold),
        post_threshold=float(post_threshold), nms_top_k=nms_top_k, keep_top_k=keep_top_k, use_gaussian=use_gaussian,
        gaussian_sigma=float(gaussian_sigma), background_label=background_label, normalized=normalized,
    )  # fmt: skip
    return (out, index) if return_index else out


def locality_aware_nms(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Any:
    """Merge neighbouring boxes that overlap, then thin out: [detections, 2 + numbers of a box]."""
    return _made(
        "locality_aware_nms", name, {"BBoxes": bboxes, "Scores": scores}, ["Out"], score_threshold=float(score_threshold),
        nms_top_k=nms_top_k, keep_top_k=keep_top_k, nms_threshold=float(nms_threshold), normalized=normalized, nms_eta=float(nms_eta),
        background_label=background_label,
    )[0]  # fmt: skip


def detection_output(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Any,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Any:
    """Find the boxes of SSD's differences and thin them out: [detections, 6], and their places with return_index.

    Args:
        loc: [images, priors, 4]: differences.
        scores: [images, priors, classes], of which the softmax is taken.
        prior_box, prior_box_var: [priors, 4].
        background_label, nms_threshold, nms_top_k, keep_top_k, score_threshold, nms_eta: of `multiclass_nms`.
        return_index: the places among the priors of all images too.
    """
    # Without a check of how many priors there are: scripts of SSD declare the feeds with other numbers than come.
    boxes = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    shares = call("transpose", call("softmax", scores), [0, 2, 1])
    out, index = _made(
        "multiclass_nms", None, {"BBoxes": boxes, "Scores": shares}, ["Out", "Index"], score_threshold=float(score_threshold),
        nms_top_k=nms_top_k, keep_top_k=keep_top_k, nms_threshold=float(nms_threshold), nms_eta=float(nms_eta),
        background_label=background_label, return_index=return_index,
    )  # fmt: skip
    return (out, index) if return_index else out


def retinanet_detection_output(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Sequence[Variable],
    scores: Sequence[Variable],
    anchors: Sequence[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Any:
    """Take the best boxes of RetinaNet's levels and thin them out: [detections, 6], class from 1 on, score and box."""
    inputs = {"BBoxes": list(bboxes), "Scores": list(scores), "Anchors": list(anchors), "ImInfo": im_info}
    return _made(
        "retinanet_detection_output", None, inputs, ["Out"], score_threshold=float(score_threshold), nms_top_k=nms_top_k,
        keep_top_k=keep_top_k, nms_threshold=float(nms_threshold), nms_eta=float(nms_eta),
    )[0]  # fmt: skip


__all__ = ["detection_output", "locality_aware_nms", "matrix_nms", "multiclass_nms", "retinanet_detection_output"]
