"""Columns of classes, against pandas and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.preprocessing import MultiLabelBinarizer

from pe_cli.core.errors import ExitCode, PeError


@given(words=st.lists(st.sampled_from(["b", "a", "été", "z z", "A"]), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_target_has_the_codes_of_pandas(column, words):
    found = column("category", words, target=True)
    assert found.encode()[:, 0].tolist() == pd.Categorical(words).codes.tolist()
    assert found.type.classes(found.state) == tuple(pd.Categorical(words).categories)


def test_an_input_has_indices_for_unknown_and_missing(column):
    found = column("category", ["b", "a", "", "b"])
    assert found.encode()[:, 0].tolist() == [3, 2, 1, 3]
    assert found.encode(["c", None, "a"])[:, 0].tolist() == [0, 1, 2]
    assert found.notes == ["1 cell of column 'c' with the index of unknown values: 'c' in row 1 is no class of the training rows"]
    assert found.type.classes(found.state) == ("<unknown>", "<missing>", "a", "b")


@pytest.mark.parametrize(
    ("options", "expected", "classes"),
    [
        pytest.param({"min_count": 2}, [2, 2, 3, 3, 0], ("a", "b"), id="rare ones are unknown"),
        pytest.param({"max_classes": 1}, [2, 2, 0, 0, 0], ("a",), id="the most frequent one"),
        pytest.param({"classes": ["c", "a", "b"]}, [3, 3, 4, 4, 2], ("c", "a", "b"), id="given, in that order"),
        pytest.param({"missing": "error"}, [1, 1, 2, 2, 3], ("a", "b", "c"), id="no index for missing cells"),
        pytest.param({"missing": "error", "unknown": "error"}, [0, 0, 1, 1, 2], ("a", "b", "c"), id="classes only"),
    ],
)
def test_indices(column, options, expected, classes):
    found = column("category", ["a", "a", "b", "b", "c"], **options)
    assert found.encode()[:, 0].tolist() == expected
    assert tuple(found.state["classes"]) == classes


def test_numbers_are_sorted_as_numbers(column):
    assert column("category", [10, 9, 2], target=True).state["classes"] == ["2", "9", "10"]


def test_one_hot_rows(column):
    found = column("category", ["b", "a"], encode="one_hot", missing="error", unknown="error")
    assert found.encode().tolist() == [[0, 1], [1, 0]]


def test_only_training_rows_have_classes(column):
    found = column("category", ["a", "b", "c"], [0, 1])
    assert found.encode()[:, 0].tolist() == [2, 3, 0]


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        pytest.param("birt", "row 2, column 'c': 'birt' is not among the 2 classes", "did you mean 'bird'?", id="unknown"),
        pytest.param("", "row 2, column 'c': the cell is missing", "missing: index", id="missing"),
    ],
)
def test_a_target_takes_no_other_value(column, cell, message, hint):
    found = column("category", ["bird", "cat"], target=True)
    with pytest.raises(PeError) as caught:
        found.encode(["cat", cell])
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.code == ExitCode.DATA


def test_a_class_that_evaluation_lacks_changes_no_index(column):
    found = column("category", ["ant", "bee", "cow"], target=True)
    assert found.encode(["cow", "bee"])[:, 0].tolist() == [2, 1]


def test_decode_gives_names(column):
    found = column("category", ["b", "a"], target=True)
    assert found.type.decode(found.options, found.state, np.array([1, 0])).tolist() == ["b", "a"]


# --- several in a cell ------------------------------------------------------------------------------------------------


def test_bags_are_those_of_scikit_learn(column):
    cells = ["war|drama", "", "drama", "comedy|war|drama"]
    expected = MultiLabelBinarizer().fit_transform([cell.split("|") if cell else [] for cell in cells])
    found = column("bag", cells)
    assert found.encode()[:, 1:].tolist() == expected.tolist()
    assert found.encode(["horror|war"]).tolist() == [[1, 0, 0, 1]]


def test_bags_count_and_list(column):
    assert column("bag", ["a b a", "b"], separator=" ", encode="counts", unknown="error").encode().tolist() == [[2, 1], [0, 1]]
    assert column("bag", ["a|b", "", "b"], encode="ids").encode() == [[1, 2], [0], [2]]


def test_a_bag_without_index_for_unknown_values(column):
    with pytest.raises(PeError, match="row 2, column 'c': 'x' is not among the 2 classes"):
        column("bag", ["a|b", "b"], unknown="error").encode(["a", "b|x"])


def test_sequences_of_numbers_and_classes(column):
    assert column("sequence", ["1 2.5", "", "-3"]).encode() == [[1, 2.5], [0], [-3]]
    assert column("sequence", ["1,2,3"], separator=",", max_length=2).encode() == [[2, 3]]
    found = column("sequence", ["up down up", "down"], items="category")
    assert found.encode() == [[2, 1, 2], [1]]
    assert found.encode(["left up"]) == [[0, 2]]


def test_scaled_sequences_have_the_mean_and_deviation_of_all_items(column):
    values = [1.0, 2.0, 3.0, 10.0]
    found = column("sequence", ["1 2", "3 10"], scale="standard").encode()
    expected = (np.array(values) - np.mean(values)) / np.std(values)
    np.testing.assert_allclose([*found[0], *found[1]], expected, rtol=1e-6)


def test_an_item_that_is_no_number(column):
    with pytest.raises(PeError, match="row 2, column 'c': item 2, 'x', is no finite number"):
        column("sequence", ["1", "2 x"]).encode()


def test_other_spellings_are_the_class_that_they_stand_for(column):
    cells = ["Yes", "yes", "no", "YES", "No", "yes", None]
    meant = {"Yes": ["yes", "YES"], "no": ["No"]}
    one = {"yes": "Yes", "YES": "Yes", "No": "no"}
    corrected = [one.get(cell, cell) for cell in cells]
    for kind, options in (("category", {}), ("category", {"encode": "one_hot", "min_count": 3}), ("category", {"max_classes": 1})):
        found, plain = column(kind, cells, spellings=meant, **options), column(kind, corrected, **options)
        assert found.state == plain.state
        np.testing.assert_array_equal(found.encode(cells), plain.encode(corrected))
    bags = ["Yes|no", "yes|No|Yes", "no", "YES"]
    for encode in ("multi_hot", "counts"):
        right = ["Yes|no", "Yes|no|Yes", "no", "Yes"]
        found, plain = column("bag", bags, spellings=meant, encode=encode), column("bag", right, encode=encode)
        assert found.state == plain.state
        np.testing.assert_array_equal(found.encode(bags), plain.encode(right))


@pytest.mark.parametrize("spellings", [
    pytest.param({"a": ["x"], "b": ["x"]}, id="of two classes"), pytest.param({"a": ["b"], "b": ["c"]}, id="a class itself"),
    pytest.param({"a": ["x", "x"]}, id="twice"), pytest.param({"a": [f"{i}" for i in range(2000)]}, id="too many"),
])  # fmt: skip
def test_a_text_stands_for_one_class(column, spellings):
    with pytest.raises(ValidationError, match=r"stands for two classes|are more than"):
        column("category", ["a", "b"], spellings=spellings)
