"""A starter for a table: scaled numbers, embeddings of categories and texts, side by side into two hidden layers."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.flow import flow, quoted
from pe_cli.data.cells import MISSING, Table
from pe_cli.data.columns.date import parse
from pe_cli.data.infer import read_ahead
from pe_cli.session.starters import series
from pe_cli.session.starters.files import Lines, Starter, Wish, aligned, column_row, data_section, head, text, training
from pe_cli.session.starters.guess import guess, markers, no_target
from pe_cli.session.starters.looked import MOST_COLUMNS, Looked, branches_of, look, numbers_of, plan_of, sum_of
from pe_cli.session.starters.names import said
from pe_cli.session.starters.table_model import model_of


def starter(wish: Wish) -> Starter:
    """Return a starter for a table in files.

    Raises:
        PeError: USAGE, no target is named; DATA, the table cannot be read, or its target cannot be learned.
    """
    source: dict[str, Any] = {"reader": "table", "files": _files(wish)}
    table = wish.open(source)
    if wish.target is None or wish.target not in table.names:
        raise no_target(table.names, wish.target)
    names = [name for name in table.names if name != wish.target][:MOST_COLUMNS]
    read_ahead(table, [*names, wish.target])
    found = markers(table, [*names, wish.target])
    if found:
        source["missing"] = [*MISSING, *found]
        table = wish.open(source)
        read_ahead(table, [*names, wish.target])
    if wish.task in ("auto", "series"):
        guesses = [guess(table, name) for name in names]
        there = series.find(table, wish.target, guesses)
        if isinstance(there, series.Found):
            options = {key: value for key, value in source.items() if key != "reader"}
            return series.starter(wish, table, options, wish.target, there, guesses)
        if wish.task == "series":
            hint = "--task number or classes predicts from the other columns"
            raise PeError(f"{wish.source} holds no series: {there}", hint=hint, code=ExitCode.DATA)
    return of_table(table, source, wish, wish.target)


def of_table(table: Table, source: dict[str, Any], wish: Wish, target: str) -> Starter:
    """Return a starter for a table that is open."""
    looked = look(table, source, wish, target)
    return Starter(_config(looked, wish), model_of(looked, wish), _notes(looked))


def _files(wish: Wish) -> str:
    if not wish.source.is_dir():
        return wish.path
    kinds = sorted(
        {
            "".join(path.suffixes[-2:]) if path.suffix in (".gz", ".zst") else path.suffix
            for path in tables_in(wish.source)
        }
    )
    if len(kinds) != 1:
        raise PeError(
            f"{wish.source} has tables of several kinds: {', '.join(kinds)}", hint="name one file", code=ExitCode.DATA
        )
    return f"{glob.escape(wish.path)}/*{kinds[0]}"


def tables_in(folder: Path) -> list[Path]:
    """Return the tables that lie in a folder."""
    from pe_cli.session.given import is_table_file

    return sorted(
        path for path in folder.iterdir() if is_table_file(path) and path.is_file() and not path.name.startswith(".")
    )


# --- the config -------------------------------------------------------------------------------------------------------


def _config(looked: Looked, wish: Wish) -> str:
    target = looked.target
    classes = target.type == "category"
    what = f"Predicts {'the class' if classes else 'the number'} '{said(target.name)}' from the other columns of {said(wish.source.name)}."
    share = ", ".join(
        f"{100 * looked.split[part]:g}% for {_USES[part]}" for part in ("eval", "test") if part in looked.split
    )
    time = _in_time(looked)
    later = (
        [
            f"Rows are in the order of '{said(time)}'. To evaluate with the latest: {{eval: 0.15, time: {quoted(escaped(time))}, seed: 1}}"
        ]
        if time
        else []
    )
    how = [f"stratify: every part has its share of every class of '{said(target.name)}'."] if classes else []
    columns = [column_row(g.name, g.written, g.why) for g in looked.guesses if g.type] + [
        column_row(target.name, target.written, f"the target: {target.why}")
    ]
    out = [f"  # Left out: {what}: {said(why, 200)}" for what, why in looked.left_out]
    comment = f"{len(looked.table):,} rows, drawn by the seed: {share}, the rest for training."
    metric, mode = ("acc", "max") if classes else ("error", "min")
    lines = [
        *head(what),
        *data_section(looked.source, looked.split, [comment, *how, *later], columns, out),
        "",
        *_feeds(looked),
        *training(plan_of(looked), looked.rows, best=f"eval/{metric}", mode=mode, metrics=("loss", metric)),
    ]
    return text(lines)


def _in_time(looked: Looked) -> str | None:
    """Return a column of dates by which the rows are sorted; None where there is none."""
    for found in looked.used("date"):
        codes = looked.table.cells(found.name).codes()
        if len(codes.words) * 2 < len(looked.table) or (codes.codes < 0).any():
            continue
        moments = np.array([parse(word, found.options.get("format")).timestamp() for word in codes.words])[codes.codes]
        if (np.diff(moments) >= 0).all():
            return found.name
    return None


_USES = {"eval": "the evaluation after every epoch", "test": "a last test (pe eval --split test)"}


def _feeds(looked: Looked) -> list[str]:
    lines = ["# Feed of the model: the columns that it is made of. Several columns stand side by side."]
    rows: Lines = []
    numbers = numbers_of(looked)
    if numbers:
        rows.append(("x:", flow(escaped([g.name for g in numbers])), sum_of(looked)))
    for found, feed in branches_of(looked).items():
        rows.append((f"{feed}:", quoted(escaped(found)), ""))
    goal = ("label:" if looked.target.type == "category" else "value:", quoted(escaped(looked.target.name)), "what is predicted")
    return [*lines, "feeds:", *aligned([*rows, goal], "  ")]


def _notes(looked: Looked) -> tuple[str, ...]:
    target = looked.target
    kind = "classes" if target.type == "category" else "a number"
    notes = [f"{len(looked.table):,} rows; '{said(target.name)}' is taken for {kind}: {target.why}"]
    for types, what in (
        (("number", "bool", "date"), "numbers"), (("category",), "categories"), (("bag",), "lists"), (("text",), "texts")
    ):  # fmt: skip
        found = looked.used(*types)
        if found:
            notes.append(f"{what}: {', '.join(said(g.name, 30) for g in found)}")
    notes += [f"left out: {what}: {why}" for what, why in looked.left_out]
    return tuple(notes)
