"""`train.decide` and `train.calibrate`: finds the classifier of a model that they are about, by its loss."""

from __future__ import annotations

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.metrics.decisions import DecisionSettings
from pe_cli.metrics.thresholds import Rule
from pe_cli.ops.define.traits import Compares, Says, ToProbabilities
from pe_cli.program.ir import Program


@dataclass(frozen=True)
class Classifier:
    """What a loss compares with classes.

    Args:
        label: feed with the classes.
        scores: variable that the loss compares.
        logits: whether these are logits.
        probabilities: variable that is made of them; empty where there is none.
        classes: numbers of classes; 2 where there is one score per row.
        several: whether a row may be of several classes.
    """

    label: str
    scores: str
    logits: bool
    probabilities: str
    classes: int
    several: bool

    @property
    def said(self) -> str:
        """What it is, for people."""
        return f"'{self.label}' has {self.classes} {'tags' if self.several else 'classes'}"

    def variable(self, wish: DecisionSettings) -> tuple[str, bool]:
        """Return the variable that a decision is made of, and whether it holds logits.

        A temperature divides logits. Everything else is about probabilities, as the model computes them.
        """
        if self.logits and (wish.calibrate == "temperature" or not self.probabilities):
            return self.scores, True
        return (self.probabilities, False) if self.logits else (self.scores, False)


@dataclass(frozen=True)
class Deciding:
    """What is decided, and of which classifier."""

    of: Classifier
    wish: DecisionSettings

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that an evaluation records of it."""
        threshold = ("threshold",) if self.wish.rule is not None and not self.of.several else ()
        return (*threshold, *(("temperature",) if self.wish.calibrate == "temperature" else ()))


def classifiers(program: Program) -> list[Classifier]:
    """Return what the losses of a program compare with classes that are fed, one class or a set of tags per sample."""
    found: dict[str, Classifier] = {}
    for op in program.top_ops:
        loss = op.definition.get(Compares)
        if loss is None or op.attrs.get("soft_label"):
            continue
        scores, label = op.inputs[loss.scores][0], op.inputs[loss.labels][0]
        kind, given = program.var(scores), program.var(label)
        if len(kind.shape) != 2 or kind.shape[-1] < 1 or not given.is_data or label in found:
            continue
        # A loss that tells several classes apart is of one class per sample; one of yes or no with several columns is of tags.
        several = not loss.several and kind.shape[-1] > 1
        if given.shape[1:] != (kind.shape[1:] if several else (1,)):
            continue
        logits = loss.are is Says.LOGITS
        wanted = [
            other.outputs["Out"][0]
            for other in program.top_ops
            if (made := other.definition.get(ToProbabilities)) and other.inputs["X"][0] == scores
            and made.several is loss.several and not made.logarithms
        ]  # fmt: skip
        found[label] = Classifier(label, scores, logits, wanted[0] if wanted else "", max(2, kind.shape[-1]), several)
    return list(found.values())


def are_logits(program: Program, scores: str) -> bool:
    """Return whether a classifier's scores are logits: nothing says that they are probabilities."""
    ops = program.top_ops
    maker = next((op for op in ops if scores in op.output_names()), None)
    made = maker.definition.get(ToProbabilities) if maker is not None else None
    said = [c.are for op in ops if (c := op.definition.get(Compares)) is not None and scores in op.inputs[c.scores]]
    return made is None and Says.PROBABILITIES not in said


def deciding(run: RunSpec, program: Program, mistakes: Mistakes) -> Deciding | None:
    """Return what a run file wants to be decided; None where that is nothing, or a mistake, which is added.

    Args:
        run: with `train`.
        program: for evaluation.
        mistakes: where errors go.
    """
    train = run.train
    if train is None or (train.decide is None and train.calibrate is None):
        return None
    key = "decide" if train.decide is not None else "calibrate"
    at = train.at_of(key)
    if "eval" not in run.data:
        text = f"train.{key} chooses by rows that are not trained on, and there are none"
        mistakes.say(text, at, "add data.split: {eval: 0.2, seed: 1}, or data.eval")
        return None
    found = classifiers(program)
    if len(found) != 1:
        has = f"{len(found)} losses of classes: {', '.join(one.label for one in found)}" if found else "no loss of classes that are fed"
        mistakes.say(f"train.{key} is about one classifier, and the model has {has}", at, f"leave {key} out")
        return None
    if _is_wrong(train, found[0], mistakes):
        return None
    return Deciding(found[0], DecisionSettings(rule_of(train.decide), train.calibrate or ""))


def _is_wrong(train: TrainSection, one: Classifier, mistakes: Mistakes) -> bool:
    """Add what does not go with a classifier; return whether there is something."""
    many = one.classes > 2 and not one.several
    before = mistakes.total

    def say(key: str, why: str, hint: str) -> None:
        at: Span | None = train.at_of(key)
        mistakes.say(f"train.{key}: {one.said}, and {why}", at, hint)

    if train.decide is not None and many:
        say("decide", "a threshold is of one of two, or of tags", "leave decide out: the most probable class is taken")
    if train.calibrate == "isotonic" and many:
        say("calibrate", "isotonic is of one of two, or of tags", "calibrate: temperature")
    return mistakes.total > before


def rule_of(written: object) -> Rule | None:
    """Return a rule as `train.decide` writes it."""
    if written is None:
        return None
    if not isinstance(written, dict):
        return Rule("f1")
    ((by, value),) = written.items()
    if by == "f1":
        return Rule("f1", value["precision"])
    return Rule("cost", missed=value["missed"], false_alarm=value["false_alarm"]) if by == "cost" else Rule(str(by), float(value))
