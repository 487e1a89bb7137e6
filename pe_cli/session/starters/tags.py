"""Finds columns with several items in a cell, and takes a target of such cells for tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.substitute import escaped
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.columns.bag import BagOptions, items_of_list
from pe_cli.data.raw_cells import Codes, Table
from pe_cli.session.starters.files import Lines, aligned
from pe_cli.session.starters.guesses import Guess, three
from pe_cli.session.starters.names import of_class, said
from pe_cli.session.starters.spellings import spellings_of

#: Different items of a bag at most, and rows that an item must have in the mean.
MOST_ITEMS, ITEM_ROWS = 300, 5
SEPARATORS = ("|", ";", ",")
#: Tags of a target at most: each has a probability of its own.
MOST_TAGS = 5_000
#: Tags up to which each has metrics of its own in the config.
MOST_METRICS = 30
#: Metric that decides which checkpoint is the best.
TAGS_BEST = "average_precision"


@dataclass(frozen=True)
class Bags:
    """The items of a column's cells.

    Args:
        options: of the column type `bag`.
        items: item -> rows that have it.
        several: the first cells with more than one item.
        none: cells that are there and have no item, such as `[]`.
    """

    options: Mapping[str, Any]
    items: Mapping[str, int]
    several: tuple[str, ...]
    none: int

    @property
    def most(self) -> list[str]:
        """The items, the most frequent first."""
        return sorted(self.items, key=lambda item: -self.items[item])


def bags_of(words: Sequence[str], counts: NDArray[np.int64], options: Mapping[str, Any], most: int) -> Bags | None:
    """Return the items of cells; None where a cell is no list, or there are more than so many items.

    Args:
        words: distinct cells.
        counts: int64 [words] rows that have each.
        options: of the column type `bag`.
        most: different items.
    """
    checked = BagOptions.model_validate(dict(options))
    items: dict[str, int] = {}
    several, none = [], 0
    for word, number in zip(words, counts.tolist(), strict=True):
        try:
            found = list(dict.fromkeys(checked.classes_of(checked.split(word))))
        except ValueError:
            return None
        none += number * (not found)
        if len(found) > 1:
            several.append(word)
        for item in found:
            items[item] = items.get(item, 0) + number
        if len(items) > most:
            return None
    return Bags(options, items, tuple(several), none)


def find_bags(words: Sequence[str], counts: NDArray[np.int64]) -> Bags | None:
    """Return the items of cells that have several of them, by a separator or as lists; None for other cells."""
    if all(_is_list(word) for word in words[:1000]):
        return bags_of(words, counts, {"format": "list"}, MOST_ITEMS)
    rows = int(counts.sum())
    for separator in SEPARATORS:
        # A sign that fewer than a fifth of the rows have is punctuation.
        if int(counts[np.array([separator in word for word in words])].sum()) * 5 < rows:
            continue
        found = bags_of(words, counts, {} if separator == "|" else {"separator": separator}, MOST_ITEMS)
        if found is not None and _are_items(found, len(words)):
            return found
    return None


def _is_list(word: str) -> bool:
    if not (word.startswith("[") and word.endswith("]")):
        return False
    try:
        items_of_list(word)
    except ValueError:
        return False
    return True


def _are_items(found: Bags, cells: int) -> bool:
    """Whether items are short, and repeat more than the cells that they make."""
    longest = max((len(item.split()) for item in found.items), default=0)
    return 0 < len(found.items) <= cells and longest <= 3 and sum(found.items.values()) >= ITEM_ROWS * len(found.items)


def bag(name: str, codes: Codes, counts: NDArray[np.int64], gaps: str) -> Guess | None:
    """Return a column with several categories in a cell; None for any other."""
    found = find_bags(codes.words, counts)
    if found is None or not found.items:
        return None
    most = ", ".join(f"'{said(item, 24)}'" for item in found.most[:3])
    return Guess(name, "bag", found.options, f"lists of {len(found.items):,} items, such as {most}{gaps}")


# --- the target -------------------------------------------------------------------------------------------------------


def guess_tags(name: str, codes: Codes, counts: NDArray[np.int64]) -> Guess | None:
    """Return a target whose cells have several tags; None for any other."""
    found = find_bags(codes.words, counts) if codes.words else None
    if found is None or not found.several:
        return None
    several = spellings_of(list(found.items), list(found.items.values()))
    if not several.same:
        return _target(name, codes, found, found.options)
    options = {**found.options, **several.written}
    merged = bags_of(codes.words, counts, options, MOST_TAGS)
    assert merged is not None, "the same cells as before"
    made = _target(name, codes, merged, options)
    told = several.note(name, f"--columns '{said(name, 60)}={flow({'type': 'tags', **found.options})}'")
    return replace(made, note=f"{told}; {made.note}")


def declared_tags(table: Table, name: str, codes: Codes, counts: NDArray[np.int64], declared: Mapping[str, Any]) -> Guess:
    """Return a target that was said to be tags.

    Args:
        table: has the column.
        name: of it.
        codes: its cells.
        counts: int64 [words] rows that have each distinct cell.
        declared: options that were said.

    Raises:
        PeError: DATA; a cell is no list, or there are fewer than two tags, or too many.
    """
    options = dict(declared)
    if not {"separator", "format"} & options.keys():
        options |= _form(codes.words)
    found = bags_of(codes.words, counts, {key: options[key] for key in ("separator", "format") if key in options}, MOST_TAGS)
    if found is None:
        BagOptions.model_validate({key: options[key] for key in ("separator", "format") if key in options})
        raise table.error(0, name, f"the target has no tags, or more than {MOST_TAGS:,}", f"say how they are written: {_remedy(name)}")
    if len(found.items) < 2:
        only = f"one tag, '{said(found.most[0], 30)}'" if found.items else "no tag in any row"
        raise table.error(0, name, f"the target has {only}", "a model of tags needs two; for one, fill a class in the other rows")
    return replace(_target(name, codes, found, options), note="")


def _form(words: Sequence[str]) -> dict[str, Any]:
    """Return how cells are likeliest written."""
    if words and all(_is_list(word) for word in words):
        return {"format": "list"}
    often = [(sum(separator in word for word in words), separator) for separator in SEPARATORS]
    most, separator = max(often, key=lambda pair: pair[0])
    return {"separator": separator} if most and separator != "|" else {}


def _remedy(name: str) -> str:
    return f"--columns '{said(name, 60)}={{type: tags, separator: \"/\"}}'"


def _target(name: str, codes: Codes, found: Bags, options: Mapping[str, Any]) -> Guess:
    """Return a target of tags, with its classes written down: metrics name them by their numbers."""
    gone = int((codes.codes < 0).sum()) + found.none
    rows = f"{gone:,} rows have none" if gone > 1 else "1 row has none" if gone else "every row has one"
    cells = three([*found.several, *(word for word in codes.words if word not in found.several[:3])])
    why = f"{len(found.items):,} tags, such as {three(found.most)}; cells such as {cells}; {rows}"
    classes = options.get("classes") or _sorted(found.items)
    note = f"if a whole cell of '{said(name, 30)}' is one class, say --columns '{said(name, 60)}=category'"
    return Guess(name, "bag", {**options, "classes": list(classes)}, why, note, kind="tags")


def _sorted(items: Mapping[str, int]) -> list[str]:
    try:
        return sorted(items, key=float)
    except ValueError:
        return sorted(items)


def tag_section(names: Sequence[str], suffix: str = "") -> list[str]:
    """Return lines of `metrics` for tags, in the order of their numbers.

    Args:
        names: of the tags.
        suffix: of the names of the target's layers; empty for the only target.
    """
    given = {"scores": f"prob{suffix}", "labels": f"label{suffix}"}
    rows: Lines = [
        (f"f1_micro{suffix}:", flow({"type": "f1", "average": "micro", **given}), "of all decisions: tags that are frequent count most"),
        (f"f1_macro{suffix}:", flow({"type": "f1", "average": "macro", **given}), "mean over the tags: each counts alike"),
        (f"{TAGS_BEST}{suffix}:", flow({"type": "average_precision", "average": "micro", **given}), "of all rows and tags in one order"),
    ]
    taken: set[str] = set()
    for number, name in enumerate(names[:MOST_METRICS]):
        key = of_class(f"f1{suffix}", name)
        if key not in taken:  # two long tags may have one name
            rows.append((f"{quoted(escaped(key))}:", flow({"type": "f1", "class": number, **given}), ""))
        taken.add(key)
    more = f" of the first {MOST_METRICS} tags; `pe eval --classes` has them all" if len(names) > MOST_METRICS else ""
    return [
        f"  # Of all rows of an evaluation. A tag is given from a probability of 0.5 on. `class` is its number in `classes` above{more}.",
        *aligned(rows, "  "),
    ]
