"""The optimizer that a program was trained with, as a config has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.io.fluid.program_desc import OpDesc
from pe_cli.session.importing.paddle.candidates import short

Array = np.ndarray[Any, Any]
#: Operator -> optimizer, and attribute -> setting.
_OPTIMIZERS: dict[str, tuple[str, dict[str, str]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("Momentum", {"mu": "momentum", "use_nesterov": "use_nesterov"}),
    "adam": ("Adam", {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon", "lazy_mode": "lazy_mode"}),
    "adagrad": ("Adagrad", {"epsilon": "epsilon"}),
}


def rate_of(updates: Sequence[OpDesc]) -> str:
    """Return the variable with the learning rate; empty where there is none."""
    return next((name for op in updates[:1] for name in op.inputs["LearningRate"]), "")


def optimizer_of(updates: Sequence[OpDesc], values: Mapping[str, Array]) -> dict[str, Any]:
    """Return an optimizer as a config has it; empty where the program has none that a config says so.

    Args:
        updates: the operators that change parameters.
        values: of variables that are saved.
    """
    if not updates or len({op.type for op in updates}) > 1 or updates[0].type not in _OPTIMIZERS:
        return {}
    rate = values.get(rate_of(updates))
    if rate is None or rate.size != 1 or not np.isfinite(rate).all():
        return {}
    name, settings = _OPTIMIZERS[updates[0].type]
    found: dict[str, Any] = {"type": name, "learning_rate": short(float(rate.flat[0]))}
    for attr, setting in settings.items():
        value = updates[0].attrs.get(attr)
        if isinstance(value, (bool, float)) and value is not False and np.isfinite(value):
            found[setting] = value if isinstance(value, bool) else short(value)
    return found
