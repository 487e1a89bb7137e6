"""Turns pydantic's errors into plain sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pe_cli.config.yaml_scalars import show
from pe_cli.core.errors import PeError, Span, did_you_mean

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", ">"),
    "less_than": ("lt", "<"),
}
#: Parts of a place that stand for the kinds that a value may be of, and not for a key.
_KINDS = re.compile(r"(str|int|float|bool|constrained-\w+|(literal|function|list|dict|tuple|nullable)[\[-].*)")


def _bound(kind: str, context: Mapping[str, Any]) -> str | None:
    """Return what the size of a value must be, None where that is not what is wrong."""
    if kind in _BOUNDS:
        key, word = _BOUNDS[kind]
        return f"must be {word} {context[key]}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} character{'s' * (context['max_length'] > 1)}"
    return "is missing" if kind == "missing" else None


def wanted(detail: Mapping[str, Any], value: Any) -> tuple[str, str | None]:
    """Return what a value must be, as the end of a sentence that begins with its key, and a hint.

    Args:
        detail: one of pydantic's errors.
        value: what is written.
    """
    kind, context = str(detail["type"]), detail.get("ctx", {})
    if kind == "value_error":
        said = context["error"].args  # a sentence, what to do where there is more to say, and the keys that lead to the mistake
        return str(said[0]), said[1] if len(said) > 1 else None
    if kind == "literal_error":
        options = [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]
        listed = (
            f"{', '.join(options[:-1])} or {options[-1]}" if len(options) > 1 else options[0].replace("True", "true")
        )
        return f"must be {listed}", did_you_mean(value, options) if isinstance(value, str) else None
    if (bound := _bound(kind, context)) is not None:
        return bound, None
    hint = None
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off"):
        hint = f"write true or false; in YAML 1.2 {value} is text"
    elif (
        kind in ("int_type", "float_type")
        and isinstance(value, str)
        and value.replace("_", "").replace(".", "").isdigit()
    ):
        hint = "write the number without quotes and underscores"
    elif kind == "string_type":
        hint = "quote it" if value is not None else None
    return f"must be {_WANTED.get(kind, detail['msg'])}", hint


def keys_inside(detail: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the keys that lead from a value which one function checks to the mistake in it; none where it is the value."""
    said = detail.get("ctx", {}).get("error") if detail["type"] == "value_error" else None
    return tuple(said.args[2]) if said is not None and len(said.args) > 2 else ()


def told_once(details: Iterable[ErrorDetails], known: Callable[[tuple[int | str, ...]], Collection[str]]) -> list[ErrorDetails]:
    """Return what pydantic found, without keys that are missing only because they are misspelled: that is told of the key as written.

    Args:
        details: of one failure.
        known: path to a mapping -> the keys that it may have.
    """
    found = list(details)
    meant = set()
    for detail in found:
        *above, key = detail["loc"] or ("",)
        if detail["type"] == "extra_forbidden":
            meant.add((*above, did_you_mean(str(key), known(tuple(above)))))
    return [
        detail
        for detail in found
        if detail["type"] != "missing" or (*detail["loc"][:-1], f"did you mean '{detail['loc'][-1]}'?") not in meant
    ]


def option_errors(where: str, model: type[BaseModel], failure: ValidationError, at: Span | None) -> list[PeError]:
    """Return errors about the options of a thing that a config names by type: a reader, a column, an augmentation.

    Args:
        where: what they are options of, such as `reader 'csv'`.
        model: of the options.
        failure: what pydantic found; of a value that may be of several kinds there is one error for each.
        at: place of the thing.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for detail in told_once(failure.errors(include_url=False), lambda above: () if above else model.model_fields):
        loc = detail["loc"]
        place = ".".join(str(part) for i, part in enumerate(loc) if i == 0 or not _KINDS.fullmatch(str(part)))
        found.setdefault(place, []).append(dict(detail))
    return [_option_error(where, model, place, details, at) for place, details in found.items()]


def _option_error(where: str, model: type[BaseModel], place: str, details: list[dict[str, Any]], at: Span | None) -> PeError:
    first = details[0]
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(place, model.model_fields) if len(first["loc"]) == 1 else None
        return PeError(f"{where} has no option '{place}'", at=at, hint=hint or f"it has {', '.join(model.model_fields)}")
    if first["type"] == "missing":
        return PeError(f"{where} needs the option '{place}'", at=at, hint=f"add {place}: ...")
    said = [wanted(detail, detail["input"]) for detail in details]
    text = " or ".join(dict.fromkeys(part.removeprefix("must be ") for part, _ in said))
    begin = "must be " if said[0][0].startswith("must be ") else ""
    joint = " " if said[0][0].startswith(("must ", "is ")) else ": "  # else it is a sentence of its own
    given = "" if isinstance(first["input"], dict) else f", got {show(first['input'])}"
    hint = next((hint for _, hint in said if hint), None) if len(said) == 1 else None
    return PeError(f"{where}: {place + joint if place else ''}{begin}{text}{given}", at=at, hint=hint)
