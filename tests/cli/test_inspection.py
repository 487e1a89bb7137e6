"""pe check, summary, graph, ops, devices and schema: what can be seen before anything runs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pe_cli.cli.cuda_kernels import capabilities
from pe_cli.devices.cuda import cuda_count
from tests.cli.conftest import ROOT, Pe
from tests.graph.dot_parser import parse_dot
from tests.rotation import of_today, on_its_day

CONFIGS = sorted(ROOT.glob("configs/**/*.yaml"))
MODELS = sorted(ROOT.glob("models/**/*.yaml"))
NAMED = {"ids": lambda p: str(p.relative_to(ROOT))}

# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", of_today(CONFIGS, 3), **NAMED)
def test_every_shipped_config_has_no_mistakes(pe: Pe, path: Path) -> None:
    said = pe("check", path)
    assert said.code == 0, said.err
    assert "no mistakes" in said.out


def test_check_says_shapes_parameters_and_memory(pe: Pe, config: Path) -> None:
    said = pe("check", config)
    assert said.code == 0, said.err
    assert "float32[batch, 1]" in said.out
    assert "parameters: 5 in 2 tensors" in said.out
    assert "memory of cpu:0:" in said.out


def test_check_says_what_a_process_needs_by_strategy(pe: Pe, config: Path) -> None:
    said = pe("check", config, "-o", "executor.processes=3")
    assert said.code == 0, said.err
    assert "memory of cpu:0 in each of 3 processes:" in said.out
    assert re.search(r"memory of a process by reduce_strategy: AllReduce [\d.]+ KiB, Reduce [\d.]+ KiB, Shard [\d.]+ KiB", said.out)
    assert not (config.parent / "runs").exists()


def test_check_notes_an_option_that_does_nothing(pe: Pe, config: Path) -> None:
    said = pe("check", config, "-o", "train.optimizer={type: Adam, lazy_mode: true}")
    assert said.code == 0, said.err
    assert "note: lazy_mode: no gradient is row-sparse" in said.out


def test_check_notes_statistics_of_devices_that_it_chose(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = config.parent / "model.yaml"
    model.write_text(model.read_text().replace("layers:\n", "layers:\n  normed: {type: batch_norm, input: x}\n", 1))
    config.write_text(config.read_text() + "executor: {devices: auto}\n" * ("executor:" not in config.read_text()))
    monkeypatch.setenv("CPU_NUM", "2")
    note = "note: batch_norm on 2 devices: each takes the statistics of its own part of a batch"
    for given, noted in (("executor.devices=auto", True), ("executor.devices=2", False), ("build_strategy.sync_batch_norm=true", False)):
        assert (note in pe("check", config, "-o", given).out) is noted
    monkeypatch.setenv("CPU_NUM", "1")
    assert "note:" not in pe("check", config, "-o", "executor.devices=auto").out


def test_check_reports_the_mistakes_of_all_files_at_once(pe: Pe, config: Path) -> None:
    config.write_text(
        config.read_text().replace("epochs: 2", "epochs: 0").replace("reader: npz, file: data.npz}", "reader: npx}")
    )
    model = config.parent / "model.yaml"
    model.write_text(model.read_text().replace("size: 1", "sise: 1"))
    said = pe("check", config)
    assert said.code == 2
    for text in (
        "at least 1",
        "did you mean 'npz'?",
        "did you mean 'size'?",
        "line.yaml:3:",
        "line.yaml:8:",
        "model.yaml:6:",
    ):
        assert text in said.err, said.err


def test_check_only_warns_of_a_data_file_that_is_not_there(pe: Pe, config: Path) -> None:
    (config.parent / "data.npz").unlink()
    said = pe("check", config)
    assert said.code == 0
    assert said.err.count("warning: data.") == 2
    assert "2 warnings" in said.out


@pytest.mark.parametrize(
    ("override", "code", "text"),
    [
        pytest.param("data.train.fiels=1", 2, "has no option 'fiels'", id="an option that the reader does not have"),
        pytest.param("feeds.x=w", 3, "'w'", id="a field that the data does not have"),
        pytest.param("data.train={reader: synthetic, fields: {x: {shape: [5]}, y: {shape: [1]}}}", 3, "[5]",
                     id="a field of another shape"),
    ],
)  # fmt: skip
def test_check_looks_at_the_data(pe: Pe, config: Path, override: str, code: int, text: str) -> None:
    said = pe("check", config, "-o", override)
    assert (said.code, text in said.err) == (code, True), said.err


@on_its_day(0, of=3)
def test_check_plans_for_a_gpu_that_is_not_here(pe: Pe, config: Path) -> None:
    said = pe("check", config, "-o", "executor.place=cuda", "--arch", "sm_80")
    assert said.code == 0, said.err
    assert "note: planned for 1 cuda; " in said.out
    assert "CUDA kernels for sm_80: " in said.out
    assert "memory of cuda:0: " in said.out
    assert "pinned memory of the host, that cuda:0 copies from and to: " in said.out


@pytest.mark.skipif(cuda_count()[0] > 0, reason="a GPU is here")
def test_kernels_are_compiled_for_the_usual_cards_where_none_is_named() -> None:
    assert capabilities([]) == ((8, 0), (9, 0), (10, 0))
    assert capabilities(["sm_90", "sm_80", "sm_90"]) == ((9, 0), (8, 0))


# --- summary ----------------------------------------------------------------------------------------------------------


def test_summary_counts_parameters_and_operations(pe: Pe, config: Path) -> None:
    said = pe("summary", config, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    guess = found["layers"][0]
    assert guess["layer"] == "guess"
    assert guess["shape"] == [-1, 1]
    assert guess["parameters"] == 4 * 1 + 1
    assert guess["flops"] == 2 * 4 * 1
    assert guess["output_bytes"] == 4
    assert found["totals"]["parameters"] == 5
    assert found["totals"]["parameter_bytes"] == 20


def test_summary_tells_the_group_rate_and_decay_of_parameters(pe: Pe, config: Path) -> None:
    said = pe("summary", config, "-o", "train.groups=[{match: '*.w_0', learning_rate: 10x}]")
    assert said.code == 0, said.err
    rows = [line.split() for line in said.out.splitlines() if line.startswith("guess.")]
    weight, bias = (next(row for row in rows if row[0] == name) for name in ("guess.w_0", "guess.b_0"))
    assert weight[1] == "*.w_0"
    assert bias[1] == "-"
    assert float(weight[2]) == pytest.approx(10 * float(bias[2]))


def test_summary_leaves_running_statistics_out_and_tells_what_layers_freeze(pe: Pe, config: Path) -> None:
    model = config.parent / "model.yaml"
    model.write_text(
        "name: frozen\nfeeds: {x: {shape: [4]}, y: {shape: [1]}}\nlayers:\n"
        "  still: {type: fc, input: x, size: 3, param_attr: {name: still.w, trainable: false}, bias_attr: false}\n"
        "  norm: {type: batch_norm}\n  guess: {type: fc, size: 1}\n"
        "  cost: {type: square_error_cost, input: guess, label: y}\n  loss: {type: mean, x: cost}\nfetches: [loss]\n"
    )
    said = pe("summary", config, "-o", f"model={model}", "-o", "train.groups=[{match: 'guess*', learning_rate: 2x}]")
    assert said.code == 0, said.err
    rows = said.out[said.out.index("parameter ") :].splitlines()[1:]
    names = [row.split()[0] for row in rows if row.strip()]
    assert names[:5] == ["still.w", "norm.w_0", "norm.b_0", "guess.w_0", "guess.b_0"]
    assert not any("norm" in name for name in names[5:]), "running statistics are no parameters that are trained"


def test_summary_of_lenet_counts_as_by_hand(pe: Pe) -> None:
    said = pe("summary", ROOT / "models" / "lenet.yaml", "--json")
    found = {layer["layer"]: layer for layer in json.loads(said.out)["layers"]}
    # 20 filters of 5x5 over one channel, at 24x24 places
    assert found["conv1"]["flops"] == 2 * 20 * 25 * 24 * 24
    assert found["conv1"]["parameters"] == 20 * 25 + 20
    assert found["conv2"]["parameters"] == 50 * 20 * 25 + 50
    assert found["logits"]["parameters"] == 500 * 10 + 10
    assert json.loads(said.out)["totals"]["parameters"] == 431_080


@pytest.mark.parametrize("path", MODELS, **NAMED)
def test_every_shipped_model_has_a_summary_that_says_what_it_leaves_out(pe: Pe, path: Path) -> None:
    said = pe("summary", path)
    assert said.code == 0, said.err
    assert "not counted" in said.out


def test_overrides_need_a_config(pe: Pe) -> None:
    said = pe("summary", ROOT / "models" / "mlp.yaml", "-o", "train.epochs=1")
    assert said.code == 2
    assert "name a config" in said.err


# --- graph ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        pytest.param("program", "optimize sgd(", id="the program has the updates"),
        pytest.param("ssa", "guess@0.1", id="every write is a version"),
        pytest.param("fused", "graph train on cpu:0\n", id="after passes, still one device"),
        pytest.param("multi_device", "all_reduce(", id="gradients are summed over devices"),
        pytest.param("executed", " as update", id="devices share an update"),
        pytest.param("plan", "[scope]", id="a plan says where arguments lie"),
    ],
)
def test_graph_prints_every_stage(pe: Pe, config: Path, stage: str, text: str) -> None:
    said = pe("graph", config, "--stage", stage, "--devices", 2)
    assert said.code == 0, said.err
    assert text in said.out


def test_graph_of_evaluation_has_no_updates(pe: Pe, config: Path) -> None:
    said = pe("graph", config, "--eval")
    assert "sgd" not in said.out
    assert "@GRAD" not in said.out
    assert said.out == pe("graph", config.parent / "model.yaml").out.replace('"eval"', '"eval" seed 3')


def test_graph_writes_dot(pe: Pe, config: Path, tmp_path: Path) -> None:
    said = pe("graph", config, "--dot", tmp_path / "g.dot", "--devices", 2)
    assert said.code == 0, said.err
    text = (tmp_path / "g.dot").read_text()
    assert text.startswith("digraph pe {")
    assert "cluster_1" in text


@on_its_day(1, of=3)
@pytest.mark.parametrize("stage", ["program", "ssa", "fused", "multi_device", "plan"])
@pytest.mark.parametrize("full", [[], ["--full"]], ids=["large ones collapsed", "whole"])
@pytest.mark.parametrize("path", ["configs/digits_cnn.yaml", "configs/resnet20_synthetic.yaml", "models/mlp.yaml"])
def test_the_dot_of_every_stage_is_read_by_a_strict_reader(pe: Pe, tmp_path: Path, stage: str, full: list, path: str):
    said = pe("graph", ROOT / path, "--stage", stage, "--dot", tmp_path / "g.dot", *full)
    assert said.code == 0, said.err
    found = parse_dot((tmp_path / "g.dot").read_text())
    assert found.edges
    if not full:
        assert len([k for k in found.nodes if not k.startswith("legend")]) < 400


@pytest.mark.parametrize("choice", [["--only", "sgd"], ["--around", "guess", "--radius", 2]], ids=["only", "around"])
@pytest.mark.parametrize("stage", ["multi_device", "plan"])
def test_parts_of_a_graph_are_drawn(pe: Pe, config: Path, tmp_path: Path, stage: str, choice: list) -> None:
    assert pe("graph", config, "--stage", stage, "--dot", tmp_path / "whole.dot").code == 0
    assert pe("graph", config, "--stage", stage, "--dot", tmp_path / "part.dot", *choice).code == 0
    whole, part = (parse_dot((tmp_path / f"{name}.dot").read_text()) for name in ("whole", "part"))
    assert set(part.nodes) < set(whole.nodes)


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pygraphviz", None)


@pytest.mark.usefixtures("without_graphviz")
@pytest.mark.parametrize("stage", ["program", "ssa", "fused", "multi_device", "executed", "plan"])
def test_every_stage_is_drawn_without_graphviz(pe: Pe, config: Path, tmp_path: Path, stage: str) -> None:
    """Every box of the Graphviz text is in the picture, with its title; devices have frames, and what joins them lies between."""
    said = pe("graph", config, "--stage", stage, "--devices", 2, "--dot", tmp_path / "g.dot", "--svg", tmp_path / "g.svg")
    assert said.code == 0, said.err
    root = ElementTree.parse(tmp_path / "g.svg").getroot()
    by_class: dict[str, list[ElementTree.Element]] = {}
    for element in root.iter():
        for name in element.get("class", "").split():
            by_class.setdefault(name, []).append(element)
    dot = parse_dot((tmp_path / "g.dot").read_text())
    shown = sorted("".join(text.itertext()) for text in by_class["first"])
    assert len(shown) == len(dot.nodes), "a box for each, and those of the legend"
    frames = by_class.get("frame", [])
    assert len(frames) == (2 if stage in {"multi_device", "executed", "plan"} else 0)
    if stage == "multi_device":
        left, right = sorted((float(f.get("x", "")), float(f.get("width", ""))) for f in frames)
        (joins,) = (found for g in by_class["joins"] if g.findtext("{*}title") != "joins devices" for found in g.findall("{*}rect")[:1])
        assert left[0] + left[1] < float(joins.get("x", "")) < right[0]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--dot", "/proc/nothing/g.dot"], id="a picture that cannot be written"),
        pytest.param(["--devices", "0"], id="no device"),
    ],
)
def test_graph_refuses(pe: Pe, config: Path, arguments: list[str]) -> None:
    assert pe("graph", config, *arguments).code == 2


# --- ops --------------------------------------------------------------------------------------------------------------


def test_ops_lists_layers_and_ops(pe: Pe) -> None:
    said = pe("ops")
    assert said.code == 0
    for name in ("fc", "softmax", "conv2d", "sgd"):
        assert f"\n  {name} " in said.out
    assert "_grad " not in said.out


def test_ops_prints_an_entry_whole(pe: Pe) -> None:
    said = pe("ops", "fc")
    assert "fc(input, size, num_flatten_dims=1, param_attr=null, bias_attr=null, act=null)" in said.out
    assert "| size | int | required |" in said.out
    op = pe("ops", "mul").out
    assert "mul(X, Y) -> Out" in op
    assert "| devices | cpu, cuda |" in op
    assert pe("ops", "mul_grad").code == 0


def test_ops_does_not_know_a_name(pe: Pe) -> None:
    said = pe("ops", "sofmax")
    assert said.code == 2
    assert "did you mean 'softmax'?" in said.err


def test_ops_writes_the_same_pages_each_time(pe: Pe, tmp_path: Path) -> None:
    pages = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert pe("ops", "--write", folder).code == 0
        pages.append({p.name: p.read_bytes() for p in folder.iterdir()})
    assert pages[0] == pages[1]
    assert b"[fc](fc.md)" in pages[0]["README.md"]
    for name in pages[0]:
        assert name == "README.md" or f"]({name})".encode() in pages[0]["README.md"]


def test_ops_cannot_write_where_nobody_can(pe: Pe) -> None:
    assert pe("ops", "--write", "/proc/nothing").code == 2


# --- devices and schema -----------------------------------------------------------------------------------------------


def test_devices_says_where_the_default_comes_from(pe: Pe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    found = json.loads(pe("devices", "--json").out)
    assert found["devices_auto"] == "3 cpu (CPU_NUM)"
    assert found["vector_bits"] in (128, 256, 512)
    monkeypatch.setenv("CPU_NUM", "two")
    said = pe("devices")
    assert said.code == 0
    assert "'two'" in said.out


def test_schema_of_configs_knows_the_sections(pe: Pe) -> None:
    found = json.loads(pe("schema").out)
    assert {"model", "data", "feeds", "train", "fetches", "executor", "output"} <= set(found["properties"])
    assert found["additionalProperties"] is False
    train = found["$defs"]["TrainSection"]
    whole = found["then"]["properties"]["train"]["anyOf"][1]
    assert set(whole["required"]) == {"batch_size"}, "where no other file says the rest"
    assert set(whole["required"]) <= set(train["properties"])
    assert "npz" in found["$defs"]["DataSection"]["properties"]["reader"]["enum"]


def test_schema_of_models_knows_the_layers(pe: Pe) -> None:
    found = json.loads(pe("schema", "--model").out)
    layers = {e["properties"]["type"]["const"]: e for e in found["$defs"]["layer"]["anyOf"] if "type" in e["properties"]}
    assert layers["fc"]["required"] == ["type", "size"]
    assert layers["fc"]["properties"]["type"] == {"const": "fc"}
    assert set(layers["fc"]["properties"]) >= {"input", "size", "act", "param_attr"}
