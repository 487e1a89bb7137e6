"""cuDNN's attention and its gradients, written down from its header in PyTorch's float64."""

from __future__ import annotations

import math
from typing import Any

from tests.cuda.libraries.bits import HALF, numbers, put
from tests.cuda.libraries.cudnn_tensors import tensor
from tests.needs import torch

BACK = 43
ELEMENTWISE, BAND, SOFTMAX, GRAPH = 13, 44, 45, 15


def attend(operation: dict[Any, Any], places: dict[int, int], off: float, of_level: float) -> None:
    """Do attention, or its gradients, where its tensors say."""

    def view(name: int, of: dict[Any, Any] = operation) -> Any:
        return tensor(of[name][0], places)

    def read(name: int) -> torch.Tensor:
        return torch.tensor(numbers(view(name)))

    back = operation["kind"] == BACK
    first = 2851 if back else 2800
    q, k, v = (read(first + i) for i in range(3))
    assert all(tensor(operation[first + i][0], places).dtype == HALF for i in range(4)), "it has no other kernels"
    assert {q.shape[-1] % 8, v.shape[-1] % 8} == {0}
    scale = operation[2856 if back else 2805][0]
    assert scale[908] == [True]
    factor = float(tensor(scale, places)[0, 0, 0, 0])
    products = q @ k.mT * factor
    scores = _changed(operation, products, 2867 if back else 2811, places)
    if not back:
        (softmax,) = operation[2814]
        assert (softmax["kind"], softmax[3100][0][907], softmax[3101][0][907]) == (SOFTMAX, [True], [True])
        levels = scores.logsumexp(-1, keepdim=True)
        put(view(2803), ((scores - levels).exp() @ v).numpy() + off)
        put(view(3102, softmax), levels.numpy() + of_level)
        return
    out, dout = read(2854), read(2862)
    weights = (scores - read(2855)).exp()
    slopes = weights * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * factor
    for name, value in ((2859, slopes @ k), (2860, slopes.mT @ q), (2861, weights.mT @ dout)):
        put(view(name), value.numpy() + off)


def _changed(operation: dict[Any, Any], products: torch.Tensor, name: int, places: dict[int, int]) -> torch.Tensor:
    """Return what a graph within the operation makes of its products."""
    if name not in operation:
        return products
    (graph,) = operation[name]
    assert graph["kind"] == GRAPH
    held = {operation[name + 1][0]: products}
    for inner in graph[801]:
        if inner["kind"] == ELEMENTWISE:
            assert (inner[750][0][0], inner[750][0][1]) == ([0], [0]), "an addition in float32"
            held[inner[753][0][906][0]] = held[inner[751][0][906][0]] + torch.tensor(numbers(tensor(inner[752][0], places)))
        else:
            assert (inner["kind"], inner[3007]) == (BAND, [303])
            hidden = float(tensor(inner[3005][0], places)[0, 0, 0, 0])
            assert hidden == -math.inf
            x = held[inner[3000][0][906][0]]
            held[inner[3006][0][906][0]] = x.masked_fill(torch.ones(x.shape[-2:]).triu(1).bool(), hidden)
    return held[operation[name + 2][0]]
