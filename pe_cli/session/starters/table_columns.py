"""Inspects a table for its starter: column types, the split of its rows, and feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.column import Context, discover
from pe_cli.data.columns.bool import YES
from pe_cli.data.fields import Rows
from pe_cli.data.public_holidays import calendar_of
from pe_cli.data.raw_cells import Table
from pe_cli.data.row_split import split_rows
from pe_cli.session.starters.column_guess import as_declared, guess, guess_target, left_out
from pe_cli.session.starters.divided import Division, divided
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.group_keys import as_group, group_of, with_group
from pe_cli.session.starters.guesses import Asked, Guess
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.pictures import STAGES, picture_plan
from pe_cli.session.starters.positive_class import classes_in, positive_of
from pe_cli.session.starters.redundant_columns import leaks, notation_of, without_doubles
from pe_cli.session.starters.survival import event_of
from pe_cli.session.starters.target_kinds import LAYERS, Goal, with_suffixes
from pe_cli.session.starters.text_pairs import LAYERS as PAIR_LAYERS
from pe_cli.session.starters.text_pairs import paired
from pe_cli.session.starters.training_plan import Plan, table_plan

#: Rows that a table must have, so that every part of its split has some.
FEWEST = 10
#: Columns that are written; more are left out.
MOST_COLUMNS = 200
#: Columns that are left out for one reason whose names are said.
LISTED = 12
#: Names of layers and feeds that every starter has, besides those of its targets.
TAKEN = (
    "x", "all", "bins", *(f"{stack}{layer}" for stack in ("hidden", "binned") for layer in ("1", "1_drop", "2", "2_drop")), "loss",
    "pair_away", "mean_away", *PAIR_LAYERS,
)  # fmt: skip


@dataclass
class Inspected:
    """A table, looked at.

    Args:
        table: the rows.
        sections: of `data`: source, or its parts -> reader and options, as the config says them.
        goals: the targets.
        guesses: how other columns are taken, the first `MOST_COLUMNS` of them.
        split: how the rows are divided.
        parts: the rows of every part.
        states: column -> what it learned from the training rows.
        comments: on the source, for the config.
        notes: what is said on the screen of how cells are taken.
    """

    table: Table
    sections: Mapping[str, Mapping[str, Any]]
    goals: list[Goal]
    guesses: list[Guess]
    split: Mapping[str, Any]
    parts: Mapping[str, Rows]
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    comments: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def only(self) -> Goal | None:
        """The target, where there is one."""
        return self.goals[0] if len(self.goals) == 1 else None

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """What is left out, and why: columns by their names in quotes, those with one reason and those that are not looked at together."""
        names: dict[str, list[str]] = {}
        for one in self.guesses:
            if not one.type:
                names.setdefault(one.why, []).append(f"'{said(one.name, 30)}'")
        found = [(f"{', '.join(each[:LISTED])}{f' and {len(each) - LISTED:,} more' if len(each) > LISTED else ''}", why)
                 for why, each in names.items()]  # fmt: skip
        events = sum(goal.event is not None for goal in self.goals)
        more = len(self.table.names) - len(self.goals) - len(self.guesses) - events
        return [*found, (f"{more:,} more", f"only the first {MOST_COLUMNS} are looked at")] if more else found

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(self.parts["train"])

    def used(self, *types: str) -> list[Guess]:
        """Return the columns of some types."""
        return [found for found in self.guesses if found.type in types]

    def indices(self, name: str) -> int:
        """Return the number of indices of a column with classes."""
        kind = next(g.type for g in [*(goal.guess for goal in self.goals), *self.guesses] if g.name == name)
        return len(discover()[str(kind)].classes(self.states[name]))

    def tokens(self, name: str) -> int:
        """Return the number of ids of a column of texts."""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        return open_tokens(self.states[name]["tokens"]).size


def guesses_of(table: Table, settings: Settings, targets: Sequence[str], asked: Asked) -> list[Guess]:
    """Return how the columns besides the targets are taken, the first `MOST_COLUMNS` of them.

    Raises:
        PeError: DATA; cells may be read in several ways, and nothing tells which.
    """
    found, group = [], group_of(settings.columns)
    for name in [name for name in table.names if name not in targets and name != settings.event][:MOST_COLUMNS]:
        if name in settings.drop:
            found.append(Guess(name, None, why="--drop says so"))
        elif name == group:
            found.append(as_group(name))
        elif name in settings.columns:
            found.append(as_declared(table, name, settings.columns[name], asked))
        else:
            found.append(guess(table, name, asked))
    return found if settings.holidays is None else with_holidays(table, found, settings.holidays, settings.columns)


def with_holidays(table: Table, guesses: Sequence[Guess], code: str, declared: Mapping[str, Any]) -> list[Guess]:
    """Return columns of which those of days tell public holidays, too, where nobody has declared them.

    Raises:
        PeError: USAGE, the country is unknown; DATA, no column has days.
    """
    calendar_of(code)
    made = []
    for one in guesses:
        parts = one.options.get("parts", ())
        # Months, quarters and times of day have no holidays.
        if one.type == "date" and one.name not in declared and "timestamp" in parts and {"weekday", "hour"} & set(parts):
            options = {**one.options, "parts": [*parts, "holiday"], "holidays": code}
            made.append(replace(one, options=options, why=f"{one.why}; holidays of {code}"))
        else:
            made.append(one)
    if made == list(guesses):
        text = f"--holidays {code}: no column has the days of at least two weeks"
        raise table.error(0, table.names[0], text, "leave --holidays out, or declare it: {type: date, holidays: DE, parts: [holiday]}")
    return made


def look(
    table: Table, source: dict[str, Any], settings: Settings, targets: Sequence[str], asked: Asked, comments: Sequence[str] = ()
) -> Inspected:
    """Return what a table is, with its rows split and its columns fitted.

    Raises:
        PeError: DATA; it has too few rows, no column to learn from, or a target that cannot be learned.
    """
    if len(table) < FEWEST:
        raise table.error(
            0, table.names[0], f"the table has {len(table)} rows, and a model needs at least {FEWEST}", "add rows"
        )
    goals = _goals(table, settings, targets, asked)
    guesses, group = with_group(table, guesses_of(table, settings, targets, asked), settings.columns, asked)
    if not any(one.type for one in guesses):
        guesses = [one if one.spare is None else replace(one, type="number", options=one.spare, why=f"{one.why}? no other column is left")
                   for one in guesses]  # fmt: skip
    aims = [goal.guess for goal in goals]
    # All notations are known here, so one pass over the file reads all columns of numbers.
    table.prepare({one.name: notation_of(one) for one in [*guesses, *aims] if one.type == "number"}, [])
    guesses = [_gaps_filled(table, one, settings) for one in paired(table, without_doubles(table, guesses, aims), settings.columns)]
    by = {"group": group} if group else {"stratify": targets[0]} if [one.type for one in aims] == ["category"] else {}
    division = divided(settings, source, table, by)
    rows = np.arange(len(table), dtype=np.int64)
    parts = split_rows(table, rows, SplitSection.model_validate(division.split)) if division.split else {"train": rows}
    goals = [replace(goal, guess=_known(goal.guess, table, parts)) for goal in goals]
    told = (*comments, *division.told, *_grouped(division))
    inspected = Inspected(table, division.sections, goals, guesses, division.split, parts, comments=told)
    inspected.notes = [note for one in [*aims, *(goal.event for goal in goals if goal.event), *guesses] if (note := one.note)]
    inspected.notes += [note for one in aims for note in leaks(table, guesses, one)]
    for goal in goals:
        inspected.states[goal.name] = _fitted(inspected, goal.guess, settings)
    inspected.guesses = [_fitting(inspected, found, settings) for found in guesses]
    if not any(found.type for found in inspected.guesses):
        why = "; ".join(f"'{said(found.name, 30)}': {found.why}" for found in guesses[:10])
        raise table.error(0, table.names[0], f"no other column is left to learn from. {why}", "add columns")
    return inspected


def _grouped(division: Division) -> list[str]:
    group = division.split.get("group")
    return [f"group: all rows of one '{said(group, 30)}' are in one part, as rows to come have others."] if group else []


def _goals(table: Table, settings: Settings, targets: Sequence[str], asked: Asked) -> list[Goal]:
    """Return the targets, as they are guessed or said."""
    if settings.positive is not None and len(targets) > 1:
        text = f"--positive '{said(settings.positive)}' is about one target, and there are {len(targets)}"
        raise PeError(text, hint="leave --positive out")
    if settings.event is not None:
        return [Goal(guess_target(table, targets[0], settings, asked), event=event_of(table, settings.event, settings.columns))]
    return with_suffixes([positive_of(table, guess_target(table, name, settings, asked), settings.positive) for name in targets])


def _gaps_filled(table: Table, found: Guess, settings: Settings) -> Guess:
    """Return a column whose missing cells become the median, or what most are, also where this table has none: later rows may have some."""
    if found.name in settings.columns or found.type not in ("number", "bool"):
        return found
    if found.type == "bool":
        codes = table.cells(found.name).codes()
        most = codes.words[int(np.argmax(np.bincount(codes.codes[codes.codes >= 0], minlength=len(codes.words))))]
        is_yes = most.lower() in {word.lower() for word in found.options.get("yes", YES)}
        return replace(found, options={**found.options, "missing": is_yes})
    return replace(found, options={**{k: v for k, v in found.options.items() if k != "scale"}, "missing": "median", "scale": "standard"})


def _known(aim: Guess, table: Table, parts: Mapping[str, Rows]) -> Guess:
    """Return the target with its classes written out where some are so rare that no training row has them."""
    if aim.type != "category":
        return aim
    codes = classes_in(table, aim)
    there = np.bincount(codes.codes[parts["train"]], minlength=len(codes.words)) > 0
    if there.all() or "classes" in aim.options:
        return aim
    words = sorted(codes.words, key=lambda word: (float(word) if _is_number(codes.words) else 0.0, word))
    gone = [said(word, 30) for word, known in zip(codes.words, there.tolist(), strict=True) if not known]
    return replace(aim, options={"classes": words}, why=f"{aim.why}; no training row has {', '.join(gone[:5])}")


def _is_number(words: Sequence[str]) -> bool:
    try:
        return all(np.isfinite(float(word)) for word in words)
    except ValueError:
        return False


def _fitted(inspected: Inspected, found: Guess, settings: Settings) -> dict[str, Any]:
    kind = discover()[str(found.type)]
    is_target = any(found.name == goal.name for goal in inspected.goals)
    context = Context(inspected.table, found.name, is_target, None, None, settings.base)
    options = kind.options.model_validate(dict(found.options))
    state: dict[str, Any] = kind.fit(options, context, inspected.parts["train"])
    return state


def _fitting(inspected: Inspected, found: Guess, settings: Settings) -> Guess:
    """Return a column with what it learned put down; left out where it cannot learn from the training rows."""
    if found.type is None:
        return found
    try:
        inspected.states[found.name] = _fitted(inspected, found, settings)
    except PeError as error:
        if found.name in settings.columns:
            raise
        return left_out(found, said(error.message, 120))
    return found


# --- what it feeds ----------------------------------------------------------------------------------------------------


def plan_of(inspected: Inspected) -> Plan:
    """Return how much a model of the table is given: its batches, epochs, rate and width; half as many with texts."""
    if inspected.used("image"):
        made = picture_plan(inspected.rows)
        return replace(made, learning_rate=0.002, weight_decay=0.02)
    return table_plan(inspected.rows, 2000) if inspected.used("text") else table_plan(inspected.rows)


def numbers_of(inspected: Inspected) -> list[Guess]:
    """Return the columns that stand side by side in the feed of numbers."""
    return inspected.used("number", "bool", "date")


def width_of(inspected: Inspected, found: Guess) -> int:
    """Return how many numbers a column gives."""
    return len(inspected.states[found.name]["divisor"]) if found.type == "date" else 1


def sum_of(inspected: Inspected) -> str:
    """Return a remark on how many numbers a row feeds, and which columns give more than one."""
    wide = [(found.name, width_of(inspected, found)) for found in numbers_of(inspected)]
    total = sum(width for _, width in wide)
    if all(width == 1 for _, width in wide) or total == len(wide):
        return f"{total} number{'s' * (total > 1)}"
    return (
        f"{total} numbers: "
        + ", ".join(f"{width} of {said(name, 24)}" for name, width in wide if width > 1)
        + ", 1 of each other"
    )


def branches_of(inspected: Inspected) -> dict[str, str]:
    """Return the columns that have a feed of their own, and its name."""
    taken = [*TAKEN, *(goal.key(layer) for goal in inspected.goals for layer in LAYERS)]
    found: dict[str, str] = {}
    for one in inspected.used("category", "bag", "text", "image"):
        feed = safe(one.name, taken)
        found[one.name] = feed
        taken += [feed, f"{feed}_row", f"{feed}_sum", f"{feed}_words", f"{feed}_conv", f"{feed}_text", f"{feed}_mean"]
        taken += [goal.key(f"{feed}_wide") for goal in inspected.goals]
        taken += [f"{feed}_{name}" for name in ("mean", "flat", *(f"stage{i + 1}" for i in range(STAGES)))] if one.type == "image" else []
    return found
