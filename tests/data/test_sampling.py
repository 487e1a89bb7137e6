"""Samples that are drawn by weight."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data import Feed, Loader
from pe_cli.data.fields import ArrayField, FieldDataset
from pe_cli.data.sampling import Sampler, balanced_weights, check_weights, repetitions


def test_balanced_weights_are_the_inverse_of_the_classes_sizes():
    assert balanced_weights(np.array([2, 0, 2, 2, 0, 7])).tolist() == [1 / 3, 1 / 2, 1 / 3, 1 / 3, 1 / 2, 1]


def test_classes_are_drawn_alike_however_rare_they_are():
    labels = np.repeat([0, 1, 2], [9000, 900, 100])
    found = np.bincount(labels[Sampler(balanced_weights(labels), 1).draw(0)])
    assert found.sum() == 10_000
    assert found.tolist() == pytest.approx([10_000 / 3] * 3, abs=200)


def test_samples_are_drawn_in_proportion_to_their_weights():
    weights = np.array([0.0, 1, 3, 0, 6, 0])
    counts = np.zeros(6)
    sampler = Sampler(weights, 0)
    for epoch in range(2000):
        counts += np.bincount(sampler.draw(epoch), minlength=6)
    expected = weights / 10 * 12_000
    assert (counts[weights == 0] == 0).all()
    chosen = weights > 0
    assert ((counts - expected)[chosen] ** 2 / expected[chosen]).sum() < 13.8  # chi-squared with 2 degrees of freedom, 0.1%


@pytest.mark.parametrize(
    ("weights", "place", "drawn"),
    [
        pytest.param([0, 1], 0.0, 1, id="the first number of all, and a first sample without weight"),
        pytest.param([1, 0, 1], 0.5, 2, id="the edge of two samples, and one without weight between them"),
        pytest.param([1, 1, 0], 1.0, 1, id="a place that is rounded up to the end, and a last sample without weight"),
    ],
)
def test_a_place_at_an_edge_draws_a_sample_that_has_weight(monkeypatch, weights, place, drawn):
    monkeypatch.setattr("pe_cli.data.sampling.uniform", lambda key, at: np.full(len(at), place))
    assert Sampler(np.array(weights, np.float64), 0).draw(0).tolist() == [drawn] * len(weights)


def test_epochs_and_seeds_draw_other_samples_and_the_same_ones_again():
    weights = np.ones(50)
    drawn = [Sampler(weights, seed).draw(epoch).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert drawn[0] == drawn[3]
    assert len({tuple(one) for one in drawn}) == 3


def test_repetitions_count_what_stands_before():
    assert repetitions(np.array([4, 1, 4, 4, 1, 0])).tolist() == [0, 0, 1, 2, 1, 0]
    assert repetitions([]).tolist() == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param([1, np.nan, -1], "weight 2 of the training samples is missing, and 1 more are no weights: column 'w'", id="missing"),
        pytest.param([1, 0, -2.5], "weight 3 of the training samples is -2.5: column 'w'", id="below 0"),
        pytest.param([np.inf], "weight 1 of the training samples is inf", id="infinite"),
        pytest.param([0, 0], "all weights of column 'w' are 0", id="nothing"),
    ],
)
def test_weights_are_checked(values, message):
    with pytest.raises(PeError, match=message) as found:
        check_weights(np.array(values, float), "w")
    assert found.value.code == ExitCode.DATA
    assert check_weights(np.array([0.0, 2.0]), "w").tolist() == [0, 2]


def loader(**options):
    dataset = FieldDataset({"x": ArrayField(np.arange(40)[:, None], "int64")})
    return Loader(dataset, {"x": Feed("x")}, {"x": TensorType((1,), "int64")}, 6, weights=np.arange(40.0), **options)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("start", [0, 1, 4, 6])
def test_a_loader_draws_by_weight_and_can_be_resumed(prefetch, start):
    load = loader(prefetch=prefetch, shuffle=True)
    expected = Sampler(np.arange(40.0), 0).draw(3)
    found = [batch["x"][:, 0].tolist() for batch in load.epoch(3, start)]
    assert found == [expected[i : i + 6].tolist() for i in range(6 * start, 40, 6)]


def test_an_epoch_has_as_many_samples_as_before():
    assert (len(loader()), loader().samples) == (7, 40)
    assert (len(loader(drop_last=True)), loader(drop_last=True).samples) == (6, 36)
