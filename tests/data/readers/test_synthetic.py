"""The synthetic reader."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType

IMAGE = {"shape": [1, 8, 8]}
LABEL = {"shape": [1], "dtype": "int64", "classes": 10}


@pytest.fixture
def make(read):
    return lambda samples=200, seed=0, **fields: read("synthetic", samples=samples, seed=seed, fields=fields)


def everything(data):
    return data.take(np.arange(len(data)))


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        pytest.param({"shape": [3, 4]}, TensorType((3, 4), "float32"), id="float32 is the default"),
        pytest.param({"shape": [], "dtype": "float64"}, TensorType((), "float64"), id="a scalar of float64"),
        pytest.param({"shape": [7], "dtype": "int64", "high": 50}, TensorType((7,), "int64"), id="whole numbers"),
        pytest.param({"shape": [70, 70, 3], "dtype": "uint8"}, TensorType((70, 70, 3), "uint8"), id="a large image"),
        pytest.param({"shape": [5], "dtype": "bool"}, TensorType((5,), "bool"), id="bool"),
    ],
)
@pytest.mark.parametrize("others", [{}, {"label": LABEL}], ids=["alone", "with a label"])
def test_any_order_of_indices_gives_the_same_samples(make, field, kind, others):
    data = make(x=field, **others)
    assert data.fields["x"] == kind
    whole = everything(data)
    some = np.array([199, 3, 3, 0, 57])
    for name, rows in data.take(some).items():
        assert rows.dtype == data.fields[name].numpy
        assert rows.flags.c_contiguous
        assert np.array_equal(rows, whole[name][some])


def test_a_sample_does_not_depend_on_the_number_of_samples_or_other_fields(make):
    few, many = make(samples=5, x=IMAGE, label=LABEL), make(samples=500, label=LABEL, y={"shape": [2]}, x=IMAGE)
    assert np.array_equal(everything(few)["x"], many.take(np.arange(5))["x"])


def test_seeds_and_field_names_give_other_values(make):
    one, two = make(x=IMAGE, y=IMAGE), make(seed=1, x=IMAGE)
    assert not np.array_equal(everything(one)["x"], everything(one)["y"])
    assert not np.array_equal(everything(one)["x"], everything(two)["x"])


def test_no_two_samples_are_equal(make):
    rows = everything(make(samples=5000, x={"shape": [4]}, label=LABEL))["x"]
    assert len(np.unique(rows, axis=0)) == 5000


def test_each_run_of_as_many_samples_as_classes_has_every_class(make):
    labels = everything(make(samples=70, label=LABEL))["label"]
    assert np.array_equal(np.sort(labels.reshape(7, 10), axis=1), np.tile(np.arange(10), (7, 1)))


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        pytest.param({"shape": [50]}, 0, 1, id="floats are in [0, 1]"),
        pytest.param({"shape": [50], "low": -3, "high": 5}, -3, 5, id="floats are between low and high"),
        pytest.param(
            {"shape": [50], "dtype": "int64", "low": -2, "high": 3}, -2, 2, id="whole numbers stay below high"
        ),
        pytest.param({"shape": [50], "dtype": "uint8"}, 0, 255, id="uint8 has all bytes"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_ranges(make, field, low, high, noise):
    values = everything(make(samples=2000, x={**field, "noise": noise}, label=LABEL))["x"]
    assert low <= values.min()
    assert values.max() <= high
    assert values.max() - values.min() > 0.9 * (high - low)


def test_without_noise_samples_of_a_class_are_equal(make):
    batch = everything(make(x={"shape": [6], "noise": 0}, label=LABEL))
    assert len(np.unique(batch["x"], axis=0)) == 10


def test_the_nearest_class_mean_of_train_tells_the_class_of_eval(make):
    batch = everything(make(samples=1000, x=IMAGE, label=LABEL))
    x, label = batch["x"].reshape(1000, -1), batch["label"][:, 0]
    means = np.stack([x[:500][label[:500] == c].mean(axis=0) for c in range(10)])
    guess = ((x[500:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (guess == label[500:]).mean() > 0.95


def test_one_field_predicts_another_where_there_are_no_classes(make):
    batch = everything(make(samples=1000, x={"shape": [20]}, y={"shape": [1], "noise": 0.1}))
    x = np.hstack([batch["x"], np.ones((1000, 1))])
    weights = np.linalg.lstsq(x[:500], batch["y"][:500])[0]
    error = batch["y"][500:] - x[500:] @ weights
    assert error.var() < 0.5 * batch["y"].var()


def test_a_sequence_of_labels_follows_from_the_class(make):
    labels = everything(make(y={"shape": [6], "dtype": "int64", "classes": 5}))["y"]
    assert 0 <= labels.min() < labels.max() == 4
    assert len(np.unique(labels, axis=0)) == 5


@pytest.mark.parametrize(
    ("field", "message"),
    [
        pytest.param({}, "needs the option 'fields.x.shape'", id="no shape"),
        pytest.param({"shape": [0]}, "fields.x.shape.0", id="an empty axis"),
        pytest.param({"shape": [2], "dtype": "float16"}, "fields.x.dtype", id="an unknown type"),
        pytest.param({"shape": [2], "low": 1, "high": 1}, "low 1 must be below high 1", id="no range"),
        pytest.param({"shape": [2], "high": float("inf")}, "fields.x.high", id="an infinite bound"),
        pytest.param({"shape": [2], "low": -3e38, "high": 3e38}, "float32 holds", id="a range above float32"),
        pytest.param({"shape": [2], "dtype": "int64"}, "int64 values need high", id="whole numbers without a bound"),
        pytest.param({"shape": [2], "dtype": "uint8", "high": 257}, "do not fit uint8", id="more than a byte"),
        pytest.param({"shape": [2], "dtype": "int64", "low": 0.2, "high": 0.8}, "whole numbers", id="no whole number"),
        pytest.param({"shape": [2], "noise": 1.5}, "fields.x.noise", id="noise above 1"),
        pytest.param({"shape": [1], "classes": 10}, "need an integer type", id="classes of floats"),
        pytest.param({"shape": [1], "dtype": "uint8", "classes": 257}, "257 class indices need", id="too many classes"),
        pytest.param({**LABEL, "high": 3}, "so high has no meaning", id="classes and a range"),
        pytest.param({"shape": [1 << 20, 1 << 20]}, "is more than", id="a sample larger than memory"),
        pytest.param({"shape": [2], "clases": 3}, "has no option 'fields.x.clases'", id="a misspelt option"),
    ],
)
def test_bad_options(make, field, message):
    with pytest.raises(PeError, match=message) as caught:
        make(x=field)
    assert caught.value.code is ExitCode.USAGE


def test_a_thousand_classes_of_large_images_take_little_memory(make):
    data = make(samples=10**9, x={"shape": [3, 224, 224]}, label={**LABEL, "classes": 1000})
    assert data.take(np.array([10**9 - 1]))["x"].shape == (1, 3, 224, 224)
