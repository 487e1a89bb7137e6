"""Checks a section of a config against its pydantic model; messages and places are ours."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import ListNode, MapNode, Node, ScalarNode, describe, find, key_span, origin_notes, to_data
from pe_cli.config.period import Period
from pe_cli.config.pydantic_messages import keys_inside, told_once, wanted
from pe_cli.config.sections.section import Section
from pe_cli.config.yaml_scalars import show
from pe_cli.core.errors import PeError, Span, did_you_mean

AnySection = TypeVar("AnySection", bound=Section)
Path = tuple[str | int, ...]


def check(
    section: type[AnySection], node: Node, path: Path, mistakes: Mistakes, at: Span | None = None
) -> AnySection | None:
    """Return a section with places, or None with every mistake in it added.

    Args:
        section: what the node should be.
        node: what is written.
        path: keys from the file's top to it, for messages.
        mistakes: where errors go.
        at: place of the section's name, for keys that are missing; the node's where there is none.
    """
    try:
        found = section.model_validate(to_data(node))
    # One wrong value of a union fails for each of its kinds; the user reads one sentence.
    except ValidationError as failure:
        for detail in told_once(failure.errors(include_url=False), lambda above: _keys(_section_at(section, above))):
            mistakes.add(explain(section, node, path, dict(detail), at))
        return None
    locate(found, node)
    return found


def locate(section: Section, node: Node) -> None:
    """Tell a section and those in it where they are written."""
    if not isinstance(node, MapNode):
        return
    section.locate(node.at, {key: entry.value.at for key, entry in node.entries.items()})
    for name, field in type(section).model_fields.items():
        written = node.get(field.alias or name)
        value = getattr(section, name)
        if written is not None and isinstance(value, Section):
            locate(value, written)
        elif isinstance(written, ListNode) and isinstance(value, list):
            for item, inner in zip(value, written.items, strict=False):
                if isinstance(item, Section):
                    locate(item, inner)


def explain(
    section: type[Section], node: Node, path: Path, detail: Mapping[str, Any], above_at: Span | None = None
) -> PeError:
    """Return one of pydantic's errors as one of ours."""
    kind, loc = str(detail["type"]), (*detail["loc"], *keys_inside(detail))
    full = ".".join(str(part) for part in (*path, *loc))
    if kind == "extra_forbidden":
        return _unknown(section, node, path, loc)
    owner = _section_at(section, loc[:-1])
    above = ".".join(str(part) for part in (*path, *loc[:-1]))
    if kind == "missing":
        at = key_span(node, loc[:-1]) if loc[:-1] else above_at or node.at
        return PeError(
            f"{above or 'the file'} needs {loc[-1]}", at=at, hint=f"add {loc[-1]}: ...{_about(owner, loc[-1])}"
        )
    written = find(node, loc)
    at = written.at if written is not None else key_span(node, loc)
    got = describe(written) if written is not None else show(detail.get("input"))
    notes = origin_notes(written) if written is not None else ()
    value = written.value if isinstance(written, ScalarNode) else None
    if owner and loc and _is_unavailable(owner, str(loc[-1]), value):
        # Known values that this version lacks are told apart from misspelled ones.
        return PeError(
            f"{full}: {show(value)} is not available in this version", at=at, hint=f"only {_only(owner, str(loc[-1]))}"
        )
    said, hint = wanted(detail, value)
    if owner and loc and isinstance(written, ScalarNode) and value is None:
        hint = _default_of(owner, str(loc[-1])) or hint
    if loc[-1:] == ("optimizer",) and isinstance(value, str):
        hint = f"write optimizer: {{type: {value}}}, with its arguments"
    return PeError(f"{full or 'the file'} {said}, got {got}", at=at, hint=hint, notes=notes)


def _is_unavailable(owner: type[Section], key: str, value: Any) -> bool:
    return any(type(value) is type(bad) and value == bad for bad in owner.UNAVAILABLE_VALUES.get(key, ()))


def _unknown(section: type[Section], node: Node, path: Path, loc: Path) -> PeError:
    owner = _section_at(section, loc[:-1])
    key = str(loc[-1])
    above = ".".join(str(part) for part in (*path, *loc[:-1]))
    at = key_span(node, loc)
    if owner and key in owner.UNAVAILABLE:
        return PeError(f"{above}.{key} is not available in this version", at=at, hint="remove it")
    known = _keys(owner)
    hint = did_you_mean(key, known)
    # `key:value` without a blank is one text in YAML.
    if hint is None and ":" in key:
        hint = "put a blank after the ':'"
    what = f"{above} has no key '{key}'" if above else f"there is no section '{key}'"
    return PeError(what, at=at, hint=hint or f"one of {', '.join(known)}")


def _keys(section: type[Section] | None) -> list[str]:
    """Return the keys that a section may have."""
    return [field.alias or name for name, field in section.model_fields.items()] if section else []


def _section_at(section: type[Section], loc: Path) -> type[Section] | None:
    """Return the section that a path of keys leads to."""
    here: Any = section
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = next((f for n, f in here.model_fields.items() if (f.alias or n) == part), None)
            here = None if field is None else field.annotation
        else:
            here = typing.get_args(here)[-1] if typing.get_origin(here) in (dict, list) else None
        # An optional section is a union with None, of which the section is wanted.
        if isinstance(here, types.UnionType) or typing.get_origin(here) is typing.Union:
            here = next((a for a in typing.get_args(here) if a is not type(None)), None)
    return here if isinstance(here, type) and issubclass(here, Section) else None


def _about(owner: type[Section] | None, key: str | int) -> str:
    field = next((f for n, f in owner.model_fields.items() if (f.alias or n) == key), None) if owner else None
    return f"   ({field.description})" if field and field.description else ""


def _default_of(owner: type[Section], key: str) -> str | None:
    """Return what to do with a key that is null, where it may be left out."""
    field = next((f for n, f in owner.model_fields.items() if (f.alias or n) == key), None)
    if field is None or field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    shown = default if isinstance(default, str | Period) else show(default)
    said = "" if isinstance(default, dict | Section) else f", {shown}"
    return f"leave {key} out for its default{said}"


def _only(owner: type[Section], key: str) -> str:
    return ", ".join(show(option) for option in typing.get_args(owner.model_fields[key].annotation))
