"""Writes a model with blocks for the parts that are repeated, and proves that it is the same program."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError
from pe_cli.program.ir import Program
from pe_cli.program.operator import Operator
from pe_cli.session.importing.define import ImportedModel
from pe_cli.session.importing.repeats.block import Around, Block, block_of
from pe_cli.session.importing.repeats.flat import FlatLayer, base_of, taken_apart
from pe_cli.session.importing.repeats.search import Repeat, repeats
from pe_cli.session.importing.write import model_text


def with_blocks(model: ImportedModel) -> ImportedModel:
    """Return a model with blocks for parts that are repeated; the same one where nothing is, or where they make another program.

    Parameters keep their names, but for those whose names say nothing of where they are in the model: they are called like their layer,
    and the report has both names.
    """
    if model.blocks:
        return model
    layers = taken_apart(model.layers, model.feeds)
    found = repeats(layers)
    if not found:
        return model
    flat = replace(model, layers={layer.name: dict(layer.entry) for layer in layers})
    folded = _folded(flat, layers, _blocks(flat, layers, found))
    try:
        inside = {layers[i].name for repeat in found for start in repeat.starts for i in range(start, start + repeat.length)}
        names = _same_program(_program(flat), _program(folded), inside & set(map(base_of, model.fetches)))
    except PeError as error:
        names, why = None, error.message
    else:
        why = "the blocks make another program"
    if names is None:
        return replace(model, notes=[*model.notes, f"repeated parts are written out: {why}"])
    arrays = {names.get(name, name): value for name, value in model.arrays.items()}
    renamed = [f"{old} is called {new}" for old, new in names.items() if old != new and old in model.arrays]
    return replace(folded, arrays=arrays, details=[*model.details, *renamed])


def _blocks(model: ImportedModel, layers: Sequence[FlatLayer], found: Sequence[Repeat]) -> list[Block]:
    """Return the blocks of repeated parts, in the order in which the model uses them."""
    inside = {layers[i].name for repeat in found for start in repeat.starts for i in range(start, start + repeat.length)}
    taken = {*model.feeds, *model.fetches, *(layer.name for layer in layers if layer.name not in inside)}
    counts = Counter(name for layer in layers for name in layer.parameters.values())
    readers = {base_of(name): i for i, layer in enumerate(layers) for name in layer.reads}
    readers |= {base_of(name): len(layers) for name in model.fetches}
    around = Around(taken, set(), {name for name, count in counts.items() if count > 1}, readers)
    return [block_of(layers, repeat, around) for repeat in sorted(found, key=lambda one: one.starts[0])]


def _folded(model: ImportedModel, layers: Sequence[FlatLayer], blocks: Sequence[Block]) -> ImportedModel:
    """Return a model with blocks in the place of the layers that they stand for."""
    now = _names_now(layers, blocks)
    begins = {start: (block, use) for block in blocks for use, start in enumerate(block.repeat.starts)}
    made: dict[str, Mapping[str, Any]] = {}
    comments = {name: text for name, text in model.comments.items() if name not in now}
    fetched = {base_of(name) for name in model.fetches}
    for i, layer in enumerate(layers):
        if i in begins:
            block, use = begins[i]
            end = i + block.repeat.length
            given = {arg: _at(value, now) if arg in block.variables else value for arg, value in block.given[use].items()}
            made[block.uses[use]] = {"block": block.name, **given}
            comments[block.uses[use]] = model.comments.get(layers[i + block.output].name, "")
            # What the model's outputs are called stays.
            named = [inner.name for inner in layers[i:end] if inner.name in fetched]
            made |= {name: {"type": "assign", "input": now[name]} for name in named}
            comments |= {name: model.comments.get(name, "") for name in named}
        elif layer.name not in now:
            made[layer.name] = layer.rewritten([_at(name, now) for name in layer.reads], layer.numbers, layer.parameters)
    for block in blocks:
        block.layers |= {key: _outer(layer, now, {*block.inner, *block.given[0]}) for key, layer in block.layers.items()}
        comments |= _comments(model, layers, block)
    return replace(model, layers=made, blocks={block.name: block.entry() for block in blocks}, comments=comments)


def _names_now(layers: Sequence[FlatLayer], blocks: Sequence[Block]) -> dict[str, str]:
    """Return what layers that are now in blocks are called: name of the use for the block's output, else the path of the layer."""
    found = {}
    for block in blocks:
        for use, start in zip(block.uses, block.repeat.starts, strict=True):
            for k, inner in enumerate(block.inner):
                found[layers[start + k].name] = use if k == block.output else f"{use}/{inner}"
    return found


def _at(name: str, now: Mapping[str, str]) -> str:
    base, dot, rest = name.partition(".")
    return now.get(base, base) + dot + rest


def _outer(layer: dict[str, Any], now: Mapping[str, str], own: set[str]) -> dict[str, Any]:
    """Return a layer of a block with the names that what it reads around the block has now."""
    alone = FlatLayer("", layer, (), {}, {}, ())
    reads = [value for arg, value in layer.items() if alone.is_variable(arg)]
    names = [one for value in reads for one in (value if isinstance(value, list) else [value])]
    return alone.rewritten([name if base_of(name) in own else _at(name, now) for name in names], {}, {})


def _comments(model: ImportedModel, layers: Sequence[FlatLayer], block: Block) -> dict[str, str]:
    """Return the comments of a block's layers, where they are the same for all of its uses."""
    found = {}
    for k, name in enumerate(block.inner):
        said = {model.comments.get(layers[start + k].name, "") for start in block.repeat.starts}
        if len(said) == 1:
            found[f"{block.name}/{name}"] = said.pop()
    return found


# --- the proof --------------------------------------------------------------------------------------------------------


def _program(model: ImportedModel) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.yaml"
        file.write_text(model_text(model), encoding="utf-8")
        return build(load_model(file)).eval


def _same_program(flat: Program, folded: Program, added: set[str]) -> dict[str, str] | None:
    """Return variable of one program -> variable of the other; None where they do not compute the same.

    Ops are compared one by one; `added` are layers of the other program that give outputs the names of the file.
    """
    theirs = iter([op for op in folded.top_ops if op.scope.strip("/") not in added])
    names: dict[str, str] = {v.name: v.name for v in flat.list_vars() if v.is_data}
    for op in flat.top_ops:
        other = next(theirs, None)
        if other is None or not _alike(op, other):
            return None
        for one, two in zip(_variables(op), _variables(other), strict=True):
            if names.setdefault(one, two) != two:
                return None
    if next(theirs, None) is not None or len(set(names.values())) < len(names):
        return None
    types = {v.name: v.type for v in folded.list_vars()}
    same = all(types.get(names[v.name]) == v.type for v in flat.list_vars() if v.name in names)
    return names if same else None


def _alike(one: Operator, other: Operator) -> bool:
    slots = [{slot: len(names) for slot, names in part.items()} for op in (one, other) for part in (op.inputs, op.outputs)]
    return one.type == other.type and slots[:2] == slots[2:] and repr(one.attrs) == repr(other.attrs)


def _variables(op: Operator) -> Iterator[str]:
    for part in (op.inputs, op.outputs):
        for slot in sorted(part):
            yield from part[slot]
