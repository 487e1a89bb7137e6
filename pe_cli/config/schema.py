"""JSON Schema of both files, for editors; the catalogue of layers comes from the caller, as this package knows none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.config.block_expansion import NEEDED, REGIONS
from pe_cli.config.model import FeedDeclaration
from pe_cli.config.sections.data import DataSection
from pe_cli.config.sections.run_file import RunFile
from pe_cli.config.sections.section import Section
from pe_cli.core.lazy_dataclass import dataclass

Json = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
#: `${name}` may stand wherever a value may.
_REFERENCE: Json = {"type": "string", "pattern": r"\$\{.+\}"}
_TYPED: Json = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
#: A number, or the name of a variable.
_SIZE: Json = {"type": ["integer", "string"]}
_VALUES: dict[str, Json] = {
    "variable": {"type": "string"},
    "variables": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "int": {"type": "integer"},
    "size": _SIZE,
    "sizes": {"anyOf": [{"type": "array", "items": _SIZE}, {"type": "string"}]},
    "int_or_sizes": {"anyOf": [{"type": "array", "items": _SIZE}, _SIZE]},
    "number": {"type": ["number", "string"]},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "ints": {"type": "array", "items": {"type": "integer"}},
    "floats": {"type": "array", "items": {"type": "number"}},
    "float_lists": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}},
    "strs": {"type": "array", "items": {"type": "string"}},
    "int_or_ints": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    "int_or_ints_or_str": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}, {"type": "string"}]},
    "param_attr": {"anyOf": [{"type": ["boolean", "string"]}, {"type": "object"}]},
    "initializer": {"anyOf": [{"type": "string"}, _TYPED]},
}


@dataclass(frozen=True)
class ArgDoc:
    """An argument of a layer type.

    Args:
        kind: of value, as the catalogue of layers calls it.
        required: has no default.
        optional: may be null.
    """

    kind: str
    required: bool = False
    optional: bool = False


@dataclass(frozen=True)
class LayerDoc:
    """A layer type: its arguments, and its documentation.

    Args:
        args: by name.
        doc: its first line is shown.
        implied: argument that takes the previous layer's output, so that it need not be written.
    """

    args: Mapping[str, ArgDoc] = field(default_factory=dict)
    doc: str = ""
    implied: str | None = None


def run_schema(
    optimizers: Mapping[str, str] | None = None,
    metrics: Mapping[str, type[Section]] | None = None,
    observers: Mapping[str, type[Section]] | None = None,
) -> Json:
    """Return the JSON Schema of a run file.

    Args:
        optimizers: type -> documentation; None allows any name.
        metrics: type -> its options; None allows any.
        observers: name -> its options; None allows any.
    """
    schema = RunFile.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = schema["$defs"]
    short: Json = {"type": "string", "description": "the model file"}
    schema["properties"]["model"] = {"anyOf": [short, {"$ref": "#/$defs/ModelSection"}]}
    feeds = {"anyOf": [{"type": "string", "description": "field of the data"}, {"$ref": "#/$defs/FeedSection"}]}
    schema["properties"]["feeds"]["additionalProperties"] = feeds
    fetch = {"anyOf": [{"$ref": "#/$defs/FetchSection"}, {"type": "null"}]}
    schema["properties"]["fetches"]["additionalProperties"] = fetch
    train = definitions["TrainSection"]
    for section in (train, definitions["PhaseSection"]):
        section["properties"]["optimizer"] = _choice(optimizers)
    if observers is not None:
        kinds: Json = {name: {"anyOf": [_form(options), {"type": "null"}]} for name, options in observers.items()}
        output = definitions["OutputSection"]["properties"]["observers"]
        definitions["OutputSection"]["properties"]["observers"] = {**output, "properties": kinds, "additionalProperties": False}
    if metrics is not None:
        schema["properties"]["metrics"]["additionalProperties"] = {"anyOf": [_metric(*item) for item in metrics.items()]}
    assert DataSection.__name__ in definitions
    # what a file must have may be in one that it extends
    model: Json = {"anyOf": [{"type": "string"}, {"required": definitions["ModelSection"].pop("required")}]}
    length: Json = {"anyOf": [{"required": ["epochs"]}, {"required": ["steps"]}]}
    what: Json = {"anyOf": [{"required": ["loss", "optimizer"]}, {"required": ["phases"]}]}
    whole: Json = {"required": train.pop("required"), "allOf": [length, what]}
    schema["if"] = {"not": {"required": ["extends"]}}
    schema["then"] = {
        "required": schema.pop("required"),
        "properties": {"model": model, "train": {"anyOf": [{"type": "null"}, whole]}},
    }
    for found in (schema, *definitions.values()):
        found["properties"] = {key: _filled_in(value) for key, value in found.get("properties", {}).items()}
    train["properties"]["optimizer"]["type"] = ["object", "null"]  # null: phases have their own, and what is extended has none
    return {"$schema": _DRAFT, "title": "pe run file", **{k: v for k, v in schema.items() if k != "title"}}


def model_schema(layers: Mapping[str, LayerDoc] | None = None) -> Json:
    """Return the JSON Schema of a model file.

    Args:
        layers: the catalogue by type; None allows any type and argument.
    """
    feed = FeedDeclaration.model_json_schema()
    feed["properties"] = {name: _or_reference(value) for name, value in feed["properties"].items()}
    mapping: Json = {"type": "object"}
    block: Json = {
        "type": "object",
        "properties": {
            "args": mapping,
            "layers": {"$ref": "#/$defs/layers"},
            "output": {"type": "string"},
            "next": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["layers"],
        "additionalProperties": False,
    }
    return {
        "$schema": _DRAFT,
        "title": "pe model file",
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "args": {"type": "object", "description": "constants, used as ${name}; null must be given by the run file"},
            "feeds": {"type": "object", "additionalProperties": feed},
            "blocks": {"type": "object", "additionalProperties": block},
            "layers": {"$ref": "#/$defs/layers"},
            "fetches": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["layers"],
        "additionalProperties": False,
        "$defs": {
            "layers": {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/layer"}},
            "layer": _layer(layers),
        },
    }


def _layer(layers: Mapping[str, LayerDoc] | None) -> Json:
    call: Json = {
        "type": "object",
        "properties": {"block": {"type": "string"}, "repeat": _or_reference({"type": "integer", "minimum": 1})},
        "required": ["block"],
        "not": {"required": ["type"]},
    }
    regions = [_region(name, keys) for name, keys in REGIONS.items()]
    if layers is None:
        return {"anyOf": [call, *regions, _TYPED]}
    made = [call]
    for name, layer in sorted(layers.items()):
        properties = {key: _or_reference(_nullable(arg)) for key, arg in layer.args.items()}
        needed = [key for key, arg in layer.args.items() if arg.required and key != layer.implied]
        described = {"description": layer.doc.partition("\n")[0]} if layer.doc else {}
        made.append(
            {
                "type": "object",
                **described,
                "properties": {"type": {"const": name}, **properties},
                "required": ["type", *needed],
                "additionalProperties": False,
            }
        )
    return {"anyOf": [*made, *regions]}


def _region(name: str, keys: Sequence[str]) -> Json:
    """Return the form of a layer that runs blocks in a step."""
    block: Json = {"type": "string"}
    own: dict[str, Json] = {
        "start": {"type": "object", "description": "state -> a variable, or {shape, value, dtype}"},
        "backwards": _or_reference({"type": "boolean"}),
        "time_major": _or_reference({"type": "boolean"}),
        "bound": _or_reference({"type": "integer", "minimum": 0}),
        "condition": block,
        "then": block,
        "else": block,
        "start_token": _or_reference({"type": "integer", "minimum": 0}),
        "end_token": _or_reference({"type": "integer", "minimum": 0}),
        "beam_size": _or_reference({"type": "integer", "minimum": 1}),
        "max_step_num": _or_reference({"type": "integer", "minimum": 1}),
    }
    return {
        "type": "object",
        "properties": {name: block, **{key: own[key] for key in keys}},
        "required": [name, *NEEDED[name]],
        "not": {"required": ["type"]},
    }


def _nullable(arg: ArgDoc) -> Json:
    value = _VALUES.get(arg.kind, {})
    return {"anyOf": [value, {"type": "null"}]} if arg.optional else value


def _or_reference(value: Json) -> Json:
    return {"anyOf": [value, _REFERENCE]} if value else {}


def _metric(name: str, options: type[Section]) -> Json:
    """Return the form of a metric of one type."""
    form = _form(options)
    return {**form, "properties": {"type": {"const": name}, **form["properties"]}, "required": ["type", *form["required"]]}


def _form(options: type[Section]) -> Json:
    """Return the form of options."""
    schema = options.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _filled_in(value: Json) -> Json:
    """Return the schema of a value of a run file, which may be a `${name}`; what says how it is described stays at the top."""
    options = value.get("anyOf", [value])
    if value.get("type") == "string" or "$ref" in value or any(one.get("type") in ("string", "object") or "$ref" in one for one in options):
        return value
    about: Json = {key: value[key] for key in ("description", "default", "title") if key in value}
    rule: Json = {key: inner for key, inner in value.items() if key not in about}
    if not rule:
        return value
    return about | {"anyOf": [*rule["anyOf"], _REFERENCE] if set(rule) == {"anyOf"} else [rule, _REFERENCE]}


def _choice(optimizers: Mapping[str, str] | None) -> Json:
    if not optimizers:
        return {**_TYPED, "description": "type, learning_rate and the optimizer's own arguments"}
    types = [{"const": name, "description": doc.partition("\n")[0]} for name, doc in optimizers.items()]
    return {"type": "object", "properties": {"type": {"oneOf": types}}, "required": ["type"]}
