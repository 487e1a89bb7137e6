"""A classifier's outputs as steps that exports can write: calibrated probabilities, and what is decided of them."""

from __future__ import annotations

from pe_cli.build.decisions import classifiers
from pe_cli.core.encoding import (
    Above,
    Affine,
    AtLeast,
    Best,
    Both,
    Cast,
    Column,
    Interpolate,
    Names,
    Sigmoid,
    Softmax,
    Step,
    Told,
)
from pe_cli.program.ir import Program
from pe_cli.session.evaluation.output_meaning import Answer

#: From which probability on a tag is given where nothing was decided.
HALF = 0.5


def told_of(answer: Answer, program: Program) -> list[Told]:
    """Return the outputs of an answer of classes: the variable, calibrated where it holds probabilities, and what is decided.

    The second is called OUTPUT_label, the name of one class, or OUTPUT_tags, 1 for every tag that is given, else 0.

    Args:
        answer: with classes, one row per sample.
        program: for evaluation.
    """
    width = int(program.var(answer.variable).shape[-1])
    source, steps = _probabilities(answer, program, width)
    dtype = program.var(answer.variable).dtype
    calibrated = answer.decision is not None and bool(answer.decision.steps or answer.decision.temperature is not None)
    # Logits stay what they are; only an output of probabilities has calibrated ones in its place.
    shown: tuple[Step, ...] = (*steps, Cast(dtype)) if calibrated and not answer.logits else ()
    value = Told(answer.variable, source if shown else answer.variable, shown)
    thresholds = answer.decision.thresholds if answer.decision is not None else ()
    if answer.several:
        return [value, Told(f"{answer.variable}_tags", source, (*steps, AtLeast(thresholds or (HALF,))))]
    if thresholds:
        # The threshold of two classes is about the probability of the second one.
        second: tuple[Step, ...] = (Column(1),) if width == 2 else ()
        return [value, Told(f"{answer.variable}_label", source, (*steps, *second, AtLeast(thresholds), Names(answer.classes)))]
    if calibrated:
        return [value, Told(f"{answer.variable}_label", source, (*steps, Above(HALF) if width == 1 else Best(), Names(answer.classes)))]
    # The sigmoid of 0 is 0.5, so a logit can be compared as it is.
    best = Above(0.0 if answer.logits else HALF) if width == 1 else Best()
    return [value, Told(f"{answer.variable}_label", answer.variable, (best, Names(answer.classes)))]


def _probabilities(answer: Answer, program: Program, width: int) -> tuple[str, tuple[Step, ...]]:
    """Return a variable, and the steps that make calibrated probabilities of it, float64, of the width of the answer's variable."""
    alone = answer.several or width == 1
    make: Step = Sigmoid() if alone else Softmax()
    decision = answer.decision
    if decision is not None and decision.temperature is not None:
        logits = answer.variable
        if not answer.logits:  # a probability in float32 has lost what is above 1 - 2**-24
            logits = next((one.scores for one in classifiers(program) if one.label == answer.label and one.logits), "")
        if logits:
            return logits, (Cast("float64"), Affine((1 / decision.temperature,), (0.0,)), make)
    steps: tuple[Step, ...] = (Cast("float64"), make) if answer.logits else (Cast("float64"),)
    if decision is not None and decision.steps:
        line = Interpolate(tuple(step.at for step in decision.steps), tuple(step.to for step in decision.steps))
        steps += (line,) if alone else (Column(1), line, Both())
    return answer.variable, steps
