"""A run as YAML with everything filled in: what the run's folder keeps; reading it gives the same run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import yaml

from pe_cli.config.nodes import Node, to_data
from pe_cli.config.scalars import resolve, write_float
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError


def resolved_yaml(run: RunSpec) -> str:
    """Return a run file with overrides and defaults written out.

    Paths stay as they were written, relative to the original file's folder; null keys are left out.
    """
    file = run.tree.get("model")
    written = to_data(file) if file is not None else None
    model = written if isinstance(written, str) else (written or {}).get("file")
    args = {key: to_data(node) for key, node in run.model.args.items()}
    data: dict[str, Any] = {
        "model": {"file": model, **({"args": args} if args else {})},
        "data": {name: {**_dump(spec.section), **to_data(spec.options)} for name, spec in run.data.items()},
        "feeds": {name: _dump(feed) for name, feed in run.feeds.items()},
    }
    if run.train:
        data["train"] = {**_dump(run.train), "optimizer": _data(run.optimizer)}
    data["fetches"] = {name: _dump(fetch) for name, fetch in run.fetches.items()}
    data["executor"] = {k: v for k, v in _dump(run.executor).items() if k != "num_threads"}
    data["build_strategy"] = asdict(run.build_strategy)
    data["exec_strategy"] = asdict(run.exec_strategy)
    output = _dump(run.output)
    data["output"] = output if run.output.checkpoint else {**output, "checkpoint": None}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


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
        return "tag:yaml.org,2002:int"


def _number(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", write_float(value))


def _flow(dumper: _Dumper, value: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _flow)
