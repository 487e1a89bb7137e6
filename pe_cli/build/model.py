"""A ModelSpec's layers into a program: arguments are checked, and variables get the names of the file."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.build.regions import BrokenError, append_region
from pe_cli.build.typed_objects import Maker
from pe_cli.build.values import WORDS, argument_of, convert, meant
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import ListNode, Lookup, Node, ScalarNode, describe, origin_notes
from pe_cli.config.spec import ArgSpec, LayerSpec, ModelSpec, RegionSpec
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import NUMBERS, TensorType
from pe_cli.layers.define.registry import LayerArg, LayerDef, find
from pe_cli.program.ir import Program, Variable

#: Kinds of arguments that variables may give.
_SIZES = ("size", "sizes", "int_or_sizes", "number")


@dataclass
class Layers:
    """Appends layers to the main program (the default one while this runs).

    Args:
        program: main program.
        model: what is computed.
        mistakes: where errors go.

    Attributes:
        broken: variables that do not exist because of a mistake.
        aliases: names of the file that stand for a variable of another name.
    """

    program: Program
    model: ModelSpec
    mistakes: Mistakes
    broken: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.block = self.program.main_block
        self.maker = Maker(self.mistakes)
        self.keys = {layer.key: layer for layer in self.model.layers}
        self.broken |= self.model.broken

    def append_all(self) -> None:
        """Declare the feeds and append every layer."""
        for name, feed in self.model.feeds.items():
            kind = TensorType(feed.shape if feed.replicate else (-1, *feed.shape), feed.dtype)
            facts = {"is_data": True, "stop_gradient": True, "lod_level": feed.lod_level}
            self.block.create_var(name, kind, at=feed.at, **facts)
        for layer in self.model.layers:
            self.append(layer)

    def find(self, name: str, scope: Lookup) -> Variable:
        """Return a variable by a name as written.

        Raises:
            BrokenError: there would be one, but for a mistake that is reported already.
            PeError: there is none; without a place.
        """
        # The first name is what is written; where layers share a result, the program has it under one of their names.
        full = scope.find(name) or name
        full = self.aliases.get(full, full)
        if full in self.block.vars:
            return self.block.vars[full]
        base = full.partition(".")[0]
        # A layer with a mistake made nothing; whatever reads it would only repeat the mistake.
        if base in self.broken:
            raise BrokenError
        if base in self.keys and "." not in full:
            later = self.keys[base]
            raise PeError(
                f"'{name}' is computed only later", hint="move it up", notes=[(later.at, f"'{name}' is made here")]
            )
        asked, where = scope.written(name)
        known = where.known()
        text = f"there is no variable '{asked}'" + (f", which '{name}' stands for" if asked != name else "")
        if "/" in asked:  # a layer of a block, from where the name is written
            around = full.removesuffix(asked)
            known += [key.removeprefix(around) for key in self.keys if key.startswith(around)]
        hint = did_you_mean(asked, known)
        raise PeError(text, hint=hint or f"there are {', '.join(known[-12:])}")

    def append(self, layer: LayerSpec) -> None:
        """Append a layer; mistakes are collected."""
        before = self.mistakes.total
        made = False
        try:
            if isinstance(layer, RegionSpec):
                count, first = len(self.block.vars), len(self.block.ops)
                with self.program.place(layer.at):
                    outputs = append_region(self, layer)
                self._name(layer, outputs, count, first)
                return
            definition = find(layer.type)
            values = self._arguments(layer, definition)
            if self.mistakes.total == before:
                self._call(layer, definition, values)
                made = True
        except BrokenError:
            pass
        except PeError as error:
            error.at = error.at or layer.at
            node = argument_of(error, {name: arg.value for name, arg in layer.args.items()})
            if node is not None:
                # The same note is not told twice when an argument comes through several blocks.
                error.notes += [note for note in origin_notes(node) if note not in error.notes]
            self._add(error, layer)
        if not made:
            self.broken.add(layer.key)

    def _call(self, layer: LayerSpec, definition: LayerDef, values: Mapping[str, Any]) -> None:
        named = {"name": layer.key} if "name" in inspect.signature(definition.fn).parameters else {}
        count, first = len(self.block.vars), len(self.block.ops)
        with self.program.place(layer.at), self.program.name_scope(layer.key):
            result = definition.fn(**values, **named)
        self._name(layer, _flat(result), count, first)

    def _name(self, layer: LayerSpec, outputs: Sequence[Variable], count: int, first: int) -> None:
        """Give what a layer made the names of the file; there were `count` variables and `first` ops before it."""
        # Variables are kept in the order of their creation: those of this layer are the last ones.
        fresh = set(itertools.islice(reversed(self.block.vars), len(self.block.vars) - count))
        for i, output in enumerate(outputs):
            key = layer.key if len(outputs) == 1 else f"{layer.key}.{i}"
            if output.name == key:
                continue
            # what was there before, and what the startup program knows by its name, keeps that name
            if output.name not in fresh or output.persistable:
                self.aliases[key] = output.name
            else:
                self.block.rename_var(output.name, key, first)
        if len(outputs) > 1:
            self.aliases[layer.key] = self.aliases.get(f"{layer.key}.0", f"{layer.key}.0")

    def _arguments(self, layer: LayerSpec, definition: LayerDef) -> dict[str, Any]:
        """Return the values of a layer's arguments.

        Raises:
            BrokenError: one depends on a layer with a mistake; every other argument has been checked by then.
        """
        what = f"layer '{layer.type}'"
        for name, arg in layer.args.items():
            if name not in definition.args:
                hint = did_you_mean(name, definition.args) or f"its arguments are {', '.join(definition.args)}"
                self._add(PeError(f"{what} has no argument '{name}'", at=arg.at, hint=hint), layer)
        values: dict[str, Any] = {}
        broken = False
        # A misspelled name is told as such, and not once more as a missing argument.
        misspelled = meant(layer.args, definition.args)
        for name, declared in definition.args.items():
            try:
                if name in layer.args:
                    values[name] = self._value(declared, layer.args[name], layer, f"{what}: {name}")
                elif declared.required and name not in misspelled:
                    values[name] = self._implied(declared, definition, layer, what)
            except BrokenError:
                broken = True
            except PeError as error:
                self._add(error, layer)
        if broken:
            raise BrokenError
        return values

    def _implied(self, declared: LayerArg, definition: LayerDef, layer: LayerSpec, what: str) -> Any:
        """Return the previous layer's output for the first variable, which needs no name."""
        if declared.name != definition.implied:
            raise PeError(f"{what} needs the argument '{declared.name}'", at=layer.at, hint=f"add {declared.name}: ...")
        if layer.previous is None:
            hint = did_you_mean(declared.name, layer.args) or f"add {declared.name}: and the name of a feed"
            raise PeError(
                f"{what} needs the argument '{declared.name}', as it is the first layer", at=layer.at, hint=hint
            )
        previous = self.aliases.get(layer.previous, layer.previous)
        if previous not in self.block.vars:
            raise BrokenError
        variable = self.block.vars[previous]
        return [variable] if declared.kind == "variables" else variable

    def _value(self, declared: LayerArg, arg: ArgSpec, layer: LayerSpec, what: str) -> Any:  # noqa: PLR0911 - a line for each kind
        node = arg.value
        if (
            isinstance(node, ScalarNode)
            and node.value is None
            and (declared.optional or (not declared.required and declared.default is None))
        ):
            return None
        if declared.kind == "variable":
            return self.variable(node, layer, what)
        if declared.kind == "variables":
            items = node.items if isinstance(node, ListNode) else (node,)
            if not items:
                raise PeError(f"{what} must have at least one name", at=node.at)
            return self._variables(items, layer, what)
        if declared.kind == "param_attr":
            return self.maker.param_attr(node, what)
        if declared.kind == "initializer":
            return self.maker.initializer(node, what)
        if declared.kind in _SIZES and _names_a_variable(node):
            return self._size(declared.kind, node, layer, what)
        return convert(declared.kind, node, what)

    def _size(self, kind: str, node: Node, layer: LayerSpec, what: str) -> Any:
        """Return a size, or a number, that a variable gives, or a list with such ones.

        Raises:
            BrokenError: a variable is missing because of a mistake that is reported already.
            PeError: there is none, it has another element type, or what stands beside it in the list is no whole number.
        """
        if isinstance(node, ListNode):
            if kind not in ("sizes", "int_or_sizes"):
                return convert(kind, node, what)
            parts = ((_names_a_variable(item), item) for item in node.items)
            return [self._size("size", item, layer, what) if named else convert("size", item, what) for named, item in parts]
        found = self.variable(node, layer, what)
        if found.dtype not in (NUMBERS if kind == "number" else ("int32", "int64")):
            hint = "name an integer variable, or put a layer of type cast with dtype: int64 before it"
            text = f"{what} must be {WORDS[kind]}, and '{found.name}' is {found.type}"
            raise PeError(text, at=node.at, hint=hint, notes=origin_notes(node))
        return found

    def _variables(self, items: Sequence[Node], layer: LayerSpec, what: str) -> list[Variable]:
        """Return variables by name; one that is broken does not hide a wrong name after it."""
        found: list[Variable] = []
        for item in items:
            with contextlib.suppress(BrokenError):
                found.append(self.variable(item, layer, what))
        if len(found) < len(items):
            raise BrokenError
        return found

    def variable(self, node: Node, layer: LayerSpec, what: str) -> Variable:
        """Return the variable that a value of a layer names.

        Raises:
            BrokenError: it is missing because of a mistake that is reported already.
            PeError: there is none.
        """
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            raise PeError(
                f"{what} must be the name of a variable, got {describe(node)}", at=node.at, notes=origin_notes(node)
            )
        try:
            return self.find(node.value, node.scope or layer.scope)
        except PeError as error:
            error.at = node.at
            error.notes += origin_notes(node)
            raise

    def _add(self, error: PeError, layer: LayerSpec) -> None:
        """Keep an error; one in a block also says where the block is used."""
        name = layer.key.rpartition("/")[0]
        error.notes += [(at, f"in '{name}', used here") for at in layer.calls[-1:]]
        self.mistakes.add(error)


def _names_a_variable(node: Node) -> bool:
    """Return whether a value is text, or a list with text in it."""
    items = node.items if isinstance(node, ListNode) else (node,)
    return any(isinstance(item, ScalarNode) and isinstance(item.value, str) for item in items)


def _flat(result: Any) -> list[Variable]:
    """Return what a layer gives, one after the other; auc gives a list among others."""
    return [v for each in result for v in _flat(each)] if isinstance(result, (list, tuple)) else [result]
