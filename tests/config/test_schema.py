"""JSON Schema: it says what the checks say."""

from __future__ import annotations

import json

from pe_cli.config.schema import ArgDoc, LayerDoc, model_schema, run_schema
from pe_cli.metrics.define import discover as discover_metrics


def test_the_run_schema_has_every_section() -> None:
    schema = run_schema({"SGD": "Stochastic gradient descent.\nMore."})
    assert list(schema["properties"]) == [
        "extends", "args", "plugins", "model", "data", "feeds", "train", "fetches", "metrics", "executor", "distributed", "build_strategy",
        "exec_strategy", "output", "sweep",
    ]  # fmt: skip
    assert schema["additionalProperties"] is False
    assert schema["if"] == {"not": {"required": ["extends"]}}
    assert schema["then"]["required"] == ["model"]
    train = schema["$defs"]["TrainSection"]
    number, reference = train["properties"]["batch_size"]["anyOf"]
    assert (number["minimum"], reference["type"]) == (1, "string")
    assert train["properties"]["optimizer"]["properties"]["type"]["oneOf"] == [
        {"const": "SGD", "description": "Stochastic gradient descent."}
    ]
    assert "required" not in schema
    assert "required" not in train, "a base may have it"
    needed = schema["then"]["properties"]["train"]["anyOf"][1]
    assert set(needed["required"]) == {"loss", "batch_size", "optimizer"}
    assert needed["anyOf"] == [{"required": ["epochs"]}, {"required": ["steps"]}]
    assert set(schema["$defs"]["FeedSection"]["properties"]) >= {"from", "value"}
    json.dumps(schema)


def test_a_layer_is_described_by_the_catalogue() -> None:
    layers = {"fc": LayerDoc({"input": ArgDoc("variables", True), "size": ArgDoc("int", True)}, "Connect.", "input")}
    schema = model_schema(layers)
    made = schema["$defs"]["layer"]["anyOf"][1]
    # the previous layer is the input where none is written
    assert made["required"] == ["type", "size"]
    assert made["properties"]["type"] == {"const": "fc"}
    assert {"type": "integer"} in made["properties"]["size"]["anyOf"]
    assert made["additionalProperties"] is False
    json.dumps(schema)


def test_a_metric_is_described_by_its_options() -> None:
    kinds = discover_metrics()
    schema = run_schema(metrics={name: kind.options for name, kind in kinds.items()})
    forms = {form["properties"]["type"]["const"]: form for form in schema["properties"]["metrics"]["additionalProperties"]["anyOf"]}
    assert set(forms) == set(kinds)
    assert forms["top_k"]["required"] == ["type", "scores", "labels"]
    assert forms["f1"]["properties"]["average"]["enum"] == ["binary", "micro", "macro", "weighted"]
    json.dumps(schema)
