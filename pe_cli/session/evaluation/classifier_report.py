"""Evaluates a classifier on a split for its ROC curves and confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.metrics.curves import Judged, Scores, judge
from pe_cli.ops.define.traits import Compares, Says, ToProbabilities
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.evaluation.confusion_matrix import class_names, classifier

if TYPE_CHECKING:
    from pe_cli.session.job import Job

Array = NDArray[Any]


def judged(job: Job, split: str, names: Sequence[str] | None = None) -> Judged | None:
    """Return what the curves of a classifier are drawn from; None where the model is no classifier of one label per sample.

    Args:
        job: with values.
        split: of the run file's data.
        names: of the classes; the data set's own, or numbers, when None.
    """
    found = _classifier(job.built.eval)
    if found is None:
        return None
    scores, label, logits = found
    program = prune(job.built.eval, [scores])
    executor = job.executor(program)
    variables, seen = program.vars, Scores()
    for i, feed in enumerate(job.data.loader(split, program, job.batch_size, shuffle=False, also=[label]).epoch(0)):
        made = executor.run({n: a for n, a in feed.items() if n in variables}, [scores], i).merged(scores, "concat").astype(np.float64)
        seen.add(_probabilities(made) if logits else made, feed[label])
    width = max(2, variables[scores].shape[-1])
    return judge(seen, names or class_names(job, split, label, width), split)


def _classifier(program: Program) -> tuple[str, str, bool] | None:
    """Return a classifier's scores, its label, and whether the scores are logits."""
    ops = program.top_ops
    try:
        scores, label = classifier(program)
    except PeError:
        yes_no = [op for op in ops if (c := op.definition.get(Compares)) is not None and not c.several]
        if not yes_no:
            return None
        compared = yes_no[0].definition.get(Compares)
        assert compared is not None
        scores, label = yes_no[0].inputs[compared.scores][0], yes_no[0].inputs[compared.labels][0]
        if program.var(scores).shape[-1] != 1:
            return None
    kind = program.var(scores)
    if len(kind.shape) != 2 or kind.shape[-1] < 1 or not program.var(label).is_data or program.var(label).shape[1:] not in ((), (1,)):
        return None
    maker = next((op for op in ops if scores in op.output_names()), None)
    made = maker.definition.get(ToProbabilities) if maker is not None else None
    said = [c.are for op in ops if (c := op.definition.get(Compares)) is not None and scores in op.inputs[c.scores]]
    return scores, label, made is None and Says.PROBABILITIES not in said


def _probabilities(logits: Array) -> Array:
    """Return what logits [rows, classes] say: their softmax, or of one number per row its sigmoid."""
    if logits.shape[1] == 1:
        found: Array = np.exp(-np.logaddexp(0.0, -logits))
        return found
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    return found
