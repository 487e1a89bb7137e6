"""Random crops: at random places in training, in the middle in evaluation."""

from __future__ import annotations

import numpy as np

from tests.layers.support import layers as L
from tests.layers.support import programs, run


def test_a_program_that_is_cloned_for_evaluation_crops_the_middle():
    with programs() as (main, startup):
        image = L.data("image", [1, 6, 6])
        out = L.random_crop(image, [4, 4])
    x = np.arange(20 * 36, dtype="float32").reshape(20, 1, 6, 6)
    (trained,), (evaluated,) = (run(p, startup, {"image": x}, [out.name]) for p in (main, main.clone(for_test=True)))
    assert np.array_equal(evaluated, x[:, :, 1:5, 1:5])
    assert len({float(part[0, 0, 0] - sample[0, 0, 0]) for part, sample in zip(trained, x, strict=True)}) > 1
