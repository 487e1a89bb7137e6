"""Pictures: accepted by Graphviz whatever names hold, with devices, roles, sizes and collectives; filtered and collapsed."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as xml
from itertools import pairwise

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.dot import COLOURS, MANY, quote, size_text, to_dot, write_dot
from pe_cli.graph.picture import Arrow, Box, Datum, Picture, picture_of
from pe_cli.graph.picture_collapse import collapse, collapse_large, variables_as_arrows
from pe_cli.graph.picture_filter import around, only
from pe_cli.graph.picture_optimizer_state import fold_state
from pe_cli.graph.replicate import replicate
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role
from pe_cli.program.parse import parse_program
from tests.graph.dot_parser import parse_dot

SVG = "{http://www.w3.org/2000/svg}"
NASTY = [
    pytest.param('a "quoted" name', id="quotes"),
    pytest.param('"', id="one quote"),
    pytest.param("back\\slash", id="a backslash"),
    pytest.param("ends with a backslash\\", id="a backslash at the end"),
    pytest.param('\\"', id="a backslash before a quote"),
    pytest.param("\\N \\G \\n \\l", id="escapes of labels"),
    pytest.param("größe 数据 🙂", id="unicode"),
    pytest.param("a -> b", id="an arrow"),
    pytest.param("a;b} digraph {", id="syntax of dot"),
    pytest.param("<b>bold</b>", id="tags"),
    pytest.param("&lt; & &amp;", id="entities"),
    pytest.param("two\nlines\ttab", id="line breaks"),
    pytest.param("node", id="a keyword"),
    pytest.param("cluster_0", id="the name of a cluster"),
    pytest.param("a:n", id="a port"),
    pytest.param("\x01\x7f\ud800", id="characters that XML refuses"),
    pytest.param("", id="nothing"),
    pytest.param("x" * 5000, id="very long"),
]


def accepted(dot: str) -> xml.Element | None:
    """Check dot text with our reader, and with Graphviz where it is installed; return the SVG."""
    parse_dot(dot)
    if shutil.which("dot") is None:
        return None
    done = subprocess.run(["dot", "-Tsvg"], input=dot.encode(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr.replace(b"\n", b""), done.stderr.decode()
    return xml.fromstring(done.stdout)


def chain(layers: int, *, update: bool = False) -> Program:
    """Return `x -> relu -> relu -> ... -> mean` in scopes `layer0/`, ..., with gradients and updates on request."""
    program = Program("chain")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True)
    block.create_parameter("w", TensorType((4, 4)))
    block.create_var("rate", TensorType((1,)), persistable=True, stop_gradient=True)
    name = "x"
    for i in range(layers):
        with program.name_scope(f"layer{i}"):
            if i == 0:
                block.append_op("mul", {"X": name, "Y": "w"}, {"Out": "h0"})
            else:
                block.append_op("relu", {"X": name}, {"Out": f"h{i}"})
            name = f"h{i}"
    with program.name_scope("loss"):
        block.append_op("mean", {"X": name}, {"Out": "loss"})
    if update:
        append_backward(block.var("loss"))
        with program.role(Role.OPTIMIZE, ["w", "w@GRAD"]), program.name_scope("optimizer"):
            block.append_op("sgd", {"Param": "w", "Grad": "w@GRAD", "LearningRate": "rate"}, {"ParamOut": "w"})
    return program


def drawn(layers: int = 3, devices: int = 2, **facts: bool) -> Picture:
    places = [Place("cpu", d) for d in range(devices)]
    return picture_of(replicate(chain(layers, update=True), places, BuildStrategy()), title="chain", **facts)


# --- text that Graphviz takes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NASTY)
def test_any_name_is_drawn_and_shown_as_it_is(name):
    kind = TensorType((2, 3))
    boxes = (
        Box("op0", name, "op", "forward", 0, name, (name,), name, frozenset([name])),
        Box(f"{name}/0/0", name, "variable", "", 0, "", (), name),
        Box("op1", "next", "collective", "dist", None),
    )
    arrows = (
        Arrow("op0", f"{name}/0/0", (Datum(name, kind),)),
        Arrow(f"{name}/0/0", "op1", (Datum(name, kind),)),
        Arrow("op0", "op1", (Datum(name, None),)),
        Arrow("op0", "op1", order=True),
    )
    svg = accepted(write_dot(Picture(name, (name, "other"), boxes, arrows, (name,))))
    if svg is not None and name in ('a "quoted" name', "back\\slash", "größe 数据 🙂", "a -> b", "<b>bold</b>", "&lt; & &amp;"):
        texts = [t.text for t in svg.iter(f"{SVG}text")]
        assert texts.count(name) >= 4, texts


def test_a_quoted_name_ends_where_it_should():
    assert quote('a"b\\') == '"a\\"b\\\\"'


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB")])
def test_bytes_are_written_for_people(nbytes, text):
    assert size_text(nbytes) == text


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_training_graph_is_accepted(devices):
    accepted(write_dot(drawn(devices=devices)))


def test_an_empty_program_is_accepted():
    accepted(to_dot(replicate(Program("empty"), [Place()], BuildStrategy())))


def test_a_large_picture_is_accepted_whole():
    picture = drawn(layers=50)
    assert len(picture.boxes) > MANY
    text = write_dot(picture)
    accepted(text)
    assert "h40\\nfloat32[batch, 4]" in text, "sizes stand in the variables then"


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_devices_are_clusters_and_collectives_stand_between_them():
    text = write_dot(drawn())
    found = parse_dot(text)
    assert found.clusters == ["cluster_0", "cluster_1", "cluster_legend"]
    first = text.index("cluster_0")
    second = text.index("cluster_1")
    sums = [k for k, a in found.nodes.items() if a["shape"] == "octagon" and k.startswith("op")]
    assert len(sums) == 1
    assert text.index(f'"{sums[0]}" [') > text.index("}", second) > first


def test_ops_have_the_colour_of_their_role_and_the_legend_says_which():
    found = parse_dot(write_dot(drawn()))
    colours = {a["fillcolor"] for a in found.nodes.values()}
    roles = ("forward", "loss", "backward", "optimize", "dist")
    assert {COLOURS[r] for r in roles} <= colours
    legend = [a["label"] for k, a in found.nodes.items() if k.startswith("legend")]
    assert legend[: len(roles)] == list(roles)
    assert {"fed", "kept between steps", "joins devices"} <= set(legend)


def test_shapes_and_bytes_stand_at_the_arrows():
    found = parse_dot(write_dot(drawn(devices=1)))
    (label,) = [a["label"] for s, t, a in found.edges if s == "w/0/0" and found.nodes[t]["label"].startswith("mul\\n")]
    assert label == "float32[4, 4]\\n64 B"


def test_data_is_written_at_one_arrow_where_an_op_makes_it():
    picture = drawn(devices=1)
    made = [a for a in picture.arrows if a.shown and not a.order and a.data[0].name == "h0"]
    assert len(made) == 1
    assert made[0].target == "h0/0/1"


def test_fused_ops_have_two_borders():
    box = Box("op0", "fused_momentum", "op", "optimize", 0, fused=True)
    found = parse_dot(write_dot(Picture("t", ("cpu:0",), (box,), ())))
    assert found.nodes["op0"]["peripheries"] == "2"


def test_a_program_draws_each_variable_once():
    whole, versions = drawn(devices=1, versions=False), drawn(devices=1)
    keys = [b.key for b in whole.boxes if b.title == "w"]
    assert keys == ["w/0/0"]
    assert [b.key for b in versions.boxes if b.title == "w"] == ["w/0/0", "w/0/1"]
    accepted(write_dot(whole))


# --- filters ----------------------------------------------------------------------------------------------------------


def titles(picture: Picture) -> list[str]:
    return [b.title for b in picture.boxes if b.is_op]


def test_only_keeps_a_role_with_its_variables():
    part = only(drawn(devices=1), ["optimize"])
    assert titles(part) == ["sgd"]
    assert {b.title for b in part.boxes if not b.is_op} == {"w", "w@GRAD", "rate"}
    assert all(a.shown for a in part.arrows if not a.order)
    accepted(write_dot(part))


def test_only_takes_types_and_roles_together():
    assert titles(only(drawn(devices=2), ["mul", "dist"])) == ["mul", "mul", "all_reduce"]


def test_only_knows_what_there_is():
    with pytest.raises(PeError, match="no op here has the role or type 'relo'") as caught:
        only(drawn(), ["relo"])
    assert caught.value.hint == "did you mean 'relu'?"
    with pytest.raises(PeError) as caught:
        only(drawn(), ["zzzz"])
    assert "backward" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("radius", "forward"),
    [
        pytest.param(1, ["relu", "relu"], id="one op: who writes and who reads it"),
        pytest.param(2, ["mul", "relu", "relu", "relu"], id="two ops: their neighbours too"),
    ],
)
def test_around_goes_so_many_ops_far(radius, forward):
    picture = picture_of(replicate(chain(6), [Place()], BuildStrategy()))
    assert titles(around(picture, "h1", radius)) == forward


def test_around_shows_every_device():
    part = around(drawn(devices=2), "w@GRAD")
    assert sorted(titles(part)) == ["all_reduce", "mul_grad", "mul_grad", "sgd", "sgd"]
    accepted(write_dot(part))


def test_around_knows_the_variables():
    with pytest.raises(PeError, match="no op here touches a variable 'lss'") as caught:
        around(drawn(), "lss")
    assert caught.value.hint == "did you mean 'loss'?"


# --- collapse ---------------------------------------------------------------------------------------------------------


def blocks(stages: int, inside: int) -> Picture:
    """Return stages of chained ops in scopes `stage0/0/`, `stage0/1/`, ..."""
    program = Program("blocks")
    block = program.global_block()
    block.create_var("x", TensorType((8,)), is_data=True)
    name = "x"
    for s in range(stages):
        for i in range(inside):
            for k in range(2):
                with program.name_scope(f"stage{s}"), program.name_scope(str(i)):
                    block.append_op("relu", {"X": name}, {"Out": f"v{s}_{i}_{k}"})
                    name = f"v{s}_{i}_{k}"
    return picture_of(replicate(program, [Place()], BuildStrategy()), title="blocks")


def test_small_pictures_stay_as_they_are():
    picture = blocks(2, 3)
    assert collapse_large(picture, limit=24) is picture


def test_a_large_picture_becomes_a_box_a_scope():
    small = collapse(blocks(3, 4), limit=12)
    ops = [b for b in small.boxes if b.is_op]
    assert [b.title for b in ops] == [f"stage{s}/{i}" for s in range(3) for i in range(4)]
    assert {b.lines for b in ops} == {("2 ops", "2 relu")}
    assert small.notes == ("24 ops in 12 boxes by name scope",)
    accepted(write_dot(small))


def test_scopes_are_joined_further_up_when_there_are_too_many():
    small = collapse(blocks(3, 4), limit=5)
    assert [b.title for b in small.boxes if b.is_op] == ["stage0", "stage1", "stage2"]
    flows = [(a.source, a.target, [d.name for d in a.data]) for a in small.arrows]
    assert flows == [
        ("x/0/0", "group 0", ["x"]),
        ("group 0", "group 1", ["v0_3_1"]),
        ("group 1", "group 2", ["v1_3_1"]),
    ]
    labels = [a["label"] for _, _, a in parse_dot(write_dot(small)).edges if "label" in a]
    assert "v0_3_1\\nfloat32[8]\\n32 B" in labels


def test_collectives_roles_and_devices_stay_apart():
    small = collapse(drawn(layers=4, devices=2))
    kinds = {(b.cluster, b.role) for b in small.boxes if b.is_op}
    assert {(0, "forward"), (1, "forward"), (0, "backward"), (None, "dist"), (1, "optimize")} <= kinds
    accepted(write_dot(small))


def test_what_a_group_holds_of_fused_ops_is_told():
    inside = [Box(f"op{i}", "fused_relu", "op", "forward", 0, "a/", fused=True) for i in range(2)]
    inside.append(Box("op2", "relu", "op", "forward", 0, "a/"))
    (box,) = collapse(Picture("t", ("cpu:0",), tuple(inside), ())).boxes
    assert box.lines == ("3 ops", "2 fused_relu, relu", "2 fused")


def test_operators_that_became_one_have_a_double_border():
    program = parse_program(
        'program "p"\nblock 0\n  var x: float32[batch, 4] is_data stop_gradient\n'
        "  forward square(X=x) -> Out=a: float32[batch, 4]\n  forward tanh(X=a) -> Out=b: float32[batch, 4]\n"
    )
    stages = compile_program(program, Purpose([Place("cpu", 0)]), ["b"])
    (box,) = [b for b in picture_of(stages.stage("fused")).boxes if b.kind == "op"]
    assert (box.title, box.fused) == ("fusion_group", True)
    assert not any(b.fused for b in picture_of(stages.stage("ssa")).boxes)


def adam(width: int) -> Picture:
    """Return a chain of layers whose updates, each with its own state, are one op."""
    boxes = [Box("op0", "fused_adam", "op", "optimize", 0, "optimizer/")]
    arrows = []
    for i in range(width):
        boxes.append(Box(f"op{i + 1}", "mul", "op", "forward", 0, f"fc{i}/"))
        for name in (f"w{i}", f"w{i}_moment1", f"w{i}_moment2"):
            flow = (Datum(name, TensorType((4, 4))),)
            boxes += [Box(f"{name}/0/{v}", name, "persistable", "", 0, names=frozenset([name])) for v in (0, 1)]
            arrows += [Arrow(f"{name}/0/0", "op0", flow), Arrow("op0", f"{name}/0/1", flow)]
        arrows.append(Arrow(f"w{i}/0/0", f"op{i + 1}", (Datum(f"w{i}", TensorType((4, 4))),)))
    return Picture("t", ("cpu:0",), tuple(boxes), tuple(arrows))


def test_the_state_of_an_optimizer_stands_in_its_box():
    whole = adam(5)
    small = fold_state(whole)
    (box,) = (b for b in small.boxes if b.title == "fused_adam")
    assert box.lines == ("keeps 10 variables, 640 B",)  # two moments of 4 x 4 float32 for each of five parameters
    assert "w3_moment2" in box.tip
    assert {b.title for b in small.boxes if b.kind == "persistable"} == {f"w{i}" for i in range(5)}
    assert all("moment" not in d.name for a in small.arrows for d in a.data)
    assert fold_state(adam(1)) == adam(1), "one or two are drawn"


def test_many_variables_become_arrows_between_ops():
    picture = blocks(2, 3)
    ops = [b.key for b in picture.boxes if b.is_op]
    assert collapse_large(picture, limit=24, full=True) is picture
    arrows = collapse_large(picture, limit=12)
    assert arrows == collapse_large(picture, limit=6, full=True) == variables_as_arrows(picture)
    assert [b.key for b in arrows.boxes if b.is_op] == ops
    assert [b.title for b in arrows.boxes if not b.is_op] == ["x"]
    assert [(a.source, a.target) for a in arrows.arrows] == list(pairwise(["x/0/0", *ops]))
    read = variables_as_arrows(fold_state(adam(5)))
    assert [b.lines for b in read.boxes] == [
        ("keeps 10 variables, 640 B", "reads 5 variables that stay"),
        *[(f"w{i} float32[4, 4]",) for i in range(5)],
    ]
    accepted(write_dot(read))


def test_transposes_between_layouts_stay_apart():
    inside = [Box(f"op{i}", "transpose", "op", "forward", 0) for i in range(2)]
    inside += [Box(f"op{i}", "relu", "op", "forward", 0, "a/") for i in (2, 3)]
    small = collapse(Picture("t", ("cpu:0",), tuple(inside), ()))
    assert [(b.title, b.kind) for b in small.boxes] == [("transpose", "op"), ("transpose", "op"), ("a", "group")]
