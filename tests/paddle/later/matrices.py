"""Functions of matrices, and layers whose arguments have 2.6's order."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f

X = f(3, 4)
SQUARE = f(2, 3, 3) + 3 * np.eye(3, dtype="float32")
LOWER = np.linalg.cholesky(SQUARE[0] @ SQUARE[0].T).astype("float32")

CASES = {
    "matrix_power": Case(lambda p, x: p.linalg.matrix_power(x, 3), {"x": SQUARE}, near=1e-5),
    "matrix_power of the inverse": Case(lambda p, x: p.linalg.matrix_power(x, -2), {"x": SQUARE}, near=1e-5),
    "matrix_power of nothing": Case(lambda p, x: p.linalg.matrix_power(x, 0), {"x": SQUARE}, slopes=False),
    "multi_dot": Case(
        lambda p, x, y, z: p.linalg.multi_dot([x, y, z]), {"x": f(2, 5), "y": f(5, 3, seed=1), "z": f(3, 4, seed=2)}, near=1e-5
    ),
    "multi_dot of vectors": Case(lambda p, x, y, z: p.linalg.multi_dot([x, y, z]), {"x": f(5), "y": f(5, 3, seed=1), "z": f(3)}, near=1e-5),
    "solve": Case(lambda p, x, y: p.linalg.solve(x, y), {"x": SQUARE, "y": f(2, 3, 2, seed=1)}, near=1e-5),
    "triangular_solve": Case(lambda p, x, y: p.linalg.triangular_solve(x, y), {"x": SQUARE, "y": f(2, 3, 2, seed=1)}, near=1e-5),
    # 2.6.2 gives the gradient of a lower triangle to the upper one.
    "triangular_solve the other way": Case(
        lambda p, x, y: p.linalg.triangular_solve(x, y, False, True, True), {"x": SQUARE, "y": f(2, 3, 2, seed=1)}, near=1e-5, slopes=False
    ),
    "cholesky_solve": Case(lambda p, x, y: p.linalg.cholesky_solve(x, y), {"x": f(3, 2, seed=1), "y": LOWER}, near=2e-5, slopes=False),
    "conv2d_transpose in 2.6's order": Case(
        lambda p, x, w: p.nn.functional.conv2d_transpose(x, w, None, 2, 1, 1, [1, 2], 2), {"x": f(1, 4, 3, 3), "w": f(4, 2, 3, 2, seed=1)},
        near=1e-5,
    ),
    "conv3d_transpose in 2.6's order": Case(
        lambda p, x, w: p.nn.functional.conv3d_transpose(x, w, None, 2, 0, 0, 2, 1, [5, 5, 6]),
        {"x": f(1, 2, 2, 2, 2), "w": f(2, 1, 3, 3, 3, seed=1)}, near=1e-5,
    ),
    "functions in place": Case(
        lambda p, x: p.nn.functional.tanh_(p.nn.functional.leaky_relu_(p.nn.functional.hardtanh_(x, -1.5, 1.0))), {"x": X}
    ),
}  # fmt: skip
