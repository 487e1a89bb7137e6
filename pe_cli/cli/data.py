"""pe data: a run's data, looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option, number, override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.cli.text_columns import columns

if TYPE_CHECKING:
    from pe_cli.core.survey_figures import ClassShare, ColumnFacts, PartFacts, RowFacts, Survey

#: Characters of the longest bar, of a name of a class, and classes of a target that are listed for every part.
BAR, NAME, CLASSES = 30, 32, 40


@click.command()
@path_argument("config")
@click.option(
    "--rows",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Training rows that are shown as the model will see them.",
)
@path_option("--html", metavar="FILE", help="Write a page with all of it, and pictures as a contact sheet.")
@path_option(
    "--write",
    metavar="DIR",
    help="Write the samples as the model is fed them, in shards that the reader npy maps, and a data.yaml that names them, into a new "
    "folder; what was decoded and encoded once need not be again.",
)
@override_option
@json_option
def command(config: Path, rows: int, html: Path | None, write: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Look at the data of CONFIG before a model is trained on it.

    Columns with their types, ranges, missing cells, classes and longest texts, over the training rows; the parts of the data with the
    classes of the target; rows as the file has them and as the model will see them; and warnings: rows that are in two parts, classes
    that a part lacks, sorted rows that are cut, a constant target, a category that is an id. Where data cannot be trained on,
    what can be read is shown, and the exit code is 3.
    """
    from pe_cli.cli.common import print_json
    from pe_cli.session.data.survey import survey
    from pe_cli.session.job import Job

    if write is not None:
        from pe_cli.session.data.shard_writer import write_shards

        lines = write_shards(Job.open(config, overrides), write)
        if as_json:
            print_json({"folder": str(write), "parts": lines})
        else:
            echo("\n".join([*lines, f"-> {write}, extends: {write / 'data.yaml'}"]))
        return
    # The survey goes as far as it can; its error is raised at the end, after everything that could be read was shown.
    found, error = survey(Job.open(config, overrides), rows)
    if html is not None:
        from pe_cli.io.atomic import write_text
        from pe_cli.io.view.data_page import build_page

        write_text(html, build_page(found, error.message if error else ""))
    if as_json:
        print_json(found.to_json() | ({"error": error.message} if error else {}))
    else:
        echo(text(found))
        if html is not None:
            echo(f"\n-> {html}")
    if error is not None:
        raise error


def text(found: Survey) -> str:
    """Return a survey as people read it in a terminal."""
    rows = {part.name: part.rows for part in found.parts}
    lines = [
        found.name,
        "",
        "parts",
        columns([(p.name, f"{p.rows:,} rows", p.source) for p in found.parts], right=[1], indent="  "),
    ]
    # Targets are listed once, whichever parts have them.
    for target in dict.fromkeys(name for part in found.parts for name in part.classes):
        lines += ["", *_target(target, found.parts)]
    lines += ["", "columns: figures are those of the training rows"]
    for column in found.columns:
        lines += _column(column, rows)
    if found.rows:
        lines += ["", "rows of training, as the model will see them"]
        for row in found.rows:
            lines += _row(row, found.columns)
    if found.sheet:
        lines += ["", f"pictures: --html FILE shows {found.sheet_note}"]
    lines += [""] * bool(found.notes or found.warnings)
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"warning: {warning}" for warning in found.warnings]
    return "\n".join(lines)


def _target(target: str, parts: tuple[PartFacts, ...]) -> list[str]:
    """Return the classes of a target, one line each, with their rows in every part."""
    shown = [part for part in parts if target in part.classes]
    # Classes in the order in which parts have them, the training part first.
    names = dict.fromkeys(share.name for part in shown for share in part.classes[target])
    rows: list[tuple[str, ...]] = [(f"target {target}", *(part.name for part in shown))]
    counts = [{share.name: share.rows for share in part.classes[target]} for part in shown]
    for name in list(names)[:CLASSES]:
        cells = [
            f"{count.get(name, 0):,} ({_percent(count.get(name, 0), part.rows)})"
            for count, part in zip(counts, shown, strict=True)
        ]
        rows.append((f"  {_short(name)}", *cells))
    more = [f"  and {len(names) - CLASSES:,} more classes"] if len(names) > CLASSES else []
    return [columns(rows, right=range(1, len(shown) + 1)), *more]


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}%" if of else "-"


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."


def _column(column: ColumnFacts, rows: dict[str, int]) -> list[str]:
    from pe_cli.core.yaml_inline import flow

    to = f" -> {', '.join(column.feeds)}" if column.feeds else ""
    role = ", the target" if column.target else ""
    options = "".join(f", {key}: {flow(value)}" for key, value in column.options.items())
    kind = f", {column.kind}" if column.kind and column.feeds else ""
    lines = [f"  {column.name}{to}: {column.type}{options} ({column.how}{role}{kind})"]
    facts = list(_facts(column, rows))
    lines += [f"    {'; '.join(facts)}"] if facts else []
    lines += [f"    {line}" for line in _bars(column.classes, rows.get("train", 0))]
    if column.class_count > len(column.classes) and column.classes:
        lines.append(f"    and {column.class_count - len(column.classes):,} more classes")
    lines += [f"    '{shown}'" for shown in column.longest]
    return lines


def _facts(column: ColumnFacts, rows: dict[str, int]) -> Iterator[str]:
    """Yield what is known of a column besides its classes."""
    found = column.figures
    if found is not None and not (column.classes and column.unit == "value"):
        span = f"{number(found.low)} to {number(found.high)}"
        unit = "" if column.unit == "value" else f" {column.unit} per row"
        yield f"{span}{unit}, mean {number(found.mean)}, deviation {number(found.deviation)}"
    if column.first:
        yield f"{column.first} to {column.last}"
    if column.class_count:
        yield f"{column.class_count:,} classes" if column.class_count > 1 else "1 class"
    if column.missing:
        yield "missing: " + ", ".join(
            f"{count:,} in {use} ({_percent(count, rows.get(use, 0))})" for use, count in column.missing.items()
        )
    if column.unknown:
        what = "unknown tokens" if column.unit == "tokens" else "unknown"
        yield f"{what}: " + ", ".join(f"{count:,} in {use}" for use, count in column.unknown.items())
    if column.note:
        yield column.note


def _bars(classes: tuple[ClassShare, ...], rows: int) -> list[str]:
    """Return a line with a bar for every class."""
    if not classes:
        return []
    most = max(share.rows for share in classes)
    lines = [
        (
            _short(share.name),
            "#" * max(1, round(BAR * share.rows / most)),
            _percent(share.rows, rows),
            f"{share.rows:,}",
        )
        for share in classes
    ]
    return columns(lines, right=[2, 3]).split("\n")


def _row(row: RowFacts, found: tuple[ColumnFacts, ...]) -> list[str]:
    lines = []
    for feed, seen in row.feeds.items():
        cells = [
            f"{c.name}: {row.cells[c.name] or '(missing)'}" for c in found if feed in c.feeds and c.name in row.cells
        ]
        lines.append((feed, seen, " | ".join(cells)))
    return [f"  row {row.row + 1}", columns(lines, indent="    ")]
