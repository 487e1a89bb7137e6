"""Counts the classes that the layer of `model.head` has to tell apart, where the config leaves that to the data."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.model import read_model
from pe_cli.config.sections.model import HeadSection
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.data.prepare import Prepared
from pe_cli.session.data.capacity_checks import indices
from pe_cli.session.data.label_feeds import column_uses, labels, sources
from pe_cli.session.data.sampling import label_indices


def counted(run: RunSpec) -> RunSpec:
    """Return a run whose head has a number of classes; the run itself where it has one, or no head.

    Raises:
        PeError: USAGE; the model is taught no classes, or several labels. DATA; the training rows cannot be read.
    """
    mistakes = Mistakes()
    found = counted_into(run, mistakes)
    mistakes.raise_all()
    return found


def counted_into(run: RunSpec, mistakes: Mistakes) -> RunSpec:
    """Return what `counted` does, with errors added to mistakes; the run as it is after one."""
    head = run.model.head
    if head is None or not head.waits or mistakes:
        return run
    model = None
    with mistakes.catch():
        known = head.model_copy(update={"classes": _count(run, head)})
        model = read_model(run.model_path, run.model_args, mistakes, run.at_of("model"), known)
    return run if model is None else replace(run, model=model)


def _count(run: RunSpec, head: HeadSection) -> int:
    """Return how many classes the one label has in the training rows."""
    taught = labels(run.model)
    found = {name: want for name, want in sources(run).items() if name in taught}
    at, hint = head.at_of("classes"), "write classes: N"
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise PeError(f"model.head: classes are counted of one label, and the model has {listed}", at=at, hint=hint)
    (want,) = found.values()
    # Of the columns only the label's is needed: pictures and texts are not looked at.
    uses = {name: use for name, use in column_uses(run, {}).items() if name in want.names}
    columns = {name: spec for name, spec in run.preparation.columns.items() if name in want.names}
    try:
        prepared = Prepared(run.data, replace(run.preparation, columns=columns), run.path.parent, uses)
        dataset = prepared.dataset("train")
        column = prepared.fitted.columns.get(want.field)
        count = indices(column, prepared.fitted.columns) if column is not None else 0
        count = count or int(label_indices(run, dataset, "head").max(initial=-1)) + 1
    except PeError as error:
        error.at = error.at or at
        error.hint = error.hint or hint
        raise
    if count < 1:
        raise PeError(f"model.head: '{want.field}' has no classes in the training rows", at=at, hint=hint)
    return count
