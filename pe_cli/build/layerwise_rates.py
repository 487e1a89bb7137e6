"""`train.by_depth`: learning rates by the depth of a layer between the input and the output of a model."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.build.parameter_patterns import Matching
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.adapt import ByDepthSection, listed
from pe_cli.program.ir import Parameter, Program
from pe_cli.program.region import every_op


def apply_depth(program: Program, section: ByDepthSection, mistakes: Mistakes) -> None:
    """Set rates and what is frozen at the parameters of a program of forward ops.

    A parameter of the level n from 0 of `count` has the rate decay^(count - 1 - n), and is frozen where n is below `freeze`.

    Args:
        program: changed.
        section: as written.
        mistakes: get patterns that no name fits, and a model without levels.
    """
    levels = _found(program, section, mistakes) if section.levels is None else _named(program, section.levels, section, mistakes)
    if section.freeze >= len(levels) > 0:
        text = f"train.by_depth.freeze: the model has {len(levels)} levels"
        mistakes.say(text, section.at_of("freeze"), f"freeze {len(levels) - 1} or fewer")
    for number, members in enumerate(levels):
        for parameter in members:
            parameter.trainable = parameter.trainable and number >= section.freeze
            parameter.learning_rate *= section.decay ** (len(levels) - 1 - number)


def _named(
    program: Program, levels: Sequence[str | list[str]], section: ByDepthSection, mistakes: Mistakes
) -> list[list[Parameter]]:
    """Return the levels that are written; a parameter that several name is of the first one, and one that none names is of the last."""
    matching, seen = Matching(program), set[str]()
    found = []
    for level in levels:
        at = section.at_of("levels")
        members = [p for pattern in listed(level) for p in matching.find(pattern, "train.by_depth.levels", mistakes, at)]
        found.append([p for p in dict.fromkeys(members) if p.name not in seen])
        seen |= {p.name for p in members}
    return found


def _found(program: Program, section: ByDepthSection, mistakes: Mistakes) -> list[list[Parameter]]:
    """Return a level for each repetition of a block, and for what stands before, between and behind them; nothing is a mistake."""
    parameters = {p.name: p for p in program.parameters()}
    levels: list[list[Parameter]] = []
    seen: set[str] = set()
    last: str | None = None
    for op in every_op(program):
        # A parameter that several layers share is of the level that reads it first.
        members = [parameters[n] for n in op.input_names() if n in parameters and n not in seen]
        if not members:
            continue
        seen |= {p.name for p in members}
        repetition = _repetition(op.scope.strip("/"))
        if last is None or repetition != last:
            levels.append([])
        last = repetition
        levels[-1] += members
    if not any(_repetition(op.scope.strip("/")) for op in every_op(program)):
        hint = 'write levels: [["embedding*"], ["encoder/*"], ["logits"]]'
        mistakes.say("train.by_depth: no block of the model repeats, so that its levels are not known", section.at, hint)
        return []
    return levels


def _repetition(layer: str) -> str:
    """Return the repetition of a block that a layer stands in, such as `encoder/3`; empty for none."""
    parts = layer.split("/")
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if numbered is None else "/".join(parts[: numbered + 1])
