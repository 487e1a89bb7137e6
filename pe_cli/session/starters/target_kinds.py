"""What a table's starter predicts: the kind of each target, and the names of its layers, feed and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.starters.guesses import Guess, short
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.positive_class import Positive
from pe_cli.session.starters.tags import TAGS_BEST


@dataclass(frozen=True)
class Kind:
    """How targets of a kind are told.

    Args:
        said: what it is taken for, on the screen.
        what: is predicted, in the config's first line.
        best: metric that decides which checkpoint is the best.
        mode: max or min.
        recorded: metrics of training besides the loss, by the keys of their layers.
        outputs: layers that are fetched besides.
    """

    said: str
    what: str
    best: str
    mode: str
    recorded: tuple[str, ...]
    outputs: tuple[str, ...]


_NUMBER = ("loss", "min", ("error",), ("estimate",))
KINDS: Mapping[str, Kind] = {
    "classes": Kind("classes", "the class", "loss", "min", ("acc",), ("prob",)),
    "ordered": Kind("classes that have an order", "the class", "loss", "min", ("acc",), ("prob",)),
    "tags": Kind("tags", "the tags", TAGS_BEST, "max", (), ("prob",)),
    "number": Kind("a number", "the number", *_NUMBER),
    "count": Kind("a count", "the count", *_NUMBER),
    "share": Kind("a share", "the share", *_NUMBER),
    "survival": Kind("a time until an event, of which some are censored", "the median time", "loss", "min", (), ("estimate",)),
    "log": Kind("a number whose logarithm is learned", "the number", *_NUMBER),
}
#: Layers of the targets, whose names no column's feed may have.
LAYERS = (
    "label", "value", "deep", "wide", "logits", "xent", "loss", "prob", "acc", "estimate", "square", "gap", "distance", "mean_distance",
    "error", "rate", "cost", "mean_cost", "learned", "told", "told_log", "truth", "truth_log", "near", "below", "class_row", "reached",
    "steps", "far", "event", "log_shape", "concordance",
)  # fmt: skip


@dataclass(frozen=True)
class Goal:
    """A target.

    Args:
        guess: how the column is taken; its `kind` is one of `KINDS`.
        suffix: of the names of its layers; empty for the only target.
        positive: class that metrics are about; None where it has not two classes.
        event: of a time, the column that says whether it has ended in the event; None for other targets.
    """

    guess: Guess
    suffix: str = ""
    positive: Positive | None = None
    event: Guess | None = None

    @property
    def name(self) -> str:
        """The column."""
        return self.guess.name

    @property
    def kind(self) -> Kind:
        """How it is told."""
        return KINDS[self.guess.kind]

    @property
    def is_number(self) -> bool:
        """Whether a number is predicted."""
        return self.guess.type == "number"

    def key(self, layer: str) -> str:
        """Return what a layer of this target is called."""
        return f"{layer}{self.suffix}"

    @property
    def feed(self) -> str:
        """The feed that it is taught by."""
        return self.key("value" if self.is_number else "label")

    @property
    def recorded(self) -> tuple[str, ...]:
        """Metrics of training besides the loss of all targets."""
        return tuple(self.key(name) for name in (*(("loss",) if self.suffix else ()), *self.kind.recorded))

    @property
    def fetched(self) -> tuple[str, ...]:
        """What is fetched besides the loss of all targets."""
        return (*self.recorded, *(self.key(name) for name in self.kind.outputs))


def with_suffixes(found: Sequence[tuple[Guess, Positive | None]]) -> list[Goal]:
    """Return targets, whose layers have names of their own where there are several."""
    if len(found) == 1:
        return [Goal(found[0][0], "", found[0][1])]
    goals: list[Goal] = []
    for guess, positive in found:
        suffix = safe(guess.name, [goal.suffix.removeprefix("_") for goal in goals], "target")
        goals.append(Goal(guess, f"_{suffix}", positive and positive.of(f"_{suffix}")))
    return goals


# --- numbers ----------------------------------------------------------------------------------------------------------

#: Largest count, and the skewness from which whole numbers from 0 or 1 on are taken for one.
MOST_COUNT, COUNT_SKEW = 10_000, 0.5
#: How often the largest number has the median in a far tail, and the skewness of the numbers there and of their logarithms.
FAR, TAIL_SKEW, LOG_SKEW = 30.0, 4.0, 1.0
#: The largest share at least, where only the numbers tell that a column has shares.
LIKELY = 0.3
_SHARE_WORDS = ("share", "ratio", "rate", "fraction", "frac", "prop", "percent", "pct", "anteil", "quote", "prozent", "perc")


def skewness(values: NDArray[np.float64]) -> float:
    """Return the third moment of standardized numbers; 0 for one number."""
    deviation = float(values.std())
    return float((((values - values.mean()) / deviation) ** 3).mean()) if deviation > 0 else 0.0


def of_numbers(name: str, values: NDArray[np.float64], unit: str, wanted: str) -> tuple[str, dict[str, Any], str, str]:
    """Return how a target of numbers is taken: its kind, options of the column, what was seen, and what is said on the screen.

    Args:
        name: of the column.
        values: [rows], none missing.
        unit: of the cells.
        wanted: kind that was asked for, or auto.
    """
    shown = f"{short(values.min())} to {short(values.max())}"
    scaled: dict[str, Any] = {"scale": "standard"}
    if wanted == "share" or (wanted == "auto" and _is_share(name, values, unit)):
        whole = 100.0 if values.max() > 1 or unit == "%" else 1.0
        note = f"'{said(name, 30)}' is taken for a share, {shown}{' percent' if whole > 1 else ''}, which no answer leaves; --task number"
        return "share", {"scale": int(whole)} if whole > 1 else {}, f"a share, {shown}", f"{note} predicts any number"
    if wanted == "count" or (wanted == "auto" and is_count(values)):
        cells = ", ".join(short(value) for value in values[:3])
        note = f"'{said(name, 30)}' is taken for counts ({cells}), whose mean is learned (Poisson); --task number takes them as numbers"
        return "count", {}, f"counts, {shown}, {values.mean():.3g} in the mean", note
    if wanted == "survival":
        return "survival", {"transform": "log" if values.min() > 0 else "log1p", **scaled}, f"times of {shown}", ""
    added = tail(values) if wanted in ("auto", "log") else None
    if wanted == "log" and added is None:
        added = 0.0 if values.min() > 0 else 1.0
    if added is not None:
        note = (
            f"'{said(name, 30)}' has a far tail: half is below {short(float(np.median(values)))}, and the largest is "
            f"{short(values.max())}; its logarithm is learned, for errors in proportion; --task number learns it as it is"
        )
        return "log", {"transform": "log1p" if added else "log", **scaled}, f"{shown}, a far tail", note
    return "number", scaled, shown, ""


def _is_share(name: str, values: NDArray[np.float64], unit: str) -> bool:
    low, high = float(values.min()), float(values.max())
    called = any(word in name.lower() for word in _SHARE_WORDS) or "%" in name
    # Two different numbers are two classes, even where they are 0 and 1.
    if low < 0 or len(np.unique(values)) <= 2:
        return False
    if unit == "%" or (called and high > 1):
        return high <= 100 and (unit == "%" or high > LIKELY * 100)
    return high <= 1 and (called or high >= LIKELY) and bool((values != np.rint(values)).any())


def is_count(values: NDArray[np.float64]) -> bool:
    """Return whether numbers count something: whole ones from 0 or 1 on, of which small ones are frequent."""
    whole = bool((values == np.rint(values)).all())
    return whole and values.min() in (0, 1) and values.max() <= MOST_COUNT and skewness(values) > COUNT_SKEW


def tail(values: NDArray[np.float64]) -> float | None:
    """Return what is added before the logarithm of numbers in a far tail is taken, 0 or 1; None for other numbers."""
    low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
    if low < 0 or middle <= 0 or high < FAR * middle or skewness(values) < TAIL_SKEW:
        return None
    added = 0.0 if low > 0 else 1.0
    # Beside small numbers, 1 more would change their proportions.
    if added and middle < 10 * added:
        return None
    return added if abs(skewness(np.log(values + added))) < LOG_SKEW else None
