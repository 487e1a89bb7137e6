"""Lists runs in a table: which runs, in what order, and the columns in which they differ."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pe_cli.config.yaml_scalars import resolve
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.history import Run, flatten, value_at
from pe_cli.io.view.compare import NOISE, differences

#: Columns of what differs.
MOST_COLUMNS = 4
#: How many differing values the name of a run shows in a comparison.
MOST_NAMED = 3
#: What begins with these says most about how a run did, in this order; what is kept says nothing about it.
_FIRST = ("train.", "model.", "data.", "executor.seed")
_LEFT_OUT = ("output.",)
_CONDITION = re.compile(r"(?P<key>[^=<>!]+?)\s*(?P<op>!=|<=|>=|=|<|>)\s*(?P<value>.*)", re.DOTALL)
#: What stands for more than itself in a pattern, but for `*`.
_LITERAL = re.compile(r"[?\[]")
_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def facts(run: Run) -> dict[str, object]:
    """Return what a run can be chosen and sorted by: keys of its config, newest metrics, and how it did."""
    best = run.best
    return {
        **flatten(dict(run.config)),
        **run.last(),
        "run": run.name,
        "config": run.config_name,
        "state": run.state,
        "steps": run.step,
        "seconds": run.seconds,
        "best": best.value if best else None,
    }


def tags(run: Run) -> list[str]:
    """Return the run's tags."""
    found = value_at(run.config, "output", "tags")
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def note(run: Run) -> str:
    """Return the run's note in one line; empty where there is none."""
    found = value_at(run.config, "output", "note")
    return " ".join(found.split()) if isinstance(found, str) else ""


def find_key(name: str, known: Iterable[str]) -> str:
    """Return the key that a name means: itself, or the only one that ends with it after a dot.

    Raises:
        PeError: USAGE; there is none, or several.

    >>> find_key("epochs", ["train.epochs", "train.steps"])
    'train.epochs'
    """
    keys = list(dict.fromkeys(known))
    if name in keys:
        return name
    # The end of a key is enough where it is the only one, as people remember `lr` and not where it stands.
    found = [key for key in keys if key.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise PeError(f"'{name}' may be {', '.join(found[:5])}", hint="write more of the key")
    ends = [key.rpartition(".")[2] for key in keys]
    raise PeError(
        f"no run has a key or a metric '{name}'",
        hint=did_you_mean(name, [*keys, *ends]) or "a key of the config such as train.epochs, a metric such as eval/loss, or state",
    )


@dataclass(frozen=True)
class Condition:
    """What runs are chosen by.

    Args:
        key: of `facts`, or the end of one.
        op: =, !=, <, <=, > or >=.
        value: compared with.
        text: that value as it was typed.
    """

    key: str
    op: str
    value: object
    text: str

    @classmethod
    def read(cls, text: str) -> Condition:
        """Return what `KEY=VALUE` says.

        Raises:
            PeError: USAGE; it is no condition, or compares with what is no number.
        """
        found = _CONDITION.fullmatch(text.strip())
        if found is None:
            raise PeError(f"--where needs KEY=VALUE, got '{text}'", hint="for example --where 'eval/loss<0.5'")
        value = resolve(found["value"])
        if found["op"] in _NUMBERS and not _is_number(value):
            raise PeError(f"--where '{text}' compares with '{found['value']}', which is no number", hint="= and != compare texts")
        return cls(found["key"], found["op"], value, found["value"])

    def holds(self, value: object) -> bool:
        """Return whether a value is as the condition says; of a list, one of its items. None is equal to null alone."""
        if self.op in _NUMBERS:
            return _is_number(value) and _NUMBERS[self.op](float(value), float(self.value))  # type: ignore[arg-type]
        # A list holds what any of its items holds: runs have several tags.
        among = [value, *value] if isinstance(value, list) else [value]
        return any(self._equals(one) for one in among) is (self.op == "=")

    def _equals(self, value: object) -> bool:
        if isinstance(value, str):
            # Only the star is a pattern: names of runs have brackets and question marks in them.
            return value == self.text or ("*" in self.text and fnmatchcase(value, _LITERAL.sub(r"[\g<0>]", self.text)))
        if _is_number(value) and _is_number(self.value):
            return value == self.value
        return type(value) is type(self.value) and value == self.value


def chosen(runs: Sequence[Run], conditions: Sequence[Condition], sort: str | None = None, *, reverse: bool = False) -> list[Run]:
    """Return the runs that meet all conditions, sorted by a key; those without a value for it come last.

    Raises:
        PeError: USAGE; no run has such a key.
    """
    known = {id(run): facts(run) for run in runs}
    names = [name for found in known.values() for name in found]
    if not names:
        return []
    where = [(find_key(one.key, names), one) for one in conditions]
    left = [run for run in runs if all(one.holds(known[id(run)].get(key)) for key, one in where)]
    if sort is None:
        return left[::-1] if reverse else left
    key = find_key(sort, names)
    valued = [run for run in left if not _is_missing(known[id(run)].get(key))]
    others = [run for run in left if _is_missing(known[id(run)].get(key))]
    # A run that has no value is no better and no worse than others, so it comes last either way.
    return [*sorted(valued, key=lambda run: _order(known[id(run)][key]), reverse=reverse), *others]


def telling(runs: Sequence[Run], most: int = MOST_COLUMNS) -> tuple[dict[str, list[object]], int]:
    """Return the keys of configs that tell runs apart, with the value of each, and how many more there are.

    Args:
        runs: any number.
        most: keys that are returned: those that most runs have, of these the ones that say most.
    """
    rows = differences([run.config for run in runs])
    rows = {key: row for key, row in rows.items() if key not in NOISE and not key.startswith(_LEFT_OUT)}

    def rank(key: str) -> tuple[int, int]:
        place = next((i for i, start in enumerate(_FIRST) if key.startswith(start)), len(_FIRST))
        # A key that some runs lack tells less than one that all have.
        return sum(value is None for value in rows[key]), place

    best = sorted(rows, key=rank)[:most]
    return {key: rows[key] for key in rows if key in best}, len(rows) - len(best)


def names_of(runs: Sequence[Run]) -> list[str]:
    """Return what runs are called beside one another: by what their configs differ in, and by their folders where that does not do.

    Args:
        runs: any number.
    """
    rows, _ = telling(runs, MOST_NAMED)
    short = short_keys(list(rows), flatten_all(runs))
    said = [", ".join(f"{key} {_shown(values[i])}" for key, values in zip(short, rows.values(), strict=True)) for i in range(len(runs))]
    return [text if text and said.count(text) == 1 else f"{text} {run.name}".strip() for run, text in zip(runs, said, strict=True)]


def flatten_all(runs: Sequence[Run]) -> list[str]:
    """Return every dotted key that a config of runs has."""
    return list(dict.fromkeys(key for run in runs for key in flatten(dict(run.config))))


def cell(value: object) -> str:
    """Return a value as people read it, lists and mappings as YAML writes them in a line; - for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {cell(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(cell, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shown(value: object) -> str:
    text = cell(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def short_keys(keys: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the shortest end of each key that no other known key has.

    >>> short_keys(["train.epochs", "a.seed"], ["train.epochs", "a.seed", "b.seed"])
    ['epochs', 'a.seed']
    """
    others = set(known) | set(keys)
    made = []
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[i:]) for i in range(len(parts) - 1, 0, -1)]
        made.append(next((end for end in ends if sum(k == end or k.endswith(f".{end}") for k in others) == 1), key))
    return made


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _order(value: object) -> tuple[int, float, str]:
    """Return the key that values are sorted by: numbers before texts."""
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))  # type: ignore[arg-type]
