"""The trials of a sweep: their values, drawn from a seed, and whether a config with them can be trained."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.build.build import build_into
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import read_variant
from pe_cli.config.nodes import Entry, ListNode, MapNode, Node, ScalarNode, find
from pe_cli.config.overrides import Override
from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.spec import RunSpec
from pe_cli.config.sweep_checks import REPEATS
from pe_cli.config.sweep_domain import Choices, Range
from pe_cli.config.yaml_scalars import show
from pe_cli.core.errors import PeError, Span, did_you_mean

#: Trials of a sweep; every one is checked before the first is trained.
MOST = 10_000
#: Digits of a number that is drawn: enough for any search, and few enough to read.
DIGITS = 6

Values = Mapping[str, Any]
Domains = Mapping[str, Choices | Range]


def repeats_of(section: SweepSection) -> list[Values]:
    """Return what every combination is trained with in turn, such as the folds; `[{}]` where the section names nothing of the kind."""
    over = {key: domain for key, domain in section.over.items() if key in REPEATS}
    return list(_grid(over, range(_times(section))))


def _times(section: SweepSection) -> int:
    return int(math.prod(_size(domain) for key, domain in section.over.items() if key in REPEATS))


def choices_of(section: SweepSection) -> dict[str, Choices | Range]:
    """Return the keys whose values are to be chosen, with their domains."""
    return {key: domain for key, domain in section.over.items() if key not in REPEATS}


def count_of(section: SweepSection) -> int:
    """Return the number of combinations that are tried.

    Raises:
        PeError: USAGE; they are too many, or there are fewer than are asked for.
    """
    count = math.prod(_size(domain) for domain in choices_of(section).values())
    wanted, each = (count if section.method == "grid" else section.trials), _times(section)
    # A key that only repeats makes no candidate of its own.
    assert wanted is not None
    if wanted * each > MOST:
        hint = "take fewer values, or method: random" if section.method == "grid" else "take fewer"
        what = "the grid has" if section.method == "grid" else "there are"
        raise PeError(f"sweep: {what} {wanted * each:.0f} trials, and at most {MOST} are tried", at=section.at_of("over"), hint=hint)
    if section.method == "random" and count < wanted:
        at = section.at_of("trials")
        raise PeError(f"sweep.trials is {wanted}, and there are {count:.0f} combinations", at=at, hint="write method: grid")
    return int(wanted)


def combinations_of(section: SweepSection) -> list[Values]:
    """Return the combinations that are known before anything is trained, in order; they depend on the section alone.

    Returns:
        All of them; none with `tpe`, which draws by results.

    Raises:
        PeError: see `count_of`.
    """
    over, wanted = choices_of(section), count_of(section)
    count = math.prod(_size(domain) for domain in over.values())
    if section.method == "tpe":
        return []
    if section.method == "grid":
        return list(_grid(over, range(wanted)))
    # Below this number a permutation draws without repetition; above it repetitions are unlikely.
    if count <= MOST:  # without repetition
        order = np.random.default_rng(section.seed).permutation(int(count))
        return list(_grid(over, order[:wanted].tolist()))
    return [{key: _draw(domain, section.seed, number, key) for key, domain in over.items()} for number in range(wanted)]


def trials_of(section: SweepSection, combinations: Sequence[Values]) -> list[Values]:
    """Return the values of trials, those of a combination side by side; keys in the order of the section."""
    repeats = repeats_of(section)
    together = [{**combination, **repeat} for combination in combinations for repeat in repeats]
    return [{key: values[key] for key in section.over} for values in together]


def probes_of(section: SweepSection) -> list[Values]:
    """Return trials in which every value of a list, and both ends of every range, occur once: what can be checked before it is drawn."""
    sides = {key: list(d.values) if isinstance(d, Choices) else [d.low, d.high] for key, d in section.over.items()}
    most = max(map(len, sides.values()))
    return [{key: side[min(i, len(side) - 1)] for key, side in sides.items()} for i in range(most)]


def _size(domain: Choices | Range) -> float:
    if isinstance(domain, Choices):
        return len(domain.values)
    return domain.high - domain.low + 1 if domain.scale == "int" else math.inf


def _grid(over: Domains, numbers: Sequence[int]) -> Iterator[Values]:
    """Yield combinations by their numbers; that of the last key changes fastest."""
    sides = [domain.values if isinstance(domain, Choices) else range(int(domain.low), int(domain.high) + 1) for domain in over.values()]
    for number in numbers:
        # A number stands for a combination, so that no grid is ever made whole.
        at = np.unravel_index(number, [len(side) for side in sides]) if sides else ()
        yield {key: side[int(i)] for key, side, i in zip(over, sides, at, strict=True)}


def _draw(domain: Choices | Range, seed: int, number: int, key: str) -> Any:
    """Return a value that depends on seed, trial and key alone, so that more trials or other keys change no other value."""
    # By key and number, so that a further key changes nothing of the others' draws.
    rng = np.random.default_rng([seed, number, zlib.crc32(key.encode())])
    if isinstance(domain, Choices):
        return domain.values[int(rng.integers(len(domain.values)))]
    if domain.scale == "int":
        return int(rng.integers(int(domain.low), int(domain.high), endpoint=True))
    if domain.scale == "log":
        value = math.exp(rng.uniform(math.log(domain.low), math.log(domain.high)))
    else:
        value = float(rng.uniform(domain.low, domain.high))
    return rounded(value, domain)


# Rounded before it is used: what is shown is then what was trained.
def rounded(value: float, domain: Range) -> float:
    """Return a number that was drawn with few digits, within its range."""
    return float(min(max(float(f"{value:.{DIGITS}g}"), domain.low), domain.high))


def check_trials(run: RunSpec, trials: Sequence[Values]) -> None:
    """Read and build the config of every trial; errors name the place in `sweep.over` where the value is written.

    Args:
        run: the config, with its sweep.
        trials: of `trials_of`.

    Raises:
        PeError: the config itself, or that of a trial, has a mistake; a `PeErrors` with all where there are several.
    """
    mistakes = Mistakes()
    # The config as it is first: its own mistakes are not told once for each trial.
    build_into(run.model, run, mistakes)
    mistakes.raise_all()
    _check_keys(run)
    for number, values in enumerate(trials, 1):
        found = Mistakes()
        made = variant(run, values, found)
        if made is not None and not found:
            build_into(made.model, made, found)
        for error in found.errors:
            mistakes.add(_explained(run, error, number, values))
    mistakes.raise_all()


def _check_keys(run: RunSpec) -> None:
    """Refuse two keys that mean the same.

    Raises:
        PeError: some do.
    """
    assert run.sweep is not None
    meant: dict[str, str] = {}
    for key in run.sweep.over:
        other = meant.setdefault(key_of(run, key), key)
        if other != key:
            raise PeError(f"sweep.over sets the same constant as {other} and as {key}", at=_entry(run, key).at, hint="keep one of them")


def _explained(run: RunSpec, error: PeError, number: int, values: Values) -> PeError:
    """Add the values of a trial to an error whose place does not show them."""
    places = [(key, _entry(run, key)) for key in values]
    # The error stands at the value that is at fault already.
    if any(error.at in (entry.at, entry.value.at) or _inside(error.at, entry) for _, entry in places):
        return error
    notes = [(entry.at, f"trial {number} sets {key} to {show(values[key])}") for key, entry in places]
    return PeError(error.message, at=error.at, hint=error.hint, notes=[*error.notes, *notes], code=error.code)


def _inside(at: Span | None, entry: Entry) -> bool:
    return at is not None and (at.file, at.line) == (entry.at.file, entry.at.line)


def variant(run: RunSpec, values: Values, mistakes: Mistakes) -> RunSpec | None:
    """Return the config of a trial, without its sweep; as `read_run`."""
    overrides = []
    for key, value in values.items():
        with mistakes.catch():
            overrides.append(_override(run, key, value))
    return None if mistakes else read_variant(run, overrides, mistakes)


def key_of(run: RunSpec, key: str) -> str:
    """Return a key of `sweep.over` as `-o` takes it: `args.NAME` may also name a constant of the model.

    Raises:
        PeError: neither config nor model have a constant of that name.
    """
    if not key.startswith("args."):
        return key
    name = key.split(".")[1]
    declared = find(run.composed.tree, ("args",))
    known = list(declared.entries) if isinstance(declared, MapNode) else []
    if name in known:
        return key
    if name in run.model.args:
        return f"model.{key}"
    at = _entry(run, key).at
    hint = did_you_mean(name, [*known, *run.model.args]) or f"they have {', '.join([*known, *run.model.args]) or 'none'}"
    raise PeError(f"neither the config nor its model has a constant '{name}'", at=at, hint=hint)


def _override(run: RunSpec, key: str, value: Any) -> Override:
    """Return a value with the places of `sweep.over`."""
    entry, meant = _entry(run, key), key_of(run, key)
    places, column = [("model", entry.at)] if meant != key else [], 0
    for part in key.split("."):
        places.append((part, _within(entry.at, key, column, len(part))))
        column += len(part) + 1
    return Override(f"{meant}={value}", tuple(places), _node(run.sweep, entry, value))


def _entry(run: RunSpec, key: str) -> Entry:
    over = find(run.tree, ("sweep", "over"))
    assert isinstance(over, MapNode)
    return over.entries[key]


def _within(at: Span, key: str, column: int, length: int) -> Span:
    """Return the place of a part of a key; that of the whole key where it is quoted."""
    plain = at.text[at.column - 1 :].startswith(key)
    return replace(at, column=at.column + column, length=length) if plain else at


def _node(section: SweepSection | None, entry: Entry, value: Any) -> Node:
    assert section is not None
    domain = section.over[entry.key]
    if isinstance(domain, Choices) and isinstance(entry.value, ListNode):
        return entry.value.items[next(i for i, known in enumerate(domain.values) if known is value or _same(known, value))]
    return ScalarNode(value, entry.value.at)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
