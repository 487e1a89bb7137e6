"""Columns of numbers, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.array_dataset import DatasetTable
from pe_cli.data.column import Context, discover
from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.reader_context import Origin

SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}
CELLS = ["3", " 4.5 ", "-1e2", "", "7", "NA", "0.125", "12"]
NUMBERS = np.array([[3, 4.5, -100, np.nan, 7, np.nan, 0.125, 12]]).T


@pytest.mark.parametrize("missing", ["mean", "median"])
@pytest.mark.parametrize("scale", list(SCALERS))
def test_filled_and_scaled_as_scikit_learn_does(column, scale, missing):
    rows = [0, 1, 2, 3, 4, 5]
    found = column("number", CELLS, rows, scale=scale, missing=missing)
    imputer = SimpleImputer(strategy=missing).fit(NUMBERS[rows])
    scaler = SCALERS[scale]().fit(imputer.transform(NUMBERS[rows]))
    np.testing.assert_allclose(found.encode(), scaler.transform(imputer.transform(NUMBERS)), rtol=1e-6)


@given(values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=40))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_decode_undoes_the_scale(column, values):
    found = column("number", values, scale="standard")
    back = found.type.decode(found.options, found.state, found.encode())
    np.testing.assert_allclose(back[:, 0], values, rtol=1e-4, atol=1e-4 * (np.ptp(values) + 1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [1, 20, -30], id="as they are"),
        pytest.param({"clip": [0.0, 10.0]}, [1, 10, 0], id="clipped"),
        pytest.param({"clip": [0.0, 10.0], "scale": "minmax"}, [0.1, 1, 0], id="clipped, then scaled"),
        pytest.param({"missing": 5.0}, [1, 20, -30], id="a value that fills nothing"),
        pytest.param({"scale": 100}, [0.01, 0.2, -0.3], id="divided by a number"),
        pytest.param({"clip": [1, 99], "transform": "log", "scale": 2.0}, np.log([1, 20, 1]) / 2, id="clipped, logarithm, scaled"),
        pytest.param({"clip": [0, 99], "transform": "log1p"}, np.log1p([1, 20, 0]), id="logarithm of 1 more"),
        pytest.param({"transform": "asinh"}, np.arcsinh([1, 20, -30]), id="logarithm with a sign"),
    ],
)
def test_values(column, options, expected):
    np.testing.assert_allclose(column("number", [1, "20", -30.0], **options).encode()[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(("transform", "function"), [("log", np.log), ("log1p", np.log1p), ("asinh", np.arcsinh)])
def test_logarithms_are_scaled_and_undone(column, transform, function):
    cells = [1, 10, 1000, 1e6]
    found = column("number", cells, [0, 1, 2], transform=transform, scale="standard")
    expected = StandardScaler().fit(function([cells[:3]]).T).transform(function([cells]).T)
    np.testing.assert_allclose(found.encode(), expected, rtol=1e-6)
    np.testing.assert_allclose(found.type.decode(found.options, found.state, expected)[:, 0], cells, rtol=1e-9)


@pytest.mark.parametrize(
    ("cells", "transform", "message"),
    [
        pytest.param([1, 0, 2, -1], "log", "row 2, column 'c': '0' has no logarithm, nor have 1 more", id="zero"),
        pytest.param([1, 0, "-1.5"], "log1p", "row 3, column 'c': '-1.5' has no logarithm", id="below -1"),
    ],
)
def test_numbers_without_a_logarithm_are_told(column, cells, transform, message):
    with pytest.raises(PeError) as caught:
        column("number", cells, [0], transform=transform)
    assert message in caught.value.message
    assert "clip" in str(caught.value.hint)
    fitted = column("number", [1, 2], transform=transform)
    with pytest.raises(PeError, match="has no logarithm"):
        fitted.encode(cells)


@pytest.mark.parametrize(
    "options", [{"scale": 0}, {"scale": -1}, {"transform": "log", "missing": 0}, {"transform": "log", "dtype": "int64"}], ids=str
)
def test_options_that_make_no_numbers_are_refused(options):
    with pytest.raises(ValueError, match=r"scale|logarithm"):
        discover()["number"].options.model_validate(options)


def test_only_training_rows_count(column):
    found = column("number", [1, 3, 1000], [0, 1], scale="standard")
    assert found.encode()[:, 0].tolist() == [-1, 1, 998]


def test_a_constant_column_is_0_and_told(column):
    found = column("number", [4, 4, 4], scale="standard")
    assert found.encode().tolist() == [[0], [0], [0]]
    assert found.notes == ["column 'c' is 4 in every training row: nothing can be learned from it"]


def test_whole_numbers_for_an_integer_feed(column):
    assert column("number", [3, 1], dtype_of_feed="int64").encode().dtype == np.int64
    with pytest.raises(PeError, match=r"row 2, column 'c': '1\.5' is no whole number"):
        column("number", [3, 1], dtype_of_feed="int64").encode([3, 1.5])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        pytest.param(["1", "x", "2"], "row 2, column 'c': 'x' is no finite number", id="text"),
        pytest.param(["1", "x", "y"], "'x' is no finite number, nor is 1 more cell (row 3: 'y')", id="several"),
        pytest.param(["1", "inf"], "'inf' is no finite number", id="infinity"),
        pytest.param(["1", "1_000"], "'1_000' is no finite number", id="underscores"),
        pytest.param(["1", ""], "row 2, column 'c': the cell is missing", id="missing"),
        pytest.param(["1", "", None], "row 2, column 'c': 2 cells are missing", id="several missing"),
    ],
)
def test_bad_cells_are_told(column, cells, message):
    with pytest.raises(PeError) as caught:
        column("number", cells)
    assert message in caught.value.message
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint


def test_a_missing_cell_at_prediction_is_filled_as_declared(column):
    found = column("number", [1, 2, 9], missing="median")
    assert found.encode([None])[0, 0] == 2


def test_missing_everywhere(column):
    with pytest.raises(PeError, match="every training row misses this number"):
        column("number", ["", ""], missing="mean")


def test_too_large_for_float32(column):
    with pytest.raises(PeError, match=r"row 1, column 'c': '1e39' is too large for float32"):
        column("number", ["1e39", "1"]).encode()


@pytest.fixture
def arrays(tmp_path):
    """Fit a number column of an array: arrays(values, scale="standard")."""

    def make(values, later=None, **options):
        origin = Origin(tmp_path, None)
        both = (values, values if later is None else later)
        tables = [DatasetTable(ArrayDataset({"c": np.asarray(value)}, origin), origin) for value in both]
        kind = discover()["number"]
        chosen = kind.options.model_validate(options)
        state = kind.fit(chosen, Context(tables[0], "c"), None)
        return kind.encode(chosen, state, Context(tables[1], "c"))

    return make


def test_arrays_are_scaled_by_feature_as_scikit_learn_does(arrays):
    values = np.random.default_rng(1).normal(3, 2, (20, 4)).astype(np.float32)
    found, _ = arrays(values, scale="standard").take(np.arange(20))
    np.testing.assert_allclose(found, StandardScaler().fit_transform(values.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("later", "options", "message"),
    [
        pytest.param([[1.0], [np.nan]], {"scale": "standard"}, "nan is missing", id="NaN where nothing stands for it"),
        pytest.param([[1.0], [2.5]], {"dtype": "int64"}, "2.5 is no whole number", id="a fraction among whole numbers"),
        pytest.param([[1.0], [2.0**60]], {"dtype": "int64"}, "1.152921504606847e+18 is too large", id="a number that was rounded"),
        pytest.param([[1.0], [1e300]], {}, "1e+300 is too large for float32", id="a number beyond float32"),
        pytest.param([[1.0], [1e300]], {"scale": "minmax"}, "1e+300 is too large for float32", id="a scaled number beyond float32"),
        pytest.param(np.array([[1], [2**63]], np.uint64), {"dtype": "int64"}, "9223372036854775808 is too large for int64",
                     id="an unsigned number beyond int64"),
    ],
)
def test_what_an_array_cannot_hold(arrays, later, options, message):
    field = arrays([[1.0], [4.0]], later, **options)
    assert field.take(np.array([0]))[0].shape == (1, 1)
    with pytest.raises(PeError) as caught:
        field.take(np.array([0, 1]))
    assert caught.value.code == ExitCode.DATA
    assert f"sample 1 of field 'c': {message}" in str(caught.value)


@pytest.mark.parametrize("clip", [None, [0, 2**53], [-5, 9.2e18]])
def test_large_whole_numbers_of_arrays_keep_every_digit(arrays, clip):
    values = np.array([[3], [2**53 + 1], [-(2**60) - 1]])
    options = {} if clip is None else {"clip": clip}
    found = arrays(values, dtype="int64", **options).take(np.arange(3))[0][:, 0].tolist()
    low, high = clip or (-(2**62), 2**62)
    assert found == [min(max(int(value), int(low)), int(high)) for value in values[:, 0]]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_feature_of_an_array_that_is_always_missing_is_filled(arrays, scale):
    values = np.array([[1.0, np.nan], [3.0, np.nan]], np.float32)
    found, _ = arrays(values, scale=scale, missing=5.0).take(np.arange(2))
    scaled = {"standard": [-1, 1], "minmax": [0, 1]}[scale]
    assert found.tolist() == [[scaled[0], 5.0], [scaled[1], 5.0]]


@pytest.mark.parametrize("missing", ["mean", "median"])
@pytest.mark.parametrize("scale", ["none", "robust", "standard"])
def test_every_feature_of_an_array_is_filled_by_itself_as_scikit_learn_does(arrays, missing, scale):
    rng = np.random.default_rng(4)
    values = rng.normal([0.1, 1000.0, -7.0], [0.01, 300.0, 2.0], (200, 3))
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    later = np.where(rng.uniform(size=(30, 3)) < 0.5, np.nan, values[:30])
    imputer = SimpleImputer(strategy=missing).fit(values)
    found, _ = arrays(values, later, scale=scale, missing=missing, dtype="float64").take(np.arange(30))
    wanted = imputer.transform(later)
    if scale == "robust":
        wanted = RobustScaler().fit(values).transform(wanted)
    if scale == "standard":
        wanted = StandardScaler().fit(values).transform(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_what_stands_for_missing_numbers_of_larger_samples(arrays):
    values = np.array([[[1.0, np.nan]], [[3.0, 5.0]]])
    found, _ = arrays(values, missing="mean").take(np.arange(2))
    assert found.tolist() == [[[1.0, 3.0]], [[3.0, 5.0]]]
    with pytest.raises(PeError, match="medians are of one number"):
        arrays(values, missing="median")
    with pytest.raises(PeError, match="missing: previous is for columns of a table"):
        arrays(values[:, 0], missing="previous")


@pytest.mark.parametrize("values", [[[1.0], [np.inf]], [[1.7e308], [1.7e308]]], ids=["an infinity", "a sum beyond float64"])
def test_arrays_that_have_no_scale(arrays, values):
    with pytest.raises(PeError, match="infinite, or too large to be scaled") as caught:
        arrays(values, scale="standard")
    assert caught.value.code == ExitCode.DATA


def test_whole_numbers_are_clipped(column, arrays):
    assert column("number", [-3, 2, 9], clip=[0, 5], dtype="int64").encode()[:, 0].tolist() == [0, 2, 5]
    assert arrays([[-3], [2], [9]], clip=[0, 5], dtype="int64").take(np.arange(3))[0][:, 0].tolist() == [0, 2, 5]
