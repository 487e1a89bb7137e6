"""A training step in a file, to be compared with the same step on another machine, by another version, or in another process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io import atomic, strict_json
from pe_cli.io.tensors import data_error, read_safetensors, write_safetensors

if TYPE_CHECKING:
    from pe_cli.session.verification.compare import Training

Array = np.ndarray[Any, Any]
#: Suffix of a file with a saved step.
ENDING = ".safetensors"
#: Names of arrays: what a step begins with, what it computes, and the rest as JSON in UTF-8.
BEGIN, VALUE, FACTS = "begin/", "value/", "facts"


def take_snapshot(training: Training, step: int, path: Path) -> int:
    """Write a step of a training with all that it computes; return how many variables that are.

    Args:
        training: to be looked at elsewhere.
        step: number, from 1.
        path: of the file.

    Raises:
        OSError: it cannot be written.
        PeError: see `replay`.
    """
    names = training.names()
    begin, values = training.values(step, names)
    facts = {
        "step": step,
        "texts": training.texts(),
        "environment": training.environment,
        "ops": {name: training.op(name) for name in names},
        "fed": {name: training.fed(name) for name in begin},
    }
    # The file holds arrays only, so the facts are one of bytes.
    text = np.frombuffer(strict_json.dumps(facts).encode(), np.uint8)
    arrays = {FACTS: text, **{BEGIN + n: v for n, v in begin.items()}, **{VALUE + n: v for n, v in values.items()}}
    with atomic.temporary(path) as draft:
        write_safetensors(draft, arrays)
    return len(begin) + len(values)


class StepSnapshot:
    """A training step that was saved to a file, for comparison.

    Args:
        path: of the file that `carry` wrote.

    Raises:
        PeError: DATA; it is none, or damaged.
    """

    folder = None

    def __init__(self, path: Path) -> None:
        self.path = path
        arrays = read_safetensors(path)
        try:
            facts = strict_json.loads(arrays.pop(FACTS).tobytes())
            self.only, self._texts, self.environment, self._ops, self._fed = _checked(facts)
        except (KeyError, ValueError, TypeError):
            hint = "pe compare FIRST --to FILE.safetensors writes one"
            raise data_error(f"{path}: no step of a training that can be compared", hint) from None
        given = ((BEGIN, self._fed), (VALUE, self._ops))
        self._begin, self._values = ({n: arrays[kind + n] for n in names if kind + n in arrays} for kind, names in given)

    def texts(self) -> tuple[str, str]:
        """Return config and model."""
        return self._texts

    def names(self) -> list[str]:
        """Return the variables that the step computes, in order."""
        return [*self._values]

    def op(self, name: str) -> tuple[int, str]:
        """Return number and type of the op that computes a variable."""
        return self._ops[name]

    def fed(self, name: str) -> bool:
        """Return whether a variable that the step begins with is fed."""
        return self._fed[name]

    def values(self, step: int, names: Sequence[str]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what the step begins with, and what it computes: name -> value, over all devices.

        Raises:
            PeError: USAGE; the file holds another step.
        """
        if step != self.only:
            raise PeError(f"{self.path} holds step {self.only}, not {step}", hint=f"compare with --step {self.only}")
        return self._begin, {name: self._values[name] for name in names}


def _checked(facts: Any) -> tuple[int, tuple[str, str], Mapping[str, object], dict[str, tuple[int, str]], dict[str, bool]]:
    """Return the facts of a file with their types.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    step, (config, model), environment = facts["step"], facts["texts"], facts["environment"]
    ops = {name: (number, op) for name, (number, op) in facts["ops"].items()}
    fed = dict(facts["fed"])
    numbers = [step, *(number for number, _ in ops.values())]
    words = [config, model, *(op for _, op in ops.values())]
    right = all(type(n) is int for n in numbers) and all(isinstance(w, str) for w in words) and {*map(type, fed.values())} <= {bool}
    if not right or not isinstance(environment, dict):
        raise TypeError(json.dumps(sorted(facts)))
    return step, (config, model), environment, ops, fed
