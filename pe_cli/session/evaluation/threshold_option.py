"""The option `--threshold`: thresholds that replace those chosen in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.metrics.decisions import Decision
from pe_cli.session.evaluation.output_meaning import Answer


def with_thresholds(answers: Sequence[Answer], texts: Sequence[str]) -> list[Answer]:
    """Return answers with the thresholds that are said; those of others stay.

    Args:
        answers: of a model.
        texts: `P` for the second of two classes or for all tags, or `TAG=P`.

    Raises:
        PeError: USAGE; a threshold is no share, names no tag, or the model has none.
    """
    if not texts:
        return list(answers)
    if not any(_takes(answer) for answer in answers):
        has = next((f"'{a.name}' has {len(a.classes)} classes" for a in answers if a.classes), "the model says no classes")
        raise PeError(f"--threshold is of one of two classes, or of tags, and {has}", hint="leave --threshold out")
    return [_with(answer, texts) if _takes(answer) else answer for answer in answers]


def _takes(answer: Answer) -> bool:
    return answer.several or (len(answer.classes) == 2 and not answer.spelled)


def _with(answer: Answer, texts: Sequence[str]) -> Answer:
    decision = answer.decision or Decision(answer.label)
    names = answer.classes if answer.several else answer.classes[1:]
    found = list(decision.thresholds or (0.5,))
    found *= len(names) if len(found) == 1 else 1
    for text in texts:
        # From the right, because the name of a tag may have an equals sign.
        name, equals, written = text.rpartition("=")
        value = _share(text, written)
        if not equals:
            found = [value] * len(names)
        elif name in names:
            found[names.index(name)] = value
        else:
            listed = ", ".join(names[:20])
            hint = did_you_mean(name, names) or f"the {'tags are' if answer.several else 'second class is'} {listed}"
            raise PeError(f"--threshold {text}: there is no {'tag' if answer.several else 'class'} '{name}'", hint=hint)
    return replace(answer, decision=replace(decision, thresholds=tuple(found)))


def _share(text: str, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        hint = "for example --threshold 0.3, or --threshold TAG=0.3"
        raise PeError(f"--threshold {text}: a threshold is a probability, from 0 to 1", hint=hint)
    return value
