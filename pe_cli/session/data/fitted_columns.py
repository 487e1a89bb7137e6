"""Reads what a run's columns have learned from its checkpoint alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pe_cli.core.survey_figures import ClassShare, ColumnFacts, PartFacts, Survey
from pe_cli.data.column_figures import MOST_CLASSES

if TYPE_CHECKING:
    from pe_cli.data.fitted_columns import Fitted, FittedColumn


def learned(name: str, fitted: Fitted, sheet: tuple[bytes, str] = (b"", "")) -> Survey:
    """Return what a run's columns have learned, as far as `data.json` tells it.

    Args:
        name: of the run.
        fitted: its columns and its split.
        sheet: pictures, and what they show.
    """
    split = fitted.split or {}
    counts = split.get("parts")
    parts = [(use, rows) for use, rows in counts.items() if isinstance(rows, int)] if isinstance(counts, dict) else []
    columns = tuple(_learned(column) for column in fitted.columns.values())
    made = tuple(PartFacts(str(use), "data.source", rows) for use, rows in parts)
    return Survey(name, columns, made, sheet=sheet[0], sheet_note=sheet[1])


def _learned(column: FittedColumn) -> ColumnFacts:
    """Return what a column's state says; states come from a file and may hold anything that their type allows."""
    state = column.state
    facts = ColumnFacts(column.name, column.type, "learned", target=column.target, options=column.options)
    if column.type == "number":
        shift, divisor = state.get("shift", [0.0]), state.get("divisor", [1.0])
        said = f"{state['low']:.6g} to {state['high']:.6g}"
        if len(shift) == 1 and (shift[0] != 0 or divisor[0] != 1):
            value = f"{transform}(value)" if (transform := column.options.get("transform")) else "value"
            said += f", scaled by ({value} - {shift[0]:.6g}) / {divisor[0]:.6g}"
        missing = {"train": int(state["missing"])} if state.get("missing") else {}
        return replace(facts, note=said, missing=missing)
    if "classes" in state and "counts" in state:
        ordered = sorted(zip(state["classes"], state["counts"], strict=False), key=lambda pair: -pair[1])
        shown = tuple(ClassShare(str(name), int(count)) for name, count in ordered[:MOST_CLASSES])
        return replace(facts, classes=shown, class_count=len(ordered))
    if column.type == "date":
        return replace(facts, first=str(state.get("first", ""))[:10], last=str(state.get("last", ""))[:10])
    if column.type == "image":
        return replace(facts, note=f"{' x '.join(map(str, state['size']))} pixels (height x width)")
    if isinstance(state.get("tokens"), dict):
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        return replace(facts, note=f"{open_tokens(state['tokens']).size:,} different tokens")
    return facts
