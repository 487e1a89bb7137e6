"""The training state in a checkpoint beside the variables, which makes a resumed run equal to one that never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.tensors import data_error
from pe_cli.session.training.averages import Averages


@dataclass
class Progress:
    """Numbers that the loop goes by.

    Args:
        step: steps done.
        epoch: epochs done.
        batch: batches of the running epoch that are done.
        pending: the last step is done, but not what follows it: an evaluation was asked to stop.
        evaluated: step after which was evaluated last, -1 for none.
        best: of the metric that the best checkpoint goes by.
        best_step: step of that checkpoint.
        newest: every metric's last value.
        target: best of the metric that early stopping goes by.
        waited: measurements of it since then.
        stopped_early: it has got no better for too long.
        plateau_best: best of the metric that the learning rate is lowered by.
        plateau_waited: measurements of it since then, or since the rate was lowered.
        first_loss: loss of the first step.
        outgrown: step whose loss was the first beyond all measure.
        released: times that have come for what was frozen until then, such as `3 epochs`.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    pending: bool = False
    evaluated: int = -1
    best: float | None = None
    best_step: int | None = None
    newest: dict[str, float] = field(default_factory=dict)
    target: float | None = None
    waited: int = 0
    stopped_early: bool = False
    plateau_best: float | None = None
    plateau_waited: int = 0
    first_loss: float | None = None
    outgrown: int | None = None
    released: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the numbers as JSON values; NaN becomes text."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object, where: str) -> Progress:
        """Return what `to_json` made.

        Raises:
            PeError: DATA; it is something else.
        """
        if not isinstance(value, Mapping):
            raise data_error(f"{where}: does not say how far training was", "resume from another checkpoint")
        made = cls()
        for each in fields(cls):
            # A field that an older version did not have begins with its default.
            given = value.get(each.name, getattr(made, each.name))
            try:
                setattr(made, each.name, _READ[str(each.type)](given))
            except (TypeError, ValueError, AttributeError):
                raise data_error(f"{where}: {each.name} is {given!r}", "resume from another checkpoint") from None
        return made


def _count(value: object) -> int:
    # True is 1 in Python, and no count.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: object) -> float:
    # infinities and NaN are texts in JSON
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return float(value)


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {str(name): _number(number) for name, number in value.items()}


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError
    return list(value)


_READ = {
    "int": _count,
    "bool": _flag,
    "int | None": lambda value: None if value is None else _count(value),
    "float | None": lambda value: None if value is None else _number(value),
    "dict[str, float]": _numbers,
    "list[str]": _texts,
}


def averages_from_json(value: object, where: str) -> Averages:
    """Return the averages in flight that a checkpoint holds.

    Raises:
        PeError: DATA; it is something else.
    """
    made = Averages()
    try:
        if not isinstance(value, Mapping):
            raise TypeError
        for name, (total, weight) in value.items():
            made.restore(str(name), _number(total), _number(weight))
    except (TypeError, ValueError):
        raise data_error(f"{where}: the averages of the running epoch are damaged") from None
    return made
