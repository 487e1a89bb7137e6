"""Columns as config and reader declare them, with checked options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from pe_cli.config.nodes import to_data
from pe_cli.config.paths import PATHS
from pe_cli.config.pydantic_messages import option_errors
from pe_cli.config.spec import ArgSpec
from pe_cli.core.errors import PeError, Span, as_one, did_you_mean
from pe_cli.data.column import ColumnOptions, discover
from pe_cli.data.column_usage import ColumnUse


def declared_over(implied: Mapping[str, Any], declared: Any) -> Any:
    """Return the options of a declared column; those that the reader gives to a column of that type stay where nothing is declared."""
    same = isinstance(declared, dict) and implied.get("type") == declared.get("type")
    return {**implied, **declared} if same else declared


def spread(
    uses: Mapping[str, ColumnUse], declared: Mapping[str, tuple[str, ColumnOptions]]
) -> tuple[dict[str, ColumnUse], tuple[str, ...]]:
    """Return uses with those of columns that other columns are made of, and the names of these.

    Raises:
        PeError: USAGE; a column is made of one that is itself made of others.
    """
    found, inner = dict(uses), dict[str, None]()
    made = {name: parts for name, (kind, options) in declared.items() if (parts := discover()[kind].made_of(options))}
    for name, parts in made.items():
        use = uses.get(name, ColumnUse())
        for part in parts:
            if part in made:
                said = f"data.columns.{name} is made of '{part}', which is a {declared[part][0]} itself"
                raise PeError(said, hint="name columns of the table")
            before = found.get(part)
            one = replace(use, level=0, shown=True)
            if before is not None:
                dtype = one.dtype if before.dtype == one.dtype else None
                one = replace(one, target=before.target or one.target, dtype=dtype)
            found[part] = one
            inner[part] = None
    return found, tuple(inner)


def check_columns(written: Mapping[str, tuple[Any, Span | None]]) -> dict[str, tuple[str, ColumnOptions]]:
    """Return declared columns with their options checked.

    Args:
        written: name -> what stands there, and where.

    Raises:
        PeError: USAGE; all mistakes in one.
    """
    kinds = discover()
    errors: list[PeError] = []
    found: dict[str, tuple[str, ColumnOptions]] = {}
    for name, (value, at) in written.items():
        where = f"data.columns.{name}"
        if isinstance(value, str):
            value = {"type": value}
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            listed = f"one of {', '.join(sorted(kinds))}"
            said = f"{where} needs a type" if kind is None else f"{where}: there is no column type '{kind}'"
            errors.append(PeError(said, at=at, hint=(did_you_mean(str(kind), kinds) if kind else None) or listed))
            continue
        try:
            options = kinds[kind].options.model_validate({key: inner for key, inner in value.items() if key != "type"})
        except ValidationError as failure:
            errors += option_errors(f"{where}: type {kind}", kinds[kind].options, failure, at)
            continue
        found[name] = (kind, options)
    if errors:
        raise as_one(errors)
    return found


def paths_given(declared: ArgSpec | None, options: ColumnOptions) -> dict[str, Any]:
    """Return the options that say where files lie: those of the config, as what was learned may have been learned from another folder."""
    given = to_data(declared.value) if declared is not None else None
    known = type(options).model_fields
    return {key: given[key] for key in PATHS if key in given and key in known} if isinstance(given, dict) else {}
