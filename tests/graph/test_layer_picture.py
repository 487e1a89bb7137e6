"""The picture of a model's layers: boxes, what flows between them, folded blocks."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pe_cli.cli.common import open_source
from pe_cli.cli.main import run as run_command_line
from pe_cli.graph.layer_picture import model_picture
from pe_cli.graph.picture import Picture
from pe_cli.io.view.drawing import standalone_graph

MODELS = Path(__file__).parents[2] / "models"
TWO = """\
name: two
feeds:
  x: {shape: [8, 6], dtype: float32}
layers:
  rnn:   {type: lstm, input: x, hidden_size: 4}
  parts: {type: split, input: rnn.0, num_or_sections: 2, dim: 1}
  both:  {type: elementwise_add, x: parts.0, y: parts.1}
fetches: [both]
"""


def picture(path: Path, limit: int | None = None) -> Picture:
    source = open_source(path)
    return model_picture(source.built.eval, {layer.key: layer.type for layer in source.model.layers}, source.model.name, limit=limit)


def flows(found: Picture) -> list[tuple[str, str, str]]:
    return [(a.source, a.target, ", ".join(str(d.type) for d in a.data)) for a in found.arrows]


def test_layers_and_feeds_are_boxes_and_shapes_flow_between_them() -> None:
    found = picture(MODELS / "softmax_regression.yaml")
    assert [box.title for box in found.boxes if box.kind == "feed"] == ["features", "label"]
    (logits,) = (box for box in found.boxes if box.title == "logits")
    assert logits.lines == ("fc", "15 parameters")  # 4 x 3 weights and 3 biases
    assert ("feed features", "logits", "float32[batch, 4]") in flows(found)
    assert ("logits", "xent", "float32[batch, 3]") in flows(found)


def test_every_output_of_a_layer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    found = picture(path)
    assert ("parts", "both", "float32[batch, 4, 4], float32[batch, 4, 4]") in flows(found)
    (rnn,) = (box for box in found.boxes if box.title == "rnn")
    assert rnn.lines[:3] == ("lstm", "float32[1, batch, 4]", "float32[1, batch, 4]")  # what no arrow says: both last states
    for command in (["summary"], ["check"], ["graph", "--stage", "model"]):
        assert run_command_line([*command, str(path)]) == 0
        said = capsys.readouterr().out
        assert re.search(r"rnn\.0 +lstm .*float32\[batch, 8, 4\]", said)
        assert re.search(r"rnn\.1 +float32\[1, batch, 4\]", said)
        assert re.search(r"parts\.1 +float32\[batch, 4, 4\]", said)


def test_blocks_are_folded_as_deep_as_the_limit_asks() -> None:
    whole, some, few = (picture(MODELS / "resnet20.yaml", limit) for limit in (None, 30, 12))
    layers = len(open_source(MODELS / "resnet20.yaml").model.layers)
    assert whole.ops() == layers
    assert whole.notes == ()
    assert few.ops() < some.ops() <= 30
    assert some.notes == (f"{layers} layers in {some.ops()} boxes by block",)
    (stage,) = (box for box in few.boxes if box.title == "stage1")
    (first,) = (box for box in some.boxes if box.title == "stage1/0")
    assert first.lines[0].startswith("5 layers: 2 conv2d, 2 batch_norm, ")
    assert first.lines[1] == "4,736 parameters"  # two convolutions of 16 x 16 x 3 x 3, two norms of 4 x 16
    assert stage.lines[1] == "14,208 parameters"


def test_a_parameter_that_is_a_layer_flows_to_who_reads_it() -> None:
    assert ("places", "placed", "float32[16, 48]") in flows(picture(MODELS / "vit.yaml"))


@pytest.mark.parametrize("model", ["mlp", "vit"])
def test_the_picture_is_one_that_any_viewer_shows(model: str) -> None:
    text = standalone_graph(picture(MODELS / f"{model}.yaml"))
    root = ElementTree.fromstring(text)
    width, height = (float(root.attrib[key]) for key in ("width", "height"))
    assert "var(" not in text
    (top,) = (float(re.search(r"translate\(\S+ (\S+)\)", g.attrib["transform"])[1]) for g in root if "transform" in g.attrib)
    for element in root.iter():
        if element.tag.endswith("}rect") and "x" in element.attrib:
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
            assert top + float(element.attrib["y"]) + float(element.attrib["height"]) <= height
        if element.attrib.get("class") == "said":
            assert float(element.attrib["x"]) + 5 * len(element.text) <= width


def test_the_command_writes_text_and_pictures_without_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    svg, dot = tmp_path / "a.svg", tmp_path / "a.dot"
    assert run_command_line(["graph", str(MODELS / "resnet20.yaml"), "--stage", "model", "--svg", str(svg), "--dot", str(dot)]) == 0
    assert "stage1/0" in svg.read_text()
    assert "float32[batch, 16, 32, 32]" in dot.read_text()
    assert run_command_line(["graph", str(MODELS / "mlp.yaml"), "--stage", "model", "--only", "fc", "--svg", str(svg)]) == 2
    assert "--stage model draws layers" in capsys.readouterr().err
