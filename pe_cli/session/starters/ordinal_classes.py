"""Recognises classes that have an order by their names: low, medium and high, or the stars of a rating."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.yaml_inline import flow
from pe_cli.session.starters.names import said

#: Words in their order, in small letters.
LADDERS = (
    ("very low", "low", "medium", "high", "very high"),
    ("low", "moderate", "high", "critical"),
    ("very small", "small", "medium", "large", "very large"),
    ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl"),
    ("very bad", "bad", "average", "good", "very good"),
    ("bad", "ok", "good"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("none", "mild", "moderate", "severe", "very severe"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("negative", "neutral", "positive"),
    ("slow", "medium", "fast"),
    ("cold", "cool", "warm", "hot"),
    ("bronze", "silver", "gold", "platinum"),
    ("beginner", "intermediate", "advanced", "expert"),
    ("sehr niedrig", "niedrig", "mittel", "hoch", "sehr hoch"),
    ("gering", "mittel", "hoch"),
    ("klein", "mittel", "gro\u00df"),
    ("faible", "moyen", "\u00e9lev\u00e9"),
    ("bajo", "medio", "alto"),
)
#: Whole numbers of a rating at least, and at most.
FEWEST, MOST = 3, 11


def in_order(words: Sequence[str]) -> list[str] | None:
    """Return at least three classes in their order; None where they have none that is known.

    >>> in_order(["High", "Low", "Medium"]), in_order(["red", "green", "blue"])
    (['Low', 'Medium', 'High'], None)
    """
    small = {word.strip().lower(): word for word in words}
    if len(words) < FEWEST or len(small) < len(words):
        return None
    ladder = next((steps for steps in LADDERS if set(small) <= set(steps)), None)
    return None if ladder is None else [small[step] for step in ladder if step in small]


def kappa_section(suffix: str = "") -> list[str]:
    """Return lines of `metrics` for classes in an order; a suffix is that of the names of the target's layers."""
    given = flow({"type": "kappa", "weights": "quadratic", "scores": f"prob{suffix}", "labels": f"label{suffix}"})
    return [
        "  # Of all rows of an evaluation: 1 where every class is right, 0 by chance; wrong ones count by the square of the steps.",
        f"  kappa{suffix}: {given}",
    ]


def note_of_words(name: str, classes: Sequence[str]) -> str:
    """Return what is said of a target whose classes have an order."""
    shown = " < ".join(said(one, 24) for one in classes)
    return f"the classes of '{said(name, 30)}' have an order, and stand in it: {shown}; the farther off a wrong one is, the more it counts"


def note_of_numbers(name: str, values: NDArray[np.float64]) -> str:
    """Return what is said of a target of whole numbers that may be a rating; nothing of others."""
    there = np.unique(values)
    if not FEWEST <= len(there) <= MOST or (np.diff(there) != 1).any():
        return ""
    cells = ", ".join(f"'{value:.0f}'" for value in there[:3])
    return (
        f"'{said(name, 30)}' has the whole numbers {there[0]:.0f} to {there[-1]:.0f}, such as {cells}, which are taken for classes in "
        "their order; --task classes takes them without one, --task number predicts a number"
    )
