"""What a table's starter has behind its hidden layers: an output for each target, its loss, and what is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.yaml_inline import flow
from pe_cli.session.starters.files import Lines
from pe_cli.session.starters.names import said
from pe_cli.session.starters.redundant_columns import values_of
from pe_cli.session.starters.table_columns import Inspected, branches_of
from pe_cli.session.starters.target_kinds import Goal

_ZERO = {"initializer": {"type": "Constant"}}


class Head:
    """Writes the layers of a target.

    Args:
        inspected: the table.
        goal: the target.
        straight: layers of which the linear model is made, besides categories.
        before: layers that the hidden layers end with.
    """

    def __init__(self, inspected: Inspected, goal: Goal, straight: Sequence[str], before: Sequence[str]) -> None:
        self._looked, self._goal, self._straight, self._before = inspected, goal, list(straight), list(before)
        self._name = said(goal.name)
        self._layers: Lines = []

    def layers(self) -> Lines:
        """Return the layers."""
        _WRITERS[self._goal.guess.kind](self)
        return self._layers

    def _key(self, layer: str) -> str:
        return self._goal.key(layer)

    def _add(self, layer: str, kind: str, comment: str = "", **options: Any) -> None:
        """Add a layer; options that name layers of this target are given with `self._key`."""
        self._layers.append((f"{self._key(layer)}:", flow({"type": kind, **options}), comment))

    def _sum(self, layer: str, size: int, comment: str, start: float = 0.0) -> None:
        """Add an output: the sum of that of the hidden layers and of a linear model; both begin with `start`."""
        bias = {"bias_attr": {"initializer": {"type": "Constant", "value": float(f"{start:.6g}")}}} if start else {}
        begin = f"begins with {start:.4g}" if start else "begins with 0"
        before = self._before if len(self._before) > 1 else self._before[0]
        self._add("deep", "fc", f"{begin}, and the layers of the linear model with 0", input=before, size=size, param_attr=_ZERO, **bias)
        if self._straight:
            inputs = self._straight if len(self._straight) > 1 else self._straight[0]
            self._add("wide", "fc", input=inputs, size=size, param_attr=_ZERO, bias_attr=False)
        tables = categories(self._looked)
        for feed, name in tables.items():
            weights: dict[str, Any] = {"input": feed, "size": [self._looked.indices(name), size], "param_attr": _ZERO}
            self._add(f"{feed}_wide", "embedding", **weights)
        parts = ["deep", *(["wide"] if self._straight else []), *(f"{feed}_wide" for feed in tables)]
        self._add(layer, "sum", comment, x=[self._key(part) for part in parts])

    # --- classes --------------------------------------------------------------------------------------------------------

    def _classes(self) -> None:
        self._logits("classes")
        self._layers += classifier(self._goal.suffix)

    def _logits(self, what: str) -> None:
        count = self._looked.indices(self._goal.name)
        self._sum("logits", count, f"{count} {what} of '{self._name}'")

    def _ordered(self) -> None:
        count = self._looked.indices(self._goal.name)
        self._logits("classes")
        *layers, right = classifier(self._goal.suffix)
        self._layers += [(f"{self._key('near')}:", value, note) if key == f"{self._key('loss')}:" else (key, value, note)
                         for key, value, note in layers]  # fmt: skip
        # The ranked probability score of Epstein 1969: squared differences of cumulative probabilities.
        self._add("below", "cumsum", "probability of this class or one before it", x=self._key("prob"), axis=1)
        self._add("class_row", "one_hot", input=self._key("label"), depth=count)
        self._add("reached", "cumsum", "1 from the right class on", x=self._key("class_row"), axis=1)
        self._add("steps", "square_error_cost", "more, the farther off", input=self._key("below"), label=self._key("reached"))
        self._add("far", "mean", x=self._key("steps"))
        self._add("loss", "sum", x=[self._key("near"), self._key("far")])
        self._layers.append(right)

    def _tags(self) -> None:
        self._logits("tags, each yes or no by itself,")
        self._add("xent", "sigmoid_cross_entropy_with_logits", x=self._key("logits"), label=self._key("label"))
        self._add("loss", "mean", x=self._key("xent"))
        self._add("prob", "sigmoid", "probability of every tag; they do not add up to 1", x=self._key("logits"))

    # --- numbers --------------------------------------------------------------------------------------------------------

    @property
    def _values(self) -> NDArray[np.float64]:
        """Numbers of the training rows, in the file's unit."""
        return values_of(self._looked.table, self._goal.guess)[self._looked.parts["train"]]

    def _scale(self) -> tuple[float, float]:
        """Return what the column's scale divides by and what it subtracts."""
        state = self._looked.states[self._goal.name]
        return float(f"{np.ravel(state['divisor'])[0]:.9g}"), float(f"{np.ravel(state['shift'])[0]:.9g}")

    def _number(self) -> None:
        self._sum("estimate", 1, f"pe predict gives it in the unit of '{self._name}'")
        self._square()
        self._error(self._key("estimate"), self._key("value"))

    def _square(self) -> None:
        self._add("square", "square_error_cost", input=self._key("estimate"), label=self._key("value"))
        self._add("loss", "mean", x=self._key("square"))

    def _error(self, guess: str, truth: str, *, scaled: bool = True) -> None:
        """Add the mean absolute error in the unit of the file."""
        factor = self._scale()[0] if scaled else 1.0
        unit = f"in the unit of '{self._name}'"
        self._add("gap", "elementwise_sub", x=guess, y=truth)
        self._add("distance", "abs", x=self._key("gap"))
        if factor == 1:
            self._add("error", "mean", f"mean absolute error {unit}", x=self._key("distance"))
            return
        self._add("mean_distance", "mean", x=self._key("distance"))
        self._add("error", "scale", f"mean absolute error {unit}: times what the column is divided by", x=self._key("mean_distance"),
                  scale=factor)  # fmt: skip

    def _log(self) -> None:
        deviation, shift = self._scale()
        values = self._values + (1.0 if self._goal.guess.options["transform"] == "log1p" else 0.0)
        # exp of an unbounded estimate could make the error of one row larger than all others together.
        low, high = ((math.log(value) - shift) / deviation for value in (values.min() / 2, values.max() * 2))
        self._sum("learned", 1, f"the scaled logarithm of '{self._name}'")
        self._add("estimate", "clip", f"not beyond twice the largest; pe predict gives it in the unit of '{self._name}'",
                  x=self._key("learned"), min=float(f"{low:.6g}"), max=float(f"{high:.6g}"))  # fmt: skip
        self._square()
        for layer, of in (("told", "estimate"), ("truth", "value")):
            self._add(f"{layer}_log", "scale", x=self._key(of), scale=deviation, bias=shift)
            self._add(layer, "exp", x=self._key(f"{layer}_log"))
        self._error(self._key("told"), self._key("truth"), scaled=False)

    def _count(self) -> None:
        values = self._values
        mean = max(float(values.mean()), 1e-3)
        self._sum("rate", 1, "the logarithm of the count that is expected", start=math.log(mean))
        most = float(f"{math.log(2 * max(1.0, float(values.max()))):.4g}")
        # exp(-12) cannot be told from a count of 0, and its logarithm in the loss stays finite.
        self._add("learned", "clip", "not beyond twice the largest count", x=self._key("rate"), min=-12.0, max=most)
        self._add("estimate", "exp", f"how many '{self._name}' are expected", x=self._key("learned"))
        self._add("cost", "poisson_nll_loss", input=self._key("estimate"), label=self._key("value"), log_input=False)
        self._add("mean_cost", "mean", x=self._key("cost"))
        self._add("loss", "scale", "for each count that there is in the mean", x=self._key("mean_cost"), scale=float(f"{1 / mean:.6g}"))
        self._error(self._key("estimate"), self._key("value"))

    def _share(self) -> None:
        # The log-odds of 0 and of 1 are infinite.
        mean = min(max(float(self._values.mean()) / self._scale()[0], 1e-3), 1 - 1e-3)
        self._sum("logits", 1, f"the log-odds of '{self._name}'", start=math.log(mean / (1 - mean)))
        self._add("xent", "sigmoid_cross_entropy_with_logits", x=self._key("logits"), label=self._key("value"))
        self._add("loss", "mean", x=self._key("xent"))
        self._add("estimate", "sigmoid", f"from 0 to 1; pe predict gives it in the unit of '{self._name}'", x=self._key("logits"))
        self._error(self._key("estimate"), self._key("value"))


    def _survival(self) -> None:
        deviation, shift = self._scale()
        values = self._values + (1.0 if self._goal.guess.options["transform"] == "log1p" else 0.0)
        # Where most times are censored, a median lies beyond the longest of them; ten times as long is long enough.
        low, high = ((math.log(value) - shift) / deviation for value in (values.min() / 2, values.max() * 10))
        self._sum("learned", 1, f"the scaled logarithm of the median of '{self._name}'")
        self._add("estimate", "clip", f"not beyond ten times the longest; pe predict gives it in the unit of '{self._name}'",
                  x=self._key("learned"), min=float(f"{low:.6g}"), max=float(f"{high:.6g}"))  # fmt: skip
        begin = {"type": "Constant", "value": 0.25}
        self._add("log_shape", "create_parameter", "one for all rows: how sharply times end about the median", shape=[1], dtype="float32",
                  default_initializer=begin)  # fmt: skip
        self._add("cost", "weibull_nll_loss", "of a censored time only that it is longer", input=self._key("estimate"),
                  label=self._key("value"), event=self._key("event"), log_shape=self._key("log_shape"))  # fmt: skip
        self._add("loss", "mean", x=self._key("cost"))


_WRITERS = {
    "classes": Head._classes, "ordered": Head._ordered, "tags": Head._tags, "number": Head._number, "log": Head._log,
    "count": Head._count, "share": Head._share, "survival": Head._survival,
}  # fmt: skip


def classifier(suffix: str = "") -> Lines:
    """Return what follows the logits of a classifier."""
    return [
        (f"xent{suffix}:", f"{{type: softmax_with_cross_entropy, logits: logits{suffix}, label: label{suffix}}}", ""),
        (f"loss{suffix}:", f"{{type: mean, x: xent{suffix}}}", ""),
        (f"prob{suffix}:", f"{{type: softmax, input: logits{suffix}}}", "probability of every class"),
        (f"acc{suffix}:", f"{{type: accuracy, input: prob{suffix}, label: label{suffix}}}",
         "share of the rows whose most probable class is right"),
    ]  # fmt: skip


def heads(inspected: Inspected, straight: Sequence[str], before: Sequence[str]) -> Lines:
    """Return the layers of all targets, and the loss: the sum of theirs."""
    found = [line for goal in inspected.goals for line in Head(inspected, goal, straight, before).layers()]
    if inspected.only is None:
        found.append(("loss:", flow({"type": "sum", "x": [goal.key("loss") for goal in inspected.goals]}), "each target counts alike"))
    return found


def feed_of(inspected: Inspected, goal: Goal) -> tuple[str, str, str]:
    """Return the feed that the model is taught a target by."""
    name, key = said(goal.name), f"{goal.feed}:"
    if goal.guess.type == "category":
        return key, "{shape: [1], dtype: int64}", f"index of the class of '{name}'"
    if goal.guess.type == "bag":
        return key, flow({"shape": [inspected.indices(goal.name)]}), f"1 for every tag that '{name}' has, else 0"
    scaled = {
        "number": ", scaled to mean 0 and deviation 1", "log": ", its logarithm scaled to mean 0 and deviation 1", "share": ", from 0 to 1",
        "survival": ", its logarithm scaled to mean 0 and deviation 1",
    }  # fmt: skip
    return key, "{shape: [1]}", f"'{name}'{scaled.get(goal.guess.kind, '')}"


def categories(inspected: Inspected) -> dict[str, str]:
    """Return the feeds of categories, and their columns."""
    names = {one.name for one in inspected.used("category")}
    return {feed: name for name, feed in branches_of(inspected).items() if name in names}
