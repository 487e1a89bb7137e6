"""Families of models: what a file in `families/` says of one."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib import resources
from typing import Any

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import to_data
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.core.lazy_dataclass import dataclass

_WHOLE = re.compile(r"\$\(([a-z_0-9]+)\)")
#: Keys of a layer that are for `filled`.
_MARKS = frozenset({"when", "unless", "as", "each"})


@dataclass(frozen=True)
class Head:
    """What follows the trunk of a family.

    Args:
        architectures: classes of transformers that end like this.
        layers: name -> layer, behind those of the trunk.
        modules: module of theirs -> layer.
        tensors: tensor of theirs -> parameter, which it lies like.
        tied: parameter -> what their modules call it as well, and their files do not have.
        args: constants of the model beside those of the trunk.
        ending: part of `endings.yaml` that compares `logits` with labels; empty for none.
        fetches: beside those of the ending.
        last: layers whose size is the number of classes.
        data: what the example of a config reads: texts, blocks, pictures or empty.
    """

    architectures: Sequence[str] = ()
    layers: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    ending: str = ""
    fetches: Sequence[str] = ()
    last: Sequence[str] = ()
    data: str = ""


@dataclass(frozen=True)
class Family:
    """Models that one file describes.

    Args:
        name: of the file.
        model_types: what `config.json` calls them.
        where: key of `config.json` -> values with which it is this family, of several of one type.
        values: name -> key of `config.json`, with `default` and what it `is`; see `config_values.py`.
        must: key of `config.json` -> the values that the layers are right for.
        base: what stands in front of the names of the trunk's tensors where there is a head.
        args: constants of the model.
        feeds: inputs of the model.
        blocks: parts of the model.
        layers: of the trunk.
        modules: module of theirs, with `*` for numbers -> layer of ours, or several, of which that is meant which the model has, or
            `{to: layer, layout: whose, shift: [n, ...], insert: [axis, ...]}`: for weights that do not lie as PyTorch's, what is added to
            each number, and where ours have axes of size 1 that theirs lack. `flat: true` where theirs have axes of size 1 that ours lack.
        row_modules: the same for each block of a network in stages, with its values for `$(name)`; see `stages.py`.
        tensors: tensor of theirs -> parameter of ours, which lies as it does.
        left: tensor of theirs -> why it is not taken.
        unused: key of `config.json` -> what the layers do not do where it is not 0.
        heads: name -> what follows; the first one is taken where nothing says it.
        no_decay: patterns of parameters that weight decay leaves out in the example.
        comments: layer, or block/layer -> what stands behind it in the model file.
        length: value that bounds how many tokens the model sees; empty for none.
    """

    name: str
    model_types: Sequence[str]
    values: Mapping[str, Mapping[str, Any]]
    layers: Mapping[str, Any]
    heads: Mapping[str, Head]
    feeds: Mapping[str, Any]
    args: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    must: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    base: str = ""
    modules: Mapping[str, Any] = field(default_factory=dict)
    row_modules: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    no_decay: Sequence[str] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    length: str = ""


@functools.cache
def families() -> tuple[Family, ...]:
    """Return all families, by name."""
    folder = resources.files(__package__).joinpath("families")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    said = {file.name.removesuffix(".yaml"): _data(file.name, file.read_text(encoding="utf-8")) for file in files}
    return tuple(_family(name, each, said) for name, each in said.items())


@functools.cache
def endings() -> Mapping[str, Any]:
    """Return what follows `logits`: name -> feeds, layers and fetches."""
    found: Mapping[str, Any] = _data("endings.yaml", resources.files(__package__).joinpath("endings.yaml").read_text(encoding="utf-8"))
    return found


@functools.cache
def architectures() -> Mapping[str, Mapping[str, Any]]:
    """Return what timm and torchvision call networks -> a config as transformers would write it."""
    name = "architectures.yaml"
    found: Mapping[str, Any] = _data(name, resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
    return found


def _data(name: str, text: str) -> Any:
    mistakes = Mistakes()
    tree = parse(Source(name, text), mistakes)
    mistakes.raise_all()
    assert tree is not None, name
    return to_data(tree)


def _family(name: str, said: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Family:
    like = said.get("like")
    whole = said if like is None else _merged(others[like], said)
    heads = {key: Head(**value) for key, value in whole["heads"].items()}
    return Family(name, **{**{key: value for key, value in whole.items() if key != "like"}, "heads": heads})


def _merged(base: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a family that differs from another one: in values, layers and heads by the names that it has, else by whole sections."""
    heads = {name: {**base["heads"].get(name, {}), **head} for name, head in said.get("heads", {}).items()}
    parts = {part: _put(base[part], said.get(part, {})) for part in ("values", "layers")}
    return {**base, **said, **parts, "heads": {**base["heads"], **heads}}


def _put(base: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with other entries: null takes one away, and a new one with `before: name` stands before that."""
    made = dict(base)
    for name, value in said.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict) and "before" in value:
            place = list(made).index(value["before"])
            entry = {key: each for key, each in value.items() if key != "before"}
            items = list(made.items())
            made = dict([*items[:place], (name, entry), *items[place:]])
        else:
            made[name] = value
    return made


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a part of a family's model with the values of a folder in the place of `$(name)`, and without what they rule out.

    A layer with `when: name` is left out where that value is false, and one with `unless: name` where it is true; `as` is its name.
    One with `each: name` is written for each row of that value, with the row's values and number.

    >>> filled({"a": {"size": "$(n)", "when": "x"}, "b": {"size": "$(n)", "unless": "x", "as": "a"}}, {"n": 3, "x": False})
    {'a': {'size': 3}}
    """
    if isinstance(template, str):
        found = _WHOLE.fullmatch(template)
        return template if found is None else values[found[1]]
    if isinstance(template, list):
        return [filled(item, values) for item in template]
    if not isinstance(template, dict):
        return template
    made: dict[str, Any] = {}
    for key, value in template.items():
        if not isinstance(value, dict):
            made[key] = filled(value, values)
            continue
        inner: dict[str, Any] = {name: each for name, each in value.items() if name not in _MARKS}
        if "each" in value:
            made |= {f"{key}{row['i']}": filled(inner, {**values, **row}) for row in values[value["each"]]}
        elif values.get(value.get("when", ""), True) and not values.get(value.get("unless", ""), False):
            made[str(value.get("as", key))] = filled(inner, values)
    return made
