"""Builds objects from mappings with a `type`: initializers, regularizers, clips, learning-rate schedules, optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.build.values import WORDS, argument_of, convert, meant, steps_of
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import Entry, MapNode, Node, ScalarNode, describe, origin_notes, to_data
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.registry import KINDS
from pe_cli.optim.clip import CLIPS
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.optim.regularizer import REGULARIZERS
from pe_cli.optim.schedule import SCHEDULES
from pe_cli.program.initializer import INITIALIZERS, Initializer
from pe_cli.program.ir import Block, Variable
from pe_cli.program.param_attr import PARAM_ATTRS, ParamAttr


@dataclass(frozen=True)
class Table:
    """A catalogue of things that a config names by `type`.

    Args:
        word: what one is called in messages.
        makers: by type.
    """

    word: str
    makers: Mapping[str, Callable[..., Any]]

    def names(self) -> list[str]:
        """Return the types, each once: the first of those that make the same thing."""
        made = list(self.makers.values())
        return [name for k, name in enumerate(self.makers) if made.index(made[k]) == k]


OPTIMIZER = Table("optimizer", OPTIMIZERS)
SCHEDULE = Table("learning-rate schedule", SCHEDULES)
REGULARIZER = Table("regularizer", REGULARIZERS)
CLIP = Table("gradient clip", CLIPS)
INITIALIZER = Table("initializer", INITIALIZERS)

#: Arguments that take such things, by name.
_NESTED = {
    "regularization": REGULARIZER,
    "regularizer": REGULARIZER,
    "weight_decay": REGULARIZER,
    "gradient_clip": CLIP,
    "grad_clip": CLIP,
    "initializer": INITIALIZER,
    "inner": OPTIMIZER,
}
_PARAM_ATTR = ("name", "initializer", "learning_rate", "regularizer", "trainable", "gradient_clip", "do_model_average")
# beside the keys of every type
_PARAM_ATTR_OWN = {"weight_norm": {"dim": "int"}}
# arguments that a config has no use for
_HIDDEN = ("name", "parameter_list", "self")


@dataclass(frozen=True)
class Maker:
    """Makes objects; mistakes are collected, and a thing with a mistake in it is not made.

    Args:
        mistakes: where errors go.
        block: whose variables a learning rate may name; None where there are none yet.
    """

    mistakes: Mistakes
    block: Block | None = None

    def make(self, table: Table, node: Node, what: str) -> Any:
        """Return the object that a node describes, or None with its mistakes added.

        Args:
            table: catalogue that its type is looked up in.
            node: a mapping with `type`, or the type alone.
            what: where it stands, for messages: `train.optimizer`.
        """
        # A thing that has mistakes is not made: what would follow from it is no mistake of its own.
        before = self.mistakes.total
        kind, at, given = self._typed(table, node, what)
        if kind is None:
            return None
        maker = table.makers[kind]
        values = self._arguments(f"{table.word} '{kind}'", inspect.signature(maker), given, at)
        if self.mistakes.total > before:
            return None
        try:
            return maker(**values)
        except PeError as error:
            value = argument_of(error, {key: entry.value for key, entry in given.items()})
            error.at = error.at or (value.at if value is not None else at)
            error.notes += origin_notes(value) if value is not None else ()
            self.mistakes.add(error)
        return None

    def param_attr(self, node: Node, what: str) -> ParamAttr | bool | None:
        """Return a ParamAttr for a mapping, a name, true or false."""
        if isinstance(node, ScalarNode):
            if node.value is None or isinstance(node.value, bool):
                return node.value
            if isinstance(node.value, str):
                return ParamAttr(name=node.value)
        if not isinstance(node, MapNode):
            hint = "for example {initializer: {type: Xavier}, learning_rate: 0.5}"
            self.mistakes.say(f"{what} must be a mapping, a name, true or false, got {describe(node)}", node.at, hint)
            return None
        before = self.mistakes.total
        made, values = self._param_attr(node, what)
        if self.mistakes.total > before:
            return None
        try:
            return made(**values)
        except PeError as error:
            error.at = error.at or node.at
            self.mistakes.add(error)
        return None

    def _param_attr(self, node: MapNode, what: str) -> tuple[type[ParamAttr], dict[str, Any]]:
        """Return the class of a parameter attribute and its arguments, with mistakes added."""
        type_ = node.get("type")
        chosen = "plain" if type_ is None else type_.value if isinstance(type_, ScalarNode) else None
        if type_ is not None and chosen not in PARAM_ATTRS:
            hint = did_you_mean(str(chosen), PARAM_ATTRS) or f"one of {', '.join(PARAM_ATTRS)}"
            self.mistakes.say(f"there is no parameter attribute {describe(type_)}", type_.at, hint)
            return ParamAttr, {}
        own = _PARAM_ATTR_OWN.get(str(chosen), {})
        kinds = {**dict.fromkeys(_PARAM_ATTR, "bool"), "name": "str", "learning_rate": "float", **own}
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if key == "type":
                continue
            if key not in kinds:
                hint = did_you_mean(key, kinds) or f"one of {', '.join(kinds)}"
                self.mistakes.say(f"{what} has no key '{key}'", entry.at, hint)
            elif key in _NESTED:
                values[key] = self._nested(key, entry.value, f"{what}.{key}")
            elif key in own and isinstance(entry.value, ScalarNode) and entry.value.value is None:
                values[key] = None
            else:
                with self.mistakes.catch():
                    values[key] = convert(kinds[key], entry.value, f"{what}.{key}")
        return PARAM_ATTRS[str(chosen)], values

    def initializer(self, node: Node, what: str) -> Initializer | None:
        """Return an initializer for a mapping or a type alone."""
        made: Initializer | None = self.make(INITIALIZER, node, what)
        return made

    def _typed(self, table: Table, node: Node, what: str) -> tuple[str | None, Span, Mapping[str, Entry]]:
        """Return the type, its place and the other entries; None where they are wrong."""
        given: Mapping[str, Entry] = {}
        kind: Node | None = node
        if isinstance(node, MapNode):
            kind, given = node.get("type"), {k: e for k, e in node.entries.items() if k != "type"}
        if kind is None:
            # A misspelled `type` is an unknown key here; the hint names what was meant.
            close = next((e for k, e in given.items() if did_you_mean(k, ("type",))), None)
            hint = "did you mean 'type'?" if close else f"one of {', '.join(table.names())}"
            self.mistakes.say(f"{what} needs a type", close.at if close else node.at, hint)
        elif not isinstance(kind, ScalarNode) or not isinstance(kind.value, str):
            self.mistakes.say(
                f"{what} must be a mapping with type, got {describe(kind)}",
                kind.at,
                f"for example {{type: {next(iter(table.makers), '')}}}",
            )
        elif kind.value not in table.makers:
            hint = did_you_mean(kind.value, table.makers) or f"one of {', '.join(table.names())}"
            self.mistakes.say(f"there is no {table.word} '{kind.value}'", kind.at, hint)
        else:
            return kind.value, kind.at, given
        return None, node.at, {}

    def _arguments(
        self, what: str, signature: inspect.Signature, given: Mapping[str, Entry], at: Span
    ) -> dict[str, Any]:
        known = {n: p for n, p in signature.parameters.items() if n not in _HIDDEN and p.kind is not p.VAR_KEYWORD}
        values: dict[str, Any] = {}
        for written, entry in given.items():
            # the parameter attribute's name for it does for an optimizer too
            key = "grad_clip" if written == "gradient_clip" and "grad_clip" in known else written
            if key in values:
                self.mistakes.say(f"{what} has both grad_clip and gradient_clip", entry.at, "keep one of them")
            elif key not in known:
                hint = did_you_mean(key, known) or f"its arguments are {', '.join(known) or 'none'}"
                self.mistakes.say(f"{what} has no argument '{key}'", entry.at, hint)
            else:
                values[key] = None
                with self.mistakes.catch():
                    values[key] = self._argument(f"{what}: {written}", key, known[key], entry.value)
        # Neither reported as unknown and then, under its right name, as missing.
        misspelled = meant(given, known)
        for key, parameter in known.items():
            if parameter.default is parameter.empty and key not in values and key not in misspelled:
                self.mistakes.say(f"{what} needs the argument '{key}'", at, f"add {key}: ...")
        return values

    def _argument(self, what: str, key: str, parameter: inspect.Parameter, node: Node) -> Any:
        annotation = str(parameter.annotation)
        if isinstance(node, ScalarNode) and node.value is None and (parameter.default is None or "None" in annotation):
            return None
        if key in _NESTED and annotation != "float":
            return self._nested(key, node, what)
        if key == "learning_rate" and annotation != "float":
            return self._rate(node, what)
        if annotation in ("Steps", "Sequence[Steps]"):
            return steps_of(node, what, several=annotation != "Steps")
        kind = KINDS.get(annotation.removesuffix(" | None").replace("Sequence[", "list["), "")
        if kind in WORDS:
            return convert(kind, node, what)
        # an annotation that no kind stands for: the object itself checks the value
        return to_data(node)

    def _rate(self, node: Node, what: str) -> Any:
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and self.block is not None:
            return self._fed_rate(node.value, node)
        return self.make(SCHEDULE, node, what) if isinstance(node, MapNode) else convert("float", node, what)

    def _fed_rate(self, name: str, node: ScalarNode) -> Variable:
        """Return the variable that a learning rate is fed by."""
        assert self.block is not None
        found = self.block.vars.get(name)
        if found is None:
            fed = [v.name for v in self.block.vars.values() if v.is_data]
            text = f"learning_rate must be a number, a schedule or the name of a feed, got '{name}'"
            raise PeError(text, at=node.at, hint=did_you_mean(name, fed))
        if found.shape != (1,):
            hint = "declare it in the model: {shape: [1], replicate: true}"
            raise PeError(f"a learning rate has shape [1], '{name}' is {found.type}", at=node.at, hint=hint)
        return found

    def _nested(self, key: str, node: Node, what: str) -> Any:
        if isinstance(node, ScalarNode) and node.value is None:
            return None
        return self.make(_NESTED[key], node, what)
