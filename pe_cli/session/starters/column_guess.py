"""Guesses column types and the target of a table that nothing is said about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column_inference import TRIED
from pe_cli.data.columns.bool import truth
from pe_cli.data.columns.number_fit import NumberOptions
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.notation_detection import are_numbers, notation_of
from pe_cli.data.raw_cells import Cells, Codes, Numbers, Table
from pe_cli.session.starters.dates import date
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.guesses import Asked, Guess, short, three
from pe_cli.session.starters.names import said
from pe_cli.session.starters.numbers import (
    FEW,
    LARGER,
    OWN_SHARE,
    counts_of,
    empty_number,
    is_number,
    plain,
    settled,
    written,
)
from pe_cli.session.starters.ordinal_classes import MOST as MOST_RATING
from pe_cli.session.starters.ordinal_classes import in_order, note_of_numbers, note_of_words
from pe_cli.session.starters.spellings import Spellings, spellings_of
from pe_cli.session.starters.tags import bag, declared_tags, guess_tags
from pe_cli.session.starters.target_kinds import is_count, of_numbers
from pe_cli.session.starters.text_forms import numbers_unread, what_texts_are

#: Whole numbers of a target up to which they are taken for classes, and the share of the rows that they may be.
MOST_WHOLE, WHOLE_SHARE = 20, 0.1
#: Rows that a text among numbers has in the mean, so that the column is one of classes.
OFTEN = 5
#: Words of a cell, in the mean, from which it is a text; and characters, where there are hardly any blanks.
WORDS, CHARACTERS = 4.0, 25.0


def guess(table: Table, name: str, asked: Asked) -> Guess:
    """Return how a column that is no target is taken.

    Raises:
        PeError: DATA; its cells may be read in several ways, and nothing tells which.
    """
    if name in table.implied:
        implied = dict(table.implied[name])
        return Guess(name, str(implied.pop("type")), implied)
    cells = table.cells(name)
    numbers = cells.numbers()
    if not numbers.bad_count and np.isfinite(numbers.values).any():
        return plain(table, name, asked)
    codes = cells.codes()
    if not codes.words:
        return Guess(name, None, why="every cell is missing")
    found = _fixed(name, codes) or _written(table, name, codes, asked)
    if found is not None:
        return found
    if numbers.bad_count * 2 < int((codes.codes >= 0).sum()):
        return _nearly_numbers(name, codes, cells, numbers)
    return _text(table, name, codes, asked)


def _nearly_numbers(name: str, codes: Codes, cells: Cells, numbers: Numbers) -> Guess:
    """Return a column of which most cells are numbers: classes where few texts repeat, and left out where one is a slip among many."""
    row = int(numbers.bad[0])
    what = "1 cell is no number:" if numbers.bad_count == 1 else f"{numbers.bad_count:,} cells are no numbers, such as"
    why = f"{what} '{said(cells.text(row), 30)}' in row {row + 1}"
    counts = counts_of(codes)
    odd = sum(not is_number(word) for word in codes.words)
    # Whether a pupil watches 1, 2 or 5+ hours a day is told by classes; 1 pending among 300 prices is not.
    if len(codes.words) > min(MOST_WHOLE, WHOLE_SHARE * counts.sum()) or numbers.bad_count < OFTEN * odd:
        return Guess(name, None, why=why)
    shown = f"{len(codes.words):,} texts, such as {', '.join(_most(codes, counts))}; {why}"
    return Guess(name, "category", {}, shown, f"'{said(name, 30)}' is taken for classes, as {why}: {three(codes.words)}")


def _written(table: Table, name: str, codes: Codes, asked: Asked) -> Guess | None:
    """Return a column of numbers of some notation, or one that is left out as they are of several; None for others."""
    found = written(table, name, codes, asked)
    if found is None or found.type is not None:
        return found
    # 1991 Sep and 1992 Oct are numbers of several units, too.
    return date(table, name, codes, int((codes.codes < 0).sum()), asked) or found


def _fixed(name: str, codes: Codes) -> Guess | None:
    """Return a column of one text, or of two that are yes and no; None for others."""
    missing = bool((codes.codes < 0).any())
    if len(codes.words) == 1:
        if missing:
            return Guess(name, "category", why=f"'{said(codes.words[0], 30)}' or missing")
        return Guess(name, None, why=f"it is '{said(codes.words[0], 30)}' in every row")
    options = None if missing else truth(codes.words)
    return None if options is None else Guess(name, "bool", options, " or ".join(sorted(said(word) for word in codes.words)))


def _text(table: Table, name: str, codes: Codes, asked: Asked) -> Guess:
    counts = counts_of(codes)
    rows = int(counts.sum())
    missing = len(codes.codes) - rows
    distinct = len(codes.words)
    gaps = f", {missing:,} missing" if missing else ""
    found = date(table, name, codes, missing, asked) or bag(name, codes, counts, gaps)
    if found is not None:
        return found
    share = distinct / rows
    lengths = np.array([len(word) for word in codes.words[:TRIED]])
    blanks = np.array([len(word.split()) for word in codes.words[:TRIED]])
    if share > 0.3 and blanks.mean() >= WORDS:
        return Guess(name, "text", {"tokens": "words"}, f"texts of {blanks.mean():.0f} words in the mean{gaps}")
    if (
        share > 0.3
        and lengths.mean() >= CHARACTERS
        and (lengths / blanks).mean() >= CHARACTERS
        and not _ascii(codes.words)
    ):
        return Guess(
            name, "text", {"tokens": "characters"}, f"texts of {lengths.mean():.0f} characters in the mean{gaps}"
        )
    if share > OWN_SHARE and are_numbers(codes.words):
        return Guess(name, None, why=f"numbers in several notations, such as {three(codes.words)}: write all in one")
    if share > OWN_SHARE:
        why = f"{distinct:,} different texts in {rows:,} rows, such as '{said(codes.words[0], 30)}'"
        return Guess(name, None, why=f"{why}: {what_texts_are(codes.words)}")
    several = spellings_of(codes.words, counts)
    codes = several.merged(codes)
    counts = counts_of(codes)
    few = len(codes.codes) >= LARGER and bool((counts < FEW).any())
    shown = f"{len(codes.words):,} texts, such as {', '.join(_most(codes, counts))}{gaps}"
    note = several.note(name, f"--columns {shell(f'{name}=category')}")
    if looks := numbers_unread(codes.words):
        note = f"'{said(name, 30)}' is taken for classes, no numbers: {three(codes.words)}: {looks}"
    return Guess(name, "category", {**several.written, **({"min_count": FEW} if few else {})}, shown, note)


def _ascii(words: list[str]) -> bool:
    return all(word.isascii() for word in words[:TRIED])


def _most(codes: Codes, counts: NDArray[np.int64], number: int = 3) -> list[str]:
    """Return the most frequent texts."""
    order = np.argsort(-counts, kind="stable")[:number]
    return [f"'{said(codes.words[i], 24)}'" for i in order]


# --- the target -------------------------------------------------------------------------------------------------------


def as_declared(table: Table, name: str, declared: Mapping[str, Any], asked: Asked) -> Guess:
    """Return a column of a type that was said, with options of the guess where it has the same type, and none were said."""
    options = {key: value for key, value in declared.items() if key != "type"}
    kind, why = str(declared["type"]), "as --columns says"
    if kind == "number":
        return _declared_number(table, name, options, why)
    found = Guess(name, kind) if options else guess(table, name, Asked())
    filled = {key: value for key, value in found.options.items() if key != "spellings"} if found.type == kind else {}
    if kind == "text" and "tokens" not in options:
        filled.setdefault("tokens", "words")
    return Guess(name, kind, {**filled, **options}, why)


def _declared_number(table: Table, name: str, options: dict[str, Any], why: str) -> Guess:
    """Return a column of numbers that was said to be one."""
    checked = NumberOptions.model_validate(options)
    notation = checked.notation
    cells = table.cells(name)
    if notation == PLAIN and "empty" not in options and cells.numbers().bad_count and (found := notation_of(cells.codes().words)):
        notation = found.notation
    values = cells.numbers(notation).values
    missing = {"missing": "median"} if np.isnan(values).any() else {}
    return Guess(name, "number", {**notation.written, **missing, "scale": "standard", **options}, why)


def guess_target(table: Table, name: str, settings: Settings, asked: Asked) -> Guess:
    """Return how the target is taken: as classes (type category), as a number, or as tags (type bag).

    Args:
        table: has the column.
        name: of it.
        settings: its task, and what it says of the column.
        asked: what other columns tell.

    Raises:
        PeError: DATA; a cell is missing, all cells are the same, or it has another text in every row; USAGE, it was said to be of a type
            that no target has.
    """
    declared = dict(settings.columns.get(name, {}))
    kind = declared.pop("type", None)
    if kind not in (None, "number", "category", "bag"):
        said_of = f"--columns {said(name)}={kind}: a target is predicted as classes, as a number or as tags"
        raise PeError(said_of, hint="say category, number or tags")
    task = {"number": "number", "category": "classes", "bag": "tags"}.get(str(kind), settings.task)
    if kind == "number" and settings.task in ("count", "share"):
        task = settings.task
    if settings.event is not None:
        task = "survival"
    cells = table.cells(name)
    codes = cells.codes()
    if task == "tags":
        return declared_tags(table, name, codes, counts_of(codes), declared)
    notation, how, note = _target_notation(name, codes, declared, asked) if task not in ("classes", "ordered") else (PLAIN, "", "")
    numbers = cells.numbers(notation)
    tags = guess_tags(name, codes, counts_of(codes)) if task == "auto" and numbers.bad_count and not declared else None
    if tags is not None:
        return tags
    _check_cells(table, name, codes, numbers)
    number = not numbers.bad_count
    if number and not declared and kind is None:
        _check_markers(table, name, numbers.values)
    if task in _RANGES:
        _check_numbers(table, name, numbers, task)
    few = len(codes.words) <= min(MOST_WHOLE, max(2, WHOLE_SHARE * len(table)))
    # More whole numbers than a rating has, most of them small, count something.
    few = few and not (number and len(codes.words) > MOST_RATING and is_count(numbers.values))
    whole = number and bool((numbers.values == np.rint(numbers.values)).all())
    if task in _RANGES or (task == "auto" and number and not (whole and few)):
        return _as_number(name, numbers.values, notation, how, note, declared, task)
    values = numbers.values if number and task in ("auto", "ordered") else None
    several = Spellings({}) if kind or "spellings" in declared else spellings_of(codes.words, counts_of(codes))
    found = _as_classes(table, name, several.merged(codes), {**declared, **several.written}, values, task)
    told = [note for note in (several.note(name, f"--columns {shell(f'{name}=category')}"), found.note) if note]
    return replace(found, note="; ".join(told))


def _check_cells(table: Table, name: str, codes: Codes, numbers: Numbers) -> None:
    """Raise where a target is missing, or the same in every row.

    Raises:
        PeError: DATA; says the first one.
    """
    gaps = np.flatnonzero(codes.codes < 0)
    if len(gaps):
        more = f", and so are {len(gaps) - 1:,} more" if len(gaps) > 1 else ""
        hint = "fill them, or take these rows out of the file: nothing is learned from a row without a target"
        if numbers.bad_count:
            hint += f"; where cells are sets of tags, and these have none: --columns {shell(f'{name}=tags')}"
        raise table.error(int(gaps[0]), name, f"the target is missing{more}", hint)
    if len(codes.words) == 1:
        constant = f"the target is '{said(codes.words[0])}' in every row: there is nothing to learn"
        raise table.error(0, name, constant, "name another --target")


def _check_markers(table: Table, name: str, values: NDArray[np.float64]) -> None:
    """Raise where a number such as 999 stands far from all others, as one for a missing cell does.

    Raises:
        PeError: DATA; says how many cells have it, and both ways to go on.
    """
    found = empty_number(values)
    if found is not None:
        rows = np.flatnonzero(values == found)
        others = values[values != found]
        shown = short(found)
        between = f"{short(others.min())} to {short(others.max())}"
        what = f"the target is {shown}, and so are {len(rows) - 1:,} more, far from the others ({between})"
        hint = f"where {shown} stands for a missing target, take these rows out; where it is a number: --columns {shell(f'{name}=number')}"
        raise table.error(int(rows[0]), name, what, hint)


#: What numbers of a kind are: the least, the most, and whether they are whole; and what is said of them.
_RANGES = {
    "number": (-float("inf"), float("inf"), False, "numbers"),
    "count": (0.0, float("inf"), True, "whole numbers from 0 on"),
    "share": (0.0, 100.0, False, "numbers from 0 to 1, or to 100"),
    "survival": (0.0, float("inf"), False, "times from 0 on"),
}


def _check_numbers(table: Table, name: str, numbers: Numbers, task: str) -> None:
    """Raise where a cell is none of the numbers that a task predicts.

    Raises:
        PeError: DATA; says the first one.
    """
    low, high, whole, what = _RANGES[task]
    values = numbers.values
    bad = numbers.bad if numbers.bad_count else np.flatnonzero((values < low) | (values > high) | (whole & (values != np.rint(values))))
    if len(bad):
        cell = said(table.cells(name).text(int(bad[0])))
        count = numbers.bad_count or len(bad)
        more = f"; nor are {count - 1:,} more cells" if count > 1 else ""
        option, kind = ("--event", "time") if task == "survival" else (f"--task {task}", task)
        instead = "leave --event out" if task == "survival" else "--task classes" if numbers.bad_count else "--task number"
        raise table.error(int(bad[0]), name, f"'{cell}' is no {kind}, and {option} predicts {what}{more}", f"correct it, or {instead}")


def _as_number(
    name: str, values: NDArray[np.float64], notation: Notation, how: str, note: str, declared: dict[str, Any], task: str
) -> Guess:
    """Return a target of numbers of some kind; one whose options were said is taken as they say."""
    if declared.get("transform") and task != "survival":
        task = "log"
    elif "scale" in declared and task != "survival":
        task = "number"
    kind, options, why, told = of_numbers(name, values, notation.unit, task)
    return Guess(name, "number", {**notation.written, **options, **declared}, f"{why}{how}", note or told, kind=kind)


def _as_classes(
    table: Table, name: str, codes: Codes, declared: dict[str, Any], values: NDArray[np.float64] | None, task: str
) -> Guess:
    """Return a target of classes; values are those of numbers that are taken for classes though nobody has said so."""
    ordered = task == "ordered"
    if len(codes.words) > OWN_SHARE * len(table):
        written_as = notation_of(codes.words)
        if written_as is not None and written_as.units:
            units = f"numbers of several units ({', '.join(written_as.units[:4])}), such as {three(codes.words)}"
            raise table.error(0, name, f"the target has {units}", "write all in one unit")
        what = f"the target has {len(codes.words):,} different texts in {len(table):,} rows, such as '{said(codes.words[0])}'"
        raise table.error(0, name, what, "name a --target with classes that repeat, or with numbers")
    most = ", ".join(_most(codes, counts_of(codes)))
    order = in_order(codes.words) if "classes" not in declared else None
    note = "" if values is None else note_of_numbers(name, values)
    if order is None and values is not None and (ordered or note):
        order = [codes.words[i] for i in np.argsort([float(word) for word in codes.words], kind="stable")]
    elif order is not None:
        note = note_of_words(name, order)
    if ordered and order is None and "classes" not in declared:
        declared_so = shell(f"{name}={{type: category, classes: [{', '.join(codes.words[:3])}]}}")
        hint = f"say it, the least first: --columns {declared_so}"
        raise table.error(0, name, f"nothing tells the order of the classes {most}", hint)
    if order is not None and len(order) > 2:
        declared = {**declared, "classes": order}
    kind = "ordered" if len(codes.words) > 2 and task != "classes" and (order is not None or ordered) else "classes"
    return Guess(name, "category", declared, f"{len(codes.words):,} classes, such as {most}", note, kind=kind)


def _target_notation(name: str, codes: Codes, declared: Mapping[str, Any], asked: Asked) -> tuple[Notation, str, str]:
    """Return how a target's numbers are written, and what to say of that."""
    said_of = NumberOptions.model_validate(declared).notation if declared else PLAIN
    found = notation_of(codes.words) if said_of == PLAIN else None
    if found is None or found.units or found.notation.is_plain:
        return said_of, "", ""
    notation, why, note = settled(name, codes, found, asked)
    return notation, f"; written like {notation.said}{why}", note


def targets_of(names: Sequence[str], asked: str | None) -> list[str]:
    """Return the targets that were asked for: one column, or several with commas between them.

    Raises:
        PeError: USAGE, there is none, or one twice; DATA, the table does not have it.
    """
    whole = [] if asked is None else [asked]
    found = whole if asked is None or asked in names else [name.strip() for name in asked.split(",")]
    absent = next((name for name in found if name not in names), None)
    if not found or absent is not None:
        raise no_target(names, absent)
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise PeError(f"--target names '{said(twice)}' twice", hint="name each target once")
    return found


def no_target(names: Sequence[str], asked: str | None) -> PeError:
    """Return the error of a table without a target, or with one that it does not have."""
    from pe_cli.core.errors import did_you_mean

    listed = ", ".join(said(name, 30) for name in names[:60]) + (
        f" and {len(names) - 60} more" if len(names) > 60 else ""
    )
    if asked is None:
        return PeError(
            f"--from a table needs --target COLUMN, the column that is to be predicted; the columns are: {listed}",
            hint=f"for example --target {shell(names[-1])}",
        )
    hint = did_you_mean(asked, names) or _no_header(names) or "--target takes a name of these, as it is written in the file"
    return PeError(f"the data has no column '{said(asked)}'; the columns are: {listed}", hint=hint, code=ExitCode.DATA)


def _no_header(names: Sequence[str]) -> str:
    """Return what to do where names are those of a title, or of a table with blanks between its columns; nothing for others."""
    if len(names) == 1 and len(names[0].split()) > 1:
        return "the table has one column: where blanks stand between several, write commas in their place: sed -E 's/ +/,/g' FILE"
    if len(names) > 1 and 2 * sum(name == str(i) for i, name in enumerate(names)) >= len(names):
        return "columns without a name are called by their numbers: the names may be missing, or stand below a title: delete that"
    return ""


def shell(text: str) -> str:
    """Return a text as an argument of a command."""
    import shlex

    return shlex.quote(said(text, 200))


def left_out(guess: Guess, why: str) -> Guess:
    """Return a column that is left out after all."""
    return replace(guess, type=None, why=why)
