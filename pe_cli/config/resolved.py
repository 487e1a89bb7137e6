"""Writes a run as YAML with every default filled in, for the run's folder; reading it gives the same run."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from pe_cli.config.nodes import Node, to_data
from pe_cli.config.paths import PATHS, is_url
from pe_cli.config.sections.data import USES
from pe_cli.config.sections.distributed import DistributedSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import RunSpec
from pe_cli.config.substitute import escaped
from pe_cli.config.yaml_scalars import resolve, write_float
from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy


def resolved_yaml(run: RunSpec, *, standalone: bool = False) -> str:
    """Return a run file with overrides and defaults written out.

    Null keys are left out, and strategies' defaults, some of which contradict other wishes when they are written.

    Args:
        run: checked.
        standalone: for a run's folder, which can be read from anywhere: the model lies beside it as `model.yaml`, and data files are
            named by absolute path. Else paths stay as they were written.
    """
    file = run.tree.get("model")
    written = to_data(file) if file is not None else None
    model = written if isinstance(written, str) else (written or {}).get("file")
    if standalone:
        model = "model.yaml"
    args = {key: to_data(node) for key, node in run.model.args.items()}
    data: dict[str, Any] = {
        **({"plugins": list(run.plugins)} if run.plugins else {}),
        "model": {"file": model, **({"args": args} if args else {}), **({"head": _dump(run.model.head)} if run.model.head else {})},
        "data": _sources(run) | _prepared(run),
        "feeds": {name: _dump(feed) for name, feed in run.feeds.items()},
    }
    if standalone:
        for section in (*_sections(data["data"]), *data["data"].get("columns", {}).values()):
            _stand_alone(section, run.path.parent)
    if run.train:
        data["train"] = _training(run, run.train)
        if standalone and run.train.init is not None:
            data["train"]["init"]["from"] = _absolute(run.train.init.from_, run.path.parent)
    data["fetches"] = {name: _dump(fetch) for name, fetch in run.fetches.items()}
    if run.metrics:
        data["metrics"] = {name: to_data(spec.value) for name, spec in run.metrics.items()}
    data["executor"] = _executor(run)
    if run.distributed is not None:
        data["distributed"] = _distributed(run.distributed)
        if standalone and run.distributed.secret is not None:
            data["distributed"]["secret"] = _absolute(os.path.expanduser(run.distributed.secret), run.path.parent)  # noqa: PTH111 - Path's raises
    data["build_strategy"] = _wishes(run.build_strategy)
    data["exec_strategy"] = _wishes(run.exec_strategy)
    output = _dump(run.output)
    data["output"] = output if run.output.checkpoint else {**output, "checkpoint": None}
    # Texts with `${` were put in already, and must not be put in again when the file is read.
    return yaml.dump(escaped(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _training(run: RunSpec, section: TrainSection) -> dict[str, Any]:
    """Return the section; optimizers are as written, null arguments included."""
    found = _dump(section)
    phases = found.pop("phases")
    if not section.phases:
        return {**found, "optimizer": _data(run.phases[0].optimizer)}
    return {**found, "phases": [{**p, "optimizer": _data(spec.optimizer)} for p, spec in zip(phases, run.phases, strict=True)]}


def _sources(run: RunSpec) -> dict[str, Any]:
    """Return the sections that name readers; the parts of a split are one."""
    found: dict[str, Any] = {}
    # Parts of a split read one source, which was written once.
    for name, spec in run.data.items():
        found.setdefault("source" if spec.split else name, {**_dump(spec.section), **to_data(spec.options)})
    return found


def _prepared(run: RunSpec) -> dict[str, Any]:
    """Return the keys of `data` that say what is done with rows."""
    wishes = run.preparation
    sampling = wishes.sampling if wishes.sampling is None or isinstance(wishes.sampling, str) else _dump(wishes.sampling)
    found = {
        "split": _dump(wishes.split) if wishes.split else None,
        "columns": {name: to_data(spec.value) for name, spec in wishes.columns.items()} or None,
        "augment": _data(wishes.augment),
        "sampling": sampling,
        "class_weights": _data(wishes.class_weights),
        "cache": str(wishes.cache) if wishes.cache else None,
        "memory": str(wishes.memory) if wishes.memory else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _sections(data: dict[str, Any]) -> list[Any]:
    return [data[name] for name in ("source", *USES) if name in data]


def _stand_alone(section: Any, base: Path) -> None:
    """Make the paths in the options of a reader or of a column absolute."""
    if not isinstance(section, dict):
        return
    for key, value in section.items():
        if key in PATHS and not (isinstance(value, dict) and key == "table"):
            section[key] = _absolute(value, base)
        else:
            _stand_alone(value, base)


def _executor(run: RunSpec) -> dict[str, Any]:
    """Return the executor's section; what one type cannot act on is left out with it."""
    # Defaults that the chosen type rejects are left out, as the file has to be readable again.
    found = {k: v for k, v in _dump(run.executor).items() if k != "num_threads" and v is not None}
    if run.distributed is not None and run.executor.processes == "auto":
        found.pop("processes")
    if run.executor.type == "async":
        found = {k: v for k, v in found.items() if k not in ("deterministic", "uneven_batch")}
    if "files" in found:
        found["files"] = _absolute(found["files"], run.path.parent)
    return found


def _distributed(section: DistributedSection) -> dict[str, Any]:
    """Return how processes share the work, without what is as it would be anyway."""
    default = _dump(DistributedSection())
    return {key: value for key, value in _dump(section).items() if key == "mode" or value != default.get(key)}


def _wishes(strategy: BuildStrategy | ExecutionStrategy) -> dict[str, Any]:
    default = asdict(type(strategy)())
    return {name: value for name, value in asdict(strategy).items() if value != default[name]}


def _absolute(value: Any, base: Path) -> Any:
    if isinstance(value, dict):
        return {k: _absolute(v, base) for k, v in value.items()}
    if isinstance(value, list):
        return [_absolute(v, base) for v in value]
    return str(value) if is_url(str(value)) else str((base / str(value)).resolve())


def _dump(section: Any) -> dict[str, Any]:
    found: dict[str, Any] = section.model_dump(
        by_alias=True, exclude_none=True, exclude=set(section.__pydantic_extra__ or ())
    )
    return found


def _data(node: Node | None) -> Any:
    return None if node is None else to_data(node)


class _Dumper(yaml.SafeDumper):
    """Writes by YAML 1.2's rules: `resolve` says what plain text would be read as, so that the rest is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    # A text that would be read as a number, a null or a boolean is quoted.
    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is not yaml.ScalarNode:
            return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        return _STR if implicit == (False, True) else _tag(value)


_STR = "tag:yaml.org,2002:str"
_TAGS = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}


def _tag(text: str) -> str:
    try:
        return f"tag:yaml.org,2002:{_TAGS[type(resolve(text))]}"
    except PeError:
        # A number too large for us is no text either: quoted, it would come back as one.
        return "tag:yaml.org,2002:int"


def _number(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", write_float(value))


def _flow(dumper: _Dumper, value: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _flow)
