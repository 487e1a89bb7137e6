"""A model file to a ModelSpec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from pydantic import Field, StrictBool

from pe_cli.config.block_expansion import Expansion
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.files import read_text
from pe_cli.config.head import with_head
from pe_cli.config.nodes import ListNode, MapNode, Node, ScalarNode, describe
from pe_cli.config.parse import parse
from pe_cli.config.scope import Scope
from pe_cli.config.section_check import check
from pe_cli.config.sections.model import HeadSection
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import DtypeName, Int, Natural
from pe_cli.config.source import Source
from pe_cli.config.spec import FeedSpec, ModelSpec
from pe_cli.config.substitute import Substitution
from pe_cli.core.errors import Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass

#: Levels of sequences that a feed may declare.
MAX_LEVELS = 8
KEYS = ("name", "metadata", "args", "feeds", "blocks", "layers", "fetches")


class FeedDeclaration(Section):
    """An input of a model; the batch axis is implied."""

    shape: list[Int] = Field(description="sizes of one sample, without the batch axis; -1 is not known yet")
    dtype: DtypeName = Field(default="float32", description="element type")
    lod_level: Natural = Field(
        default=0, le=MAX_LEVELS, description="levels of nested sequences that the rows of a batch belong to; 1 for sequences"
    )
    replicate: StrictBool = Field(
        default=False, description="no batch axis: every device gets the whole, a learning rate for example"
    )


def read_model(
    path: Path, args: Mapping[str, Node], mistakes: Mistakes, at: Span | None = None, head: HeadSection | None = None
) -> ModelSpec | None:
    """Read a model file as far as it can be read.

    Args:
        path: the file.
        args: constants that differ from its own.
        mistakes: where errors go.
        at: place that names the file.
        head: layer that gets another number of classes.

    Returns:
        None when there is nothing to compute.

    Raises:
        PeError: no such file, or a model without bounds.
    """
    text = read_text(path, "model", at)
    before = mistakes.total
    tree = parse(Source(str(path), text), mistakes)
    if isinstance(tree, MapNode):
        return _Model(path, tree, args, mistakes, head).read()
    if mistakes.total == before:
        said = "is empty" if tree is None else f"must be a mapping, got {describe(tree)}"
        where = tree.at if tree else Source(str(path), text).span(0, 0)
        mistakes.say(f"the model {said}", where, "it needs feeds and layers")
    return None


@dataclass
class _Model:
    """One reading of a model file."""

    path: Path
    tree: MapNode
    given: Mapping[str, Node]
    mistakes: Mistakes
    head: HeadSection | None = None
    values: dict[str, Node] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def read(self) -> ModelSpec | None:
        for key, entry in self.tree.entries.items():
            if key not in KEYS:
                self.mistakes.say(
                    f"a model has no section '{key}'", entry.at, did_you_mean(key, KEYS) or f"one of {', '.join(KEYS)}"
                )
        substitution = Substitution(self.mistakes)
        self.read_args(substitution)
        scope = Scope()
        feeds = self.read_feeds(substitution, scope)
        blocks = self.section("blocks")
        layers = self.section("layers")
        if not layers.entries and "layers" not in self.tree.entries:
            self.mistakes.say("a model needs layers", self.tree.at, "add layers: {...}")
        if self.head is not None:
            layers = with_head(layers, self.values, self.given, self.head, self.mistakes)
        expansion = Expansion(blocks.entries, substitution, self.mistakes)
        for name, entry in blocks.entries.items():
            expansion.check_block(name, entry.value)
        for key, entry in layers.entries.items():
            if key in scope.names:
                self.mistakes.say(
                    f"layer '{key}' has the name of a feed", entry.at, "give it another name",
                    ((feeds[key].at, "the feed is here"),) if key in feeds else (),
                )  # fmt: skip
        expansion.run(layers, scope, self.values)
        return ModelSpec(
            self.name(), self.path, self.values, feeds, {k: e.value for k, e in blocks.entries.items()},
            tuple(expansion.layers), self.fetches(substitution), scope, self.tree.at,
            frozenset(expansion.broken | self.broken), self.metadata(), self.head,
        )  # fmt: skip

    def name(self) -> str:
        node = self.tree.get("name")
        if node is None:
            return self.path.stem
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str) or not node.value:
            self.mistakes.say(f"name must be text, got {describe(node)}", node.at, "quote it")
            return self.path.stem
        return node.value

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, entry in self.section("metadata").entries.items():
            if isinstance(entry.value, ScalarNode) and isinstance(entry.value.value, str):
                found[key] = entry.value.value
            else:
                self.mistakes.say(f"metadata.{key} must be text, got {describe(entry.value)}", entry.at, "quote it")
        return found

    def section(self, key: str) -> MapNode:
        node = self.tree.get(key)
        if isinstance(node, MapNode):
            return node
        if node is not None and not (isinstance(node, ScalarNode) and node.value is None):
            hint = "write names without a '-' before them" if isinstance(node, ListNode) else None
            self.mistakes.say(f"{key} must be a mapping, got {describe(node)}", node.at, hint)
        elif node is not None and key == "layers":
            self.mistakes.say("a model needs layers", node.at, "add layers: {...}")
        return MapNode({}, self.tree.at)

    def read_args(self, substitution: Substitution) -> None:
        declared = self.section("args")
        for key, node in self.given.items():
            if key not in declared.entries:
                known = list(declared.entries)
                hint = did_you_mean(key, known) or f"it has {', '.join(known) or 'none'}"
                self.mistakes.say(f"the model has no argument '{key}'", node.at, hint)
        for key, entry in declared.entries.items():
            value = self.given.get(key)
            if value is None:
                value = substitution.apply(entry.value, self.values)
                if isinstance(value, ScalarNode) and value.value is None:
                    self.mistakes.say(
                        f"the model's argument '{key}' has no value", entry.at, f"set model.args.{key} in the config"
                    )
                    substitution.missing.add(key)
                    continue
            self.values[key] = value

    def read_feeds(self, substitution: Substitution, scope: Scope) -> dict[str, FeedSpec]:
        found: dict[str, FeedSpec] = {}
        for name, entry in self.section("feeds").entries.items():
            scope.names[name] = name
            made = self.read_feed(name, entry.value, entry.at, substitution)
            if made is None:
                self.broken.add(name)
            else:
                found[name] = FeedSpec(tuple(made.shape), made.dtype, entry.at, made.replicate, made.lod_level)
        return found

    def read_feed(self, name: str, node: Node, at: Span, substitution: Substitution) -> FeedDeclaration | None:
        before = self.mistakes.total
        node = substitution.apply(node, self.values)
        if self.mistakes.total > before:
            return None
        made = check(FeedDeclaration, node, ("feeds", name), self.mistakes, at)
        if made is not None and any(size < 1 and size != -1 for size in made.shape):
            self.mistakes.say(
                f"feeds.{name}.shape must have sizes of at least 1, or -1, got {made.shape}", made.at_of("shape")
            )
            return None
        if made is not None and made.lod_level and made.replicate:
            self.mistakes.say(f"feeds.{name} has sequences and replicate: true", made.at_of("replicate"), "keep one of them")
            return None
        return made

    def fetches(self, substitution: Substitution) -> dict[str, Span]:
        node = self.tree.get("fetches")
        if node is None:
            return {}
        node = substitution.apply(node, self.values)
        if not isinstance(node, ListNode):
            self.mistakes.say(f"fetches must be a list of names, got {describe(node)}", node.at, "fetches: [loss, acc]")
            return {}
        found: dict[str, Span] = {}
        for item in node.items:
            if isinstance(item, ScalarNode) and isinstance(item.value, str):
                found[item.value] = item.at
            else:
                self.mistakes.say(f"a fetch must be a name, got {describe(item)}", item.at)
        return found
