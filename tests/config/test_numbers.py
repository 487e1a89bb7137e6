"""Every key of a run file that takes a number is given ones that no machine can count with: an error with its place, or fine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pe_cli.config.load import load_run
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.schema import Json, run_schema
from pe_cli.core.errors import ExitCode, PeError
from tests.config.conftest import list_errors

RUN = """\
model: model.yaml
data:
  train: {reader: npz, file: d.npz}
  eval: {reader: npz, file: d.npz}
train: {loss: y, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 0.1}}
"""
SCHEMA = run_schema()
VALUES = [f"1{'0' * 30}", f"-1{'0' * 30}", str(2**63), str(2**64), "1e400", "-1", ".nan", "-.inf", "9" * 400]


def forms(value: Json, path: tuple[str, ...], seen: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the keys in a value that take numbers, each with how one is written there."""
    for one in [value, *value.get("anyOf", [])]:
        if set(one.get("type", ()) if isinstance(one.get("type"), list) else [one.get("type")]) & {"integer", "number"}:
            yield ".".join(path), "{}"
        elif one.get("type") == "array" and any(forms(one.get("items", {}), path, seen)):
            yield ".".join(path), "[{}]"
            yield ".".join(path), "[{0}, {0}]"
        name = one.get("$ref", "").rpartition("/")[2]
        inner = one if not name else {} if name in seen else SCHEMA["$defs"][name]
        for key, entry in inner.get("properties", {}).items():
            yield from forms(entry, (*path, key), (*seen, name))
        if isinstance(inner.get("additionalProperties"), dict):
            yield from forms(inner["additionalProperties"], (*path, "name"), (*seen, name))


FORMS = sorted(set(forms(SCHEMA, ())))


def test_the_keys_are_found() -> None:
    keys = {key for key, _ in FORMS}
    assert {"train.epochs", "executor.seed", "output.checkpoint.keep", "sweep.over.name.log", "feeds.name.scale"} <= keys
    assert len(keys) >= 45


@pytest.mark.parametrize(("key", "form"), FORMS, ids=lambda part: part)
def test_a_number_of_any_size_is_an_error_with_its_place_or_fine(key: str, form: str, folder: Callable[..., Any]) -> None:
    folder(run=RUN)
    for value in VALUES:
        try:
            resolved_yaml(load_run("run.yaml", [f"{key}={form.format(value)}"]))
        except PeError as error:  # and no other
            for each in list_errors(error):
                assert each.at is not None, (value, each.message)
                assert each.code == ExitCode.USAGE, (value, each.message)
