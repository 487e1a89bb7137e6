"""Splits: which rows of a source are for training, for evaluation, and for the last test.

A split is a function of the rows' number, the columns that it goes by, and its seed: the same on every machine. By time, the earliest
rows train, and of folds each evaluates with what comes after its training rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.data.counter_random import permutation, stream_key
from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Table
from pe_cli.data.time_columns import moments_of

Parts = dict[str, Rows]


def split_rows(table: Table, rows: Rows, section: SplitSection) -> Parts:
    """Divide the rows of a table.

    Args:
        table: has the columns that the split goes by.
        rows: int64, sorted, those that are divided.
        section: how.

    Returns:
        train, eval and test, each int64 and sorted; only the parts that the section asks for.

    Raises:
        PeError: DATA; a column is not there, or a part would be empty.
    """
    for key in ("stratify", "group", "time"):
        name = getattr(section, key)
        if name is not None and name not in table.names:
            raise PeError(
                f"data.split.{key}: the data has no column '{name}'",
                at=section.at_of(key),
                hint=did_you_mean(name, table.names) or f"it has {', '.join(table.names[:20])}",
                code=ExitCode.DATA,
            )
    test = section.test or 0.0
    shares = [test, section.eval or 0.0] if section.folds is None else [test]
    # The test part is cut first, so that a change of the other shares does not move its rows.
    cut = _divide(table, rows, section, shares, "split")
    parts = {"test": cut[0]} if section.test else {}
    if section.folds is None:
        parts |= {"eval": cut[1]} if section.eval else {}
        parts["train"] = cut[-1]
    else:
        assert section.fold is not None
        moments = _moments(table, section)
        # By time, every fold is evaluated with what comes after its training rows.
        if moments is not None:
            blocks = _in_time(cut[-1], moments[cut[-1]], section.folds + 1)
            parts["eval"], earlier = blocks[section.fold], blocks[: section.fold]
        else:
            folds = _folds(table, cut[-1], section)
            parts["eval"], earlier = folds[section.fold - 1], [fold for i, fold in enumerate(folds) if i != section.fold - 1]
        parts["train"] = np.sort(np.concatenate(earlier))
    for name, found in parts.items():
        if not len(found):
            raise PeError(
                f"data.split leaves no row for {name}: there are {len(rows):,} rows",
                at=section.at,
                hint="larger shares, fewer folds, or more rows",
                code=ExitCode.DATA,
            )
    return {name: parts[name] for name in ("train", "eval", "test") if name in parts}


def _divide(table: Table, rows: Rows, section: SplitSection, shares: list[float], what: str) -> list[Rows]:
    """Return a part for every share, and the rest."""
    moments = _moments(table, section)
    if moments is not None:
        times = moments[rows]
        return _cut(rows, np.argsort(times, kind="stable"), shares, times)
    if _by_position(table, section):
        return _cut(rows, np.arange(len(rows)), shares)
    # Each purpose has a stream of its own: folds do not follow from the split's draw.
    key = stream_key(what, section.seed)
    if section.group is not None:
        return _by_group(table.cells(section.group).codes().codes[rows], rows, shares, key)
    order = permutation(key, len(rows))
    if section.stratify is None:
        return _taken(rows, order, shares)
    codes = table.cells(section.stratify).codes().codes[rows]
    counts = [_quota(np.bincount(codes + 1), share) for share in shares]
    strata = [order[codes[order] == code - 1] for code in range(len(counts[0]))]
    parts: list[Rows] = []
    start = np.zeros(len(strata), np.int64)
    for quota in counts:
        parts.append(np.sort(rows[np.concatenate([s[b : b + n] for s, b, n in zip(strata, start, quota, strict=True)])]))
        start += quota
    rest = [s[b:] for s, b in zip(strata, start, strict=True)]
    return [*parts, np.sort(rows[np.concatenate(rest)])]


def _by_position(table: Table, section: SplitSection) -> bool:
    """Return whether rows are cut as they are stored: that is asked for, or nothing is and neighbouring rows belong together."""
    if section.order is not None or section.stratify is not None or section.group is not None or section.time is not None:
        return section.order == "position"
    # Texts and windows overlap with their neighbours, so that a draw would put halves of one sentence into two parts.
    return bool(getattr(table, "contiguous", False))


def _taken(rows: Rows, order: NDArray[np.int64], shares: list[float]) -> list[Rows]:
    parts, start = [], 0
    for share in shares:
        count = round(len(rows) * share)
        parts.append(np.sort(rows[order[start : start + count]]))
        start += count
    return [*parts, np.sort(rows[order[start:]])]


def _cut(rows: Rows, order: NDArray[np.int64], shares: list[float], times: NDArray[np.float64] | None = None) -> list[Rows]:
    """Cut rows in an order: what comes first is the rest, the first share is what comes last. Equal times stay together."""
    parts, end = [], len(rows)
    for share in shares:
        start = end - round(len(rows) * share)
        # Rows of one moment stay together: a model must not know the future of a moment that it is tested on.
        while times is not None and 0 < start < end and times[order[start]] == times[order[start - 1]]:
            start -= 1
        parts.append(np.sort(rows[order[start:end]]))
        end = start
    return [*parts, np.sort(rows[order[:end]])]


def _by_group(codes: NDArray[np.int32], rows: Rows, shares: list[float], key: int) -> list[Rows]:
    """Give whole groups to the parts, in a random order, until each has its share."""
    counts = np.bincount(codes + 1)
    groups = permutation(key, len(counts))
    total = np.cumsum(counts[groups])
    of = np.full(len(counts), len(shares), np.int64)
    start = taken = 0
    for part, share in enumerate(shares):
        # Whole groups: a part gets the group that fills it, and may be larger by a part of one.
        wanted = taken + round(len(rows) * share)
        end = start + int(np.searchsorted(total[start:], wanted, side="left")) + 1 if wanted > taken else start
        of[groups[start:end]] = part
        start, taken = min(end, len(groups)), int(total[min(end, len(groups)) - 1]) if end else 0
    found = of[codes + 1]
    return [rows[found == part] for part in range(len(shares) + 1)]


def _quota(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Return how many of every stratum are taken, so that the sum is the rounded share of all: largest remainders first."""
    exact = counts * share
    quota: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # Remainders go to the strata that lack most, so that the parts have the wanted size.
    left = round(int(counts.sum()) * share) - int(quota.sum())
    order = np.argsort(-(exact - quota), kind="stable")
    quota[order[:left]] += 1
    return quota


def _in_time(rows: Rows, times: NDArray[np.float64], count: int) -> list[Rows]:
    """Return blocks of rows, the earliest first; equal times stay together."""
    order = np.argsort(times, kind="stable")
    ends = [len(rows) * (i + 1) // count for i in range(count)]
    for i, end in enumerate(ends[:-1]):
        while 0 < end < len(rows) and times[order[end]] == times[order[end - 1]]:
            end -= 1
        ends[i] = end
    return [np.sort(rows[order[begin:end]]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _folds(table: Table, rows: Rows, section: SplitSection) -> list[Rows]:
    """Return the rows of every fold."""
    assert section.folds is not None
    count = section.folds
    key = stream_key("folds", section.seed)
    if section.group is not None:
        codes = table.cells(section.group).codes().codes[rows]
        sizes = np.bincount(codes + 1)
        # the largest groups first, each to the fold with the fewest rows
        fold_of, filled = np.zeros(len(sizes), np.int64), np.zeros(count, np.int64)
        shuffled = permutation(key, len(sizes))
        for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
            fold_of[group] = int(np.argmin(filled))
            filled[fold_of[group]] += sizes[group]
        found = fold_of[codes + 1]
        return [rows[found == i] for i in range(count)]
    order = np.arange(len(rows)) if _by_position(table, section) else permutation(key, len(rows))
    if section.stratify is not None:
        codes = table.cells(section.stratify).codes().codes[rows]
        order = order[np.argsort(codes[order], kind="stable")]
        return [np.sort(rows[order[i::count]]) for i in range(count)]
    return [np.sort(rows[part]) for part in np.array_split(order, count)]


def _moments(table: Table, section: SplitSection) -> NDArray[np.float64] | None:
    """Return the moments that rows are divided by; None where they are divided otherwise.

    Raises:
        PeError: USAGE; rows of series would be divided so that training sees what comes after its windows.
    """
    own: NDArray[np.float64] | None = getattr(table, "moments", None)
    if own is None:
        return None if section.time is None else moments_of(table, section.time, "data.split.time sorts by it")
    key, time = (getattr(table, name, None) for name in ("key", "time"))
    wrong = next((name for name in ("stratify", "order") if getattr(section, name) is not None), None)
    # Windows overlap, and any division but by time would let training see what is evaluated.
    if wrong or section.group not in (None, key) or section.time not in (None, time):
        wrong = wrong or ("group" if section.group not in (None, key) else "time")
        raise PeError(
            f"data.split.{wrong}: windows are divided by time, so that training does not look into the future",
            at=section.at_of(wrong),
            hint=f"leave {wrong} out" + (f", or let whole series stay together: group: {key}" if key else ""),
        )
    return own if section.group is None else None


def describe(parts: Mapping[str, Rows], rows: int) -> dict[str, object]:
    """Return what a run keeps of a split: counts, and a digest by which the same split is known."""
    digest = hashlib.sha256()
    for name, found in sorted(parts.items()):
        digest.update(name.encode() + np.ascontiguousarray(found, "<i8").tobytes())
    return {"rows": rows, "parts": {name: len(found) for name, found in parts.items()}, "sha256": digest.hexdigest()}
