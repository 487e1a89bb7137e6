"""Parses the option `--columns` of `pe init`: NAME=TYPE, with options as a config has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import to_data
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.core.errors import PeError, as_one
from pe_cli.data.column_declarations import check_columns
from pe_cli.session.starters.group_keys import GROUP

#: Types that a starter knows: those of a table's columns, and masks of pictures.
TYPES = ("number", "bool", "category", "date", "bag", "text", "mask")
#: What a type is called besides: a target of bags has tags.
_ALSO = {"tags": "bag"}
_EXAMPLE = "for example --columns plz=category, or --columns 'price={type: number, decimal: \",\"}'"


def said_columns(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return columns with their types and options.

    Args:
        texts: NAME=TYPE each; TYPE is a name, or a mapping with `type`.

    Raises:
        PeError: USAGE; a text has another form, a column is named twice, or a type or an option is unknown.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        name, mistakes = name.strip(), Mistakes()
        if not equals or not name or not written.strip():
            raise PeError(f"--columns needs NAME=TYPE, got '{text}'", hint=_EXAMPLE)
        node = parse(Source(f"--columns {text.splitlines()[0]}", written, before=f"{name}="), mistakes)
        if mistakes.errors:
            raise as_one(mistakes.errors)
        value = {} if node is None else to_data(node)
        if name in found:
            raise PeError(f"--columns names '{name}' twice", hint="say its type once")
        declared = value if isinstance(value, dict) else {"type": value}
        kind = declared.get("type")
        found[name] = {**declared, "type": _ALSO.get(kind, kind)} if isinstance(kind, str) else declared
        if kind == GROUP and len(declared) > 1:
            raise PeError(f"--columns {name}: a group has no options", hint=f"--columns {name}={GROUP}")
    checked = check_columns({name: (value, None) for name, value in found.items() if value.get("type") != GROUP})
    for name, (kind, _) in checked.items():
        if kind not in TYPES:
            hint = f"one of {', '.join([*TYPES, *_ALSO, GROUP])}; write others into the config"
            raise PeError(f"--columns {name}: pe init makes no branch for the type {kind}", hint=hint)
    return found
