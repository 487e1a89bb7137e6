"""Converts facts of variables and attributes of operators to plain JSON values and back, for the text and the JSON form."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.program.epoch_attributes import Epochs
from pe_cli.program.ir import Block, Parameter, Variable

#: Frozen dataclasses that a program may carry (regularizers, clips), by name. Filled by the decorator.
CLASSES: dict[str, type] = {}
#: Booleans of every variable, and of parameters.
FLAGS = ("is_data", "persistable", "stop_gradient")
PARAMETER_FACTS = ("trainable", "learning_rate", "regularizer", "gradient_clip", "do_model_average", "weight_decay", "own_rate")

#: Levels of attributes within attributes.
MAX_DEPTH = 64

_Class = TypeVar("_Class", bound=type)


def _whole(text: str) -> int:
    # A number of JSON may have any length, and converting a million digits takes minutes.
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"the number {text:.24} has more than 64 bits")
    return int(text)


_DECODER = json.JSONDecoder(parse_int=_whole)


def read_json(text: str, begin: int = 0) -> tuple[Any, int]:
    """Return the JSON value that begins at a place of a text, and where it ends.

    Raises:
        ValueError: no JSON, nested too deeply, a number of more than 64 bits, or half of a surrogate pair.
    """
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Python's decoder lets half of a surrogate pair through, which no file could hold afterwards.
    if "\\ud" in text[begin:end].lower():
        json.dumps(value, ensure_ascii=False).encode()  # a lone half is no text that could be written again
    return value, end


def portable(cls: _Class) -> _Class:
    """Register a class whose objects may be saved with programs: `@portable` above `@dataclass(frozen=True)`."""
    assert dataclasses.is_dataclass(cls), f"{cls.__name__} is no dataclass"
    assert CLASSES.setdefault(cls.__name__, cls) is cls, f"two portable classes are called {cls.__name__}"
    return cls


def encode(value: Any) -> Any:
    """Return a value as JSON has it.

    Numbers that are not finite become {"$float": "inf"}, objects {"$class": name, field: value, ...}, without what a class of the
    same name that is derived from a portable one has beside its fields, and Python functions {"$python": name}, which nothing reads back.

    Raises:
        PeError: an object of a class that is not portable.
    """
    # JSON has no infinity, and attributes such as bounds may be one.
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value) if isinstance(value, Epochs) else value
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    name = type(value).__name__
    if callable(value) and name not in CLASSES:
        # Its name is kept for messages: reading such a program fails with the function's name.
        return {"$python": str(getattr(value, "__name__", name))}
    if name not in CLASSES or not isinstance(value, CLASSES[name]) or not dataclasses.is_dataclass(value):
        raise PeError(f"a program cannot be saved with an object of type {name}", hint="mark its class with @portable")
    fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    return {"$class": name, **fields}


def decode(value: Any, depth: int = 0) -> Any:
    """Return what `encode` was given.

    Raises:
        PeError: a class that is not known, fields that do not fit it, or more than MAX_DEPTH levels.
    """
    if depth > MAX_DEPTH:
        raise PeError(f"attributes are nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return [decode(v, depth + 1) for v in value]
    if not isinstance(value, dict):
        return value
    # Nothing but these is meant: float() would also take "1_0" or blanks.
    if set(value) == {"$float"} and value["$float"] in ("inf", "-inf", "nan"):
        return float(value["$float"])
    if "$python" in value:
        hint = "programs in files hold no Python functions: build it in Python"
        raise PeError(f"the program calls the Python function {value['$python']!r}", hint=hint)
    if "$class" not in value:
        return {k: decode(v, depth + 1) for k, v in value.items()}
    name = value["$class"]
    if not isinstance(name, str) or name not in CLASSES:
        raise PeError(f"the program has an object of the unknown class {name!r}", hint=did_you_mean(str(name), CLASSES))
    try:
        return CLASSES[name](**{k: decode(v, depth + 1) for k, v in value.items() if k != "$class"})
    except TypeError as error:
        raise PeError(f"the program has a {name} with wrong fields: {error}") from None


def defaults_of(kind: type[Variable]) -> dict[str, Any]:
    """Return the facts of a class of variables with their defaults."""
    found = {f.name: f.default for f in dataclasses.fields(kind)}
    if issubclass(kind, Parameter):
        return {name: found[name] for name in (*FLAGS, *PARAMETER_FACTS)} | {"persistable": True}
    return {name: found[name] for name in (*FLAGS, "lod_level")}


def facts_of(variable: Variable, *, every: bool = False) -> dict[str, Any]:
    """Return a variable's facts that differ from the defaults, or every one, as JSON values."""
    known = defaults_of(type(variable))
    return {k: encode(getattr(variable, k)) for k, default in known.items() if every or getattr(variable, k) != default}


def checked_facts(given: Mapping[str, Any], kind: type[Variable]) -> dict[str, Any]:
    """Return facts read from a file, for `create_var` or `create_parameter`.

    Raises:
        PeError: an unknown fact or one of the wrong type.
    """
    known = defaults_of(kind)
    out = {}
    for name, value in given.items():
        if name not in known:
            raise PeError(f"a {kind.__name__.lower()} has no '{name}'", hint=did_you_mean(name, known))
        found = decode(value)
        wanted = type(known[name])
        # JSON writes 1.0 as 1 in some languages.
        if wanted is float and isinstance(found, int) and not isinstance(found, bool):
            found = float(found)
        if known[name] is not None and not isinstance(found, wanted):
            raise PeError(f"{name} must be {wanted.__name__}, got {found!r}")
        out[name] = found
    return out


def attrs_of(op_attrs: Mapping[str, Any], defaults: Mapping[str, Any], *, every: bool = False) -> dict[str, Any]:
    """Return attributes that differ from the defaults, or every one, as JSON values."""
    return {k: encode(v) for k, v in op_attrs.items() if every or k not in defaults or v != defaults[k]}


def declare(block: Block, name: str, kind: Any, facts: Mapping[str, Any], *, parameter: bool) -> Variable:
    """Add a variable read from a file to a block.

    Raises:
        PeError: its facts are wrong, or the name is taken.
    """
    if parameter:
        return block.create_parameter(name, kind, **checked_facts(facts, Parameter))
    return block.create_var(name, kind, **checked_facts(facts, Variable))
