"""pe runs: lists runs with their state and results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.io.history import Run


@click.command()
@click.argument("folder", default=Path("runs"), type=click.Path(path_type=Path))
@click.option(
    "--where", "where", multiple=True, metavar="KEY=VALUE",
    help="Only runs of which this is true: a key of the config or a metric, with =, !=, <, <=, > or >=. May be given again.",
)
@click.option("--sort", metavar="KEY", help="By a key of the config, a metric, or steps, seconds, best; the smallest first.")
@click.option("--reverse", is_flag=True, help="The other way round.")
@json_option
def command(folder: Path, where: tuple[str, ...], sort: str | None, reverse: bool, as_json: bool) -> None:
    """List the runs in FOLDER (default: runs), the oldest first.

    A run is running, done, stopped (by a signal, with a checkpoint) or failed. It is lost where its process is gone
    although its status file still says "running". The best value is that of `output.checkpoint.best`, else the smallest loss.

    Further columns show tags, the key of --sort, and up to four keys of the resolved configs that are not the same in all
    runs. KEY may be the end of a key: learning_rate, where only one ends so. Of the list `output.tags`, = means one of
    its items; * in VALUE stands for any text.
    """
    from pe_cli.cli.common import print_json
    from pe_cli.core.errors import PeError
    from pe_cli.graph.dot import plain
    from pe_cli.io.history import find_runs, read_run
    from pe_cli.io.view.run_list import Condition, chosen

    conditions = [Condition.read(text) for text in where]
    found: list[Run] = []
    for path in find_runs(folder):
        try:
            found.append(read_run(path))
        except PeError as error:  # the others are still to be seen
            echo(f"warning: {plain(error.message)}", err=True)
    left = chosen(found, conditions, sort, reverse=reverse)
    if as_json:
        print_json([_json(run) for run in left])
    elif not found:
        echo(f"{folder}: no run in it")
    elif not left:
        echo(f"{folder}: {len(found)} runs, none of which is so" if len(found) > 1 else f"{folder}: its run is not so")
    else:
        echo("\n".join([*_table(left, sort), *_remarks(left)]))


def _table(runs: list[Run], sort: str | None) -> list[str]:
    """Return the lines of the table, and what is not in it for want of width."""
    from pe_cli.cli.text_columns import columns
    from pe_cli.io.view.run_list import facts, find_key, short_keys, tags, telling

    rows = [("run", "config", "state", "steps", "time", "best", "", "at step"), *map(_row, runs)]
    differing, more = telling(runs)
    known = [facts(run) for run in runs]
    keys = dict(differing)
    if sort is not None and (key := find_key(sort, [name for one in known for name in one])) not in _SHOWN:
        keys = {key: [one.get(key) for one in known], **keys}
    heads = short_keys(list(keys), (name for one in known for name in one))
    added = [(_cut(head), *map(_cell, values)) for head, values in zip(heads, keys.values(), strict=True)]
    if any(tags(run) for run in runs):
        added.insert(0, ("tags", *(_cut(", ".join(tags(run)) or "-") for run in runs)))
    whole = [(*row, *(column[i] for column in added)) for i, row in enumerate(rows)]
    lines = [columns(whole, right=(3, 4, 6, 7))]
    if more:
        lines.append(f"{more} more {'key differs' if more == 1 else 'keys differ'}: pe diff RUN RUN shows all")
    return lines


#: Facts that have a column already.
_SHOWN = ("run", "config", "state", "steps", "seconds", "best")
#: Characters of a cell.
_WIDEST = 28


def _remarks(runs: list[Run]) -> list[str]:
    from pe_cli.graph.dot import plain
    from pe_cli.io.view.run_list import note

    said = [f"{run.name}: {plain(note(run))}" for run in runs if note(run)]
    return said + [f"{run.name}: {plain(' '.join(run.warning.split()))}" for run in runs if run.warning]


def _cell(value: object) -> str:
    from pe_cli.io.view.run_list import cell

    return _cut(cell(value))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _row(run: Run) -> tuple[str, ...]:
    from pe_cli.io.view.sections import duration

    best = run.best
    judged = (f"{best.mode} {best.by}", f"{best.value:.5g}", f"{best.step:,}") if best else ("-", "", "")
    return run.name, run.config_name, run.state, f"{run.step:,}", duration(run.seconds), *judged


def _json(run: Run) -> dict[str, object]:
    from dataclasses import asdict

    from pe_cli.io.history import value_at
    from pe_cli.io.view.run_list import tags

    return {
        "run": str(run.path),
        "config": run.config_name,
        "state": run.state,
        "step": run.step,
        "epoch": run.status.get("epoch"),
        "seconds": run.seconds,
        "warning": run.warning or None,
        "started": run.status.get("started"),
        "best": asdict(run.best) if run.best else None,
        "tags": tags(run),
        "note": value_at(run.config, "output", "note"),
        "metrics": {name: value for name, value in run.last().items() if "/gradient_norm/" not in name},
    }
