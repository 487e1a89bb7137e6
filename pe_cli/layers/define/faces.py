"""Layers that are one op each, made of what the ops declare as their faces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pe_cli.layers.define.face_docs import documented
from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.ops.define.faces import Face, Word, words
from pe_cli.ops.define.registry import Attr, OpDef, Slot, discover
from pe_cli.program.ir import Variable

#: Attributes that a layer does not offer unless it names them.
_HIDDEN = {"use_cudnn", "use_mkldnn", "data_format", "is_test"}
_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_REQUIRED = inspect.Parameter.empty


def resolved(definition: OpDef, face: Face) -> list[tuple[Word, Slot | Attr | None]]:
    """Return the arguments of a face, each with the slot or attribute that gets it; None for a name and an activation.

    Raises:
        ValueError: a word that no slot or attribute is left for; it is ours.
    """
    attrs, slots = definition.attrs, {s.name: s for s in definition.inputs}
    listed = words(face.takes) if face.takes else _all(definition, face)
    named = {w.target for w in listed}
    left = [name for name in slots if name not in named]
    found: list[tuple[Word, Slot | Attr | None]] = []
    for word in listed:
        if word.name in ("name", "act") and not word.target:
            found.append((word, None))
            continue
        # A word that is no attribute's name stands for the next input that no word names.
        target = word.target or (word.name if word.name in attrs else left.pop(0) if left else "")
        if target not in slots and target not in attrs:
            raise ValueError(f"op {definition.name}: a face takes {word.name}, for which there is no slot or attribute")
        found.append((word.replaced(target), slots[target] if target in slots else attrs[target]))
    return found


def _all(definition: OpDef, face: Face) -> list[Word]:
    """Return the words of a face that says none: the first input, the attributes by their own names, and a name."""
    offered = [name for name in definition.attrs if name not in _HIDDEN and name not in face.fixed]
    return [Word("x", definition.inputs[0].name), *(Word(name, name) for name in offered), Word("name")]


def _annotation(word: Word, target: Slot | Attr | None, face: Face) -> str:
    if word.name in face.kinds:
        return face.kinds[word.name]
    if target is None:
        return "str | None"
    if isinstance(target, Slot):
        return ("list[Variable]" if target.variadic else "Variable") + (" | None" if target.optional and not word.required else "")
    if isinstance(target.default, list):
        return f"list[{type(target.default[0]).__name__ if target.default else 'int'}]"
    return type(target.default).__name__


def _default(word: Word, target: Slot | Attr | None) -> Any:
    if word.given:
        return word.default
    if target is None:
        return None
    if isinstance(target, Slot):
        return None if target.optional and not word.required else _REQUIRED
    return _REQUIRED if word.required else target.default


def make_layer(definition: OpDef, face: Face) -> Callable[..., Variable | tuple[Variable, ...]]:
    """Return the function of a layer that is one op.

    Args:
        definition: the op.
        face: what it declares.
    """
    name = face.name or definition.name
    arguments = resolved(definition, face)
    parameters = [inspect.Parameter(w.name, _KIND, default=_default(w, t), annotation=_annotation(w, t, face)) for w, t in arguments]
    slots = [s.name for s in definition.outputs]
    returned = face.returns.split() or slots
    several = "Variable" if len(returned) == 1 else f"tuple[{', '.join(['Variable'] * len(returned))}]"
    signature = inspect.Signature(parameters, return_annotation=several)

    def made(*args: Any, **given: Any) -> Variable | tuple[Variable, ...]:
        bound = signature.bind(*args, **given)
        bound.apply_defaults()
        values = bound.arguments
        helper = LayerHelper(name, values.get("name"))
        inputs, attrs = _handed(values, arguments)
        found = dict(zip(slots, helper.op(definition.name, inputs, {**face.fixed, **attrs}, slots), strict=True))
        if len(returned) == 1:
            return helper.activate(found[returned[0]], values.get("act"))
        return tuple(found[slot] for slot in returned)

    # Made functions have no source to read: what a config may write is taken from their signatures.
    made.__name__ = made.__qualname__ = name
    made.__module__ = definition.module
    made.__signature__ = signature  # type: ignore[attr-defined]
    return made


def _handed(values: dict[str, Any], arguments: Sequence[tuple[Word, Slot | Attr | None]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs by slot and the attributes; one for a list becomes a list of one, and None the attribute's default."""
    inputs, attrs = {}, {}
    for word, target in arguments:
        value = values[word.name]
        if isinstance(target, Slot):
            inputs[target.name] = as_list(value) if target.variadic and value is not None else value
        elif target is not None and value is not None:
            attrs[word.target] = as_list(value) if isinstance(target.default, list) else value
    return inputs, attrs


def write_doc(definition: OpDef, face: Face) -> str:
    """Return the doc of a layer that is one op."""
    returned = face.returns.split() or [s.name for s in definition.outputs]
    return documented(definition, face, [word for word, _ in resolved(definition, face)], returned)


def register() -> None:
    """Make the layers of all ops. Their docs are written when somebody asks for them."""
    for definition in discover().values():
        for face in definition.faces:
            if isinstance(face, Face) and face.layer:
                keep = layer(
                    name=face.name or definition.name,
                    label=face.label,
                    judges=face.judges,
                    answers=face.answers,
                    made_of=face.made_of,
                    writes=partial(write_doc, definition, face),
                    example=face.example,
                )
                keep(make_layer(definition, face))


register()
