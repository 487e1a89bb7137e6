"""Finds a model's targets: the feeds that its layers take as labels."""

from __future__ import annotations

from collections.abc import Mapping

from pe_cli.config.nodes import ScalarNode
from pe_cli.config.spec import ModelSpec, RunSpec
from pe_cli.core.types import TensorType
from pe_cli.data.column_usage import ColumnUsage, ColumnUse
from pe_cli.layers.define.registry import discover, find


def is_label(layer: str, argument: str) -> bool:
    """Return whether an argument of a layer type takes what its other input is compared with."""
    return layer in discover() and argument in find(layer).labels


def labels(model: ModelSpec) -> frozenset[str]:
    """Return the feeds that layers take as labels."""
    found: set[str | None] = set()
    for layer in model.layers:
        for name, spec in layer.args.items():
            if is_label(layer.type, name):
                value = spec.value
                if isinstance(value, ScalarNode) and isinstance(value.value, str):
                    found.add((value.scope or layer.scope).find(value.value))
    return frozenset(name for name in found if name is not None and name in model.feeds)


def sources(run: RunSpec) -> dict[str, ColumnUsage]:
    """Return where every feed of the model comes from: a feed that the run file does not name takes the field of its own name."""
    found = {}
    for name in run.model.feeds:
        section = run.feeds.get(name)
        if section is not None and section.value is not None:
            continue
        given = section.from_ if section is not None and section.from_ is not None else name
        at = section.at if section is not None else run.tree_key("feeds")
        found[name] = ColumnUsage((given,) if isinstance(given, str) else tuple(given), at)
    return found


def column_uses(run: RunSpec, types: Mapping[str, TensorType]) -> dict[str, ColumnUse]:
    """Return what the model does with every column that is fed.

    Args:
        run: says which columns.
        types: of the feeds.
    """
    taught = labels(run.model)
    uses: dict[str, ColumnUse] = {}
    for feed, want in sources(run).items():
        declared = run.model.feeds[feed]
        for name in want.names:
            kind = types[feed].dtype if feed in types else declared.dtype
            use = ColumnUse(feed in taught, kind, declared.lod_level)
            before = uses.get(name, use)
            dtype = use.dtype if before.dtype == use.dtype else None
            uses[name] = ColumnUse(before.target or use.target, dtype, max(before.level, use.level))
    return uses
