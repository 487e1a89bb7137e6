"""Graphs on the page: our layout in layers, and Graphviz's SVG made harmless."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from pe_cli.graph.picture import Arrow, Box, Datum, Picture
from pe_cli.io.view import drawing, layered_layout
from pe_cli.io.view.drawing import graph_svg, own_svg, sanitized
from pe_cli.io.view.layered_layout import Spot, place
from tests.io.runs import EVIL

SVG = "{http://www.w3.org/2000/svg}"


def overlap(a: Spot, b: Spot) -> bool:
    return abs(a.x - b.x) < (a.width + b.width) / 2 - 0.01 and abs(a.y - b.y) < (a.height + b.height) / 2 - 0.01


@pytest.mark.parametrize("seed", range(10))
def test_boxes_lie_below_what_points_to_them_and_nothing_covers_a_box(seed: int) -> None:
    draw = random.Random(seed)
    keys = [f"n{i}" for i in range(25)]
    sizes = {k: (draw.uniform(20, 200), draw.uniform(15, 60)) for k in keys}
    arrows = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :] if draw.random() < 0.12]
    spots, ways = place(sizes, arrows)
    for a, b in arrows:
        assert spots[a].y + spots[a].height / 2 < spots[b].y - spots[b].height / 2
    boxes = list(spots.values())
    assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    # an arrow that passes a layer passes beside its boxes
    assert ways
    assert not any(overlap(point, box) for way in ways.values() for point in way for box in boxes)
    assert min(s.x - s.width / 2 for s in boxes) >= -0.01


def test_a_circle_is_drawn_all_the_same() -> None:
    spots, _ = place(dict.fromkeys("abc", (10, 10)), [("a", "b"), ("b", "c"), ("c", "a"), ("b", "b")])
    assert spots["a"].y < spots["b"].y < spots["c"].y
    assert place({}, []) == ({}, {})


def test_columns_lie_beside_each_other_and_the_longest_arrows_go_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains forward and back of 40 boxes; arrows that pass 2, 4, ... layers have places for as many as there is room for."""
    monkeypatch.setattr(layered_layout, "PLACES", 60)
    keys = [[f"{column}.{i}" for i in range(40)] for column in "ab"]
    arrows = [pair for chain in keys for pair in pairwise(chain)]
    arrows += [(chain[i], chain[39 - i]) for chain in keys for i in range(19)]
    columns = {key: int(key[0] == "b") for chain in keys for key in chain}
    spots, ways = place(dict.fromkeys(columns, (50.0, 20.0)), arrows, columns)
    assert max(spots[k].x for k in keys[0]) + 50 < min(spots[k].x for k in keys[1])
    assert sorted({len(way) for way in ways.values()}) == [2, 4, 6, 8, 10]
    assert sum(map(len, ways.values())) == 60


def test_an_order_without_data_is_a_dashed_line_that_moves_no_box() -> None:
    boxes = (Box("op0", "mul", "op", "forward", 0), Box("op1", "relu", "op", "forward", 0))
    flow = Arrow("op0", "op1", (Datum("x", None),))
    one, two = (own_svg(Picture("p", ("cpu:0",), boxes, arrows)) for arrows in ((flow,), (flow, Arrow("op1", "op0", order=True))))
    (dashed,) = (e for e in ElementTree.fromstring(two).iter() if e.get("class") == "edge order")
    assert re.sub(r'<path class="edge order"[^>]*></path>', "", two) == one
    y = [float(pair.split()[1]) for pair in dashed.get("d", "")[1:].split("L")]
    assert y[0] > y[1], "up from the second box to the first"


def evil_picture() -> Picture:
    boxes = (
        Box("op0", EVIL, "op", "forward", 0, lines=(EVIL,), tip=EVIL),
        Box("v", EVIL, "feed", "", 0),
        Box("op1", "mul", "collective", EVIL, None),
    )
    return Picture(EVIL, (EVIL,), boxes, (Arrow("v", "op0", (Datum(EVIL, None),)), Arrow("op0", "op1", order=True)))


def test_texts_of_our_own_drawing_are_texts() -> None:
    root = ElementTree.fromstring(own_svg(evil_picture()))
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {"svg", "defs", "marker", "path", "g", "title", "rect", "text"}
    assert [e.text for e in root.iter(f"{SVG}title") if e.text == EVIL]


def test_graphviz_may_hand_over_no_script_link_or_style() -> None:
    hostile = (
        '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9"'
        ' onload="x()"><script>x()</script><style>@import "http://x"</style><image href="http://x"/><foreignObject><p/></foreignObject>'
        '<g class="node" onclick="x()"><a xlink:href="javascript:x()"><path d="M0 0" fill="url(http://x)" stroke="#fff"/>'
        '<text x="1">a &lt;b&gt; &amp;</text></a></g></svg>'
    )
    clean = sanitized(hostile.encode())
    root = ElementTree.fromstring(clean)
    assert [e.tag.removeprefix(SVG) for e in root.iter()] == ["svg", "g", "path", "text"]
    assert "http" not in clean.replace("http://www.w3.org/2000/svg", "")
    assert (root.get("onload"), root.find(f".//{SVG}path").attrib) == (None, {"d": "M0 0", "stroke": "#fff"})  # type: ignore[union-attr]
    assert root.find(f".//{SVG}text").text == "a <b> &"  # type: ignore[union-attr]


def test_without_graphviz_the_layout_is_ours_and_with_it_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setitem(__import__("sys").modules, "pygraphviz", None)
    svg, note = graph_svg(evil_picture())
    assert 'data-layout="own"' in svg
    assert "own layout" in note
    monkeypatch.setattr(drawing, "render_svg", lambda _: b'<svg xmlns="http://www.w3.org/2000/svg"><g class="graph"/></svg>')
    svg, note = graph_svg(evil_picture())
    assert 'data-layout="graphviz"' in svg
    assert "Graphviz" in note


def test_an_arrow_straight_over_many_layers_is_faint_and_an_order_is_not() -> None:
    spots = {key: Spot(0.0, y, 50.0, 20.0) for key, y in (("a", 0.0), ("b", 12 * drawing.ROW), ("c", 12 * drawing.ROW + 1))}
    looks = {}
    for end, order, way in [("b", False, ()), ("c", False, ()), ("c", True, ()), ("c", False, (Spot(9.0, 9.0, 0.0, 0.0),))]:
        text = drawing._arrow(Arrow("a", end, order=order), spots, {("a", end): way})
        looks[end, order, bool(way)] = re.findall('class="([^"]*)"', text)
    assert looks == {
        ("b", False, False): ["edge"], ("c", False, False): ["edge far"], ("c", True, False): ["edge order"], ("c", False, True): ["edge"],
    }  # fmt: skip
