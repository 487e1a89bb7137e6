"""What a column's steps say, in onnxruntime, is what the column does itself."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.core.encoding import TEXT, Around, Fed, Told
from pe_cli.core.types import TensorType
from pe_cli.data.raw_cells import MISSING
from pe_cli.io.onnx.export import export
from pe_cli.program.ir import Program

ONCE = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3))
WORDS = st.sampled_from(["a", "b", "B b", "été", "7"])
SPELLINGS = st.just({"a": ["7", "A"], "b": ["B b"]})


def stepped(found, raw):
    """Return what onnxruntime makes of raw values by the lanes of a column: source's name -> values."""
    lanes = found.type.lanes("c", found.options, found.state, None)
    kinds = [lane.kind for lane in lanes]
    program = Program("p")
    block = program.global_block()
    block.create_var("x", TensorType((-1, sum(kind.shape[-1] for kind in kinds)), kinds[0].dtype), is_data=True)
    block.append_op("assign", {"X": "x"}, {"Out": "y"})
    around = Around({"x": Fed(lanes, kinds[0].dtype)}, (Told("y", "y"),), missing=MISSING)
    session = onnxruntime.InferenceSession(export(program, {}, ["y"], "p", around), providers=["CPUExecutionProvider"])
    (values,) = session.run(None, {lane.source.name: raw(lane.source) for lane in lanes})
    return values


def cells_of(cells):
    """Return how cells without parts are given to a model."""

    def raw(source):
        if source.kind.dtype == TEXT:
            return np.array([["" if cell is None else str(cell)] for cell in cells], object)
        return np.array([[np.nan if cell is None else float(cell)] for cell in cells])

    return raw


@given(
    cells=st.lists(st.none() | NUMBERS, min_size=1, max_size=12).filter(lambda cells: any(cell is not None for cell in cells)),
    later=st.lists(st.none() | NUMBERS, min_size=1, max_size=6),
    options=st.fixed_dictionaries(
        {"missing": st.sampled_from(["mean", "median", 3.5]), "scale": st.sampled_from(["none", "standard", "minmax", "robust"])},
        optional={
            "clip": st.just((-10.0, 1000.0)), "dtype": st.sampled_from(["float32", "float64"]), "transform": st.just("asinh"),
        },
    ),
)
@ONCE
def test_numbers(column, cells, later, options):
    found = column("number", cells, **options)
    np.testing.assert_allclose(stepped(found, cells_of(later)), found.encode(later), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("transform", [None, "log", "log1p", "asinh"])
def test_answers_are_given_in_the_unit_of_the_file(column, transform):
    found = column("number", [1, 20, 300, 4000], transform=transform, scale="standard")
    program = Program("p")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 1), "float64"), is_data=True)
    block.append_op("assign", {"X": "x"}, {"Out": "y"})
    told = Told("y", "y", found.type.units(found.options, found.state))
    session = onnxruntime.InferenceSession(export(program, {}, ["y"], "p", Around({}, (told,))), providers=["CPUExecutionProvider"])
    scaled = np.array([[-1.0], [0.0], [0.7]])
    (values,) = session.run(None, {"x": scaled})
    np.testing.assert_allclose(values, found.type.decode(found.options, found.state, scaled), rtol=1e-6)


@given(cells=st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=9), limits=st.just((-2.0, 3.0)) | st.none())
@ONCE
def test_whole_numbers(column, cells, limits):
    found = column("number", [*cells, 1], missing=0, dtype="int64", clip=limits)
    values = stepped(found, cells_of(cells))
    assert values.dtype == np.int64
    np.testing.assert_array_equal(values, found.encode(cells))


@given(
    cells=st.lists(st.none() | WORDS, min_size=1, max_size=12).filter(lambda cells: any(cell is not None for cell in cells)),
    later=st.lists(st.none() | WORDS | st.sampled_from(["new", "NA", "N/A"]), min_size=1, max_size=6),
    options=st.fixed_dictionaries(
        {"encode": st.sampled_from(["index", "one_hot"])}, optional={"max_classes": st.just(2), "spellings": SPELLINGS}
    ),
)
@ONCE
def test_categories(column, cells, later, options):
    found = column("category", cells, **options)
    values = stepped(found, cells_of(later))
    np.testing.assert_array_equal(values, found.encode(later))


@given(
    cells=st.lists(st.sampled_from(["yes", "No", "TRUE", "f", "oN", "0", None]), min_size=1, max_size=9),
    options=st.sampled_from([{"missing": True}, {"missing": False, "dtype_of_feed": "int64"}]),
)
@ONCE
def test_truth_values(column, cells, options):
    found = column("bool", cells, **options)
    np.testing.assert_array_equal(stepped(found, cells_of(cells)), found.encode(cells))


@pytest.mark.parametrize("cyclic", [True, False], ids=["sine and cosine", "as numbers"])
def test_dates(column, cyclic):
    # year, day of the week and day of the year by hand: 2024 was a leap year
    dates = {"2024-02-29T06:30:00": (2024, 3, 60, 6.5), "1999-12-31T00:00:00": (1999, 4, 365, 0.0), None: (np.nan,) * 4}
    parts = ["year", "weekday", "dayofyear", "hour"]
    found = column("date", list(dates), parts=parts, cyclic=cyclic, missing="zero")
    given = dict(zip(parts, np.array(list(dates.values()), np.float64).T, strict=True))
    values = stepped(found, lambda source: given[source.part][:, None])
    np.testing.assert_allclose(values, found.encode(), rtol=1e-6, atol=1e-6)


@given(
    bags=st.lists(st.lists(WORDS, max_size=4), min_size=1, max_size=8).filter(any),
    later=st.lists(st.lists(WORDS | st.just("new"), max_size=4), min_size=1, max_size=5),
    encode=st.sampled_from(["multi_hot", "counts"]),
    spellings=st.just({}) | SPELLINGS,
)
@ONCE
def test_bags(column, bags, later, encode, spellings):
    found = column("bag", ["|".join(bag) for bag in bags], encode=encode, spellings=spellings)
    width = max(1, *map(len, later))
    given = np.array([bag + [""] * (width - len(bag)) for bag in later], object)
    np.testing.assert_array_equal(stepped(found, lambda source: given), found.encode(["|".join(bag) for bag in later]))


@pytest.mark.parametrize(
    ("kind", "options", "cells", "items"),
    [
        pytest.param("bag", {"encode": "ids"}, ["a|b", "", "b|new"], ["a", "b", "", "b", "new"], id="ids of a bag"),
        pytest.param("sequence", {"items": "category"}, ["a b", "", "b new"], ["a", "b", "", "b", "new"], id="categories"),
        pytest.param("sequence", {"scale": "standard"}, ["1 2", "", "4"], [1, 2, None, 4], id="numbers"),
    ],
)
def test_sequences(column, kind, options, cells, items):
    found = column(kind, [cell.replace("new", "a") for cell in cells], **options)
    wanted = [value for row in found.encode(cells) for value in row]
    np.testing.assert_allclose(stepped(found, cells_of(items))[:, 0], wanted, rtol=1e-6)
