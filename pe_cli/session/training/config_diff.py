"""The differences between a config and the run that it resumes, and whether they change the meaning of the numbers."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import to_data
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.config.yaml_scalars import show
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass

#: Keys that say how long, on what and with what output a model is trained, but not what each step computes.
HARMLESS = (
    "train.epochs",
    "train.steps",
    "train.eval_every",
    "train.early_stopping*",
    "train.decide*",
    "train.calibrate",
    "fetches.*",
    "metrics.*",
    "output.*",
    "plugins*",
    "exec_strategy.num_threads",
    "exec_strategy.num_iteration_per_drop_scope",
    "exec_strategy.allow_op_delay",
    "distributed.mode",
    "distributed.servers",
    "distributed.min_block_size",
    "distributed.slice_var_up",
    "distributed.split_method",
    "distributed.endpoints",
    "executor.place",
    "executor.devices",
    "executor.processes",
    "executor.peer_timeout",
    "executor.watchdog",
    "executor.check_nan_inf",
    "build_strategy.debug_graphviz_path",
    "build_strategy.reduce_strategy",
    "build_strategy.fuse_*",
    "build_strategy.enable_*",
    "build_strategy.memory_optimize",
    "build_strategy.data_layout",
    "build_strategy.remove_unnecessary_lock",
    "build_strategy.cache_runtime_context",
    "data.*.prefetch",
    "data.eval.*",
    "data.predict.*",
    "model file.name",
    "model file.fetches",
)
_ABSENT = object()


@dataclass(frozen=True)
class ConfigChange:
    """One value that differs.

    Args:
        key: with dots; keys of the model file stand behind `model file.`.
        before, after: as a config writes them; `not set` where a side has none.
    """

    key: str
    before: str
    after: str

    @property
    def harmless(self) -> bool:
        """Whether every step computes the same as before, but for rounding."""
        return any(fnmatch.fnmatchcase(self.key, pattern) for pattern in HARMLESS)

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


def config_diff(before: tuple[str, str], after: tuple[str, str]) -> list[ConfigChange]:
    """Return what differs between two runs.

    Args:
        before, after: texts of the resolved config and of the model file.

    Raises:
        PeError: DATA; a text of the earlier run cannot be read.
    """
    if before == after:  # as ever where a run goes on: nothing has to be read
        return []
    # Flat keys, so that a section that moved inside of its file is no change.
    one, two = _flat(before), _flat(after)
    found = []
    for key in dict.fromkeys([*one, *two]):
        a, b = one.get(key, _ABSENT), two.get(key, _ABSENT)
        # 1 and true are equal in Python.
        if a != b or isinstance(a, bool) is not isinstance(b, bool):
            found.append(ConfigChange(key, _text(a), _text(b)))
    return found


def _flat(texts: tuple[str, str]) -> dict[str, Any]:
    config, model = (_read(text) for text in texts)
    return {**dict(_leaves("", config)), **dict(_leaves("model file", model))}


def _read(text: str) -> Any:
    # Mistakes of an old config are those of an earlier version, and are told as what they are.
    mistakes = Mistakes()
    tree = parse(Source("the run's config", text), mistakes)
    mistakes.raise_all()
    return None if tree is None else to_data(tree)


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), inner)
    # An empty mapping of a config says as much as none; in a model it is a layer without arguments.
    elif not (isinstance(value, Mapping) and not prefix.startswith("model file")):
        yield prefix, value


def _text(value: Any) -> str:
    return "not set" if value is _ABSENT else show(value)


def check_changes(found: list[ConfigChange], folder: Path, allowed: bool) -> None:
    """Refuse changes of what the numbers mean.

    Args:
        found: of `changes`.
        folder: of the run.
        allowed: whether the user wants them all the same.

    Raises:
        PeError: USAGE; there are such changes.
    """
    serious = [change for change in found if not change.harmless]
    if serious and not allowed:
        listed = "; ".join(map(str, serious))
        raise PeError(
            f"{folder} was trained otherwise: {listed}",
            hint="--allow-changes goes on all the same; without --resume a new run begins",
        )
