"""Reads a run's folder, finished or still running: its state, metrics as series, config and environment.

Nothing in the folder is trusted: what is not as pe writes it is left out, and texts stay texts.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import to_data
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import strict_json
from pe_cli.io.lock import is_free
from pe_cli.io.metric_files import KEYS
from pe_cli.io.regular_files import open_regular
from pe_cli.io.run_files import is_run
from pe_cli.io.run_folder import RunFolder
from pe_cli.io.tensors import data_error

#: Bytes that are read of a file, but for metrics, which are read line by line.
LIMIT = 1 << 20
#: Different metrics of a run, and records of one of them, that are kept; of more records the newest.
MOST_METRICS = 4000
MOST_RECORDS = 200_000
#: Seconds after which a run that says it is running, but has no process here, is called lost where its lock tells nothing.
PATIENCE = 60.0


@dataclass
class Series:
    """A metric over steps; values may be NaN or infinite."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Best:
    """The best value of the metric that a run is judged by.

    Args:
        by: `eval/acc`.
        mode: max or min.
        value: any unit.
        step: where it was measured.
    """

    by: str
    mode: str
    value: float
    step: int


@dataclass(frozen=True)
class Run:
    """What a run's folder holds.

    Args:
        path: of the folder.
        status: of status.json.
        series: metric such as `train/loss` -> what was recorded.
        speed: samples a second over steps, evaluation and checkpoints included.
        config: resolved.yaml as data; empty where it can't be read.
        config_text: as it is written.
        environment: of env.json.
        gone: whether it says that it is running, but its process is no more.
    """

    path: Path
    status: Mapping[str, Any]
    series: Mapping[str, Series]
    speed: Series
    config: Mapping[str, Any]
    config_text: str
    environment: Mapping[str, Any]
    gone: bool = False

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def config_name(self) -> str:
        """Name of the config: the folder's without its time."""
        return re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", self.name, flags=re.ASCII)

    @property
    def state(self) -> str:
        """State: running, done, stopped or failed; lost where the process that says it runs is no more."""
        return "lost" if self.gone else str(self.status.get("state", "unknown"))

    @property
    def warning(self) -> str:
        """What ended a run that failed, else what is wrong though it went on; empty where nothing is."""
        found = (self.status.get(key) for key in ("error", "warning"))
        return next((said for said in found if isinstance(said, str)), "")

    @property
    def step(self) -> int:
        """Steps done."""
        step = self.status.get("step")
        return step if isinstance(step, int) else 0

    @property
    def seconds(self) -> float | None:
        """Seconds that it ran, by a monotonic clock; for runs without that record, from the start to its last sign of life."""
        told = self.status.get("seconds")
        if isinstance(told, int | float):
            return float(told)
        begin, end = _time(self.status.get("started")), _time(self.status.get("updated"))
        return max(0.0, (end - begin).total_seconds()) if begin and end else None

    @property
    def best(self) -> Best | None:
        """Best value by the config's rule, else the smallest loss; None before anything was measured."""
        rule = value_at(self.config, "output", "checkpoint", "best")
        if isinstance(rule, dict) and str(rule.get("by")) in self.series:
            return self._best(str(rule["by"]), "max" if rule.get("mode") == "max" else "min")
        loss = value_at(self.config, "train", "loss")
        for by in (f"eval/{loss}", f"train/{loss}"):
            if by in self.series:
                return self._best(by, "min")
        return None

    def _best(self, by: str, mode: str) -> Best | None:
        found = self.series[by]
        finite = [(v, s) for s, v in zip(found.steps, found.values, strict=True) if math.isfinite(v)]
        if not finite:
            return None
        value, step = max(finite, key=lambda f: (f[0], -f[1])) if mode == "max" else min(finite)
        return Best(by, mode, value, step)

    def last(self) -> dict[str, float]:
        """Return the newest value of every metric."""
        return {name: s.values[-1] for name, s in self.series.items() if s.values}


def read_run(path: Path) -> Run:
    """Return what a run's folder holds; writes nothing in it.

    Raises:
        PeError: DATA, there is no run in this folder.
    """
    folder = RunFolder(path)
    if not is_run(path):
        what = "not the folder of a run: it has no status.json" if path.is_dir() else "no such folder"
        raise data_error(f"{path}: {what}", newest_in(path) or "name a folder that pe train wrote; pe runs lists them")
    folder.check_files()
    # The resolved config is read as text, and may be cut off: what cannot be parsed is left out.
    text = read_limited(folder.resolved_path)
    status, gone = _status(folder)
    return Run(
        path,
        status,
        _series(folder),
        _speed(folder),
        config_data(text),
        text,
        _environment(folder.env_path),
        gone,
    )


def newest_in(folder: Path) -> str | None:
    """Return a hint that names the newest run in a folder of runs; None where there is none."""
    try:
        # By the time of the folder and not by reading it: this is only a hint, and folders may be many.
        newest = max(filter(is_run, folder.iterdir()), key=lambda path: path.stat().st_mtime)
    except (OSError, ValueError):
        return None
    return f"it holds runs; the newest is {newest}"


def find_runs(parent: Path) -> list[Path]:
    """Return the folders of runs in a folder, the oldest first; itself where it is one.

    Raises:
        PeError: DATA, there is no such folder.
    """
    if not parent.is_dir():
        raise data_error(f"{parent}: no such folder", "name the folder that holds runs; output.dir of the config")
    if is_run(parent):
        return [parent]
    found = [RunFolder(path) for path in parent.iterdir() if is_run(path)]
    return [folder.path for folder in sorted(found, key=RunFolder.order)]


# --- files ------------------------------------------------------------------------------------------------------------


def _series(folder: RunFolder) -> dict[str, Series]:
    found: dict[str, Series] = {}
    if not folder.metrics_path.is_file():
        return found
    for record in folder.metrics():
        step, split = record.get("step"), record.get("split")
        if not _is_count(step) or not isinstance(split, str):
            continue
        for name, value in record.items():
            number = None if name in KEYS else _number(value)
            # New metrics are no longer taken at the limit, but known ones go on.
            if number is None or (len(found) >= MOST_METRICS and f"{split}/{name}" not in found):
                continue
            series = found.setdefault(f"{split}/{name}", Series())
            series.steps.append(step)
            series.values.append(number)
    return {name: _in_order(series) for name, series in found.items()}


def _in_order(series: Series) -> Series:
    """Return records by step, of each step the newest: a run that went on from a checkpoint did some steps twice."""
    newest = dict(zip(series.steps, series.values, strict=True))
    steps = sorted(newest)[-MOST_RECORDS:]
    return Series(steps, [newest[s] for s in steps])


def _speed(folder: RunFolder) -> Series:
    """Return samples a second between one line of speed.jsonl and the next."""
    made = Series()
    before: tuple[float, float] | None = None
    lines = folder.lines(folder.speed_path) if folder.speed_path.is_file() else ()
    for line in lines:
        step, samples, seconds = (line.get(k) for k in ("step", "samples", "seconds"))
        if not _is_count(step) or not _is_count(samples) or not isinstance(seconds, int | float):
            continue
        # Lines of a run that went on may overlap: no speed follows from them.
        if before and seconds > before[1] and samples > before[0]:
            made.steps.append(step)
            made.values.append((samples - before[0]) / (seconds - before[1]))
        before = samples, seconds
    return _in_order(made)


def _is_count(value: object) -> TypeGuard[int]:
    # Above 2^53 a float would not hold it, and pages compute with floats.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) or value in ("nan", "inf", "-inf"):
        with contextlib.suppress(OverflowError):
            return float(value)
    return None


def read_limited(path: Path) -> str:
    """Return the text of a file, at most LIMIT bytes of it; empty where it can't be read."""
    try:
        with open_regular(path) as stream:
            return stream.read(LIMIT).decode(errors="replace")
    except OSError:
        return ""


def config_data(text: str) -> dict[str, Any]:
    """Return a resolved config as data; empty where it cannot be read."""
    # Mistakes are collected and dropped: a damaged config must not keep a run from being shown.
    with contextlib.suppress(PeError):
        tree = parse(Source("resolved.yaml", text), Mistakes())
        data = to_data(tree) if tree is not None else None
        return data if isinstance(data, dict) else {}
    return {}


def _environment(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = strict_json.loads(read_limited(path))
        if isinstance(found, dict):
            found.pop("number", None)  # no fact of the machine
            return found
    return {}


def value_at(data: object, *keys: str) -> Any:
    """Return the value under keys of nested mappings, None where there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _time(text: object) -> datetime | None:
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(str(text))
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _status(folder: RunFolder) -> tuple[dict[str, object], bool]:
    """Return a run's status, and whether it says that the run is running though its process is no more."""
    status = folder.known_status()
    if status.get("state") != "running":
        return status, False
    # The lock tells the truth even where the process died without a word; None where the file system cannot lock.
    free = is_free(folder.path, status.get("lock"))
    if free is None:
        return status, _is_silent(status)
    if not free:
        return status, False
    now = folder.known_status()  # the run may have come to its end, or gone on elsewhere, since the status was read
    return now, all(now.get(key) == status.get(key) for key in ("state", "lock"))


def _is_silent(status: Mapping[str, Any]) -> bool:
    """Whether the process is not on this machine and nothing was heard of it for a while; it may run on another."""
    pid, heard = status.get("pid"), _time(status.get("updated"))
    if not isinstance(pid, int) or heard is None or (datetime.now(UTC) - heard).total_seconds() < PATIENCE:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        # A process number that no system has was written by a damaged file.
        return True
    except OSError:
        return False
    return False


def flatten(data: object, above: str = "") -> dict[str, object]:
    """Return the values of nested mappings by dotted keys; lists of values stay whole.

    >>> flatten({"a": {"b": 1}, "c": [1, 2]})
    {'a.b': 1, 'c': [1, 2]}
    """
    if not isinstance(data, dict) or not data:
        return {above: data} if above else {}
    out: dict[str, object] = {}
    for key, value in data.items():
        out |= flatten(value, f"{above}.{key}" if above else str(key))
    return out
