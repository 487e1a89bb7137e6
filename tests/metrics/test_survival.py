"""Harrell's C beside all pairs counted one by one, and beside what lifelines says."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.metrics.support import measure


def by_pairs(guess, times, seen) -> float:
    right, pairs = 0.0, 0
    for i in range(len(times)):
        for j in range(len(times)):
            if seen[i] and (times[i] < times[j] or (times[i] == times[j] and not seen[j])):
                pairs += 1
                right += 1 if guess[i] < guess[j] else 0.5 if guess[i] == guess[j] else 0
    return right / pairs


@pytest.mark.parametrize("kinds", [3, 10, 1000], ids=["many ties", "some ties", "no ties"])
def test_all_pairs(rng, kinds):
    guess, times = (rng.integers(0, kinds, 200).astype(float) for _ in range(2))
    seen = (rng.random(200) < 0.5).astype(float)
    found = measure("concordance", {"predictions": guess[:, None], "labels": times[:, None], "events": seen[:, None]}, batches=3)
    assert found == pytest.approx(by_pairs(guess, times, seen), rel=1e-12)


def test_what_lifelines_says():
    """The values are those of lifelines.utils.concordance_index, lifelines 0.30.3."""
    rng = np.random.default_rng(7)
    times, seen = np.round(rng.weibull(1.5, 40) * 10), (rng.random(40) < 0.6).astype(float)
    guess = np.round(times + rng.normal(0, 6, 40))
    assert measure("concordance", {"predictions": guess, "labels": times, "events": seen}) == pytest.approx(0.6052631578947368, rel=1e-12)
    rng = np.random.default_rng(8)
    times, seen = rng.integers(1, 5, 60).astype(float), (rng.random(60) < 0.5).astype(float)
    guess = rng.integers(0, 6, 60).astype(float)
    assert measure("concordance", {"predictions": guess, "labels": times, "events": seen}) == pytest.approx(0.5211122554067971, rel=1e-12)


def test_what_has_no_value():
    assert measure("concordance", {"predictions": [1.0, 2.0], "labels": [1.0, 2.0], "events": [0.0, 0.0]}) is None
    assert measure("concordance", {"predictions": [1.0], "labels": [1.0], "events": [1.0]}) is None
    with pytest.raises(PeError, match="events must be 0 or 1, got 2"):
        measure("concordance", {"predictions": [1.0, 2.0], "labels": [1.0, 2.0], "events": [2.0, 0.0]})
    with pytest.raises(PeError, match="one number per row"):
        measure("concordance", {"predictions": np.ones((3, 2)), "labels": np.ones(3), "events": np.ones(3)})
