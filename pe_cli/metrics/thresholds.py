"""Chooses thresholds: the score from which on a row is taken to be of a class, by what the decision is for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

Array = NDArray[Any]


@dataclass(frozen=True)
class Rule:
    """What a threshold is chosen by.

    Args:
        by: f1, precision, recall, cost, or threshold, which is given.
        least: precision or recall that is wanted at least, for f1 precision; or the threshold.
        missed: cost of a row of the class that is not found.
        false_alarm: cost of another row that is taken for it.
    """

    by: str
    least: float = 0.0
    missed: float = 1.0
    false_alarm: float = 1.0

    @property
    def said(self) -> str:
        """The rule for people."""
        if self.by == "f1":
            return f"the best F1 with a precision of at least {self.least:g}" if self.least else "the best F1"
        if self.by == "cost":
            return f"the least cost, {self.missed:g} for a missed row and {self.false_alarm:g} for a false alarm"
        return "as given" if self.by == "threshold" else f"{self.by} of at least {self.least:g}"


@dataclass(frozen=True)
class Chosen:
    """A threshold, and whether it does what the rule wants.

    Args:
        threshold: scores of at least this are taken for the class.
        short: why it does not; empty where it does.
    """

    threshold: float
    short: str = ""


def choose(rule: Rule, scores: Array, hit: Array) -> Chosen:
    """Choose a threshold.

    It lies halfway between two scores that occur, so that a last bit of another computer changes no decision. Of thresholds that are as
    good the largest one is taken.

    Args:
        rule: what it is chosen by.
        scores: float64 [rows], probabilities of the class.
        hit: bool [rows], which rows are of it.
    """
    if rule.by == "threshold":
        return Chosen(rule.least)
    if not hit.any() or hit.all():
        return Chosen(0.5, f"{'every' if hit.any() else 'no'} row is of it")
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], hit[order]
    # A threshold cannot part equal scores, so only the last row of each score counts.
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    right = np.cumsum(hits, dtype=np.int64)[ends].astype(np.float64)
    taken = (ends + 1).astype(np.float64)
    steps = ordered[ends]
    # In the middle between two scores, so that the next rows' noise is least likely to cross it.
    between = (steps + np.append(steps[1:], 0.0)) / 2
    if rule.by == "cost":
        return Chosen(_cheapest(rule, right, taken, float(hit.sum()), between, float(steps[0])))
    precision, recall = right / taken, right / hit.sum()
    if rule.by == "f1":
        return _best_f1(rule, precision, recall, between, float(steps[0]))
    wanted, other = (precision, recall) if rule.by == "precision" else (recall, precision)
    enough = wanted >= rule.least
    if not enough.any():
        best = int(np.argmax(wanted))
        return Chosen(float(between[best]), f"no threshold has {rule.said}: the most is {wanted[best]:.4g}")
    return Chosen(float(between[np.argmax(np.where(enough, other, -1.0))]))


def _best_f1(rule: Rule, precision: Array, recall: Array, between: Array, most: float) -> Chosen:
    """Return the threshold of the best F1 that has the precision of the rule; one above all scores where none has it.

    With a precision of at least 0.5 as many rows are right as by taking none, or more.
    """
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo(np.float64).tiny)
    best = int(np.argmax(np.where(precision >= rule.least, f1, -1.0)))
    if precision[best] >= rule.least:
        return Chosen(float(between[best]))
    best = int(np.argmax(f1))
    other = f"the best F1, from {between[best]:.4g} on, has {precision[best]:.4g} and finds {recall[best]:.3g} of the rows (decide: f1)"
    return Chosen((most + 1.0) / 2, f"none has a precision of at least {rule.least:g}, and no row is taken for it; {other}")


def _cheapest(rule: Rule, right: Array, taken: Array, there: float, between: Array, most: float) -> float:
    """Return the threshold of the least cost; that above all scores, where there is one, takes no row."""
    costs = rule.missed * (there - right) + rule.false_alarm * (taken - right)
    # Only below a score of 1 there is room for a threshold that takes no row.
    if most < 1.0:
        costs, between = np.append(rule.missed * there, costs), np.append((most + 1.0) / 2, between)
    return float(between[np.argmin(costs)])
