"""Functions that take tensors apart."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f, i

X = f(3, 4)

CASES = {
    "atleast_1d": Case(lambda p, x: p.atleast_1d(x), {"x": f(2)}),
    "atleast_2d": Case(lambda p, x, y: p.atleast_2d(x, y), {"x": f(2), "y": X}),
    "atleast_3d": Case(lambda p, x, y: p.atleast_3d(x, y), {"x": f(2), "y": X}),
    "broadcast_tensors": Case(lambda p, x, y: p.broadcast_tensors([x, y]), {"x": f(3, 1), "y": f(2, 1, 4)}),
    "broadcast_shape": Case(lambda p, x: p.reshape(x, p.broadcast_shape([3, 1], [4])), {"x": f(12)}),
    "unflatten": Case(lambda p, x: p.unflatten(x, -1, [2, -1]), {"x": X}),
    "vsplit": Case(lambda p, x: p.vsplit(x, [1, 2]), {"x": X}),
    "reverse": Case(lambda p, x: p.reverse(x, [0, 1]), {"x": X}),
    "rot90": Case(lambda p, x: p.rot90(x), {"x": X}),
    "rot90 back": Case(lambda p, x: p.rot90(x, -1, [1, 2]), {"x": f(2, 3, 4)}),
    "rot90 twice": Case(lambda p, x: p.rot90(x, 2), {"x": X}),
    "tensordot": Case(lambda p, x, y: p.tensordot(x, y), {"x": f(2, 3, 4), "y": f(3, 4, 5)}),
    "tensordot of axes": Case(lambda p, x, y: p.tensordot(x, y, [[0, 2], [1, 0]]), {"x": f(2, 3, 4), "y": f(4, 2, 5)}),
    "tensordot of none": Case(lambda p, x, y: p.tensordot(x, y, 0), {"x": f(2), "y": f(3)}),
    "tril_indices": Case(lambda p: p.tril_indices(3, 4, 1), {}),
    "triu_indices": Case(lambda p: p.triu_indices(3, offset=-1, dtype="int32"), {}),
    "vander": Case(lambda p, x: p.vander(x), {"x": f(3)}, slopes=False),
    "vander upwards": Case(lambda p, x: p.vander(x, 4, True), {"x": i(3)}),
    "combinations": Case(lambda p, x: p.combinations(x), {"x": f(4)}),
    "combinations with the same": Case(lambda p, x: p.combinations(x, 3, True), {"x": i(3)}),
    "tanh_ and its like": Case(lambda p, x: p.neg_(p.sin_(p.cumsum_(x, 1))), {"x": X}),
    "where_": Case(lambda p, x, y: p.where_(p.greater_than(x, y), x, y), {"x": X, "y": f(3, 4, seed=1)}),
    "methods": Case(lambda p, x: x.fmax(x * 0.5).kthvalue(2)[0].lgamma(), {"x": np.abs(X) + 0.1}, near=1e-5),
    "viterbi_decode": Case(
        lambda p, x, w, n: p.text.viterbi_decode(x, w, n), {"x": f(3, 5, 4), "w": f(4, 4, seed=1), "n": np.array([5, 1, 3])}, slopes=False
    ),
    "ViterbiDecoder": Case(
        lambda p, x, w, n: p.text.ViterbiDecoder(w, False)(x, n), {"x": f(3, 5, 4), "w": f(4, 4, seed=1), "n": np.array([2, 1, 4])},
        slopes=False,
    ),
}
