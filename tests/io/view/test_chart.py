"""Charts: places of points, ticks, gaps, and what is left of many points."""

from __future__ import annotations

import math
import random
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pe_cli.core.errors import PeError
from pe_cli.io.history import Series, read_run
from pe_cli.io.view.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Line, draw, standalone, thin
from pe_cli.io.view.charts import charts_of, chosen_chart
from pe_cli.io.view.ticks import linear_ticks, log_ticks, short
from tests.io.runs import EVIL, make_run, ordinary

SVG = "{http://www.w3.org/2000/svg}"


def paths(svg: str) -> list[str]:
    return [p.attrib["d"] for p in ElementTree.fromstring(svg).iter(f"{SVG}path") if p.get("class") == "line"]


def chart(*values: float, steps: list[int] | None = None) -> Chart:
    return Chart("loss", "loss", (Line("train", Series(steps or list(range(len(values))), list(values))),))


def test_points_lie_where_the_axes_say() -> None:
    (path,) = paths(draw(chart(0.0, 5.0, 10.0)))
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    middle = f"{(left + right) / 2:.1f} {(top + bottom) / 2:.1f}"
    assert path == f"M{left:.1f} {bottom:.1f}L{middle}L{right:.1f} {top:.1f}"


def test_a_logarithmic_axis_puts_the_geometric_mean_in_the_middle() -> None:
    (path,) = paths(draw(chart(0.01, 0.1, 1.0), log=True))
    assert f"L{(LEFT + WIDTH - RIGHT) / 2:.1f} {(TOP + HEIGHT - BOTTOM) / 2:.1f}L" in path


@pytest.mark.parametrize("value", [0.00025123, -123456.0, 7e-22])
def test_the_name_of_the_axis_lies_above_its_labels(value: float) -> None:
    texts = list(ElementTree.fromstring(draw(chart(value, 2 * value))).iter(f"{SVG}text"))
    (name,) = (float(t.attrib["y"]) for t in texts if t.text == "loss")
    highest = min(float(t.attrib["y"]) for t in texts if t.get("text-anchor") == "end")
    assert name < highest - 12, "a line of text apart"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_what_has_no_place_is_a_gap(bad: float) -> None:
    (path,) = paths(draw(chart(1.0, 2.0, bad, 1.0, 2.0)))
    assert (path.count("M"), path.count("L")) == (2, 2)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.0, 0.0], id="zeros"),
        pytest.param([1e-300, 2e-300], id="next to nothing"),
        pytest.param([-1e99, 1e99], id="huge"),
        pytest.param([0.1, 0.1 + 1e-12], id="equal but for rounding"),
        pytest.param([7.0], id="one point"),
        pytest.param([math.nan], id="no number at all"),
    ],
)
def test_odd_values_make_a_valid_chart(values: list[float]) -> None:
    svg = draw(chart(*values))
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
    assert "nan" not in svg.replace('"nan"', "")


@pytest.mark.parametrize("seed", range(20))
def test_ticks_hold_the_values_and_are_few_and_even(seed: int) -> None:
    draw_ = random.Random(seed)
    low = draw_.uniform(-1, 1) * 10 ** draw_.randint(-8, 8)
    high = low + 10 ** draw_.uniform(-3, 6) * abs(low)
    ticks = linear_ticks(low, high)
    assert ticks[0] <= low * (1 + 1e-9 * math.copysign(1, low)) + 1e-12 * abs(high)
    assert ticks[-1] >= high - 1e-9 * abs(high - low)
    assert 2 <= len(ticks) <= 9
    gaps = [b - a for a, b in pairwise(ticks)]
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-6)


def test_logarithmic_ticks_are_few_over_many_decades() -> None:
    ticks = log_ticks(1e-30, 1e30)
    assert len(ticks) <= 8
    assert ticks[0] <= 1e-30
    assert ticks[-1] >= 1e30


def test_numbers_are_short_and_read_back() -> None:
    for value in (0.25, -3.0, 1e-7, 2.5e6, 1e15):
        text = short(value)
        factor = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
        assert float(text.rstrip("kMG")) * factor == pytest.approx(value)
        assert len(text) <= 6


def test_thinning_keeps_ends_peaks_and_gaps() -> None:
    values = [math.sin(i / 50) for i in range(10_000)]
    values[4321], values[777], values[5000] = 9.0, -9.0, math.nan
    steps, kept = thin(Series(list(range(10_000)), values))
    assert len(steps) <= 400
    assert (steps[0], steps[-1]) == (0, 9999)
    assert {4321, 777, 5000} <= set(steps)
    assert steps == sorted(steps)
    assert all(values[s] == v or math.isnan(v) for s, v in zip(steps, kept, strict=True))


def test_every_metric_has_its_chart_the_loss_first(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path, name, ordinary())) for name in ("a", "b")]
    found = charts_of(runs)
    assert [c.title for c in found] == ["loss", "acc", "learning rate", "length of the gradient"]
    assert [(line.label, line.colour, line.dashed) for line in found[0].lines] == [
        ("a train", 0, False), ("a eval", 0, True), ("b train", 1, False), ("b eval", 1, True),
    ]  # fmt: skip
    assert [line.label for line in chosen_chart(runs[:1], "eval/acc").lines] == ["eval"]
    with pytest.raises(PeError, match="did you mean 'loss'"):
        chosen_chart(runs, "los")


def test_a_file_of_its_own_has_title_legend_and_colours_and_escapes_texts() -> None:
    lines = tuple(Line(f"{EVIL} {i}", Series([1, 2], [1.0, 2.0]), i) for i in range(3))
    svg = standalone(Chart(EVIL, EVIL, lines))
    root = ElementTree.fromstring(svg)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} == {"svg", "style", "rect", "text", "g", "path", "circle"}
    texts = [e.text or "" for e in root.iter(f"{SVG}text")]
    assert EVIL in texts
    assert sum(t.startswith(EVIL[:60]) for t in texts) == 5, "title, unit and three entries of the legend"
    assert "prefers-color-scheme: dark" in svg
    assert "var(" not in svg, "many viewers know no variables"
    style = next(root.iter(f"{SVG}style")).text or ""
    assert re.findall(r"c2 circle \{ fill: (#\w+); \}", style) == ["#00855f", "#2bc79b"], "light and dark"
