"""Splits of a source into rows for training, evaluation and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, train_test_split

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.data.row_split import describe, split_rows


def parts(columns, **options):
    table = ListTable(columns, Origin(Path()))
    return split_rows(table, np.arange(len(table), dtype=np.int64), SplitSection.model_validate(options))


def rows_of(count, **columns):
    return {"n": list(range(count)), **columns}


@given(count=st.integers(10, 200), shares=st.tuples(st.floats(0.1, 0.4), st.floats(0.1, 0.4)), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_row_is_in_one_part(count, shares, seed):
    found = parts(rows_of(count), eval=shares[0], test=shares[1], seed=seed)
    assert list(found) == ["train", "eval", "test"]
    assert sorted(np.concatenate(list(found.values())).tolist()) == list(range(count))
    assert len(found["eval"]) == round(count * shares[0])
    assert len(found["test"]) == round(count * shares[1])
    assert all((np.diff(rows) > 0).all() for rows in found.values())


def test_the_same_seed_gives_the_same_parts_and_another_gives_others():
    one, two = (parts(rows_of(100), eval=0.3, seed=seed) for seed in (1, 1))
    assert one["eval"].tolist() == two["eval"].tolist()
    assert one["eval"].tolist() != parts(rows_of(100), eval=0.3, seed=2)["eval"].tolist()


def test_these_rows_stay_the_same_on_every_machine():
    # the three rows of twelve with the least hashes, worked out apart from the project: SplitMix64, keyed by BLAKE2b of the seed
    assert parts(rows_of(12), eval=0.25)["eval"].tolist() == [1, 5, 10]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.37])
def test_strata_have_the_counts_of_scikit_learn(share):
    labels = ["a"] * 53 + ["b"] * 31 + ["c"] * 16
    found = parts(rows_of(100, kind=labels), eval=share, stratify="kind")["eval"]
    _, expected = train_test_split(np.arange(100), test_size=round(100 * share), stratify=labels, random_state=0)
    ours, theirs = (np.unique(np.array(labels)[rows], return_counts=True)[1] for rows in (found, expected))
    assert np.abs(ours - theirs).max() <= 1  # remainders may go elsewhere
    assert len(found) == round(100 * share)


def test_groups_stay_together():
    group = [f"g{i // 7}" for i in range(140)]
    found = parts(rows_of(140, who=group), eval=0.2, test=0.2, group="who")
    seen = {name: {group[row] for row in rows} for name, rows in found.items()}
    assert not seen["train"] & seen["eval"]
    assert not seen["train"] & seen["test"]
    assert not seen["eval"] & seen["test"]
    assert abs(len(found["eval"]) - 28) <= 7


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([5, 3, 9, 1, 7, 2, 8, 4, 6, 0], id="numbers"),
        pytest.param([f"2024-01-{d:02d}" for d in (6, 4, 10, 2, 8, 3, 9, 5, 7, 1)], id="dates"),
    ],
)
def test_the_latest_rows_test_and_the_earliest_train(times):
    found = parts(rows_of(10, when=times), eval=0.2, test=0.3, time="when")
    assert [times[i] for i in found["test"]] == [times[i] for i in (2, 4, 6)]
    assert sorted(times[i] for i in found["eval"]) == sorted([times[8], times[0]])


def test_rows_of_one_moment_stay_together():
    found = parts(rows_of(6, when=[1, 2, 3, 3, 3, 4]), eval=0.5, time="when")
    assert found["eval"].tolist() == [2, 3, 4, 5]


def test_by_position_the_last_rows_test():
    found = parts(rows_of(10), eval=0.2, test=0.1, order="position")
    assert found["eval"].tolist() == [7, 8]
    assert found["test"].tolist() == [9]


@given(count=st.integers(20, 80), folds=st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_folds_take_turns(count, folds):
    labels = ["a" if i % 3 else "b" for i in range(count)]
    found = [parts(rows_of(count, kind=labels), folds=folds, fold=i + 1, stratify="kind") for i in range(folds)]
    assert sorted(np.concatenate([part["eval"] for part in found]).tolist()) == list(range(count))
    sizes = sorted(len(test) for _, test in StratifiedKFold(folds).split(np.zeros(count), labels))
    assert sorted(len(part["eval"]) for part in found) == sizes
    shares = [sum(labels[row] == "b" for row in part["eval"]) for part in found]
    assert max(shares) - min(shares) <= 1


def test_folds_of_groups_keep_them_whole():
    group = [f"g{i % 9}" for i in range(90)]
    for fold in (1, 2, 3):
        found = parts(rows_of(90, who=group), folds=3, fold=fold, group="who")
        assert not {group[i] for i in found["train"]} & {group[i] for i in found["eval"]}
        assert len(found["eval"]) == 30


def test_the_test_is_the_same_for_all_folds():
    tests = [parts(rows_of(50), folds=5, fold=i, test=0.2)["test"].tolist() for i in (1, 2)]
    assert tests[0] == tests[1]


@pytest.mark.parametrize(
    ("count", "options", "message"),
    [
        pytest.param(10, {"eval": 0.1, "stratify": "kinds"}, "data.split.stratify: the data has no column 'kinds'", id="no such column"),
        pytest.param(3, {"eval": 0.1}, "data.split leaves no row for eval: there are 3 rows", id="too few rows"),
        pytest.param(10, {"eval": 0.2, "time": "kind"}, "'a' is neither a number nor a date of ISO 8601", id="a time that is none"),
    ],
)
def test_what_cannot_be_split(count, options, message):
    with pytest.raises(PeError) as caught:
        parts(rows_of(count, kind=["a"] * count), **options)
    assert message in caught.value.message
    assert caught.value.code == ExitCode.DATA


def test_a_split_is_known_by_its_digest():
    one, other = parts(rows_of(20), eval=0.2), parts(rows_of(20), eval=0.2, seed=5)
    assert describe(one, 20) == describe(one, 20)
    assert describe(one, 20)["parts"] == {"train": 16, "eval": 4}
    assert describe(one, 20)["sha256"] != describe(other, 20)["sha256"]
