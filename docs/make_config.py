"""Write the tables of docs/config.md and docs/data.md from the code that checks configs: `python docs/make_config.py`.

Text between `<!-- generated: NAME -->` and `<!-- end of NAME -->` is replaced; the rest of a page is written by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pe_cli.build import typed_objects
from pe_cli.build.values import WORDS
from pe_cli.config import block_expansion as expand
from pe_cli.config import error_collector as mistakes
from pe_cli.config import extends as compose
from pe_cli.config import nodes, substitute
from pe_cli.config.model import FeedDeclaration
from pe_cli.config.period import Period
from pe_cli.config.sections.adapt import AdaptSection, ByDepthSection
from pe_cli.config.sections.data import DataSection, DataSections, SplitSection
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.fetch import FetchSection
from pe_cli.config.sections.group import GroupSection
from pe_cli.config.sections.model import HeadSection, ModelSection
from pe_cli.config.sections.output import BestSection, CheckpointSection, OutputSection
from pe_cli.config.sections.phase import PhaseSection
from pe_cli.config.sections.run_file import RunFile
from pe_cli.config.sections.strategies import BuildSection, ExecSection
from pe_cli.config.sections.sweep import HalvingSection, SweepSection
from pe_cli.config.sections.train import EarlyStoppingSection, EmaSection, PlateauSection, StartSection, TrainSection
from pe_cli.core.types import DTYPES
from pe_cli.core.yaml_inline import flow
from pe_cli.data import discover as discover_readers
from pe_cli.data.augment.registry import discover as discover_augmentations
from pe_cli.data.column import discover as discover_columns
from pe_cli.data.readers.multi_slot import SlotOptions
from pe_cli.data.readers.synthetic import FieldOptions
from pe_cli.data.registry import ReaderOptions
from pe_cli.metrics.define import discover as discover_metrics
from pe_cli.program.param_attr import ParamAttr

HERE = Path(__file__).resolve().parent
PAGES = ("config.md", "data.md")
_BLOCK = re.compile(r"<!-- generated: (?P<name>[^>]+?) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def written(value: Any) -> str:
    """Return a default as YAML writes it."""
    if value is None:
        return "none"
    if isinstance(value, Period):
        return f"`{value}`"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def several(item: str) -> str:
    """Return what a list takes, in words, from what one item of it is.

    >>> several("whole number, at least 1")
    'whole numbers, each at least 1'
    >>> several("whole number, at least 0, or text")
    'whole numbers, each at least 0, or texts'
    """
    if item.startswith("`"):
        return f"any of {item}"
    return " or ".join(
        word + "s" + (", " + rest.replace("at ", "each at ", 1).replace("above", "each above", 1) if comma else "")
        for word, comma, rest in (one.partition(", ") for one in item.split(" or "))
    )


def takes(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:  # noqa: C901, PLR0911 - one case per type
    """Return what a key takes, in words, from its JSON Schema."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return "a mapping, see below" if definitions.get(name, {}).get("type") == "object" else "text"
    if "anyOf" in schema:
        kinds = dict.fromkeys(takes(s, definitions) for s in schema["anyOf"] if s.get("type") != "null")
        return (", or " if any("number, " in kind for kind in kinds) else " or ").join(kinds)
    if "const" in schema:
        return written(schema["const"])
    if "enum" in schema:
        return ", ".join(f"`{option}`" for option in schema["enum"])
    if "examples" in schema:
        return "like " + " or ".join(f"`{example}`" for example in schema["examples"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        word = "whole number" if kind == "integer" else "number"
        limits = [f"at least {schema['minimum']}"] if "minimum" in schema else []
        limits += [f"above {schema['exclusiveMinimum']}"] if "exclusiveMinimum" in schema else []
        limits += [f"at most {schema['maximum']}"] if "maximum" in schema else []
        return ", ".join([word, *limits])
    if "prefixItems" in schema:
        kinds = dict.fromkeys(takes(item, definitions) for item in schema["prefixItems"])
        return f"list of {len(schema['prefixItems'])} {several(*kinds)}"
    if kind == "array":
        item = takes(schema.get("items", {}), definitions)
        if item == "anything":
            return "list"
        if item == "a mapping, see below":
            return "list of mappings, see below"
        return f"list of {several(item)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"name -> {takes(inner, definitions)}" if isinstance(inner, Mapping) and inner else "mapping"
    return {"boolean": "`true` or `false`", "string": "text"}.get(str(kind), "anything")


def keys(section: type[BaseModel], leave: tuple[str, ...] = ()) -> str:
    """Return the table of a section's keys."""
    return table(("key", "takes", "default", "meaning"), key_rows(section, leave))


def key_rows(section: type[BaseModel], leave: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return key, what it takes, default and meaning of a section's keys."""
    schema = section.model_json_schema(by_alias=True)
    rows = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        if key in leave:
            continue
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        default = "**required**" if field.is_required() else written(value)
        if isinstance(value, (BaseModel, dict)):
            default = "see below" if value and isinstance(value, BaseModel) else "`{}`"
        definitions = schema.get("$defs", {})
        what = takes(schema["properties"][key], definitions)
        rows.append((f"`{key}`", what, default, field.description or about(schema["properties"][key], definitions)))
    return rows


def about(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what a section that a schema refers to says of itself."""
    for option in (schema, *schema.get("anyOf", ())):
        found = definitions.get(str(option.get("$ref", "")).rpartition("/")[2], {})
        if "description" in found:
            return str(found["description"]).strip().partition("\n")[0].rstrip(".")
    return ""


def refused() -> str:
    """Return fluid's keys and values of strategies that this version cannot act on."""
    lines = []
    for name, section in (("build_strategy", BuildSection), ("exec_strategy", ExecSection)):
        lines.append(f"- `{name}`: " + ", ".join(f"`{key}`" for key in sorted(section.UNAVAILABLE)))
        for key, values in section.UNAVAILABLE_VALUES.items():
            lines.append(f"- `{name}.{key}`: the values " + ", ".join(written(value) for value in values))
    return "\n".join(lines)


def catalogue(found: typed_objects.Table) -> str:
    """Return the table of things that are named by `type`, with their arguments and defaults."""
    rows = []
    for name in found.names():
        maker = found.makers[name]
        arguments = []
        for parameter in inspect.signature(maker).parameters.values():
            if parameter.name in ("name", "parameter_list", "self"):
                continue
            given = "" if parameter.default is parameter.empty else f" = {flow(parameter.default)}"
            arguments.append(f"`{parameter.name}{given}`")
        summary = (inspect.getdoc(maker) or "").partition("\n")[0]
        rows.append((f"`{name}`", ", ".join(arguments) or "none", summary.partition("; argu")[0].rstrip(".") + "."))
    return table(("type", "arguments", "does"), rows)


def parameters() -> str:
    """Return the keys of `param_attr` and `bias_attr`."""
    known = inspect.signature(ParamAttr).parameters
    rows = [(f"`{key}`", written(known[key].default)) for key in typed_objects._PARAM_ATTR if key in known]
    return table(("key", "default"), rows)


def limits() -> str:
    """Return the table of limits."""
    rows = [
        (f"{nodes.MAX_BYTES:,} bytes", "a file"),
        (f"{nodes.MAX_DEPTH}", "levels of nesting"),
        (f"{nodes.MAX_NODES:,}", "values in a file, with aliases and `${...}` put in"),
        (f"{substitute.MAX_MADE:,}", "values of a model that blocks and `${...}` make"),
        (f"{substitute.MAX_TEXT:,}", "characters of one text, with `${...}` put in"),
        (f"{compose.MAX_FILES}", "files that a config is made of, by `extends`"),
        (f"{compose.MAX_CHAIN}", "files that extend one another in a chain"),
        (f"{expand.MAX_LAYERS:,}", "layers of a model, with blocks written out"),
        (f"{expand.MAX_CALLS}", "blocks inside blocks"),
        (f"{mistakes.MOST}", "mistakes that are reported in one run"),
    ]
    return table(("at most", "of"), rows)


def reader(name: str) -> str:
    """Return a reader's own keys."""
    return keys(discover_readers()[name].options, tuple(ReaderOptions.model_fields))


def augmentations() -> str:
    """Return the table of augmentations."""
    rows = [(f"`{name}`", " ".join(kind.doc.split())) for name, kind in sorted(discover_augmentations().items())]
    return table(("augmentation", "does"), rows)


def augmentation_options() -> str:
    """Return the options of all augmentations; `column` is told once."""
    rows = []
    for name, kind in sorted(discover_augmentations().items()):
        rows += [(f"`{name}`", *row) for row in key_rows(kind.options, ("column",))]
    return table(("of", "key", "takes", "default", "meaning"), rows)


def metrics() -> str:
    """Return the table of metrics."""
    rows = []
    for name, kind in discover_metrics().items():
        fields = [(field.alias or key, field) for key, field in kind.options.model_fields.items()]
        needed = {key for key, field in fields if field.is_required()}
        defaults = {key: flow(field.get_default(call_default_factory=True)) for key, field in fields if key not in needed}
        given = [f"`{key}`" if key in needed else f"`{key} = {defaults[key]}`" for key, _ in fields]
        rows.append((f"`{name}`", ", ".join(given), " ".join(kind.doc.split())))
    return table(("type", "options", "measures"), rows)


def metric_options() -> str:
    """Return the options of all metrics, each once."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, kind in discover_metrics().items():
        for row in key_rows(kind.options):
            rows.setdefault(row, []).append(f"`{name}`")
    return table(("key", "takes", "default", "meaning", "of"), [(*row, ", ".join(names)) for row, names in rows.items()])


GENERATED: dict[str, Callable[[], str]] = {
    "feed of a model": lambda: keys(FeedDeclaration),
    "element types": lambda: ", ".join(f"`{name}`" for name in DTYPES),
    "kinds": lambda: "\n".join(f"- {word}" for word in dict.fromkeys(WORDS.values())),
    "run file": lambda: keys(RunFile),
    "model": lambda: keys(ModelSection),
    "head": lambda: keys(HeadSection),
    "data": lambda: keys(DataSection),
    "data keys": lambda: keys(DataSections),
    "split": lambda: keys(SplitSection),
    "feeds": lambda: keys(FeedSection),
    "train": lambda: keys(TrainSection),
    "ema": lambda: keys(EmaSection),
    "init": lambda: keys(StartSection),
    "groups": lambda: keys(GroupSection),
    "adapt": lambda: keys(AdaptSection),
    "by_depth": lambda: keys(ByDepthSection),
    "phases": lambda: keys(PhaseSection),
    "early_stopping": lambda: keys(EarlyStoppingSection),
    "plateau": lambda: keys(PlateauSection),
    "fetches": lambda: keys(FetchSection),
    "metrics": metrics,
    "metric options": metric_options,
    "executor": lambda: keys(ExecutorSection),
    "build_strategy": lambda: keys(BuildSection),
    "exec_strategy": lambda: keys(ExecSection),
    "refused": refused,
    "output": lambda: keys(OutputSection),
    "checkpoint": lambda: keys(CheckpointSection),
    "best": lambda: keys(BestSection),
    "sweep": lambda: keys(SweepSection),
    "halving": lambda: keys(HalvingSection),
    "optimizers": lambda: catalogue(typed_objects.OPTIMIZER),
    "schedules": lambda: catalogue(typed_objects.SCHEDULE),
    "regularizers": lambda: catalogue(typed_objects.REGULARIZER),
    "clips": lambda: catalogue(typed_objects.CLIP),
    "initializers": lambda: catalogue(typed_objects.INITIALIZER),
    "parameters": parameters,
    "limits": limits,
    "readers": lambda: keys(ReaderOptions),
    "slots": lambda: keys(SlotOptions),
    **{f"reader {name}": lambda name=name: reader(name) for name in discover_readers()},
    "synthetic fields": lambda: keys(FieldOptions),
    **{f"column {name}": lambda kind=kind: keys(kind.options) for name, kind in discover_columns().items()},
    "augmentations": augmentations,
    "augmentation options": augmentation_options,
}


def render(text: str) -> str:
    """Return a page with its generated blocks as they should be."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- generated: {name} -->\n\n{GENERATED[name]()}\n\n<!-- end of {name} -->"

    return _BLOCK.sub(block, text)


def main() -> None:
    """Write the pages."""
    for name in PAGES:
        path = HERE / name
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
