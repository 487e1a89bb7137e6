"""Checks for settings of a split that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.error_collector import Mistake
from pe_cli.config.sections.data import SplitSection


def split_mistakes(section: SplitSection) -> Iterator[Mistake]:
    """Yield what is wrong with a split, with its place and what to do."""
    ways = [key for key in ("stratify", "group", "time") if getattr(section, key) is not None]
    if section.order == "position":
        ways.append("order")
    if len(ways) > 1:
        yield f"data.split: {' and '.join(ways)} divide the rows by different rules", section.at_of(ways[1]), "keep one"
    if section.folds is not None and section.eval is not None:
        yield "data.split: eval and folds both say what is for evaluation", section.at_of("eval"), "keep one"
    if section.folds is not None and section.fold is None:
        yield "data.split: folds needs fold, which of them is for evaluation", section.at_of("folds"), "pe train --folds N runs all"
    if section.fold is not None and section.folds is None:
        yield "data.split: fold needs folds, their number", section.at_of("fold"), "add folds: 5"
    if section.fold is not None and section.folds is not None and section.fold > section.folds:
        yield f"data.split: there is no fold {section.fold} of {section.folds}", section.at_of("fold"), "folds count from 1"
    if (section.eval or 0) + (section.test or 0) >= 1:
        yield "data.split: eval and test leave no row for training", section.at_of("test"), "their sum must be below 1"
