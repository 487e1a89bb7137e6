"""pe diff: what tells two runs apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, path_argument
from pe_cli.cli.say import echo

if TYPE_CHECKING:
    from pe_cli.io.history import Run


@click.command()
@path_argument("first")
@path_argument("second")
@json_option
def command(first: Path, second: Path, as_json: bool) -> None:
    """Show what tells two runs apart.

    Resolved configs, results at the best and at the end, environments. Of configs and environments only what differs is shown.
    """
    from pe_cli.cli.columns import columns
    from pe_cli.cli.common import print_json
    from pe_cli.io.history import read_run
    from pe_cli.io.view.compare import differences, results

    runs = [read_run(first), read_run(second)]
    found: dict[str, dict[str, list[Any]]] = {
        "config": differences([r.config for r in runs]),
        "model": differences([{"text": _model(r)} for r in runs]),
        "results": dict(results(runs)),
        "environment": differences([r.environment for r in runs]),
    }
    if as_json:
        print_json({"runs": [str(r.path) for r in runs], **found})
        return
    if found["model"]:
        found["model"] = {"model.yaml": ["differs", "differs"]}
    rows: list[tuple[str, ...]] = [("", runs[0].name, runs[1].name)]
    for title, section in found.items():
        rows += [(title, "", ""), *((f"  {key}", *map(_cell, values)) for key, values in section.items())]
        if not section:
            rows.append(("  the same", "", ""))
    echo(columns(rows))


def _model(run: Run) -> str:
    from pe_cli.io.history import read_limited

    return read_limited(run.path / "model.yaml")


def _cell(value: object) -> str:
    from pe_cli.io.view.sections import cell

    return cell(value)
