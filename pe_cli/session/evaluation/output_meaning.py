"""The meaning of a model's outputs: class names with probabilities, or numbers in the units of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.config.nodes import ScalarNode, to_data
from pe_cli.config.spec import LayerSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.layers.define.registry import discover, find
from pe_cli.metrics.decisions import Decision
from pe_cli.ops.define.traits import Compares, FindsBoxes, Says, Spells, ToProbabilities
from pe_cli.program.ir import Block, Operator
from pe_cli.session.data.label_feeds import labels
from pe_cli.session.evaluation.unbatching import without_padding
from pe_cli.session.job import Job

Array = np.ndarray[Any, Any]
#: Number of classes up to which all probabilities are written, and not only the largest.
EACH = 30
#: Arguments of loss layers that take what the model says, in the order in which they are looked for.
_SCORES = ("logits", "input", "x", "predict", "left")


@dataclass(frozen=True)
class Answer:
    """An output of the model, and what it is called.

    Args:
        variable: of the evaluation program.
        name: of the column that it predicts, or of the variable.
        column: the target column, as fitted; None where the data has none.
        classes: names of the classes; none for numbers.
        logits: whether the variable holds scores that softmax makes probabilities.
        boxes: whether it holds what was found in pictures; see the trait `FindsBoxes`.
        several: whether a sample may have any number of the classes, each with a probability of its own.
        label: feed of the model that it is taught by; empty where that is not known.
        decision: calibration and thresholds; None where the most probable class is taken, and tags from 0.5 on.
        spelled: whether the variable holds numbers of classes, one for each item of a sequence; see the trait `Spells`.
        lengths: variable with the items of each sample; empty where the variable has sequences, or a sample as many as any other.
        pixels: whether it holds scores of the classes of a mask, for every pixel.
        censored: whether some labels are only known to be less than what is meant, so that no error can be told by them.
        suffix: of the names of its numbers, where several outputs say numbers of one column, such as its quantiles.
    """

    variable: str
    name: str
    column: FittedColumn | None = None
    classes: tuple[str, ...] = ()
    logits: bool = False
    boxes: bool = False
    several: bool = False
    label: str = ""
    decision: Decision | None = None
    spelled: bool = False
    lengths: str = ""
    suffix: str = ""
    censored: bool = False
    pixels: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """What has to be computed for it."""
        return (self.variable, self.lengths) if self.lengths else (self.variable,)

    def decode(self, values: Array) -> dict[str, list[Any]]:
        """Return what a batch of outputs says, name -> one value per sample.

        Args:
            values: [batch, ...] of the variable; [batch] arrays of rows where it has sequences.

        Returns:
            Of classes, the name of the one that is taken under the column's name, and `prob_<class>` for each (or `prob`, of that
            class, where there are more than `EACH`), or where a sample may have several, the names of all that are taken, as a
            cell of the column has them, and `prob_<class>` up to `EACH`; of numbers,
            `name`, or `name_1`, `name_2`, ... in the units of the file; of
            boxes a list for each picture, of {"class", "score", "box": [left, top, right, bottom]}; of masks the share of the pixels of
            each class, `share_<class>`; of sequences their items, as in a cell
            of the column, or as a list where there is none.
        """
        if values.dtype == object:
            return {self.name: [self._items(rows) for rows in values]}
        if self.boxes or self.pixels:
            return {self.name: [_found(rows, self.column) for rows in values]} if self.boxes else self._shares(values)
        flat = np.asarray(values).reshape(len(values), -1)
        if self.classes:
            return self._classes(flat)
        if self.column is not None:
            flat = np.asarray(self.column.decode(np.asarray(values))).reshape(len(values), -1)
            names = self.column.labels(flat.shape[1])
            return {f"{name}{self.suffix}": _plain(flat[:, i]) for i, name in enumerate(names)}
        if flat.shape[1] == 1:
            return {self.name: _plain(flat[:, 0])}
        return {f"{self.name}_{i + 1}": _plain(flat[:, i]) for i in range(flat.shape[1])}

    def _items(self, rows: Array) -> Any:
        """Return the predictions for the items of a sequence: [items], or [items, numbers]."""
        if self.spelled or self.classes:
            codes = rows.reshape(-1) if self.spelled else _best(rows, self.logits)
            return codes.tolist() if self.column is None else self.column.decode(codes[None])[0]
        numbers = np.asarray(rows if self.column is None else self.column.decode(rows))
        return _plain(numbers.reshape(len(numbers), -1)[:, 0] if numbers.size == len(numbers) else numbers)

    def _shares(self, scores: Array) -> dict[str, list[Any]]:
        """Return the shares of the classes of a mask in the pixels: [batch, height, width, classes]."""
        assert self.column is not None, "a column of masks has classes"
        taken = scores.argmax(axis=-1).reshape(len(scores), -1)
        return {f"share_{name}": _plain((taken == i).mean(axis=1)) for i, name in enumerate(self.column.state["names"])}

    def _taken(self, scores: Array) -> tuple[Array, Array]:
        """Return the probabilities of classes, and what is taken by them: the class of every row, or its tags."""
        decision = self.decision or Decision(self.label)
        prob = decision.probabilities(scores, logits=self.logits, several=self.several)
        return prob, decision.taken(prob, several=self.several)

    def indices(self, values: Array) -> Array:
        """Return the class that is taken for every row, int64 [batch].

        Args:
            values: [batch, ...] of the variable.
        """
        return self._taken(np.asarray(values).reshape(len(values), -1))[1]

    def _classes(self, scores: Array) -> dict[str, list[Any]]:
        prob, taken = self._taken(scores)
        names = np.array(self.classes, object)
        if self.several:
            assert self.column is not None, "the column says that a cell may have several"
            found: dict[str, list[Any]] = {self.name: [self.column.join(names[row].tolist()) for row in taken]}
            return found if len(self.classes) > EACH else found | self._each(prob)
        found = {self.name: names[taken].tolist()}
        if len(self.classes) > EACH:
            return found | {"prob": _plain(prob[np.arange(len(prob)), taken].astype(np.float32))}
        return found | self._each(prob)

    def _each(self, prob: Array) -> dict[str, list[Any]]:
        return {f"prob_{name}": _plain(prob[:, i].astype(np.float32)) for i, name in enumerate(self.classes)}


def _best(scores: Array, logits: bool) -> Array:
    """Return the most probable class of every row; of two classes, the score is that of the second."""
    return np.asarray(scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > (0 if logits else 0.5)).astype(np.int64))


def _found(rows: Array, column: FittedColumn | None) -> list[dict[str, Any]]:
    """Return what was found in a picture, the surest first; classes by their names where a column has them."""
    # Class 0 is the background, which is never found.
    names: list[str] = [] if column is None else ["", *column.state["names"]]
    there = rows[rows[:, 0] >= 0]
    there = there[np.argsort(-there[:, 1], kind="stable")]
    kinds = [names[int(row[0])] if int(row[0]) < len(names) else int(row[0]) for row in there]
    return [{"class": kind, "score": _plain(row[1:2])[0], "box": _plain(row[2:])} for kind, row in zip(kinds, there, strict=True)]


def _plain(values: Array) -> list[Any]:
    """Return numbers with as few digits as read back to the same float32."""
    if values.dtype.kind == "f":
        short = values.astype(np.float32).astype(np.str_).astype(np.float64).astype(object)
        short[~np.isfinite(values)] = None
        plain: list[Any] = short.tolist()
        return plain
    found: list[Any] = values.tolist()
    return found


@dataclass(frozen=True)
class Taught:
    """A feed that the model is taught, and what it says of it.

    Args:
        feed: the label.
        scores: variable that a loss compares with it.
        layer: the loss.
        quantile: that is learned, of a loss of quantiles; None for others.
    """

    feed: str
    scores: str
    layer: str
    quantile: float | None = None


def taught(job: Job) -> list[Taught]:
    """Return the labels of a model's losses, each with what is compared to it."""
    known = job.built.eval.vars
    found: list[Taught] = []
    for layer in job.run.model.layers:
        if layer.type not in discover() or find(layer.type).judges or not _answers(layer):
            continue
        # Of several, such as a time and whether it ended, the first one is what is predicted.
        feed = next((_variable(layer, name) for name in find(layer.type).labels if name in layer.args), None)
        if feed is None or feed not in labels(job.run.model):
            continue
        given = next((_variable(layer, name) for name in _SCORES if name in layer.args), None)
        scores = given or layer.previous
        quantile = _argument(layer, "quantile") if layer.type == "quantile_loss" else None
        # The first loss of a label says what predicts it, but several quantiles of one label are several predictions.
        same = [other for other in found if other.feed == feed]
        if scores is not None and scores in known and all(None not in (quantile, o.quantile) and o.quantile != quantile for o in same):
            found.append(Taught(feed, scores, layer.type, quantile))
    return found


def _answers(layer: LayerSpec) -> bool:
    """Return whether what a loss is given beside the label says what the label is."""
    known = find(layer.type)
    return known.answers if isinstance(known.answers, bool) else not _argument(layer, known.answers)


def _argument(layer: LayerSpec, name: str) -> Any:
    """Return the value of an argument that is no variable."""
    given = layer.args.get(name)
    return find(layer.type).args[name].default if given is None else to_data(given.value)


def _variable(layer: LayerSpec, name: str) -> str | None:
    value = layer.args[name].value
    if not isinstance(value, ScalarNode) or not isinstance(value.value, str):
        return None
    return (value.scope or layer.scope).find(value.value)


def answers(job: Job, fetches: Sequence[str] = ()) -> list[Answer]:
    """Return what outputs of a model mean.

    Args:
        job: with what its columns have learned.
        fetches: names of outputs; what the model is taught to say, or else all its outputs per sample, when there are none.

    Raises:
        PeError: there is no such variable, or the model has no output per sample.
    """
    known = _known(job)
    if fetches:
        return [known.get(variable, Answer(variable, name)) for name, variable in ((n, job.variable(n)) for n in fetches)]
    best: dict[str, Answer] = {}
    for answer in known.values():  # probabilities rather than logits
        before = best.get(answer.name + answer.suffix)
        warm = answer.decision is not None and answer.decision.temperature is not None  # which divides logits
        if before is None or (answer.logits if warm else before.logits):
            best[answer.name + answer.suffix] = answer
    if best:
        return list(best.values())
    names = {variable: name for name, variable in job.built.fetches.items()}
    return [Answer(variable, names.get(variable, variable)) for variable in job.outputs()]


def _known(job: Job) -> dict[str, Answer]:
    """Return the variables whose meaning follows from the model's losses."""
    block = job.built.eval.main_block
    finders = ((op, op.definition.get(FindsBoxes)) for op in block.ops)
    names = [op.outputs[finds.boxes][0] for op, finds in finders if finds]
    kinds = [column for column in job.data.fitted.columns.values() if column.type == "box_classes"]
    named = kinds[0] if len(kinds) == 1 else None
    found = {v: Answer(v, "boxes" if len(names) == 1 else v, named, boxes=True) for v in names}
    links = taught(job)
    for link in links:
        source = job.data.sources.get(link.feed)
        name = source.names[0] if source is not None and len(source.names) == 1 else link.feed
        column = job.data.fitted.columns.get(name)
        shape = block.var(link.scores).shape
        width = shape[-1] if len(shape) == 2 else 0
        classes = column.classes if column is not None and not column.counts else ()
        spelled = [Answer(v, name, column, classes, spelled=True, lengths=lengths) for v, lengths in _spelled(block, link)]
        if spelled:
            found |= {answer.variable: answer for answer in spelled}
            continue
        if column is not None and column.type == "mask":
            softmax = (op for op in block.ops if op.definition.get(ToProbabilities) and op.inputs["X"][0] == link.scores)
            found |= {v: Answer(v, name, column, pixels=True) for v in (*(v for op in softmax for v in op.outputs["Out"]), link.scores)}
            continue
        if column is not None and column.type == "text":
            found |= {variable: Answer(variable, name, column) for variable in _written(job)}
            continue
        label = block.var(link.feed)
        if not classes and label.dtype in ("int64", "int32") and width > 1:
            classes = tuple(map(str, range(width)))
        # A model may say more or fewer classes than the data has; what has no name is called by its number.
        if classes and width not in (len(classes), 1) and not (width == 1 and len(classes) == 2):
            classes = (*classes[:width], *map(str, range(len(classes), width)))
        made = [(op, told) for op in block.ops if (told := op.definition.get(ToProbabilities)) and op.inputs["X"][0] == link.scores]
        losses = [loss for op in block.ops if (loss := op.definition.get(Compares)) and op.inputs[loss.scores][0] == link.scores]
        logits = any(loss.are is Says.LOGITS for loss in losses)
        if classes:
            # scores of classes that exclude one another say one class even where a cell may have several
            one = any(loss.several for loss in losses) or any(told.several for _, told in made)
            several = column is not None and column.several and width == len(classes) and not one
            decision = _decision(job, link, classes, several=several)
            answer = Answer(link.scores, name, column, classes, several=several, label=link.feed, decision=decision)
            found |= {v: replace(answer, variable=v) for op, told in made if not told.logarithms for v in op.outputs["Out"]}
            found[link.scores] = replace(answer, logits=logits)
        elif column is not None:  # of a share, what is made of its logit says it, and not the logit
            suffix, censored = _quantile(link, links), "event" in find(link.layer).labels
            number = Answer(link.scores, name, column, label=link.feed, suffix=suffix, censored=censored)
            found |= {v: replace(number, variable=v) for v in (_shares(made) if logits else [link.scores])}
    return found


def _quantile(link: Taught, links: Sequence[Taught]) -> str:
    """Return what the names of a quantile end with where others are learned beside it; nothing for the middle one."""
    several = sum(other.feed == link.feed for other in links) > 1
    return "" if not several or link.quantile in (None, 0.5) else f"_q{100 * float(link.quantile or 0):g}"


def _shares(made: Sequence[tuple[Operator, ToProbabilities]]) -> list[str]:
    """Return the variables that hold shares made of logits."""
    return [v for op, told in made if not told.logarithms and not told.several for v in op.outputs["Out"]]


def _decision(job: Job, link: Taught, classes: Sequence[str], *, several: bool) -> Decision | None:
    """Return what was decided of a label when the model was trained.

    Raises:
        PeError: DATA; it is of another number of classes.
    """
    found = job.data.fitted.decision
    if found is None or found.label != link.feed:
        return None
    counts = {len(found.thresholds), len(found.steps)} - {0}
    if counts - {len(classes) if several else 1} or (counts and not several and len(classes) != 2):
        text = f"decision.json is of {max(counts)} thresholds, and the model has {len(classes)} classes of '{link.feed}'"
        raise PeError(text, hint="take the checkpoint of a run of this config", code=ExitCode.DATA)
    return found


def _spelled(block: Block, link: Taught) -> Iterator[tuple[str, str]]:
    """Yield the variables that hold what a model spells of what a loss over sequences is taught, each with that of its lengths."""
    for op in block.ops:
        spells = op.definition.get(Spells)
        if spells is None or spells.taught_by != link.layer or op.inputs.get(spells.unless):
            continue
        if not spells.scores or op.inputs[spells.scores][0] == link.scores:
            lengths = op.inputs.get(spells.lengths) or op.outputs.get(spells.lengths)
            yield op.outputs[spells.ids][0], lengths[0] if lengths else ""


def _written(job: Job) -> list[str]:
    """Return the variables that hold the best sequences of a search, which are texts where the model is taught a text."""
    searches = (layer for layer in job.run.model.layers if layer.type == "beam")
    return [job.variable(f"{layer.key}.0") for layer in searches]


def said(answer: Sequence[Answer], batch: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Return what a batch of outputs says, name -> one value per sample.

    Raises:
        PeError: two outputs say something under one name.
    """
    found: dict[str, list[Any]] = {}
    for one in answer:
        values = batch[one.variable]
        for name, told in one.decode(without_padding(values, batch[one.lengths]) if one.lengths else values).items():
            if name in found:
                raise PeError(f"two outputs are called '{name}'", hint="name them one at a time with --fetch")
            found[name] = told
    return found
