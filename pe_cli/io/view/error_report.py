"""Where a model errs, as HTML: the shares of rows and of errors by the classes and ranges of each column."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.io.view.sections import text
from pe_cli.metrics.error_shares import ColumnErrors, ErrorShares


def errors_by_column(found: Sequence[ErrorShares]) -> str:
    """Return the section's inside; empty where nothing is told."""
    return "".join(_target(one) for one in found if one.columns)


def _target(one: ErrorShares) -> str:
    said = f"{one.mean:.2%} of {one.rows:,} rows are wrong" if one.classes else f"off by {one.mean:.6g} in the mean of {one.rows:,} rows"
    head = f"'{one.target}': {said}. Columns stand first whose groups have the least even shares of the errors."
    return f"<p class=note>{text(head)}</p>{''.join(_column(column, one.classes) for column in one.columns)}"


def _column(column: ColumnErrors, classes: bool) -> str:
    titles = (column.name, "share of the rows", "share of the errors", "wrong" if classes else "mean absolute error")
    rows = ""
    for group in column.groups:
        mean = f"{group.mean:.2%}" if classes else f"{group.mean:.6g}"
        rows += f"<tr><th>{text(group.name)}</th><td>{group.rows:.1%}</td><td>{group.errors:.1%}</td><td>{mean}</td></tr>"
    return f'<div class="scroll"><table><tr>{"".join(f"<th>{text(title)}</th>" for title in titles)}</tr>{rows}</table></div>'
