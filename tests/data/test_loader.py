"""Batches: order, resuming, the last batch, errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, PeErrors
from pe_cli.core.types import TensorType
from pe_cli.data import Feed, Loader

TYPES = {"x": TensorType((2,)), "y": TensorType((1,), "int64")}
FEEDS = {"x": Feed("row"), "y": Feed("number")}
DEPTHS = [pytest.param(0, id="without a thread"), pytest.param(1, id="one ahead"), pytest.param(4, id="four ahead")]


class Numbers:
    """Sample i is {row: [i, i + 0.5], number: i}."""

    def __init__(self, count, fail_at=None):
        self.fields = {"row": TensorType((2,)), "number": TensorType((), "int64")}
        self.count, self.fail_at, self.threads = count, fail_at, set()

    def __len__(self):
        return self.count

    def take(self, indices):
        self.threads.add(threading.current_thread().name)
        if self.fail_at in indices:
            raise PeError(f"sample {self.fail_at} is broken", code=ExitCode.DATA)
        return {"row": np.stack([indices, indices + 0.5], 1).astype(np.float32), "number": indices.copy()}


def loader(count=10, batch_size=4, **options):
    return Loader(Numbers(count), FEEDS, TYPES, batch_size, **options)


def labels(batches):
    return [batch["y"][:, 0].tolist() for batch in batches]


def flat(batches):
    return [number for batch in labels(batches) for number in batch]


@pytest.mark.parametrize("prefetch", DEPTHS)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], id="the last batch is smaller"),
        pytest.param({"drop_last": True}, [[0, 1, 2, 3], [4, 5, 6, 7]], id="the smaller last batch is left out"),
        pytest.param(
            {"batch_size": 5, "drop_last": True}, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], id="no batch is smaller"
        ),
        pytest.param({"batch_size": 99}, [list(range(10))], id="one batch where the data is smaller"),
    ],
)
def test_batches_in_stored_order(prefetch, options, expected):
    load = loader(prefetch=prefetch, **options)
    batches = list(load.epoch(0))
    assert labels(batches) == expected
    assert len(load) == len(expected)
    assert load.samples == sum(map(len, expected))
    assert all(batch["x"].shape == (len(batch["y"]), 2) for batch in batches)
    assert all(batch["x"].dtype == np.float32 and batch["x"].flags.c_contiguous for batch in batches)
    assert all((batch["x"][:, 0] == batch["y"][:, 0]).all() for batch in batches)


@pytest.mark.parametrize("prefetch", DEPTHS)
def test_shuffled_epochs_have_every_sample_once_in_an_order_of_seed_and_epoch(prefetch):
    def order(seed, epoch):
        return flat(loader(100, 7, shuffle=True, seed=seed, prefetch=prefetch).epoch(epoch))

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert all(sorted(one) == list(range(100)) for one in orders)
    assert len({tuple(one) for one in orders}) == 3
    assert order(0, 1) == orders[1]


def test_the_order_does_not_depend_on_the_batch_size():
    assert flat(loader(100, 7, shuffle=True).epoch(3)) == flat(loader(100, 30, shuffle=True).epoch(3))


def test_with_drop_last_other_samples_are_left_out_in_each_epoch():
    load = loader(10, 4, shuffle=True, drop_last=True)
    assert len({frozenset(flat(load.epoch(e))) for e in range(5)}) > 1


@pytest.mark.parametrize("prefetch", DEPTHS)
@pytest.mark.parametrize("start", [0, 1, 14, 15])
def test_resuming_gives_the_batches_that_were_left(prefetch, start):
    load = loader(100, 7, shuffle=True, prefetch=prefetch)
    assert labels(load.epoch(2, start)) == labels(load.epoch(2))[start:]


@pytest.mark.parametrize("start", [-1, 4])
def test_resuming_outside_the_epoch_is_an_error(start):
    with pytest.raises(PeError, match=f"cannot start at batch {start}: an epoch has 3 batches of 4 samples"):
        loader().epoch(0, start)


@pytest.mark.parametrize("prefetch", DEPTHS)
def test_what_a_reader_raises_arrives_once_after_the_batches_before_it(prefetch):
    batches = Loader(Numbers(10, fail_at=6), FEEDS, TYPES, 4, prefetch=prefetch).epoch(0)
    assert labels([next(batches)]) == [[0, 1, 2, 3]]
    with pytest.raises(PeError, match="sample 6 is broken"):
        next(batches)
    assert list(batches) == []


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_first_batch_is_that_of_the_first_epoch_and_needs_no_other_sample(shuffle):
    load = loader(20, 4, shuffle=shuffle)
    assert labels([load.first()]) == labels(load.epoch(0))[:1]
    assert labels([Loader(Numbers(10, fail_at=4), FEEDS, TYPES, 4).first()]) == [[0, 1, 2, 3]]


def test_leaving_the_loop_early_ends_the_thread():
    for _ in loader(1000, 1).epoch(0):
        break


def test_epochs_may_be_open_at_the_same_time():
    load = loader(20, 4, shuffle=True)
    pairs = list(zip(load.epoch(0), load.epoch(1), strict=True))
    assert labels(one for one, _ in pairs) == labels(load.epoch(0))
    assert labels(two for _, two in pairs) == labels(load.epoch(1))


@pytest.mark.parametrize(("prefetch", "ahead"), [(0, False), (2, True)])
def test_samples_are_taken_in_a_thread_when_prefetching(prefetch, ahead):
    data = Numbers(10)
    list(Loader(data, FEEDS, TYPES, 4, prefetch=prefetch).epoch(0))
    assert (threading.current_thread().name not in data.threads) is ahead


def test_two_feeds_of_one_field_share_no_memory():
    types = {"a": TensorType((2,)), "b": TensorType((2,))}
    batch = next(Loader(Numbers(4), {"a": Feed("row"), "b": Feed("row")}, types, 4, prefetch=0).epoch(0))
    assert not np.shares_memory(batch["a"], batch["b"])


def test_fields_that_no_feed_asks_for_are_left_out():
    batch = next(Loader(Numbers(4), {"y": Feed("number")}, {"y": TYPES["y"]}, 4, prefetch=0).epoch(0))
    assert list(batch) == ["y"]


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        pytest.param(
            {"batch_size": 0}, "batch_size must be at least 1 sample, got 0", ExitCode.USAGE, id="batch_size 0"
        ),
        pytest.param({"prefetch": -1}, "prefetch must be at least 0 batches, got -1", ExitCode.USAGE, id="prefetch -1"),
        pytest.param({"count": 0}, "the data has no samples", ExitCode.DATA, id="no samples"),
        pytest.param(
            {"batch_size": 11, "drop_last": True},
            "batch_size 11 is more than the 10 samples, and drop_last leaves no batch",
            ExitCode.DATA,
            id="no full batch",
        ),
    ],
)
def test_impossible_loaders(options, message, code):
    with pytest.raises(PeError, match=message) as caught:
        loader(**options)
    assert caught.value.code is code


def test_all_feeds_that_do_not_fit_come_in_one_error():
    feeds = {"x": Feed("roww"), "yy": Feed("number")}
    with pytest.raises(PeErrors) as caught:
        Loader(Numbers(4), feeds, TYPES, 2)
    assert [(error.message, error.hint) for error in caught.value.errors] == [
        ("the model's feed 'y' gets no data", "add y: <one of row, number> under feeds"),
        ("feed 'x': the data has no field 'roww'", "did you mean 'row'?"),
        ("the model has no feed 'yy'", "did you mean 'y'?"),
    ]
    assert caught.value.code is ExitCode.DATA


class Watched(Numbers):
    """Notes which samples are taken."""

    def __init__(self, count):
        super().__init__(count)
        self.rows = []

    def take(self, indices):
        self.rows += indices.tolist()
        return super().take(indices)


@pytest.mark.parametrize("batch_size", [2, 7, 64])
@pytest.mark.parametrize("start", [0, 1])
def test_shares_of_a_batch_are_all_of_it_and_nothing_else_is_read(batch_size, start):
    """Three take a third each, the last what is left; where there are fewer samples, some have none."""

    def batches(numbers, share=None):
        made = Loader(numbers, FEEDS, TYPES, batch_size, shuffle=True, seed=3, share=share)
        return list(made.epoch(1, min(start, len(made)))), [made.size_of(i) for i in range(min(start, len(made)), len(made))]

    def third(k):
        return lambda samples: [slice(samples // 3 * k, samples if k == 2 else samples // 3 * (k + 1))]

    whole, sizes = batches(Numbers(20))
    assert [len(batch["y"]) for batch in whole] == sizes
    watched = [Watched(20) for _ in range(3)]
    parts = [batches(watched[k], third(k))[0] for k in range(3)]
    for i, batch in enumerate(whole):
        for name, values in batch.items():
            np.testing.assert_array_equal(np.concatenate([part[i][name] for part in parts]), values)
    wanted = sorted(int(y.item()) for batch in whole for y in batch["y"])
    if batch_size == 7:  # everyone has some of every batch
        assert sorted(row for each in watched for row in each.rows) == wanted
    assert sum(len(each.rows) for each in watched) <= len(wanted) + 2 * len(whole)


class Mixes:
    """Adds the sample before it in the batch to every sample."""

    mixes = True

    def take(self, dataset, indices, epoch, times):
        return dataset.take(indices), None

    def finish(self, batch, draws):
        batch["x"] = batch["x"] + np.roll(batch["x"], 1, 0)


def test_where_samples_are_mixed_a_share_depends_on_all_of_the_batch():
    def batches(share):
        return list(loader(augment=Mixes(), shuffle=True, share=share).epoch(0))

    shares = [lambda n: [slice(0, 1), slice(n - 1, n)], lambda n: [slice(1, n - 1)]]
    first, second = map(batches, shares)
    for i, batch in enumerate(batches(None)):
        np.testing.assert_array_equal(np.concatenate([first[i]["x"][:1], second[i]["x"], first[i]["x"][1:]]), batch["x"])
