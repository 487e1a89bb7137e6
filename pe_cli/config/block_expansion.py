"""Expands blocks of a model file: each use becomes layers with the arguments filled in and names of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from pe_cli.config.error_collector import Mistakes, TooLargeError
from pe_cli.config.nodes import Entry, MapNode, Node, ScalarNode, describe, origin_notes
from pe_cli.config.scope import COMPLETE, Scope
from pe_cli.config.spec import ArgSpec, BodySpec, LayerSpec, RegionSpec
from pe_cli.config.substitute import Substitution
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass

MAX_LAYERS = 20_000
MAX_CALLS = 32
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BLOCK_KEYS = ("args", "layers", "output", "next")
_CALL_KEYS = ("block", "repeat")
#: Keys that name a block which a step runs, with the other keys that belong to each.
REGIONS: dict[str, tuple[str, ...]] = {
    "scan": ("start", "backwards", "time_major"),
    "while": ("condition", "start", "bound"),
    "if": ("then", "else"),
    "beam": ("start", "start_token", "end_token", "beam_size", "max_step_num"),
}
#: Of those, what has to be written.
NEEDED: dict[str, tuple[str, ...]] = {"scan": (), "while": ("condition",), "if": ("then", "else"), "beam": REGIONS["beam"]}


@dataclass(frozen=True)
class _Place:
    """Where layers are being written out."""

    scope: Scope
    values: Mapping[str, Node]
    prefix: str = ""
    calls: tuple[Span, ...] = ()
    names: tuple[str, ...] = ()


@dataclass
class Expansion:
    """Writes a model's layers out.

    Args:
        blocks: by name, as written.
        substitution: for `${name}`.
        mistakes: where errors go.
    """

    blocks: Mapping[str, Entry]
    substitution: Substitution
    mistakes: Mistakes
    layers: list[LayerSpec] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    written: int = 0

    def run(self, layers: MapNode, scope: Scope, values: Mapping[str, Node]) -> None:
        """Fill `layers` from a model file's own; names of variables go to the scope.

        Raises:
            TooLargeError: the model has too many layers.
        """
        self._layers(layers, _Place(scope, values), None)

    def check_block(self, name: str, node: Node) -> None:
        """Add the mistakes that a block has whether it is used or not."""
        if not isinstance(node, MapNode):
            self.mistakes.say(f"block '{name}' must be a mapping, got {describe(node)}", node.at, "give it layers")
            return
        for key, entry in node.entries.items():
            if key not in _BLOCK_KEYS:
                hint = did_you_mean(key, _BLOCK_KEYS) or f"one of {', '.join(_BLOCK_KEYS)}"
                self.mistakes.say(f"block '{name}' has no key '{key}'", entry.at, hint)
        args = node.get("args")
        if args is not None and not isinstance(args, MapNode):
            self.mistakes.say(f"args of block '{name}' must be a mapping, got {describe(args)}", args.at)
        layers = node.get("layers")
        if not isinstance(layers, MapNode) or not layers.entries:
            self.mistakes.say(
                f"block '{name}' needs layers", layers.at if layers else self.blocks[name].at, "add layers: {...}"
            )

    def _layers(self, layers: MapNode, place: _Place, previous: str | None) -> str | None:
        """Write out the layers of a model or block; return the last one's output."""
        # All names first, so that a layer which is read above its own line is told as just that.
        for key in layers.entries:
            place.scope.names.setdefault(key, place.prefix + key)
        for key, entry in layers.entries.items():
            self.written += 1
            if self.written > MAX_LAYERS:
                raise TooLargeError(
                    f"the model has more than {MAX_LAYERS} layers, with blocks written out",
                    at=entry.at,
                    hint="use fewer repeats",
                )
            full = place.prefix + key
            before = self.mistakes.total
            made: str | None = None
            with self.mistakes.catch():
                if not _KEY.fullmatch(key):
                    hint = "use letters, digits, _ and -, and begin with a letter"
                    raise PeError(f"'{key}' is no name for a layer", at=entry.at, hint=hint)
                node = self.substitution.apply(entry.value, place.values)
                if self.mistakes.total == before:
                    made = self._one(key, entry, node, place, previous)
            if made is None:
                self.broken.add(full)
            # Who reads it must not be told that it is missing: the mistake is told at the layer.
            previous = place.scope.names[key] = made or full
        return previous

    def _one(self, key: str, entry: Entry, node: Node, place: _Place, previous: str | None) -> str | None:
        if not isinstance(node, MapNode):
            raise PeError(
                f"layer '{key}' must be a mapping, got {describe(node)}", at=node.at, hint=f"{key}: {{type: ...}}"
            )
        if "block" in node.entries:
            return self._call(key, node, place, previous)
        region = next((name for name in REGIONS if name in node.entries), None)
        if region is not None:
            return self._region(region, key, node, place, previous)
        kind = node.get("type")
        if kind is None:
            close = next((e for k, e in node.entries.items() if did_you_mean(k, ("type", "block"))), None)
            hint = "add type: fc (pe ops lists all), or block: and a block's name"
            if close:
                hint = did_you_mean(close.key, ("type", "block")) or hint
            raise PeError(f"layer '{key}' has no type", at=close.at if close else entry.at, hint=hint)
        if not isinstance(kind, ScalarNode) or not isinstance(kind.value, str):
            raise PeError(f"the type of a layer must be a name, got {describe(kind)}", at=kind.at)
        args = {name: ArgSpec(e.value, e.at) for name, e in node.entries.items() if name != "type"}
        at = _join(node.entries["type"].at, kind.at)
        full = place.prefix + key
        self.layers.append(LayerSpec(full, kind.value, args, at, place.scope, previous, place.calls))
        return full

    def _named(self, key: str, called: Entry, place: _Place) -> tuple[str, Span]:
        """Return the block that a key names, and the place."""
        name = called.value.value if isinstance(called.value, ScalarNode) else None
        at = _join(called.at, called.value.at)
        if not isinstance(name, str) or name not in self.blocks:
            hint = did_you_mean(str(name), self.blocks) or (
                f"one of {', '.join(self.blocks)}" if self.blocks else "declare it under blocks"
            )
            raise PeError(f"there is no block {describe(called.value)}", at=at, hint=hint)
        if name in place.names:
            chain = " -> ".join([*place.names[place.names.index(name) :], name])
            raise PeError(f"block '{name}' contains itself: {chain}", at=at, hint="a block can use other blocks only")
        if len(place.names) >= MAX_CALLS:
            raise PeError(f"blocks are nested more than {MAX_CALLS} deep", at=at)
        return name, at

    # --- blocks that a step runs --------------------------------------------------------------------------------------

    def _region(self, kind: str, key: str, node: MapNode, place: _Place, previous: str | None) -> str | None:
        """Write out a layer that runs blocks: again and again, or one of two."""
        if "type" in node.entries:
            raise PeError(f"layer '{key}' has both type and {kind}", at=node.entries["type"].at, hint="keep one of them")
        own = (kind, *REGIONS[kind], *(("input",) if kind == "scan" else ()))
        for needed in NEEDED[kind]:
            if needed not in node.entries:
                raise PeError(f"layer '{key}' has {kind}, but no {needed}", at=node.entries[kind].at, hint=f"add {needed}: ...")
        named = {"while": ("condition", "while"), "if": ("then", "else")}.get(kind, (kind,))
        states = self._states(key, node) if kind != "if" else {}
        full = place.prefix + key
        bodies = []
        given = {k: e for k, e in node.entries.items() if k not in own}
        for name in named:
            body = self._body(key, node.entries[name], given, states, kind, place)
            if body is None:
                return None
            bodies.append(body)
        used = {arg for body in bodies for arg in _declared_of(self.blocks, node, named, body)}
        for k, e in given.items():
            if k not in used:
                hint = did_you_mean(k, [*used, *own]) or f"the arguments are {', '.join(used) or 'none'}"
                self.mistakes.say(f"layer '{key}' has no argument '{k}'", e.at, hint)
        args = {k: ArgSpec(e.value, e.at) for k, e in node.entries.items() if k in own and k not in named}
        at = _join(node.entries[kind].at, node.entries[kind].value.at)
        self.layers.append(RegionSpec(full, kind, args, at, place.scope, previous, place.calls, tuple(bodies)))
        return full

    def _states(self, key: str, node: MapNode) -> dict[str, Entry]:
        start = node.get("start")
        if start is None:
            return {}
        if not isinstance(start, MapNode):
            raise PeError(f"start of layer '{key}' must be a mapping, got {describe(start)}", at=start.at, hint="{state: variable}")
        return dict(start.entries)

    def _body(
        self, key: str, called: Entry, given: Mapping[str, Entry], states: Mapping[str, Entry], kind: str, place: _Place
    ) -> BodySpec | None:
        """Write out a block that a step runs; what it is given there has names of its own."""
        name, at = self._named(key, called, place)
        block = self.blocks[name].value
        layers = block.get("layers") if isinstance(block, MapNode) else None
        if not isinstance(block, MapNode) or not isinstance(layers, MapNode) or not layers.entries:
            return None
        # States and inputs are written for several bodies at once; a body takes those that it declares.
        declared = _declared(block)
        stepped = kind in ("scan", "beam")
        prefix = f"{place.prefix}{key}/" if stepped else f"{place.prefix}{key}/{called.key}/"
        each = (*(("input",) if stepped else ()), *states)
        # '@' is in no name that a user can write.
        stands = {arg: f"{prefix}@{arg}" for arg in each if arg in declared}
        for arg, entry in states.items():
            if arg not in declared and called.key != "condition":
                hint = did_you_mean(arg, declared) or f"its arguments are {', '.join(declared) or 'none'}"
                raise PeError(f"block '{name}' has no argument '{arg}'", at=entry.at, hint=hint)
        changes = block.get("next") if kind != "if" and called.key != "condition" else None
        for arg, entry in changes.entries.items() if isinstance(changes, MapNode) else ():
            if arg not in states:
                hint = did_you_mean(arg, states) or f"add start: {{{arg}: ...}}"
                notes = [(entry.at, "it changes here")]
                raise PeError(f"nothing says what '{arg}' of block '{name}' is in the first round", at=at, hint=hint, notes=notes)
        before = self.mistakes.total
        # States come from the round before, so what the call says of them is their start.
        call = MapNode({k: e for k, e in given.items() if k in declared and k not in stands}, called.at)
        values_given = self._given(name, block, call, place.scope)
        if self.mistakes.total > before:
            return None
        values_given |= {arg: ScalarNode(full, at, full, scope=COMPLETE) for arg, full in stands.items()}
        values = self._values(name, block, values_given, at)
        scope = Scope(place.scope, values, prefix=prefix)
        # The body's layers are the region's own: they are gathered apart from those around it.
        outside, self.layers = self.layers, []
        try:
            inner = _Place(scope, values, prefix, (*place.calls, at), (*place.names, name))
            last = self._layers(layers, inner, stands.get("input"))
            body = tuple(self.layers)
        finally:
            self.layers = outside
        output = self._output(name, block, scope, last)
        if output is None or any(layer.key in self.broken for layer in body):
            return None
        after = self._next(name, block, scope, states, at) if kind != "if" and called.key != "condition" else {}
        return BodySpec(body, output, stands, after, at)

    def _next(self, name: str, block: MapNode, scope: Scope, states: Mapping[str, Entry], at: Span) -> dict[str, str]:
        """Return the arguments of a block in its next round."""
        node = block.get("next")
        if not isinstance(node, MapNode):
            what = f"got {describe(node)}" if node else "which says what its arguments are in the next round"
            raise PeError(f"block '{name}' needs next, {what}", at=node.at if node else at, hint="next: {state: layer}")
        found = {}
        for arg, entry in node.entries.items():
            wanted = entry.value.value if isinstance(entry.value, ScalarNode) else None
            full = scope.find(wanted) if isinstance(wanted, str) else None
            if full is None:
                hint = did_you_mean(str(wanted), scope.names) or f"one of {', '.join(scope.names)}"
                raise PeError(f"next of block '{name}': there is no layer {describe(entry.value)}", at=entry.value.at, hint=hint)
            found[arg] = full
        for arg, entry in states.items():
            if arg not in found:
                notes = [(entry.at, "it starts here")]
                raise PeError(f"next of block '{name}' does not say what becomes of '{arg}'", at=node.at, notes=notes)
        return found

    # --- blocks that are written out ----------------------------------------------------------------------------------

    def _call(self, key: str, node: MapNode, place: _Place, previous: str | None) -> str | None:
        if "type" in node.entries:
            raise PeError(f"layer '{key}' has both type and block", at=node.entries["type"].at, hint="keep one of them")
        name, at = self._named(key, node.entries["block"], place)
        block = self.blocks[name].value
        layers = block.get("layers") if isinstance(block, MapNode) else None
        if not isinstance(block, MapNode) or not isinstance(layers, MapNode) or not layers.entries:
            return None
        repeat = self._repeat(node)
        before = self.mistakes.total
        given = self._given(name, block, node, place.scope)
        if self.mistakes.total > before:
            return None
        inner = replace(place, calls=(*place.calls, at), names=(*place.names, name))
        for i in range(repeat or 1):
            prefix = f"{place.prefix}{key}/" if repeat is None else f"{place.prefix}{key}/{i}/"
            # From the second repeat on the block reads its own output.
            if previous is not None and (i or "input" not in given):
                given["input"] = ScalarNode(previous, at, previous, scope=COMPLETE)
            values = self._values(name, block, given, at)
            scope = Scope(place.scope, values, prefix=prefix)
            first = _variable(values.get("input"), place.scope) or previous
            last = self._layers(layers, replace(inner, scope=scope, values=values, prefix=prefix), first)
            previous = self._output(name, block, scope, last)
            if previous is None or previous in self.broken:
                return None
        return previous

    def _repeat(self, call: MapNode) -> int | None:
        node = call.get("repeat")
        if node is None:
            return None
        count = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise PeError(
                f"repeat must be a whole number of at least 1, got {describe(node)}",
                at=node.at,
                notes=origin_notes(node),
            )
        return count

    def _given(self, name: str, block: MapNode, call: MapNode, scope: Scope) -> dict[str, Node]:
        """Return the arguments that a call gives; names in them belong to the place of the call."""
        declared = _declared(block)
        given: dict[str, Node] = {}
        for key, entry in call.entries.items():
            if key in _CALL_KEYS:
                continue
            if key not in declared:
                hint = (
                    did_you_mean(key, [*declared, *_CALL_KEYS]) or f"its arguments are {', '.join(declared) or 'none'}"
                )
                self.mistakes.say(f"block '{name}' has no argument '{key}'", entry.at, hint)
                continue
            # What is handed on counts, too, for a block may hand it on to several others.
            self.substitution.count(entry.value.size, entry.at)
            given[key] = _bind(entry.value, scope)
        return given

    def _values(self, name: str, block: MapNode, given: Mapping[str, Node], at: Span) -> dict[str, Node]:
        """Return all arguments of a block; a default may refer to arguments before it."""
        values: dict[str, Node] = {}
        for key, default in _declared(block).items():
            if key in given:
                values[key] = given[key]
                continue
            value = self.substitution.apply(default.value, values)
            if _is_null(value):
                hint = f"add {key}: ..., or {key}: ~ for none"
                raise PeError(
                    f"block '{name}' needs the argument '{key}'",
                    at=at,
                    hint=hint,
                    notes=[(default.at, "declared here")],
                )
            values[key] = value
        return values

    def _output(self, name: str, block: MapNode, scope: Scope, last: str | None) -> str | None:
        node = block.get("output")
        if node is None:
            return last
        wanted = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(wanted, str) or wanted.partition(".")[0] not in scope.names:
            raise PeError(
                f"the output of block '{name}' must be one of its layers, got {describe(node)}",
                at=node.at,
                hint=did_you_mean(str(wanted), scope.names) or f"one of {', '.join(scope.names)}",
            )
        return scope.find(wanted)


def _declared(block: MapNode) -> Mapping[str, Entry]:
    args = block.get("args")
    return args.entries if isinstance(args, MapNode) else {}


def _declared_of(blocks: Mapping[str, Entry], node: MapNode, named: tuple[str, ...], body: BodySpec) -> set[str]:
    """Return the arguments of the blocks that a layer names, but for those that stand for what they are given."""
    found: set[str] = set()
    for key in named:
        name = node.entries[key].value
        block = blocks[str(name.value)].value if isinstance(name, ScalarNode) else None
        if isinstance(block, MapNode):
            found |= set(_declared(block))
    return found - set(body.given)


def _variable(node: Node | None, scope: Scope) -> str | None:
    """Return the variable that a block's input stands for."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return None
    return (node.scope or scope).find(node.value)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _bind(value: Node, scope: Scope) -> Node:
    """Make the names in a value those of the place where it is written."""
    if isinstance(value, ScalarNode):
        return value if value.scope or not isinstance(value.value, str) else replace(value, scope=scope)
    if isinstance(value, MapNode):
        return replace(value, entries={k: replace(e, value=_bind(e.value, scope)) for k, e in value.entries.items()})
    return replace(value, items=tuple(_bind(item, scope) for item in value.items))


def _join(first: Span, last: Span) -> Span:
    """Return the place from one to the other, where both stand in one line."""
    if (first.file, first.line) != (last.file, last.line) or last.column < first.column:
        return first
    return replace(first, length=last.column + last.length - first.column)
