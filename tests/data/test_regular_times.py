"""Series at any times become regular as pandas makes them so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.windows import WindowsOptions
from pe_cli.data.regular_times import regular, seconds_of
from pe_cli.data.time_columns import working_days

ORIGIN = Origin(Path())


def frame(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    moments = pd.Timestamp("2024-03-04 05:00") + pd.to_timedelta(rng.uniform(0, 40 * 24 * 60, rows), unit="min")
    found = pd.DataFrame({
        "shop": rng.choice(["a", "b"], rows), "when": moments.floor("s"), "sold": rng.normal(100, 9, rows).round(2),
        "sort": rng.choice(["x", "y"], rows),
    })  # fmt: skip
    found.loc[::9, "sold"] = np.nan
    return found.sample(frac=1, random_state=seed)


@pytest.mark.parametrize("combined", ["mean", "sum", "last"])
@pytest.mark.parametrize(("every", "rule"), [("1 hour", "1h"), ("6 hours", "6h"), ("1 day", "1D"), ("1 week", "W-MON")])
def test_numbers_are_those_of_pandas(every, rule, combined):
    given = frame()
    cells = {name: [None if cell != cell else cell for cell in given[name].astype(object)] for name in ("shop", "sold", "sort")}
    table = ListTable({**cells, "when": given["when"].map(pd.Timestamp.isoformat).tolist()}, ORIGIN)
    made = regular(table, "shop", "when", None, seconds_of(every), combined, ORIGIN)
    got = pd.DataFrame({
        "shop": [made.cells("shop").text(i) for i in range(len(made))], "when": [made.cells("when").text(i) for i in range(len(made))],
        "sold": made.cells("sold").numbers().values, "sort": [made.cells("sort").text(i) for i in range(len(made))],
    })  # fmt: skip
    for shop, part in given.sort_values("when").groupby("shop"):
        closed = {"closed": "left", "label": "left"} if rule.startswith("W") else {}
        bins = part.set_index("when").resample(rule, **closed)
        wanted = bins["sold"].sum(min_count=1) if combined == "sum" else getattr(bins["sold"], combined)()
        mine = got[got["shop"] == shop]
        np.testing.assert_allclose(mine["sold"], wanted, rtol=1e-12)
        assert pd.to_datetime(mine["when"]).tolist() == wanted.index.tolist()
        assert mine["sort"].tolist() == bins["sort"].last().ffill().tolist()


def test_times_of_another_form_and_numbers():
    table = ListTable({"when": ["03.01.2024", "01.01.2024", "01.01.2024"], "n": [3, 1, 2]}, ORIGIN)
    made = regular(table, None, "when", "%d.%m.%Y", 86400, "sum", ORIGIN)
    assert [made.cells("when").text(i) for i in range(3)] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    np.testing.assert_array_equal(made.cells("n").numbers().values, [3, np.nan, 3])
    made = regular(ListTable({"when": [0, 125, 70], "n": [1, 2, 3]}, ORIGIN), None, "when", None, 60, "mean", ORIGIN)
    assert made.cells("when").numbers().values.tolist() == [0, 60, 120]


def test_steps_that_are_far_too_short():
    table = ListTable({"when": ["2000-01-01", "2024-01-01"], "n": [1, 2]}, ORIGIN)
    with pytest.raises(PeError, match="2 rows would become 757,382,401"):
        regular(table, None, "when", None, 1, "mean", ORIGIN)


@pytest.mark.parametrize(("options", "said"), [
    ({"time": "t", "every": "fortnight"}, "such as 15 minutes"), ({"time": "t", "every": "0 days"}, "such as 15 minutes"),
    ({"every": "1 day"}, "every is of the column of times"), ({"format": "%Y"}, "format is of the column of times"),
])  # fmt: skip
def test_options_that_fit_nothing(options, said):
    with pytest.raises(ValidationError, match=said):
        WindowsOptions(table="t.csv", length=2, **options)


def test_weekends_are_taken_out():
    days = pd.bdate_range("2024-01-01", "2024-03-01")
    times = days.astype("int64").to_numpy() / 1e9 if days.unit == "ns" else np.array([day.timestamp() for day in days])
    found = working_days(times)
    assert found is not None
    np.testing.assert_array_equal(np.diff(found), 86400)
    assert working_days(np.append(times, times[-1] + 86400)) is None, "a Saturday"
    assert working_days(times[:3]) is None, "from Monday to Wednesday nothing tells"
