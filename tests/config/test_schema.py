"""JSON Schema: it says what the checks say."""

from __future__ import annotations

import json

from pe_cli.config.schema import ArgDoc, LayerDoc, model_schema, run_schema


def test_the_run_schema_has_every_section() -> None:
    schema = run_schema({"SGD": "Stochastic gradient descent.\nMore."})
    assert list(schema["properties"]) == [
        "model", "data", "feeds", "train", "fetches", "executor", "build_strategy", "exec_strategy", "output", "sweep",
    ]  # fmt: skip
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["model"]
    train = schema["$defs"]["TrainSection"]
    assert train["properties"]["batch_size"]["minimum"] == 1
    assert train["properties"]["optimizer"]["properties"]["type"]["oneOf"] == [
        {"const": "SGD", "description": "Stochastic gradient descent."}
    ]
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
