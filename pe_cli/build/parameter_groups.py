"""train.groups: parameters that are frozen, or trained with other settings than the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pe_cli.build.parameter_patterns import Matching
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.period import Period
from pe_cli.config.sections.group import GroupSection
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.traits import BatchStatistics
from pe_cli.program.ir import Operator, Parameter, Program


@dataclass(frozen=True)
class Groups:
    """Which parameter belongs to which group.

    Args:
        numbers: parameter -> number of the last group that it belongs to, from 0.
        waiting: parameter that is frozen now and trained later -> when its time has come.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Period] = field(default_factory=dict)


def apply_groups(
    program: Program, groups: Sequence[GroupSection], mistakes: Mistakes, released: Collection[str] | None = ()
) -> Groups:
    """Set what the groups say at the parameters of a program of forward ops; a later group counts more.

    Args:
        program: changed.
        groups: as written.
        mistakes: get patterns that no name fits, and wishes that nothing can act on.
        released: times that have come, as texts: what was frozen until then is trained; None: all of them.
    """
    matching = Matching(program)
    found: dict[str, int] = {}
    # A later group that sets `freeze` again also overrules the wait of an earlier one.
    waiting: dict[str, Period | None] = {}
    for number, group in enumerate(groups):
        at = group.at_of("match")
        members = [p for pattern in group.patterns for p in matching.find(pattern, "train.groups", mistakes, at)]
        found |= dict.fromkeys((p.name for p in members), number)
        # Running means and variances are parameters in name only: nothing trains them.
        trained = [p for p in members if p.name not in matching.statistics]
        _set(group, trained, released)
        if "freeze" in group.model_fields_set:
            until = group.freeze if _waits(group, released) and isinstance(group.freeze, Period) else None
            waiting |= dict.fromkeys((p.name for p in trained), until)
        if group.running_statistics:
            _use_running_statistics(group, [op for p in members for op in matching.readers[p.name]], mistakes)
    return Groups(found, {name: until for name, until in waiting.items() if until is not None})


def _waits(group: GroupSection, released: Collection[str] | None) -> bool:
    """Whether a group is frozen."""
    if isinstance(group.freeze, Period):
        return released is not None and str(group.freeze) not in released
    return group.freeze


def _set(group: GroupSection, members: Sequence[Parameter], released: Collection[str] | None) -> None:
    for parameter in members:
        if "freeze" in group.model_fields_set:
            parameter.trainable = not _waits(group, released)
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
