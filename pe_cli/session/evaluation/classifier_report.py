"""Evaluates a classifier on a split for its curves, its confusion matrix and its figures by class or tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pe_cli.build.decisions import Classifier, are_logits, classifiers
from pe_cli.core.errors import PeError
from pe_cli.metrics.calibrators import probabilities
from pe_cli.metrics.curves import ClassifierEvaluation, Scores, evaluate_classifier
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.evaluation.confusion_matrix import class_names, classifier

if TYPE_CHECKING:
    from pe_cli.session.job import Job


def judged(job: Job, split: str, names: Sequence[str] | None = None) -> ClassifierEvaluation | None:
    """Return what the curves of a classifier are drawn from; None where the model is no classifier of one label or of tags per sample.

    Args:
        job: with values.
        split: of the run file's data.
        names: of the classes; the data set's own, or numbers, when None.
    """
    found = classifier_of(job.built.eval)
    if found is None:
        return None
    decision = job.data.fitted.decision
    decision = decision if decision is not None and decision.label == found.label else None
    source = found.scores
    # A temperature divides logits, and steps of isotonic regression are a function of probabilities: each takes what it was fitted on.
    if not found.logits and decision is not None and decision.temperature is not None:
        warm = next((one for one in classifiers(job.built.eval) if one.label == found.label and one.logits), None)
        source, found = (warm.scores, replace(found, logits=True)) if warm else (source, found)
    elif found.logits and found.probabilities and decision is not None and decision.steps:
        source, found = found.probabilities, replace(found, logits=False)
    program = prune(job.built.eval, [source])
    executor = job.executor(program)
    variables, seen = program.vars, Scores(several=found.several)
    for i, feed in enumerate(job.data.loader(split, program, job.batch_size, shuffle=False, also=[found.label]).epoch(0)):
        if feed[found.label].dtype.kind == "f" and (feed[found.label] != np.rint(feed[found.label])).any():
            return None  # shares, and no classes
        made = executor.run({n: a for n, a in feed.items() if n in variables}, [source], i).merged(source, "concat")
        if decision is not None:
            said = decision.probabilities(made, logits=found.logits, several=found.several)
        else:
            said = probabilities(made, logits=found.logits, several=found.several)
        seen.add(said, feed[found.label])
    return evaluate_classifier(seen, names or class_names(job, split, found.label, found.classes), split, decision)


def classifier_of(program: Program) -> Classifier | None:
    """Return the classifier that a program judges or teaches; None where there is none of one label or of tags per sample."""
    taught = classifiers(program)
    try:
        scores, label = classifier(program)
    except PeError:
        return next((one for one in taught if one.several or one.classes == 2), None)
    kind = program.var(scores)
    if len(kind.shape) != 2 or kind.shape[-1] < 1 or not program.var(label).is_data or program.var(label).shape[1:] not in ((), (1,)):
        return None
    wanted = next((one.probabilities for one in taught if one.scores == scores), "")
    return Classifier(label, scores, are_logits(program, scores), wanted, max(2, kind.shape[-1]), several=False)


def text_of(found: ClassifierEvaluation) -> str:
    """Return a table with a line for each class or tag."""
    width = max(len("class"), *(len(name) for name in found.names))
    lines = [f"{'class':<{width}}  threshold  precision  recall      f1  avg.prec  samples"]
    for one in found.figures:
        limit = "most" if one.threshold is None else f"{one.threshold:.4f}"
        average = "-" if one.average is None else f"{one.average:.4f}"
        numbers = f"{one.precision:9.4f}  {one.recall:6.4f}  {one.f1:6.4f}  {average:>8}  {one.rows:7,}"
        lines.append(f"{one.name:<{width}}  {limit:>9}  {numbers}")
    what = "sets are right as a whole" if found.confusion is None else "are right"
    lines.append(f"{found.right:,} of {found.rows:,} {what} ({found.right / found.rows:.4f})")
    return "\n".join(lines)


def per_class(found: ClassifierEvaluation) -> list[dict[str, object]]:
    """Return the same as JSON values."""
    return [
        {
            "class": one.name, "threshold": one.threshold, "precision": one.precision, "recall": one.recall, "f1": one.f1,
            "average_precision": one.average, "samples": one.rows,
        }
        for one in found.figures
    ]  # fmt: skip
