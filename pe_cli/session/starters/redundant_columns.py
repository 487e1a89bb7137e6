"""Finds redundant columns: those that say the same as another one, or that give the target away."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.column import discover
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.guesses import Guess, three
from pe_cli.session.starters.names import said

#: Rows from which a column that always tells the target does not do so by chance; and rows of each of its texts, in the mean.
ENOUGH, EACH = 50, 5
#: Correlation from which a number is the target in another unit.
SAME = 0.9999


def without_doubles(table: Table, guesses: Sequence[Guess], targets: Sequence[Guess]) -> list[Guess]:
    """Return columns with those left out that have the cells of a target or of a column before them in every row."""
    known = {_cells(table, target): f"the target '{said(target.name, 30)}'" for target in targets}
    found = []
    for one in guesses:
        if one.type in ("number", "bool", "category"):
            cells = _cells(table, one)
            if cells in known:
                found.append(replace(one, type=None, why=f"it is the same as {known[cells]} in every row", note=""))
                continue
            known[cells] = f"'{said(one.name, 30)}'"
        found.append(one)
    return found


def _cells(table: Table, one: Guess) -> bytes:
    """Return what is equal for columns of equal cells."""
    if one.type == "number":
        return hashlib.blake2b(values_of(table, one).tobytes(), digest_size=16).digest()
    codes = table.cells(one.name).codes()
    return hashlib.blake2b(codes.codes.tobytes() + "\0".join(codes.words).encode("utf-8", "replace"), digest_size=16).digest()


def notation_of(one: Guess) -> Notation:
    """Return how a column of numbers is written."""
    kind = discover()["number"]
    return kind.notation(kind.options.model_validate(dict(one.options)))


def values_of(table: Table, one: Guess) -> NDArray[np.float64]:
    """Return the numbers of a column as it is taken, [rows] in the file's unit."""
    return table.cells(one.name).numbers(notation_of(one)).values


def leaks(table: Table, guesses: Sequence[Guess], target: Guess) -> list[str]:
    """Return what to say of columns that tell the target by themselves: they may be known only after it."""
    if len(table) < ENOUGH:
        return []
    if target.type == "number":
        goal = values_of(table, target)
        tells = [(one, _in_line(values_of(table, one), goal)) for one in guesses if one.type == "number"]
    else:
        classes = table.cells(target.name).codes().codes
        tells = [(one, _told_by(table, one, classes)) for one in guesses if one.type in ("number", "bool", "category", "date")]
    return [
        f"'{said(one.name, 30)}' {why}, and so tells '{said(target.name, 30)}' by itself ({_shown(table, one)}): "
        f"if it is known only afterwards, leave it out: --drop '{said(one.name, 60)}'"
        for one, why in tells
        if why
    ]


def _shown(table: Table, one: Guess) -> str:
    cells = table.cells(one.name)
    return three([cells.text(row) for row in range(min(3, len(table)))])


def _in_line(values: NDArray[np.float64], goal: NDArray[np.float64]) -> str:
    there = np.isfinite(values) & np.isfinite(goal)
    x, y = values[there], goal[there]
    if len(x) < ENOUGH or not x.std() or not y.std():
        return ""
    return "rises or falls with the target in one line" if abs(np.corrcoef(x, y)[0, 1]) > SAME else ""


def _told_by(table: Table, one: Guess, classes: NDArray[np.int32]) -> str:
    """Return how a column tells the class of every row; nothing where it does not."""
    if one.type == "number":
        values = values_of(table, one)
        gone = np.isnan(values)
        if _pure(gone.astype(np.int64), classes):
            return "is missing for one class alone"
        order = np.argsort(values[~gone], kind="stable")
        x, y = values[~gone][order], classes[~gone][order]
        changes = np.flatnonzero(y[1:] != y[:-1])
        few = len(x) >= ENOUGH and len(changes) == len(np.unique(y)) - 1 > 0
        return "has ranges of its own for every class" if few and (x[changes] < x[changes + 1]).all() else ""
    codes = table.cells(one.name).codes()
    if _pure((codes.codes < 0).astype(np.int64), classes):
        return "is missing for one class alone"
    if one.type == "date" or len(codes.words) * EACH > len(classes):
        return ""
    return "has texts of its own for every class" if _pure(codes.codes.astype(np.int64) + 1, classes) else ""


def _pure(groups: NDArray[np.int64], classes: NDArray[np.int32]) -> bool:
    """Return whether there are several groups of rows, each with one class alone, that differ."""
    pairs = np.unique(np.stack([groups, classes.astype(np.int64)]), axis=1)
    return len(np.unique(groups)) == pairs.shape[1] > 1 and len(np.unique(pairs[1])) > 1
