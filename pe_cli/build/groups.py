"""train.groups: parameters that are frozen, or trained otherwise than the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pe_cli.config.mistakes import Mistakes
from pe_cli.config.sections.group import GroupSection
from pe_cli.core.patterns import matches, nearest
from pe_cli.ops.define.traits import BatchStatistics
from pe_cli.program.ir import Operator, Parameter, Program


def apply_groups(program: Program, groups: Sequence[GroupSection], mistakes: Mistakes) -> Mapping[str, int]:
    """Set what the groups say at the parameters of a program of forward ops; a later group counts more.

    Args:
        program: changed.
        groups: as written.
        mistakes: get patterns that no name fits, and wishes that nothing can act on.

    Returns:
        Parameter -> number of the last group that it belongs to, from 0.
    """
    block = program.global_block()
    layers: dict[str, set[str]] = defaultdict(set)
    readers: dict[str, list[Operator]] = defaultdict(list)
    parameters = {p.name: p for p in block.parameters()}
    for op in block.ops:
        for name in op.input_names():
            if name in parameters:
                layers[name].add(op.scope.strip("/"))
                readers[name].append(op)
    found: dict[str, int] = {}
    for number, group in enumerate(groups):
        members = []
        for pattern in group.patterns:
            fitting = [p for n, p in parameters.items() if any(matches(known, [pattern]) for known in (n, *layers[n]))]
            if not fitting:
                known = sorted({*parameters, *(layer for names in layers.values() for layer in names if layer)})
                text = f"train.groups: no parameter and no layer with parameters is called '{pattern}'"
                mistakes.say(text, group.at_of("match"), nearest(pattern, known))
            members += fitting
        found |= dict.fromkeys((p.name for p in members), number)
        _set(group, members)
        if group.running_statistics:
            _use_running_statistics(group, [op for p in members for op in readers[p.name]], mistakes)
    return found


def _set(group: GroupSection, members: Sequence[Parameter]) -> None:
    for parameter in members:
        if "freeze" in group.model_fields_set:
            parameter.trainable = not group.freeze
        if group.learning_rate is not None:
            parameter.learning_rate = float(group.learning_rate[:-1])
        if group.weight_decay is not None:
            parameter.weight_decay = group.weight_decay


def _use_running_statistics(group: GroupSection, ops: Sequence[Operator], mistakes: Mistakes) -> None:
    """Have batch_norm and its like take the running statistics in training."""
    changed = False
    for op in ops:
        trait = op.definition.get(BatchStatistics)
        if trait is not None:
            op.attrs[trait.unless[-1]] = changed = True
    if not changed:
        text = "train.groups: none of these layers has running statistics"
        mistakes.say(text, group.at_of("running_statistics"), "name a batch_norm in match, or remove running_statistics")
