"""pe diff: shows in what runs and configs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, path_argument
from pe_cli.cli.terminal_text import echo
from pe_cli.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from pe_cli.io.history import Run


@click.command()
@path_argument("compared", nargs=-1, required=True, metavar="RUN_OR_CONFIG...")
@json_option
def command(compared: tuple[Path, ...], as_json: bool) -> None:
    """Show what differs between two or more runs or configs.

    Compared are resolved configs and, of runs, environments and the results at the best and at the last step. Of configs and
    environments only what differs is shown.
    """
    from pe_cli.cli.common import print_json
    from pe_cli.cli.text_columns import columns
    from pe_cli.io.view.compare import differences

    if len(compared) < 2:
        raise click.UsageError("name two runs or configs, or more")
    sides = [_side(path) for path in compared]
    models = differences([{"text": side.model} for side in sides])
    found: dict[str, dict[str, list[Any]]] = {"config": differences([side.config for side in sides]), "model": models}
    if any(side.run for side in sides):
        found |= {"results": _results(sides), "environment": _environments(sides)}
    if as_json:
        print_json({"runs": [side.path for side in sides], **found})
        return
    if models:
        found["model"] = {"model.yaml": _numbered([side.model for side in sides])}
    blank = ("",) * len(sides)
    rows: list[tuple[str, ...]] = [("", *(side.name for side in sides))]
    for title, section in found.items():
        rows += [(title, *blank), *((f"  {_cell(key)}", *map(_cell, values)) for key, values in section.items())]
        if not section:
            rows.append(("  the same", *blank))
    echo(columns(rows))


@dataclass(frozen=True)
class _Side:
    """A run or a config: its name, resolved config as data, text of the model file, and the run where it is one."""

    path: str
    name: str
    config: Mapping[str, Any]
    model: str
    run: Run | None


def _side(path: Path) -> _Side:
    from pe_cli.io.history import read_limited, read_run

    if path.is_file():
        return _config(path)
    run = read_run(path)
    return _Side(str(run.path), run.name, run.config, read_limited(run.path / "model.yaml"), run)


def _config(path: Path) -> _Side:
    """Return a config as the folder of a run of it would have it."""
    from pe_cli.config.load import load_run
    from pe_cli.config.resolved import resolved_yaml
    from pe_cli.io.history import config_data, read_limited

    run = load_run(path)
    return _Side(str(path), str(path), config_data(resolved_yaml(run, standalone=True)), read_limited(run.model_path), None)


def _results(sides: Sequence[_Side]) -> dict[str, list[Any]]:
    from pe_cli.io.view.compare import results

    return _spread(results([side.run for side in sides if side.run]), sides)


def _environments(sides: Sequence[_Side]) -> dict[str, list[Any]]:
    from pe_cli.io.view.compare import differences

    return _spread(differences([side.run.environment for side in sides if side.run]), sides)


def _spread(rows: Mapping[str, Sequence[Any]], sides: Sequence[_Side]) -> dict[str, list[Any]]:
    """Return the values of runs with None where a config stands between them."""
    made = {}
    for key, values in rows.items():
        rest = iter(values)
        made[key] = [next(rest) if side.run else None for side in sides]
    return made


def _numbered(texts: Sequence[str]) -> list[str]:
    """Return which texts are the same; of two that differ it is enough that they do."""
    if len(texts) == 2:
        return ["differs", "differs"]
    known = list(dict.fromkeys(texts))
    return [f"model {known.index(text) + 1}" for text in texts]


def _cell(value: object) -> str:
    from pe_cli.io.view.run_list import cell

    return " ".join(cell(value).split())  # a note may have several lines
