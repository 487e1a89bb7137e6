"""A starter for a table: scaled numbers, embeddings of categories and texts, side by side into two hidden layers."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.column_inference import read_ahead
from pe_cli.data.date_forms import DURATION, parse
from pe_cli.data.raw_cells import MISSING, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables.decompression import chunks_of
from pe_cli.data.tables.dialect import HEAD, sniff_delimiter
from pe_cli.data.tables.empty_rows import empty_rows, said_of
from pe_cli.data.tables.encodings import detect, remedy
from pe_cli.data.tables.file_formats import named_format
from pe_cli.session.starters import anomaly, odd_rows, series, series_model, series_times
from pe_cli.session.starters.column_guess import targets_of
from pe_cli.session.starters.files import (
    Lines,
    Settings,
    Starter,
    aligned,
    column_row,
    data_section,
    head,
    optimizer,
    text,
    training,
)
from pe_cli.session.starters.guesses import Asked
from pe_cli.session.starters.names import said
from pe_cli.session.starters.numbers import evidence, markers, read_codes
from pe_cli.session.starters.ordinal_classes import kappa_section
from pe_cli.session.starters.pictures import augmentation, with_pictures
from pe_cli.session.starters.survival import check_event, concordance_section
from pe_cli.session.starters.table_columns import (
    MOST_COLUMNS,
    Inspected,
    branches_of,
    guesses_of,
    look,
    numbers_of,
    plan_of,
    sum_of,
)
from pe_cli.session.starters.table_model import model_of
from pe_cli.session.starters.tags import tag_section


def starter(settings: Settings) -> Starter:
    """Return a starter for a table in files.

    Raises:
        PeError: USAGE, no target is named; DATA, the table cannot be read, or its target cannot be learned.
    """
    source: dict[str, Any] = {"reader": "table", "files": _files(settings)}
    comments = [*_read_as(settings, source), *_below_titles(settings, source)]
    table = settings.open(source)
    targets = [] if settings.task == "anomaly" else targets_of(table.names, settings.target)
    check_named(table.names, targets, settings)
    check_event(targets, settings)
    names = [name for name in table.names if name not in (*targets, *settings.drop, settings.event)][:MOST_COLUMNS]
    read_ahead(table, [*names, *targets])
    table, shown = _rows_of(table, [*names, *targets], source, settings)
    comments += shown
    found = markers(table, [*names, *targets], targets)
    if found:
        source["missing"] = [*MISSING, *found]
        comments.append(f"missing: {', '.join(repr(said(word, 24)) for word in found)} stand where a cell is missing.")
        # Opened again, because a table reads its cells by the options that it was opened with.
        table = settings.open(source)
        read_ahead(table, [*names, *targets])
    table, source, shown = with_pictures(table, names, source, settings)
    comments += shown
    read_codes(table, names)
    asked = evidence(table, names, _delimiter(settings), Asked(settings.ask))
    there: series_times.Found | series_times.Missed | None = None
    if settings.task in ("auto", "series") and len(targets) == 1 and settings.event is None:
        guesses = guesses_of(table, settings, targets, asked)
        there = series_times.find(table, targets[0], guesses, sure=settings.task == "series")
        if isinstance(there, series_times.Found):
            options = {key: value for key, value in source.items() if key != "reader"}
            made = series_model.starter(series.look(settings, table, options, targets[0], there, guesses), settings)
            return replace(made, notes=(*comments, *made.notes))
        if settings.task == "series":
            hint = "--task number or classes predicts from the other columns"
            raise PeError(f"{settings.source} holds no series: {there.why}", hint=hint, code=ExitCode.DATA)
    elif settings.task == "series":
        raise PeError(f"--task series forecasts one target, and there are {len(targets)}", hint="name one --target")
    if settings.known:
        why = f": {there.why}" if isinstance(there, series_times.Missed) else ""
        text = f"--known is about series, and {settings.source} is taken for none{why}"
        raise PeError(text, hint="leave --known out", code=ExitCode.DATA)
    if settings.task == "anomaly":
        return anomaly.starter(table, source, settings, asked, comments)
    if isinstance(there, series_times.Missed) and there.timed:
        comments.append(f"No series: {there.why}{f'; {there.remedy}' if there.remedy else ''}.")
    return of_table(table, source, settings, targets, asked, comments)


def of_table(
    table: Table, source: dict[str, Any], settings: Settings, targets: Sequence[str], asked: Asked, comments: Sequence[str] = ()
) -> Starter:
    """Return a starter for a table that is open."""
    inspected = look(table, source, settings, targets, asked, comments)
    return Starter(_config(inspected, settings), model_of(inspected, settings), _notes(inspected))


def _texts(settings: Settings) -> list[Path]:
    """Return the files of text that the settings name."""
    files = tables_in(settings.source) if settings.source.is_dir() else [settings.source]
    return [path for path in files if not {".parquet", ".arrow", ".feather", ".npz", ".npy"} & set(path.suffixes)]


def _read_as(settings: Settings, source: dict[str, Any]) -> list[str]:
    """Write the encoding of the files into the source, where it is not UTF-8; return what to say of it.

    Raises:
        PeError: DATA; the text may be in several encodings, or in none.
    """
    if settings.encoding is not None:
        source["encoding"] = settings.encoding
        return [f"encoding: {settings.encoding}, as --encoding says."]
    origin = Origin(settings.base)
    for path in _texts(settings):
        found = detect(chunks_of(path, origin))
        if found is None:
            continue
        if found.encoding is None or found.others:
            said_of = f"{path} is not UTF-8 text, from line {found.line} on"
            raise PeError(said_of, hint=remedy(found).replace("encoding: ", "--encoding "), code=ExitCode.DATA)
        source["encoding"] = found.encoding
        words = f", and the text has words like {', '.join(repr(said(word, 24)) for word in found.shown)} in it" if found.shown else ""
        return [f"encoding: {found.encoding}: line {found.line} is no UTF-8{words}."]
    return []


def _below_titles(settings: Settings, source: dict[str, Any]) -> list[str]:
    """Write into the source how many lines stand above the header; return what to say of them."""
    if not settings.source.is_file() or settings.whole is not None or named_format(settings.source.name) not in ("csv", "tsv", "auto"):
        return []
    for path in _texts(settings):
        first = next(chunks_of(path, Origin(settings.base)), b"")[:HEAD].removeprefix(b"\xef\xbb\xbf")
        lines = 0 if first.lstrip()[:1] in (b"{", b"[") or first[:4].lower() == b"sep=" else odd_rows.titles(first, None)
        if lines:
            source["titles"] = lines
            return [odd_rows.of_lines(lines, first)]
    return []


def _rows_of(table: Table, names: Sequence[str], source: dict[str, Any], settings: Settings) -> tuple[Table, list[str]]:
    """Return the table without rows that are no samples; the source says which are left out. And what to say of them.

    Raises:
        PeError: DATA; the header stands there again.
    """
    names = [name for name in table.names if name in names]  # in the order of the file, whose first cell tells what a row is
    again = odd_rows.repeated_header(table, names)
    if again is not None:
        raise again
    # What lies at the borders of several files is no border of their table.
    ends = settings.source.is_file() and settings.whole is None and _delimiter(settings) is not None
    table, shown = _without_empty(table, names, source, settings, odd_rows.ends(table, names) if ends else 0)
    if not ends:
        return table, shown
    first, last = odd_rows.units(table, names), odd_rows.ends(table, names)
    if not first and not last:
        return table, shown
    if first:
        source["skip"] = first
        cells = "; ".join(odd_rows.told(table, names, row) for row in range(first))
        rows = "the first row says" if first == 1 else f"the first {first} rows say"
        shown.append(f"{rows} what columns are, and is left out (skip: {first}): {cells}")
    if last:
        source["limit"] = len(table) - first - last
        cells = "; ".join(odd_rows.told(table, names, len(table) - last + row) for row in range(last))
        rows = "the last row is no sample" if last == 1 else f"the last {last} rows are no samples"
        shown.append(f"{rows}, and left out (limit: {source['limit']}): {cells}")
    table = settings.open(source)
    read_ahead(table, names)
    return table, shown


def _without_empty(table: Table, names: Sequence[str], source: dict[str, Any], settings: Settings, last: int) -> tuple[Table, list[str]]:
    """Return the table without rows that have no cell, where there are such above the last ones; and what to say of them."""
    empty = empty_rows(table, table.names, MISSING)
    if not (empty < len(table) - last).any():
        return table, []
    source["empty_rows"] = "skip"
    shown = f"{said_of(table, empty)} (empty_rows: skip)"
    table = settings.open(source)
    read_ahead(table, names)
    return table, [shown]


def _delimiter(settings: Settings) -> str | None:
    """Return the delimiter of the first file, where it is text that has one."""
    for path in _texts(settings)[:1]:
        head = next(chunks_of(path, Origin(settings.base)), b"")[:HEAD]
        return None if head.lstrip()[:1] in (b"{", b"[") or b"\0" in head else sniff_delimiter(head, end=False)[0]
    return None


def _files(settings: Settings) -> str:
    if not settings.source.is_dir():
        return settings.path
    kinds = sorted(
        {
            "".join(path.suffixes[-2:]) if path.suffix in (".gz", ".zst") else path.suffix
            for path in tables_in(settings.source)
        }
    )
    if len(kinds) != 1:
        raise PeError(
            f"{settings.source} has tables of several kinds: {', '.join(kinds)}", hint="name one file", code=ExitCode.DATA
        )
    return f"{glob.escape(settings.path)}/*{kinds[0]}"


def check_named(names: Sequence[str], targets: Sequence[str], settings: Settings) -> None:
    """Refuse options that name columns which the table does not have.

    Raises:
        PeError: DATA; says which.
    """
    drawn = next((name for name, declared in settings.columns.items() if declared.get("type") == "mask"), None)
    if drawn is not None:
        raise PeError(f"--columns {said(drawn)}: masks go with a folder of pictures", hint="write the column into the config by hand")
    events = () if settings.event is None else (settings.event,)
    options = {"--drop": settings.drop, "--columns": tuple(settings.columns), "--known": settings.known, "--event": events}
    for option, named in options.items():
        for name in named:
            if name not in names:
                listed = ", ".join(said(one, 30) for one in names[:40])
                hint = did_you_mean(name, names) or f"the columns are: {listed}"
                raise PeError(f"{option}: the data has no column '{said(name)}'", hint=hint, code=ExitCode.DATA)
            if option == "--drop" and name in targets:
                raise PeError(f"--drop: '{said(name)}' is the target", hint="name another --target, or keep it")


def tables_in(folder: Path) -> list[Path]:
    """Return the tables that lie in a folder."""
    from pe_cli.session.data.user_data import is_table_file

    return sorted(
        path for path in folder.iterdir() if is_table_file(path) and path.is_file() and not path.name.startswith(".")
    )


# --- the config -------------------------------------------------------------------------------------------------------


def _config(inspected: Inspected, settings: Settings) -> str:
    what = " and ".join(f"{goal.kind.what} '{said(goal.name)}'" for goal in inspected.goals)
    what = f"Predicts {what} from the other columns of {said(settings.called)}."
    share = ", ".join(
        f"{100 * inspected.split[part]:g}% for {_USES[part]}" for part in ("eval", "test") if part in inspected.split
    )
    time = _in_time(inspected)
    later = (
        [
            f"Rows are in the order of '{said(time)}'. To evaluate with the latest: {{eval: 0.15, time: {quoted(escaped(time))}, seed: 1}}"
        ]
        if time
        else []
    )
    stratified = inspected.split.get("stratify")
    how = [f"stratify: every part has its share of every class of '{said(stratified)}'."] if stratified else []
    columns = [column_row(g.name, g.written, g.why) for g in inspected.guesses if g.type]
    columns += [column_row(goal.event.name, goal.event.written, goal.event.why) for goal in inspected.goals if goal.event]
    columns += [column_row(goal.name, goal.guess.written, f"the target: {goal.guess.why}") for goal in inspected.goals]
    out = [f"  # Left out: {what}: {said(why, 200)}" for what, why in inspected.left_out] + _changes(inspected)
    drawn = [f"{len(inspected.table):,} rows, drawn by the seed: {share}, the rest for training."] if share else []
    best, mode = _best(inspected)
    made = plan_of(inspected)
    lines = [
        *head(what),
        *data_section(inspected.sections, inspected.split, [*inspected.comments, *drawn, *how, *later], columns, out),
        "",
        *_feeds(inspected),
        *_metrics(inspected),
        *training(
            made,
            inspected.rows,
            best=f"eval/{best}",
            mode=mode,
            rest=optimizer(made),
            metrics=("loss", *(name for goal in inspected.goals for name in goal.recorded)),
            decide=_decide(inspected),
        ),
    ]
    return text(lines)


def _decide(inspected: Inspected) -> list[str]:
    """Return the lines on thresholds: they are chosen where one of two classes is rare, and may be where there are two, or tags."""
    more = "{precision: 0.9}, {recall: 0.9}, {cost: {missed: 10, false_alarm: 1}}"
    goal = inspected.only
    if goal is None:
        return []
    if goal.positive and goal.positive.is_rare:
        # Where at least half of the alarms are right, as many rows are as when every row is taken for the other class.
        why = f"'{said(goal.positive.name, 24)}' has the best F1 of the evaluation where half of the alarms are right, or more"
        return [f"  decide: {{f1: {{precision: 0.5}}}}  # {why}; or f1, {more}"]
    if goal.positive or goal.guess.type == "bag":
        of = f"of '{said(goal.positive.name, 24)}'" if goal.positive else "of each tag"
        return [f"  # decide: f1  # would choose the threshold {of} on the evaluation rows, instead of 0.5; or {more}"]
    return []


def _in_time(inspected: Inspected) -> str | None:
    """Return a column of dates by which the rows are sorted; None where there is none."""
    for found in inspected.used("date"):
        codes = inspected.table.cells(found.name).codes()
        lasts = found.options.get("format") == DURATION
        if lasts or len(codes.words) * 2 < len(inspected.table) or (codes.codes < 0).any():
            continue
        moments = np.array([parse(word, found.options.get("format")).timestamp() for word in codes.words])[codes.codes]
        if (np.diff(moments) >= 0).all():
            return found.name
    return None


_USES = {"eval": "the evaluation after every epoch", "test": "a last test (pe eval --split test)"}


def _feeds(inspected: Inspected) -> list[str]:
    lines = ["# Feed of the model: the columns that it is made of. Several columns stand side by side."]
    rows: Lines = []
    numbers = numbers_of(inspected)
    if numbers:
        rows.append(("x:", flow(escaped([g.name for g in numbers])), sum_of(inspected)))
    for found, feed in branches_of(inspected).items():
        rows.append((f"{feed}:", quoted(escaped(found)), ""))
    rows += [(f"{goal.feed}:", quoted(escaped(goal.name)), "what is predicted") for goal in inspected.goals]
    rows += [("event:", quoted(escaped(goal.event.name)), "whether the time has ended in it") for goal in inspected.goals if goal.event]
    return [*lines, "feeds:", *aligned(rows, "  ")]


def _changes(inspected: Inspected) -> list[str]:
    """Return the lines that change training pictures; they stand in comments where a number is predicted, which they may change, too."""
    lines = [line for one in inspected.used("image") for line in augmentation(int(one.options["size"][0]))]
    if not lines or not any(goal.is_number for goal in inspected.goals):
        return lines
    why = "  # Where they leave what is predicted as it is (a flip moves what is left to the right), take out the signs in front:"
    return [lines[0], why, *(f"  # {line[2:]}" for line in lines[1:])]


def _best(inspected: Inspected) -> tuple[str, str]:
    """Return the metric that decides which checkpoint is the best, and whether more of it is better: max, or min."""
    if inspected.only is None:
        return "loss", "min"
    return inspected.only.positive.best if inspected.only.positive else (inspected.only.kind.best, inspected.only.kind.mode)


def _metrics(inspected: Inspected) -> list[str]:
    """Return the section of metrics that are taken over all rows of an evaluation."""
    lines = []
    for goal in inspected.goals:
        if goal.positive:
            lines += goal.positive.section()
        elif goal.guess.type == "bag":
            lines += tag_section(goal.guess.options["classes"], goal.suffix)
        elif goal.guess.kind == "ordered":
            lines += kappa_section(goal.suffix)
        elif goal.event:
            lines += concordance_section()
    return ["", "metrics:", *lines] if lines else []


def _notes(inspected: Inspected) -> tuple[str, ...]:
    notes = [f"'{said(goal.name)}' is taken for {goal.kind.said}: {goal.guess.why}" for goal in inspected.goals]
    notes[0] = f"{len(inspected.table):,} rows; {notes[0]}"
    best = f"the best checkpoint goes by eval/{said(_best(inspected)[0], 60)}"
    if any(goal.guess.type == "bag" for goal in inspected.goals):
        notes.append(f"metrics are F1 and average precision; {best}")
    for positive in (goal.positive for goal in inspected.goals if goal.positive):
        name = said(positive.name, 30)
        notes.append(f"metrics are about '{name}', {positive.why}; {best}")
        if positive.is_rare and inspected.only is not None:
            how = "the best F1 where half of the alarms are right, or more (train.decide)"
            notes.append(f"the threshold of '{name}' is chosen after training: {how}")
    for types, what in (
        (("number", "bool", "date"), "numbers"), (("category",), "categories"), (("bag",), "lists"), (("text",), "texts"),
        (("image",), "pictures"),
    ):  # fmt: skip
        found = inspected.used(*types)
        if found:
            notes.append(f"{what}: {', '.join(said(g.name, 30) for g in found)}")
    notes += [f"left out: {what}: {why}" for what, why in inspected.left_out]
    return (*inspected.comments, *notes, *inspected.notes)
