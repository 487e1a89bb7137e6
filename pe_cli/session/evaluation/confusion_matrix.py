"""Confusion matrices: how often a classifier takes each class for which."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.build.decisions import are_logits
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.traits import Best, Compares, Judges
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune

if TYPE_CHECKING:
    from pe_cli.session.job import Job
from pe_cli.session.processes.batch_shares import share_of

Array = np.ndarray[Any, Any]
#: Classes up to which the matrix itself is printed.
PRINTED = 16
#: Pairs that are named where the matrix is not printed.
PAIRS = 10


@dataclass(frozen=True)
class Confusion:
    """How often each class was taken for each.

    Args:
        counts: int64 [classes, classes] samples; rows are true classes, columns predicted ones.
        names: of the classes.
    """

    counts: Array
    names: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Share of samples whose class is right; NaN without samples."""
        total = int(self.counts.sum())
        return float(np.trace(self.counts) / total) if total else float("nan")

    def per_class(self) -> list[dict[str, Any]]:
        """Return precision, recall, F1 and samples of every class.

        Precision: share of the samples taken for the class that are of it; recall: share of the samples of the class that are taken
        for it; F1: their harmonic mean. 0 where there is nothing to divide by.
        """
        right = np.diag(self.counts).astype(float)
        taken, there = self.counts.sum(axis=0), self.counts.sum(axis=1)
        found = []
        for i, name in enumerate(self.names):
            f1 = 2 * right[i] / (taken[i] + there[i]) if taken[i] + there[i] else 0.0
            precision, recall = (float(right[i] / n[i]) if n[i] else 0.0 for n in (taken, there))
            row = {"class": name, "precision": precision, "recall": recall, "f1": float(f1), "samples": int(there[i])}
            found.append(row)
        return found

    def confused(self) -> list[tuple[str, str, int]]:
        """Return (true class, predicted class, samples) of the wrong ones, the most frequent first."""
        pairs = [(self.names[i], self.names[j], int(self.counts[i, j])) for i, j in np.argwhere(self.counts) if i != j]
        return sorted(pairs, key=lambda pair: -pair[2])

    def to_csv(self) -> str:
        """Return the matrix with a header: true class, then one column per predicted class."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["true", *self.names])
        for name, row in zip(self.names, self.counts.tolist(), strict=True):
            writer.writerow([name, *row])
        return out.getvalue()

    def text(self) -> str:
        """Return the per-class table, and the matrix or, of many classes, the pairs that are confused most."""
        width = max(len("class"), *(len(n) for n in self.names))
        lines = [f"{'class':<{width}}  precision  recall      f1  samples"]
        for row in self.per_class():
            lines.append(
                f"{row['class']:<{width}}  {row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['samples']:7,}"
            )
        lines.append(f"accuracy {self.accuracy:.4f} of {int(self.counts.sum()):,} samples")
        if len(self.names) <= PRINTED:
            cell = max(len(f"{self.counts.max():,}"), *(len(n) for n in self.names)) + 2
            lines += [
                "",
                "rows: true class; columns: taken for",
                " " * width + "".join(f"{n:>{cell}}" for n in self.names),
            ]
            lines += [
                f"{name:<{width}}" + "".join(f"{v:>{cell},}" if v else f"{'.':>{cell}}" for v in row)
                for name, row in zip(self.names, self.counts.tolist(), strict=True)
            ]
        else:
            lines += ["", "confused most:"]
            lines += [f"{n:>7,} of {true} taken for {taken}" for true, taken, n in self.confused()[:PAIRS]]
        return "\n".join(lines)


def classifier(program: Program) -> tuple[str, str]:
    """Return the variables of a program's scores and true classes: what accuracy compares, or else a loss of class numbers.

    Raises:
        PeError: the program does neither.
    """
    ops = program.top_ops
    made_by = {name: op for op in ops for name in op.output_names()}
    for op in ops:
        # Accuracy comes first: of several losses, it says which output is meant.
        judges = op.definition.get(Judges)
        maker = made_by.get(op.inputs[judges.found][0]) if judges else None
        best = maker.definition.get(Best) if maker else None
        if judges and maker and best:
            return maker.inputs[best.scores][0], op.inputs[judges.labels][0]
    for op in ops:
        loss = op.definition.get(Compares)
        if loss is not None and loss.several and not op.attrs["soft_label"]:
            return op.inputs[loss.scores][0], op.inputs[loss.labels][0]
    raise PeError("the model has no accuracy and no loss of class numbers", hint="a confusion matrix needs either")


def confusion(job: Job, split: str, names: Sequence[str] | None = None) -> Confusion:
    """Run a classifier over a split and count.

    Args:
        job: with values.
        split: of the run file's data.
        names: of the classes; the data set's own, or numbers, when None.

    Raises:
        PeError: the model is no classifier of one label per sample.
    """
    scores, label = classifier(job.built.eval)
    told = job.built.eval.var(scores)
    width = told.shape[-1]
    if len(told.shape) != 2 or not job.built.eval.var(label).is_data:
        raise PeError(f"a confusion matrix needs scores [batch, classes] and a label that is fed, got {told}")
    decision, logits = job.data.fitted.decision, are_logits(job.built.eval, scores)
    decision = decision if decision is not None and decision.label == label else None
    counts = np.zeros((width, width), np.int64)
    program = prune(job.built.eval, [scores])
    executor, share = job.executor(program), share_of(job.group, len(job.places))
    loader = job.data.loader(split, program, job.batch_size, shuffle=False, also=[label], share=share)
    for i, feed in enumerate(loader.epoch(0)):
        read = {n: a for n, a in feed.items() if n in program.vars}
        found = job.group.joined(executor.run(read, [scores], i, loader.size_of(i) if share else None))
        made = found.merged(scores, "concat")
        if decision is None or not decision.thresholds:
            taken = made.argmax(axis=1)
        else:
            taken = decision.taken(decision.probabilities(made, logits=logits, several=False), several=False)
        # add.at counts a pair as often as it comes in a batch; plain indexing would count it once.
        np.add.at(counts, (job.group.whole({label: feed[label]})[label].reshape(-1), taken), 1)
    return Confusion(counts, tuple(names) if names else class_names(job, split, label, width))


def class_names(job: Job, split: str, label: str, width: int) -> tuple[str, ...]:
    """Return the names of a label's classes; numbers where the data has no names."""
    section = job.run.feeds.get(label)
    field = section.from_ if section and isinstance(section.from_, str) else label
    known = list(getattr(job.data.dataset(split), "classes", {}).get(field, ()))[:width]
    return (*known, *map(str, range(len(known), width)))
