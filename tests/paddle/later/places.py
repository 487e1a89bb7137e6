"""Functions that read and write by numbers of places."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f, i

X = f(3, 4)
COLUMNS, ROWS = np.array([[0, 3], [1, 1], [2, 0]]), np.array([[2, 0, 1, 2]])
AGAIN = np.array([1, 1, 2, 2, 2, 1, 3, 3], "float32")
SORTED = np.sort(f(2, 6))

CASES = {
    "take_along_axis of one row": Case(lambda p, x, n: p.take_along_axis(x, n, 0), {"x": X, "n": ROWS}),
    "take_along_axis of a column": Case(lambda p, x, n: p.take_along_axis(x, n, 1), {"x": X, "n": np.array([[1, 2]])}),
    "put_along_axis": Case(lambda p, x, n, v: p.put_along_axis(x, n, v, 0), {"x": X, "n": ROWS, "v": f(1, 4, seed=1)}),
    "put_along_axis that adds": Case(
        lambda p, x, n, v: p.put_along_axis(x, n, v, 1, "add"), {"x": X, "n": COLUMNS, "v": f(3, 2, seed=1)}
    ),
    "put_along_axis that multiplies": Case(
        lambda p, x, n, v: p.put_along_axis(x, n, v, 1, reduce="mul"), {"x": X, "n": COLUMNS, "v": f(3, 2, seed=1)}, slopes=False
    ),
    "index_add": Case(lambda p, x, n, v: p.index_add(x, n, 0, v), {"x": X, "n": np.array([2, 0, 2]), "v": f(3, 4, seed=1)}),
    "index_add to columns": Case(lambda p, x, n, v: p.index_add(x, n, 1, v), {"x": X, "n": np.array([1, 3]), "v": f(3, 2, seed=1)}),
    "index_put": Case(
        lambda p, x, n, m, v: p.index_put(x, (n, m), v),
        {"x": X, "n": np.array([0, 2]), "m": np.array([1, -1]), "v": f(2, seed=1)},
    ),
    "index_put of rows that adds": Case(
        lambda p, x, n, v: p.index_put(x, (n,), v, True), {"x": X, "n": np.array([0, 2, 0]), "v": f(4, seed=1)}
    ),
    "select_scatter": Case(lambda p, x, v: p.select_scatter(x, v, 1, 2), {"x": X, "v": f(3, seed=1)}),
    "select_scatter of the last row": Case(lambda p, x, v: p.select_scatter(x, v, 0, -1), {"x": X, "v": f(4, seed=1)}),
    "take": Case(lambda p, x, n: p.take(x, n), {"x": X, "n": np.array([[0, 5], [-1, 5]])}),
    "take that wraps": Case(lambda p, x, n: p.take(x, n, "wrap"), {"x": X, "n": np.array([14, -3, 40])}),
    "take that clips": Case(lambda p, x, n: p.take(x, n, "clip"), {"x": X, "n": np.array([14, -3, 4])}),
    "searchsorted": Case(lambda p, x, v: p.searchsorted(x, v), {"x": SORTED, "v": np.concatenate([SORTED[:, 2:4], f(2, 3)], 1)}),
    "searchsorted to the right": Case(
        lambda p, x, v: p.searchsorted(x, v, True, True), {"x": SORTED[0], "v": np.stack([SORTED[0, 2:4], f(2)])}
    ),
    "bucketize": Case(lambda p, x, s: p.bucketize(x, s, right=True), {"x": np.array([[1, 9, 4], [5, 3, 0]]), "s": np.array([1, 3, 5, 7])}),
    "kthvalue": Case(lambda p, x: p.kthvalue(x, 2)[0], {"x": X}),
    "kthvalue of columns": Case(lambda p, x: p.kthvalue(x, 3, 0), {"x": X}, slopes=False),
    "mode": Case(lambda p, x: p.mode(x), {"x": np.array([[2, 3, 3, 2, 5], [1, 1, 4, 4, 4], [5, 2, 7, 1, 3]], "float32")}, slopes=False),
    "mode of columns": Case(lambda p, x: p.mode(x, 0, True)[0], {"x": np.array([[2, 3], [2, 1], [4, 3]], "float32")}),
    "bincount": Case(lambda p, x: p.bincount(x), {"x": np.array([1, 4, 1, 0])}),
    "bincount of weights": Case(lambda p, x, w: p.bincount(x, w, 7), {"x": np.array([1, 4, 1, 0]), "w": f(4)}, slopes=False),
    "unique_consecutive": Case(lambda p, x: p.unique_consecutive(x, True, True), {"x": AGAIN}, slopes=False),
    "unique_consecutive rows": Case(
        lambda p, x: p.unique_consecutive(x, return_counts=True, axis=0), {"x": np.array([[1, 2], [1, 2], [3, 2], [1, 2]])}
    ),
    "unique_consecutive alone": Case(lambda p, x: p.unique_consecutive(x), {"x": i(3, 4, high=2)}),
    "diagonal_scatter": Case(lambda p, x, v: p.diagonal_scatter(x, v, 1), {"x": X, "v": f(3, seed=1)}),
    "diagonal": Case(lambda p, x: p.diagonal(x, -1), {"x": X}),
    "diagonal of volumes": Case(lambda p, x: p.diagonal(x, 1, 0, 2), {"x": f(2, 3, 4)}),
    "diagflat": Case(lambda p, x: p.diagflat(x, 1), {"x": f(2, 2)}, slopes=False),
}
