"""tdm_sampler: the nodes on the way to leaves of a tree, and others of the same layers that are drawn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, PtrI64, PtrU, Status, helper, kernel
from pe_cli.kernels.math.random import uniform
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lowering import STATUS, STEP, Lowering, Numbers
from pe_cli.ops.define.onnx import SAMPLES, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random, ReportsData


@helper
def _left_at(drawn, own, tried, k):
    """Return place k among those that are not among the drawn ones."""
    # Place k among those left is k plus the drawn ones up to there: their number is counted anew until it no longer grows.
    place = -1
    further = k
    while further != place:
        place = further
        further = k
        for i in range(tried):
            if drawn[own + i] <= place:
                further += 1
    return place


@kernel
def sample_ways(
    x: PtrI64, travel: PtrU, nodes: PtrU, starts: PtrI64, counts: PtrI64, drawn: PtrI64, out: PtrI64, labels: PtrI64, mask: PtrI64,
    rows: Int, leaves: Int, layers: Int, width: Int, draws: Int, positive: Int, first: Int, seed: Int, step: PtrI64, fixed: Int,
    status: Status,
):  # fmt: skip
    """out[r] = of every layer the node on the way to leaf x[r], and others of that layer, each at most once."""
    at = 0 if fixed else step[0]
    for r in range(rows):
        leaf = x[r]
        if leaf < 0 or leaf >= leaves:
            report(status, r, leaf, leaves)
            leaf = 0
        to = r * width
        own = r * draws
        for layer in range(layers):
            node = travel[leaf * layers + layer] * 1
            there = 1 if node != 0 else 0
            if positive:
                out[to] = node
                labels[to] = there
                mask[to] = there
                to += 1
            size = starts[layer + 1] - starts[layer]
            wanted = counts[layer]
            found = 0
            tried = 0
            # One try more than nodes are wanted, as one of them may be the node on the way, which does not count.
            while there == 1 and found < wanted and tried <= wanted:
                # Numbered over the whole batch, so that draws do not depend on how many devices share it.
                share = uniform(seed, at, first * draws + own + tried)
                k = min(int(share * (size - tried)), size - tried - 1)
                place = _left_at(drawn, own, tried, k)
                drawn[own + tried] = place
                tried += 1
                other = nodes[starts[layer] + place] * 1
                if other != node:
                    out[to + found] = other
                    labels[to + found] = 0
                    mask[to + found] = 1
                    found += 1
            for j in range(found, wanted):
                out[to + j] = 0
                labels[to + j] = 0
                mask[to + j] = 0
            to += wanted
            own += wanted + 1


_LAYERS = [[1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11]]
_WAYS = [[1, 3, 7], [1, 3, 8], [1, 4, 9], [1, 4, 10], [2, 5, 11], [2, 6, 0]]


def _sample(name: str, rows: int, negatives: list[int], dtype: str, **attrs: bool | int) -> Sample:
    ends = [0, *np.cumsum([len(layer) for layer in _LAYERS]).tolist()]
    given = {
        "X": classes(0, 6, rows, 1),
        "Travel": lambda rng: np.array(_WAYS, dtype),
        "Layer": lambda rng: np.concatenate(_LAYERS).astype(dtype)[:, None],
    }
    return Sample(given, {"neg_samples_num_list": negatives, "layer_offset_lod": ends, **attrs}, name, keep=("Travel", "Layer"))


@op(
    "tdm_sampler",
    inputs="X Travel Layer",
    outputs="Out Labels Mask",
    traits=[ReportsData(), Random()],
    attrs={
        "neg_samples_num_list": Attr([1], "nodes that are drawn of each layer, fewer than it has"),
        "layer_offset_lod": Attr([0, 1], "where in Layer each layer begins, and where the last one ends"),
        "output_positive": Attr(True, "the node on the way stands before those that are drawn"),
        "seed": Attr(0, "own seed, the same nodes at every step; 0 takes the program's, with new ones at every step"),
    },
    differentiable="",
    samples=[
        _sample("some of each layer", 4, [1, 2, 2], "int64"),
        _sample("all others", 3, [1, 3, 4], "int32", seed=5, output_positive=False),
        _sample("none", 2, [0, 0, 0], "int32"),
        _sample("an empty batch", 0, [1, 1, 1], "int64"),
    ],
)
def tdm_sampler(
    x: TensorType, travel: TensorType, nodes: TensorType, *, neg_samples_num_list: list[int], layer_offset_lod: list[int],
    output_positive: bool, seed: int,
) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
    """Take the nodes on the way to a leaf, one of each layer, and draw others of the same layers: what a tree's model learns from.

    Every other node of the layer is as likely, and none is drawn twice. Where a way ends before a layer (its node is 0), the layer's
    places are 0.

    Args:
        X: [batch, 1] int64 numbers of leaves, from 0.
        Travel: [leaves, layers] int32 or int64; the nodes on the way to each leaf, without the root.
        Layer: [nodes, 1] element type of Travel; the nodes of each layer, one layer after the other.
        neg_samples_num_list, layer_offset_lod, output_positive, seed: see the attributes.

    Returns:
        Out: int64 [batch, places], layer by layer.
        Labels: of that type; 1 for a node on the way.
        Mask: of that type; 0 where there is no node.

    Raises:
        PeError: types or numbers that do not fit; while running, a leaf that there is not.

    Source:
        fluid's operator of that name; Zhu et al. 2018, 'Learning Tree-based Deep Model for Recommender Systems'.
    """
    del seed
    if x.dtype != "int64" or len(x.shape) != 2 or x.shape[1] != 1:
        raise PeError(f"tdm_sampler needs leaves [batch, 1] int64, got {x}", hint="cast or reshape it")
    sizes = [b - a for a, b in pairwise(layer_offset_lod)]
    if travel.dtype not in ("int32", "int64") or nodes.dtype != travel.dtype or travel.shape[1:] != (len(sizes),):
        raise PeError(f"tdm_sampler needs Travel [leaves, {len(sizes)}] and Layer of one integer type, got {travel} and {nodes}")
    if len(sizes) != len(neg_samples_num_list) or any(not 0 <= n < size for n, size in zip(neg_samples_num_list, sizes, strict=True)):
        raise PeError(f"tdm_sampler: {neg_samples_num_list} nodes cannot be drawn of layers of {sizes}", hint="fewer than a layer has")
    if nodes.shape[0] not in (-1, layer_offset_lod[-1]):
        raise PeError(f"tdm_sampler: the layers have {layer_offset_lod[-1]} nodes, but Layer is {nodes}")
    made = TensorType((x.shape[0], sum(neg_samples_num_list) + len(sizes) * output_positive), "int64")
    return made, made, made


@tdm_sampler.lower("cpu")
def tdm_sampler_cpu(o: Lowering) -> None:
    """Row by row."""
    x, travel, a = o.input("X"), o.input("Travel"), o.attrs
    counts, seed = a["neg_samples_num_list"], int(a["seed"])
    rows, draws = x.shape[0], sum(counts) + len(counts)
    if rows:
        made = [o.output_or_scratch(slot, rows * draws, "int64") for slot in ("Out", "Labels", "Mask")]
        o.call(
            sample_ways, x, travel, o.input("Layer"), Numbers(tuple(a["layer_offset_lod"])), Numbers(tuple(counts)),
            o.scratch(rows * draws, "int64"), *made, rows, *travel.shape, draws if a["output_positive"] else sum(counts), draws,
            int(a["output_positive"]), o.sample_offset, seed or o.seed, STEP, int(seed != 0), STATUS, dtype="float64",
            second=travel.dtype,
        )  # fmt: skip


deal(sample_ways)
also_on_cuda(tdm_sampler)
not_in_onnx(SAMPLES, "tdm_sampler")
