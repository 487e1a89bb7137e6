"""pe schema: JSON Schema of configs and model files, for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pe_cli.layers.registry import LayerArg, LayerDef

#: Kind of a layer's argument -> what JSON may hold.
KINDS: dict[str, dict[str, Any]] = {
    "variable": {"type": "string"},
    "variables": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    "int": {"type": "integer"},
    "ints": {"type": "array", "items": {"type": "integer"}},
    "int_or_ints": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    "float": {"type": "number"},
    "floats": {"type": "array", "items": {"type": "number"}},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "strs": {"type": "array", "items": {"type": "string"}},
    "param_attr": {"type": ["object", "string", "boolean"]},
    "initializer": {"type": ["object", "string"]},
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: `${name}` may stand for any value.
REFERENCE = {"type": "string", "pattern": r"\$\{\w+\}"}


@click.command()
@click.option("--model", is_flag=True, help="Of model files instead of configs.")
def command(model: bool) -> None:
    """Print the JSON Schema of configs.

    Editors that know YAML complete and check with it: put `# yaml-language-server: $schema=FILE` into a file.
    """
    from pe_cli.cli.common import print_json

    print_json(model_schema() if model else config_schema(), indent=2)


def config_schema() -> dict[str, Any]:
    """Return the schema of a config, from the models that it is checked with."""
    from pe_cli.config.sections import RunFile
    from pe_cli.data import READERS

    found = RunFile.model_json_schema(by_alias=True)
    # a model may be given by its path alone, a feed by the name of its field
    for definition, key in (("ModelSection", "model"), ("FeedSection", "feeds")):
        reference = {"$ref": f"#/$defs/{definition}"}
        either = {"anyOf": [{"type": "string"}, reference]}
        if key == "model":
            found["properties"][key] = either
        else:
            found["properties"][key]["additionalProperties"] = either
    found["$defs"]["DataSection"]["properties"]["reader"]["enum"] = sorted(READERS)
    return {"$schema": DIALECT, **found, "title": "A config of pe"}


def model_schema() -> dict[str, Any]:
    """Return the schema of a model file, from the catalogue of layers."""
    from pe_cli.cli.catalogue import layers
    from pe_cli.core.types import DTYPES

    size = {"anyOf": [{"type": "integer", "minimum": -1}, REFERENCE]}
    feed = {
        "type": "object",
        "properties": {
            "shape": {"type": "array", "items": size, "description": "sizes of one sample; the batch axis is implied"},
            "dtype": {"enum": list(DTYPES)},
        },
        "required": ["shape"],
        "additionalProperties": False,
    }
    layer_map = {"type": "object", "additionalProperties": {"$ref": "#/$defs/layer"}}
    block = {
        "type": "object",
        "properties": {"args": {"type": "object"}, "layers": layer_map, "output": {"type": "string"}},
        "required": ["layers"],
        "additionalProperties": False,
    }
    call = {"type": "object", "properties": {"block": {"type": "string"}}, "required": ["block"]}
    return {
        "$schema": DIALECT,
        "title": "A model file of pe",
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "args": {"type": "object", "description": "constants, used as ${name}"},
            "feeds": {"type": "object", "additionalProperties": feed},
            "blocks": {"type": "object", "additionalProperties": block},
            "layers": layer_map,
            "fetches": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["layers"],
        "additionalProperties": False,
        "$defs": {"layer": {"anyOf": [call, *(_layer(found) for found in layers().values())]}},
    }


def _layer(found: LayerDef) -> dict[str, Any]:
    implied = found.implied
    return {
        "title": found.name,
        "description": found.doc.partition("\n")[0],
        "type": "object",
        "properties": {"type": {"const": found.name}, **{name: _argument(a) for name, a in found.args.items()}},
        "required": ["type", *(name for name, a in found.args.items() if a.required and name != implied)],
        "additionalProperties": False,
    }


def _argument(argument: LayerArg) -> dict[str, Any]:
    options = [KINDS[argument.kind], REFERENCE]
    if argument.optional or (not argument.required and argument.default is None):
        options.append({"type": "null"})
    default = {} if argument.required else {"default": argument.default}
    return {"anyOf": options, **default}
