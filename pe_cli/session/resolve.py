"""The run file with everything filled in, so that a run's folder can be evaluated from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pe_cli.config.nodes import to_data
from pe_cli.config.scalars import resolve
from pe_cli.config.spec import RunSpec


class _Dumper(yaml.SafeDumper):
    """Writes what our own YAML 1.2 rules read back as the same values."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if isinstance(resolve(value), str) and "\n" not in value else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def resolved_text(run: RunSpec) -> str:
    """Return the run file as YAML with overrides; the model lies beside it as `model.yaml`, data files are absolute."""
    data: dict[str, Any] = to_data(run.tree)
    model: dict[str, Any] = {"file": "model.yaml"}
    if run.model_args:
        model["args"] = {name: to_data(node) for name, node in run.model_args.items()}
    data["model"] = model
    for section in (data.get("data") or {}).values():
        for key in ("file", "files"):
            if key in section:
                section[key] = _absolute(section[key], run.path.parent)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _absolute(value: Any, base: Path) -> Any:
    if isinstance(value, dict):
        return {k: _absolute(v, base) for k, v in value.items()}
    return str((base / str(value)).resolve())
