"""The metrics of a run file: declarations to kinds with checked options, over variables of the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import MapNode, ScalarNode, describe
from pe_cli.config.plugins import offered
from pe_cli.config.section_check import check
from pe_cli.config.sections.section import Section
from pe_cli.config.spec import ArgSpec
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Declared, Metric, discover
from pe_cli.program.ir import Program, Variable

#: What a metric may be called: it is a key in metrics.jsonl, and the end of `eval/NAME`.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,99}(\[[\w .@%+-]{1,60}\])?")
#: Keys of a line in metrics.jsonl that are no metrics.
_TAKEN = ("step", "epoch", "split")

Find = Callable[[str, Span | None], Variable | None]


def declare(
    written: Mapping[str, ArgSpec], program: Program, numbers: Collection[str], find: Find, mistakes: Mistakes
) -> tuple[Declared, ...]:
    """Return the metrics of a run file; those with mistakes are left out, and the mistakes added.

    Args:
        written: by name.
        program: for evaluation.
        numbers: names that are recorded already.
        find: returns the variable of a name; adds a mistake and returns None where there is none.
        mistakes: where errors go.
    """
    found = []
    for name, spec in written.items():
        if _NAME.fullmatch(name) is None or name in _TAKEN:
            hint = "letters, digits, _, -, @ and dots, at most 100, none of step, epoch, split, and perhaps a class behind it: recall[yes]"
            mistakes.say(f"a metric cannot be called '{name}'", spec.at, hint)
        elif name in numbers:
            text = f"the model's '{name}' is recorded as eval/{name} already"
            mistakes.say(text, spec.at, "give the metric another name")
        else:
            made = _declared(name, spec, program, find, mistakes)
            found += [made] if made else []
    return tuple(found)


def _declared(name: str, spec: ArgSpec, program: Program, find: Find, mistakes: Mistakes) -> Declared | None:
    kind = _kind(name, spec, mistakes)
    if kind is None or not isinstance(spec.value, MapNode):
        return None
    options = check(kind.options, spec.value.without("type"), ("metrics", name), mistakes, spec.at)
    if options is None:
        return None
    types: dict[str, TensorType] = {}
    variables: dict[str, str] = {}
    for key in kind.inputs:
        wanted = getattr(options, key)
        v = None if wanted is None else find(wanted, options.at_of(key))
        if v is not None:
            types[key], variables[key] = program.var(v.name).type, v.name
    if len(variables) < sum(getattr(options, key) is not None for key in kind.inputs):
        return None
    # Errors of shape come first: a kind's own check would report the same cause in its words.
    before = mistakes.total
    for key, type_ in types.items():
        if type_.shape[:1] != (-1,):
            text = f"metric '{name}': {key} is '{getattr(options, key)}', {type_}, which has no value for each row"
            mistakes.say(text, options.at_of(key), "name a variable with a batch axis, before its mean is taken")
    if mistakes.total > before:
        return None
    return Declared(name, kind, options, variables, spec.at) if _fits(name, kind, options, types, mistakes) else None


def _fits(name: str, kind: Metric[Section], options: Section, types: Mapping[str, TensorType], mistakes: Mistakes) -> bool:
    try:
        kind.check(options, types)
    except PeError as error:
        mistakes.say(f"metric '{name}': {error.message}", error.at or options.at, error.hint)
        return False
    return True


def _kind(name: str, spec: ArgSpec, mistakes: Mistakes) -> Metric[Section] | None:
    """Return the kind that a declaration names."""
    kinds = discover()
    example = f"for example {name}: {{type: roc_auc, scores: prob, labels: label}}"
    if not isinstance(spec.value, MapNode):
        mistakes.say(f"metrics.{name} must be a mapping with type, got {describe(spec.value)}", spec.value.at, example)
        return None
    type_ = spec.value.get("type")
    if type_ is None:
        mistakes.say(f"metrics.{name} needs a type", spec.at, f"one of {', '.join(kinds)}")
    elif not isinstance(type_, ScalarNode) or not isinstance(type_.value, str):
        mistakes.say(f"metrics.{name}.type must be text, got {describe(type_)}", type_.at, example)
    elif type_.value not in kinds:
        hint = offered("metrics", type_.value) or did_you_mean(type_.value, kinds) or f"one of {', '.join(kinds)}"
        mistakes.say(f"there is no metric '{type_.value}'", type_.at, hint)
    else:
        return kinds[type_.value]
    return None
